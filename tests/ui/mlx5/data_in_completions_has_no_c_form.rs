use ibv::mlx5::{Poller, ToCqe, WorkCompletion};
use ibv::{CompletionQueue, Direct, PollCq, ProtectionDomain, QueuePairBuilder, Rc};

fn polled_into(poller: &mut Poller<'_, ToCqe>) {
    let _ = poller.poll_into(&mut [ibv::WorkCompletion::default(); 4]);
}

fn generic(poller: &mut Poller<'_, ToCqe>) {
    fn drain(_: &mut impl PollCq) {}
    drain(poller);
}

fn copied(wc: &WorkCompletion<'_, ToCqe>) {
    let _ = wc.copy();
}

fn mixed<'a>(
    pd: &'a ProtectionDomain<'a>,
    plain: &'a CompletionQueue<'a, Direct>,
    scattered: &'a CompletionQueue<'a, Direct<ToCqe>>,
) {
    let _ = QueuePairBuilder::<Rc, Direct>::direct(pd, plain, scattered);
}

fn main() {}
