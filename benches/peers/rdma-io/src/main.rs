//! `rdma-io`: requests are built each time; no list.

use std::process::ExitCode;
use std::sync::Arc;

use ibv_bench_peers::{
    DEPTH, INLINE, LANDING, LENGTH, Link, MEMORY, Peer, TO, ids, opaque, opaque_mut, polls, repeat,
};
use rdma_io::cq::CompletionQueue;
use rdma_io::device::open_device_by_name;
use rdma_io::mr::{AccessFlags, OwnedMemoryRegion};
use rdma_io::qp::{QpInitAttr, QueuePair};
use rdma_io::wc::WorkCompletion;
use rdma_io::wr::{RecvWr, SendFlags, SendWr, Sge, WrOpcode};

struct Objects {
    qp: QueuePair,
    mr: OwnedMemoryRegion,
    sends: Arc<CompletionQueue>,
    recvs: Arc<CompletionQueue>,
}

#[inline(always)]
fn poll(cq: &CompletionQueue, wcs: &mut [WorkCompletion], sum: &mut u64) -> usize {
    let found = cq.poll(wcs).expect("a poll");
    for wc in &wcs[..found] {
        assert!(wc.is_success());
        *sum += wc.wr_id();
    }
    found
}

impl Objects {
    fn polls<const N: usize>(&mut self, operations: u64, found: u64) {
        let mut wcs = [WorkCompletion::default(); N];
        let sum = polls(operations, |sum| {
            let wcs: &mut [_; N] = opaque_mut(&mut wcs);
            poll(opaque(&*self.sends), wcs, sum);
        });
        assert_eq!(sum, ids(operations * found));
    }

    #[inline(always)]
    fn post(&self, requests: u64, opcode: WrOpcode, flags: SendFlags, length: usize) {
        repeat(requests, |id| {
            let Self { qp, mr, .. } = opaque(self);
            let sge = Sge::new(mr.addr(), length as u32, mr.lkey());
            let mut wr = SendWr::new(id, opcode).flags(SendFlags::SIGNALED | flags).sg(sge);
            if opcode == WrOpcode::RdmaWrite {
                wr = wr.rdma(mr.addr() + TO as u64, mr.rkey());
            }
            qp.post_send(&mut wr).expect("a send");
        });
    }
}

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        &[
            ("post_write", 1),
            ("post_send", 1),
            ("post_send_inline", 1),
            ("post_recv", 1),
            ("poll_1", 1),
            ("poll_16", 16),
            ("poll_empty", 1),
        ]
    }

    fn run(&mut self, row: &str, operations: u64) {
        match row {
            "post_write" => self.post(operations, WrOpcode::RdmaWrite, SendFlags::empty(), LENGTH),
            "post_send" => self.send(operations),
            "post_send_inline" => self.post(operations, WrOpcode::Send, SendFlags::INLINE, INLINE),
            "post_recv" => self.receive(operations),
            "poll_1" => self.polls::<1>(operations, 1),
            "poll_16" => self.polls::<16>(operations, 16),
            "poll_empty" => self.polls::<32>(operations, 0),
            _ => unreachable!(),
        }
    }

    fn receive(&mut self, requests: u64) {
        repeat(requests, |id| {
            let Self { qp, mr, .. } = opaque(self);
            let sge = Sge::new(mr.addr() + LANDING as u64, LENGTH as u32, mr.lkey());
            qp.post_recv(&mut RecvWr::new(id).sg(sge)).expect("a receive");
        });
    }

    fn send(&mut self, requests: u64) {
        self.post(requests, WrOpcode::Send, SendFlags::empty(), LENGTH);
    }

    fn drain(&mut self) {
        let mut wcs = [WorkCompletion::default(); 16];
        for cq in [&self.sends, &self.recvs] {
            while poll(cq, &mut wcs, &mut 0) > 0 {}
        }
    }
}

fn open(_row: &str) -> Box<dyn Peer> {
    let ctx = Arc::new(open_device_by_name("mlx5_0").expect("a device"));
    let cq = || ctx.create_cq(2 * DEPTH as i32).expect("a completion queue");
    let (sends, recvs) = (cq(), cq());
    let pd = ctx.alloc_pd().expect("a protection domain");
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mr = pd.reg_mr_owned(vec![0; MEMORY], access).expect("a region");
    let attr = QpInitAttr {
        max_send_wr: DEPTH,
        max_recv_wr: DEPTH,
        max_inline_data: 64,
        sq_sig_all: false,
        ..QpInitAttr::default()
    };
    let qp = pd.create_qp(&sends, &recvs, &attr).expect("a queue pair");
    qp.to_init(1, 0, access.bits()).expect("init");
    qp.to_rtr(qp.qp_num(), 0, &ctx.query_gid(1, 0).expect("a GID"), 1).expect("rtr");
    qp.to_rts(0).expect("rts");
    Box::new(Objects { qp, mr, sends, recvs })
}

fn main() -> ExitCode {
    // its transition to RTR names no LID
    ibv_bench_peers::main(Link::RoCE, open)
}
