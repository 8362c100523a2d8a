use ibv::{Extended, MrSlice, QueuePair, Rc, RemoteSlice, state::Rts, write};

fn extended<'a>(qp: &QueuePair<'a, Rc, Rts, Extended>, from: MrSlice<'a>, to: RemoteSlice) {
    let _ = qp.prepare(write(from, to));
}

fn main() {}
