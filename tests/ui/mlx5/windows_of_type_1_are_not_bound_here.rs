use ibv::{BindMw, Direct, QueuePair, Rc, Type1, state::Rts};

fn bind(qp: &mut QueuePair<'_, Rc, Rts, Direct>, request: BindMw<'_, Type1>) {
    let _ = qp.bind_mw(request);
}

fn main() {}
