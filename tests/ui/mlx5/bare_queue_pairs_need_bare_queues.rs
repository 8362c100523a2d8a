use ibv::{CompletionQueue, Direct, ProtectionDomain, Rc};

fn mix<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a, Direct>) {
    let _ = pd.create_qp::<Rc>(cq, cq);
}

fn main() {}
