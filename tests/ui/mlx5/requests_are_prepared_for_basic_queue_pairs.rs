use ibv::{Direct, MrSlice, QueuePair, Rc, RemoteSlice, state::Rts, write};

fn direct<'a>(qp: &QueuePair<'a, Rc, Rts, Direct>, from: MrSlice<'a>, to: RemoteSlice) {
    let _ = qp.prepare(write(from, to));
}

fn main() {}
