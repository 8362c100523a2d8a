//! `sideway`: rows without prefix are its basic types, `wr_*` and `poll_ex_*` the extended ones.
//!
//! The basic poller takes 32 completions at a time; that is set to what each row is about, as far as the crate lets.

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::sync::Arc;

use ibv_bench_peers::{
    DEPTH, INLINE, LANDING, LENGTH, Link, MEMORY, Peer, TO, ids, opaque, opaque_mut, polls, repeat,
};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::{DeviceContext, Mtu};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState,
    SetInlineData, SetScatterGatherEntry, WorkRequestFlags,
};

struct Objects {
    basic: BasicQueuePair,
    extended: ExtendedQueuePair,
    mr: Arc<MemoryRegion>,
    sends: Arc<BasicCompletionQueue>,
    recvs: Arc<BasicCompletionQueue>,
    extended_sends: Arc<ExtendedCompletionQueue>,
    extended_recvs: Arc<ExtendedCompletionQueue>,
    /// What is sent inline.
    bytes: &'static [u8],
    /// What a list's requests are made of.
    requests: [Request; 16],
    /// Which of the queue pairs the row is about.
    is_extended: bool,
}

struct Request {
    lkey: u32,
    address: u64,
    length: u32,
    rkey: u32,
    to: u64,
    id: u64,
    flags: WorkRequestFlags,
}

/// Posts a request each on `$qp`, with `$setup` after `construct_wr`.
macro_rules! post {
    ($self:ident, $qp:ident, $requests:expr, $flags:expr, |$wr:ident, $field:ident| $setup:expr) => {
        repeat($requests, |id| {
            let Self { $qp: qp, $field, .. } = opaque_mut($self);
            let mut guard = qp.start_post_send();
            let $wr = guard.construct_wr(id, $flags);
            $setup;
            guard.post().expect("a send");
        })
    };
}

/// The same, 16 at a time, the last of them signaled.
macro_rules! post_list {
    ($self:ident, $qp:ident, $lists:expr) => {
        repeat($lists, |id| {
            let Self { $qp: qp, mr, .. } = opaque_mut($self);
            let mut guard = qp.start_post_send();
            for at in 0..16 {
                let flags = if at < 15 { WorkRequestFlags::none() } else { WorkRequestFlags::Signaled };
                let wr = guard.construct_wr(id, flags).setup_write(mr.rkey(), address(mr, TO));
                // SAFETY: nobody looks at the memory.
                unsafe { wr.setup_sge(mr.lkey(), address(mr, 0), LENGTH as u32) };
            }
            guard.post().expect("a list");
        })
    };
}

/// Polls `$cq` so many times, each of which finds `$found`, with room for `$room`.
macro_rules! polls {
    ($cq:expr, $operations:expr, $found:expr, $room:expr) => {{
        let sum = polls($operations, |sum| {
            if let Ok(mut poller) = opaque(&*$cq).start_poll() {
                for _ in 0..$room {
                    let Some(wc) = poller.next() else { break };
                    assert!(wc.status() == 0);
                    *sum += wc.wr_id();
                }
            }
        });
        assert_eq!(sum, ids($operations * $found));
    }};
}

#[inline(always)]
fn address(mr: &MemoryRegion, at: usize) -> u64 {
    // the region's own memory
    mr.get_ptr() as u64 + at as u64
}

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        &[
            ("post_write", 1),
            ("post_send", 1),
            ("post_send_inline", 1),
            ("write_list_16", 16),
            ("post_recv", 1),
            ("recv_list_16", 16),
            ("poll_1", 1),
            ("poll_16", 16),
            ("poll_empty", 1),
            ("wr_write", 1),
            ("wr_send_inline", 1),
            ("wr_write_list_16", 16),
            ("poll_ex_1", 1),
            ("poll_ex_ids_16", 16),
            ("poll_ex_empty", 1),
        ]
    }

    fn run(&mut self, row: &str, operations: u64) {
        let inlined = WorkRequestFlags::Signaled | WorkRequestFlags::Inline;
        match row {
            // SAFETY: nobody looks at the memory; so for all of them.
            "post_write" => post!(self, basic, operations, SIGNALED, |wr, mr| unsafe {
                wr.setup_write(mr.rkey(), address(mr, TO)).setup_sge(
                    mr.lkey(),
                    address(mr, 0),
                    LENGTH as u32,
                );
            }),
            "post_send" => self.send(operations),
            "post_send_inline" => post!(self, basic, operations, inlined, |wr, bytes| {
                wr.setup_send().setup_inline_data(bytes);
            }),
            "write_list_16" => post_list!(self, basic, operations),
            "post_recv" => self.receive(operations),
            "recv_list_16" => {
                repeat(operations, |id| {
                    let Self { basic, mr, .. } = opaque_mut(&mut *self);
                    let mut guard = basic.start_post_recv();
                    for _ in 0..16 {
                        let wr = guard.construct_wr(id);
                        // SAFETY: nobody looks at the memory.
                        unsafe { wr.setup_sge(mr.lkey(), address(mr, LANDING), LENGTH as u32) };
                    }
                    guard.post().expect("a list");
                });
            }
            "poll_1" => polls!(self.sends, operations, 1, 1),
            "poll_16" => polls!(self.sends, operations, 16, 16),
            "poll_empty" => polls!(self.sends, operations, 0, 32),
            // SAFETY: nobody looks at the memory.
            "wr_write" => post!(self, extended, operations, SIGNALED, |wr, mr| unsafe {
                wr.setup_write(mr.rkey(), address(mr, TO)).setup_sge(
                    mr.lkey(),
                    address(mr, 0),
                    LENGTH as u32,
                );
            }),
            "wr_send_inline" => post!(self, extended, operations, inlined, |wr, bytes| {
                wr.setup_send().setup_inline_data(bytes);
            }),
            "wr_write_list_16" => repeat(operations, |_| {
                let Self { extended, requests, .. } = opaque_mut(&mut *self);
                let mut guard = extended.start_post_send();
                for Request { lkey, address, length, rkey, to, id, flags } in requests {
                    let wr = guard.construct_wr(*id, *flags).setup_write(*rkey, *to);
                    // SAFETY: nobody looks at the memory.
                    unsafe { wr.setup_sge(*lkey, *address, *length) };
                }
                guard.post().expect("a list");
            }),
            "poll_ex_1" => polls!(self.extended_sends, operations, 1, 1),
            "poll_ex_ids_16" => polls!(self.extended_sends, operations, 16, 16),
            "poll_ex_empty" => polls!(self.extended_sends, operations, 0, 32),
            _ => unreachable!(),
        }
    }

    fn receive(&mut self, requests: u64) {
        let is_extended = self.is_extended;
        repeat(requests, |id| {
            let Self { basic, extended, mr, .. } = opaque_mut(&mut *self);
            let mut guard = if is_extended { extended.start_post_recv() } else { basic.start_post_recv() };
            let wr = guard.construct_wr(id);
            // SAFETY: nobody looks at the memory.
            unsafe { wr.setup_sge(mr.lkey(), address(mr, LANDING), LENGTH as u32) };
            guard.post().expect("a receive");
        });
    }

    fn send(&mut self, requests: u64) {
        if self.is_extended {
            // SAFETY: nobody looks at the memory.
            post!(self, extended, requests, SIGNALED, |wr, mr| unsafe {
                wr.setup_send().setup_sge(mr.lkey(), address(mr, 0), LENGTH as u32);
            });
        } else {
            // SAFETY: nobody looks at the memory.
            post!(self, basic, requests, SIGNALED, |wr, mr| unsafe {
                wr.setup_send().setup_sge(mr.lkey(), address(mr, 0), LENGTH as u32);
            });
        }
    }

    fn drain(&mut self) {
        for cq in [&self.sends, &self.recvs] {
            while let Ok(mut poller) = cq.start_poll() {
                poller.by_ref().for_each(|wc| assert_eq!(wc.status(), 0));
            }
        }
        for cq in [&self.extended_sends, &self.extended_recvs] {
            while let Ok(mut poller) = cq.start_poll() {
                while let Some(wc) = poller.next() {
                    assert_eq!(wc.status(), 0);
                }
            }
        }
    }
}

fn connect(ctx: &DeviceContext, qp: &mut impl QueuePair) {
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(1).setup_access_flags(access);
    qp.modify(&attr).expect("init");
    let mut address = AddressHandleAttribute::new();
    address.setup_dest_lid(ctx.query_port(1).expect("a port").lid()).setup_port(1).setup_service_level(0);
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(qp.qp_number())
        .setup_rq_psn(1)
        .setup_max_dest_read_atomic(0)
        .setup_min_rnr_timer(12)
        .setup_address_vector(&address);
    qp.modify(&attr).expect("rtr");
    let mut attr = QueuePairAttribute::new();
    attr.setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(1)
        .setup_timeout(12)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(0);
    qp.modify(&attr).expect("rts");
}

fn open(row: &str) -> Box<dyn Peer> {
    let devices = DeviceList::new().expect("devices");
    let ctx = devices.get(0).expect("a device").open().expect("a context");
    let pd = ctx.alloc_pd().expect("a protection domain");
    let memory = Box::leak(vec![0u8; MEMORY].into_boxed_slice());
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
    // SAFETY: the memory is never freed.
    let mr = unsafe { pd.reg_mr(memory.as_mut_ptr() as usize, MEMORY, access) }.expect("a region");
    let mut cq = ctx.create_cq_builder();
    cq.setup_cqe(2 * DEPTH);
    let (mut sends, recvs) = (cq.build().expect("a queue"), cq.build().expect("a queue"));
    let batch = match row {
        "poll_1" => 1,
        "poll_16" => 16,
        // what it is unless somebody changes it
        _ => 32,
    };
    let batch = NonZeroU32::new(batch).expect("not 0");
    Arc::get_mut(&mut sends).expect("nobody else's").setup_poll_batch(batch);
    let (extended_sends, extended_recvs) = (cq.build_ex().expect("a queue"), cq.build_ex().expect("a queue"));
    let mut builder = pd.create_qp_builder();
    builder.setup_max_send_wr(DEPTH).setup_max_recv_wr(DEPTH).setup_max_inline_data(64);
    builder.setup_send_cq(GenericCompletionQueue::from(Arc::clone(&sends)));
    builder.setup_recv_cq(GenericCompletionQueue::from(Arc::clone(&recvs)));
    let mut basic = builder.build().expect("a queue pair");
    builder.setup_send_cq(GenericCompletionQueue::from(Arc::clone(&extended_sends)));
    builder.setup_recv_cq(GenericCompletionQueue::from(Arc::clone(&extended_recvs)));
    let mut extended = builder.build_ex().expect("a queue pair");
    connect(&ctx, &mut basic);
    connect(&ctx, &mut extended);
    let requests = std::array::from_fn(|at| Request {
        lkey: mr.lkey(),
        address: address(&mr, 0),
        length: LENGTH as u32,
        rkey: mr.rkey(),
        to: address(&mr, TO),
        id: at as u64,
        flags: if at < 15 { WorkRequestFlags::none() } else { WorkRequestFlags::Signaled },
    });
    let is_extended = row.starts_with("wr_") || row.starts_with("poll_ex");
    Box::new(Objects {
        basic,
        extended,
        mr,
        sends,
        recvs,
        extended_sends,
        extended_recvs,
        bytes: &[7; INLINE],
        requests,
        is_extended,
    })
}

fn main() -> ExitCode {
    ibv_bench_peers::main(Link::InfiniBand, open)
}
