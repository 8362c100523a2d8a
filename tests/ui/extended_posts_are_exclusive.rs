use ibv::{Empty, Extended, QueuePair, Rc, send, state::Rts};

fn shared(qp: &QueuePair<'_, Rc, Rts, Extended>) {
    let _ = qp.post(send(Empty));
}

fn main() {}
