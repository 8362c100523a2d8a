use ibv::{CompletionQueue, ProtectionDomain, Rc, Tracked};

fn mix<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a, Tracked>) {
    let _ = pd.create_qp::<Rc>(cq, cq);
}

fn main() {}
