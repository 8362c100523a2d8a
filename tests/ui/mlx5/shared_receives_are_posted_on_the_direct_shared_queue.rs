// A direct queue pair that was made with a shared receive queue has no receives of its own; and the shared queue is posted
// on by its owner.

use ibv::{Direct, MrSlice, PostError, QueuePair, Rc, SharedReceiveQueue, WithSrq, recv};

fn on_the_queue_pair<'a>(
    qp: &mut QueuePair<'a, WithSrq<Rc>, ibv::state::Rts, Direct>,
    room: MrSlice<'a>,
) -> Result<(), PostError> {
    qp.post_recv(recv(room))
}

fn by_anybody<'a>(srq: &SharedReceiveQueue<'a, Direct>, room: MrSlice<'a>) -> Result<(), PostError> {
    srq.post_recv(recv(room))
}

fn main() {}
