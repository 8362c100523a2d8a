//! `ibverbs-rs`, its raw posts: always signaled; no inline, no list.

use std::process::ExitCode;

use ibv_bench_peers::{
    DEPTH, LANDING, LENGTH, Link, MEMORY, Peer, TO, ids, opaque, opaque_mut, polls, repeat,
};
use ibverbs_rs::ibverbs::access_config::AccessFlags;
use ibverbs_rs::ibverbs::completion_queue::{CompletionQueue, PollSlot};
use ibverbs_rs::ibverbs::memory::{GatherElement, MemoryRegion, ScatterElement};
use ibverbs_rs::ibverbs::open_device;
use ibverbs_rs::ibverbs::queue_pair::QueuePair;
use ibverbs_rs::ibverbs::work::{ReceiveWorkRequest, SendWorkRequest, WriteWorkRequest};

struct Objects {
    qp: QueuePair,
    mr: MemoryRegion,
    data: &'static [u8],
    landing: &'static mut [u8],
    sends: CompletionQueue,
    recvs: CompletionQueue,
}

/// How many completions a poll finds, all of success, whose ids it adds to the sum.
#[inline(always)]
fn poll(cq: &CompletionQueue, slots: &mut [PollSlot], sum: &mut u64) -> usize {
    let mut found = 0;
    for wc in cq.poll(slots).expect("a poll") {
        wc.result().expect("a success");
        *sum += wc.wr_id();
        found += 1;
    }
    found
}

impl Objects {
    fn polls<const N: usize>(&mut self, operations: u64, found: u64) {
        let mut slots = [PollSlot::default(); N];
        let sum = polls(operations, |sum| {
            let slots: &mut [_; N] = opaque_mut(&mut slots);
            poll(opaque(&self.sends), slots, sum);
        });
        assert_eq!(sum, ids(operations * found));
    }

    fn write(&mut self, requests: u64) {
        repeat(requests, |id| {
            let Self { qp, mr, data, .. } = opaque_mut(&mut *self);
            let gather = [GatherElement::new(mr, data)];
            let wr = WriteWorkRequest::new(&gather, mr.remote().sub_region(TO).expect("a part"));
            // SAFETY: nobody looks at the memory.
            unsafe { qp.post_write(wr, id) }.expect("a write");
        });
    }
}

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        &[
            ("post_write", 1),
            ("post_send", 1),
            ("post_recv", 1),
            ("poll_1", 1),
            ("poll_16", 16),
            ("poll_empty", 1),
        ]
    }

    fn run(&mut self, row: &str, operations: u64) {
        match row {
            "post_write" => self.write(operations),
            "post_send" => self.send(operations),
            "post_recv" => self.receive(operations),
            "poll_1" => self.polls::<1>(operations, 1),
            "poll_16" => self.polls::<16>(operations, 16),
            "poll_empty" => self.polls::<32>(operations, 0),
            _ => unreachable!(),
        }
    }

    fn receive(&mut self, requests: u64) {
        repeat(requests, |id| {
            let Self { qp, mr, landing, .. } = opaque_mut(&mut *self);
            let mut scatter = [ScatterElement::new(mr, landing)];
            // SAFETY: nobody looks at the memory.
            unsafe { qp.post_receive(ReceiveWorkRequest::new(&mut scatter), id) }.expect("a receive");
        });
    }

    fn send(&mut self, requests: u64) {
        repeat(requests, |id| {
            let Self { qp, mr, data, .. } = opaque_mut(&mut *self);
            let gather = [GatherElement::new(mr, data)];
            // SAFETY: nobody looks at the memory.
            unsafe { qp.post_send(SendWorkRequest::new(&gather), id) }.expect("a send");
        });
    }

    fn drain(&mut self) {
        let mut slots = [PollSlot::default(); 16];
        for cq in [&self.sends, &self.recvs] {
            while poll(cq, &mut slots, &mut 0) > 0 {}
        }
    }
}

fn open(_row: &str) -> Box<dyn Peer> {
    let ctx = open_device("mlx5_0").expect("a device");
    let cq = || ctx.create_cq(2 * DEPTH).expect("a completion queue");
    let (sends, recvs) = (cq(), cq());
    let pd = ctx.allocate_pd().expect("a protection domain");
    let memory = Box::leak(vec![0u8; MEMORY].into_boxed_slice());
    // SAFETY: the memory is never freed, and nobody looks at it.
    let mr = unsafe { MemoryRegion::register_shared_mr(&pd, memory.as_mut_ptr(), MEMORY) }.expect("a region");
    let (data, landing) = memory.split_at_mut(LANDING);
    let (data, landing) = (&data[..LENGTH], &mut landing[..LENGTH]);
    let access = AccessFlags::new().with_local_write().with_remote_write();
    let builder = pd.create_qp().send_cq(&sends).recv_cq(&recvs).access(access);
    let qp = builder.max_send_wr(DEPTH).max_recv_wr(DEPTH).build().expect("a queue pair");
    let endpoint = qp.endpoint();
    let qp = qp.handshake(endpoint).expect("connected");
    Box::new(Objects { qp, mr, data, landing, sends, recvs })
}

fn main() -> ExitCode {
    ibv_bench_peers::main(Link::InfiniBand, open)
}
