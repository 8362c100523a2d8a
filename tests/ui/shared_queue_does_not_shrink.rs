use ibv::{MemoryRegion, PostError, SharedReceiveQueue, recv};

fn attack<'short>(srq: &SharedReceiveQueue<'static>, mr: &'short MemoryRegion<'static>) -> Result<(), PostError> {
    let shorter: &SharedReceiveQueue<'short> = srq;
    shorter.post_recv(recv(mr.slice(..64).unwrap()))
}

fn main() {}
