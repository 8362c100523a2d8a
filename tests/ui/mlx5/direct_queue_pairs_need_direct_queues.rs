use ibv::{CompletionQueue, Direct, Extended, ProtectionDomain, QueuePairBuilder, Rc};

fn mix<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) {
    let _ = QueuePairBuilder::<Rc, Direct>::direct(pd, cq, cq);
}

fn mix_extended<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a, Extended>) {
    let _ = QueuePairBuilder::<Rc, Direct>::direct(pd, cq, cq);
}

fn main() {}
