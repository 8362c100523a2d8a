//! `ibverbs`: SEND and RECV of one range, always signaled; no WRITE, inline or list.

use std::process::ExitCode;

use ibv_bench_peers::{DEPTH, LANDING, LENGTH, Link, MEMORY, Peer, ids, opaque, opaque_mut, polls, repeat};
use ibverbs::{CompletionQueue, MemoryRegion, QueuePair, ibv_qp_type, ibv_wc};

struct Objects {
    qp: QueuePair<'static>,
    mr: MemoryRegion<u8>,
    sends: &'static CompletionQueue<'static>,
    recvs: &'static CompletionQueue<'static>,
}

/// How many completions a poll finds, all of success, whose ids it adds to the sum.
#[inline(always)]
fn poll(cq: &CompletionQueue<'_>, wcs: &mut [ibv_wc], sum: &mut u64) -> usize {
    let done = cq.poll(wcs).expect("a poll");
    for wc in done.iter() {
        assert!(wc.is_valid());
        *sum += wc.wr_id();
    }
    done.len()
}

impl Objects {
    fn polls<const N: usize>(&mut self, operations: u64, found: u64) {
        let mut wcs = [ibv_wc::default(); N];
        let sum = polls(operations, |sum| {
            let wcs: &mut [_; N] = opaque_mut(&mut wcs);
            poll(opaque(self.sends), wcs, sum);
        });
        assert_eq!(sum, ids(operations * found));
    }
}

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        &[("post_send", 1), ("post_recv", 1), ("poll_1", 1), ("poll_16", 16), ("poll_empty", 1)]
    }

    fn run(&mut self, row: &str, operations: u64) {
        match row {
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
            let Self { qp, mr, .. } = opaque_mut(&mut *self);
            // SAFETY: nobody looks at the memory.
            unsafe { qp.post_receive(mr, LANDING..LANDING + LENGTH, id) }.expect("a receive");
        });
    }

    fn send(&mut self, requests: u64) {
        repeat(requests, |id| {
            let Self { qp, mr, .. } = opaque_mut(&mut *self);
            // SAFETY: nobody looks at the memory.
            unsafe { qp.post_send(mr, ..LENGTH, id) }.expect("a send");
        });
    }

    fn drain(&mut self) {
        let mut wcs = [ibv_wc::default(); 16];
        for cq in [self.sends, self.recvs] {
            while poll(cq, &mut wcs, &mut 0) > 0 {}
        }
    }
}

fn open(_row: &str) -> Box<dyn Peer> {
    let devices = Box::leak(Box::new(ibverbs::devices().expect("devices")));
    let ctx = Box::leak(Box::new(devices.get(0).expect("a device").open().expect("a context")));
    let cq = || &*Box::leak(Box::new(ctx.create_cq(2 * DEPTH as i32, 0).expect("a completion queue")));
    let (sends, recvs) = (cq(), cq());
    let pd = Box::leak(Box::new(ctx.alloc_pd().expect("a protection domain")));
    let mut builder = pd.create_qp(sends, recvs, ibv_qp_type::IBV_QPT_RC);
    builder.set_max_send_wr(DEPTH).set_max_recv_wr(DEPTH);
    let qp = builder.build().expect("a queue pair");
    let endpoint = qp.endpoint();
    let qp = qp.handshake(endpoint).expect("connected");
    let mr = pd.allocate::<u8>(MEMORY).expect("a region");
    Box::new(Objects { qp, mr, sends, recvs })
}

fn main() -> ExitCode {
    ibv_bench_peers::main(Link::InfiniBand, open)
}
