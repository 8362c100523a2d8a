use ibv::{CompletionQueue, Direct, ProtectionDomain, QueuePairBuilder, Rc};

fn mix<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) {
    let _ = QueuePairBuilder::<Rc, Direct>::direct(pd, cq, cq);
}

fn main() {}
