use ibv::{CompletionQueue, ProtectionDomain, SharedReceiveQueue};

fn make<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) {
    let _ = SharedReceiveQueue::direct(pd, cq, 255, 1);
}

fn main() {}
