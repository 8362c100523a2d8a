struct Mine;

impl ibv::Transport for Mine {}
impl ibv::state::State for Mine {}
impl ibv::RegionKind for Mine {}
impl<'a> ibv::Gather<'a> for Mine {}
impl<'a> ibv::SendRequest<'a, ibv::Rc> for Mine {}

fn main() {}
