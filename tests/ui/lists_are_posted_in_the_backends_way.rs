use ibv::{BatchStorage, Extended, MrSlice, PostError, QueuePair, Rc, RemoteSlice, state::Rts, write};

fn basic<'a>(qp: &QueuePair<'a>, from: MrSlice<'a>, to: RemoteSlice) -> Result<(), PostError> {
    qp.post_list(&[write(from, to), write(from, to).signaled()])
}

fn extended(qp: &mut QueuePair<'_, Rc, Rts, Extended>, storage: &mut BatchStorage<2>) {
    let _ = qp.batch(storage);
}

fn main() {}
