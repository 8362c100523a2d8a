use ibv::{Direct, Empty, QueuePair, Rc, send, state::Rts};

fn shared(qp: &QueuePair<'_, Rc, Rts, Direct>) {
    let _ = qp.post(send(Empty));
}

fn past_a_batch(qp: &mut QueuePair<'_, Rc, Rts, Direct>) {
    let batch = qp.batch();
    let _ = qp.post(send(Empty));
    batch.submit();
}

fn main() {}
