//! The queue pair whose queues are written here: how it is made, emptied and given up.
//!
//! # Safety
//!
//! Rings, record and register are those of the queue pair: [`DirectQueues`] lies beside the core that owns it, and
//! goes before it. The parents are alive when the queue pair is made, and held by it from then on; when it is given up
//! and kept, what is left of it holds the protection domain's C object, and goes before any of its completion queues.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use ibv_sys as sys;

use super::bits::{SEGMENT, WQE_BB};
use super::cq::DirectCq;
use super::delivery::Delivery;
use super::dv::{self, OwnDomain, QpParts, QpWanted};
use super::grave::{Grave, Remains};
use super::mmio::{BlueFlame, Record, WqeRing};
use super::ring::{Lanes, Producer, RETIRED, RecvSlot, SendSlot, queue};
use super::srq::SharedSlots;
use super::wc::key_of;
use super::wqe;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::lock::locked;
use crate::qp::{Leaver, QpCaps, Transport};
use crate::srq::OwnedSrq;

/// Whether updates of keys want a fence: the request after one waits until it is in force, as with libmlx5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fence {
    /// There were none.
    Never,
    /// The last one was waited for.
    None,
    /// The next request has to wait. (The producer knows of no room then, so that it is looked for, and this seen.)
    Next,
}

/// A send queue.
#[derive(Debug)]
pub(super) struct SendQueue {
    pub(super) producer: Producer<SendSlot>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) ring: WqeRing,
    /// The queue pair's number, where the control segment has it.
    pub(super) number: u64,
    /// What every request has in its control segment, as the third word of that.
    pub(super) signal_bits: u32,
    pub(super) fence: Fence,
    pub(super) record: Record,
    pub(super) register: BlueFlame,
}

/// A receive queue.
#[derive(Debug)]
pub(super) struct RecvQueue {
    pub(super) producer: Producer<RecvSlot>,
    pub(super) lanes: Arc<Lanes>,
    pub(super) ring: WqeRing,
    /// Bytes from one WQE to the next.
    pub(super) stride: usize,
    pub(super) record: Record,
}

/// The queues of a direct queue pair: what posting writes. One of no requests has no room, ever.
#[derive(Debug)]
pub struct DirectQueues {
    pub(super) send: SendQueue,
    pub(super) recv: RecvQueue,
}

// SAFETY: the pointers in it lead to memory of the queue pair that it goes with, which is written by `&mut` alone.
unsafe impl Send for DirectQueues {}
// SAFETY: as above; `&` gives access to nothing.
unsafe impl Sync for DirectQueues {}

/// What a direct queue pair has beside its C object, until that is destroyed.
#[derive(Debug)]
pub struct DirectLink {
    send_cq: Arc<DirectCq>,
    recv_cq: Arc<DirectCq>,
    /// What the completion queues look its completions up in: of the one, or of each.
    lanes: Mutex<Members>,
    number: u32,
    /// Blocks and receives of its rings.
    lens: (u32, u32),
    /// What its receives are taken from, if that is shared.
    shared: Option<Shared>,
    /// There until the queue pair is given up.
    domain: Option<OwnDomain>,
}

/// A shared receive queue, as its queue pairs know it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// What completions of it are looked up in.
    pub(crate) slots: SharedSlots,
    /// It goes after the queue pair.
    pub(crate) object: Arc<OwnedSrq>,
}

/// The lanes of a queue pair: the same twice, if both queues complete to one completion queue.
#[derive(Debug, Clone)]
struct Members {
    send: Arc<Lanes>,
    recv: Arc<Lanes>,
}

impl DirectLink {
    /// New, empty queues, known to the completion queues.
    fn make_queues(&self) -> (Producer<SendSlot>, Producer<RecvSlot>, Members) {
        let (send_len, recv_len) = self.lens;
        let ((send_producer, send), (recv_producer, recv)) = (queue(send_len), queue(recv_len));
        let shared = self.shared.as_ref().map(|shared| Arc::clone(&shared.slots.0));
        let members = if Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            let both = Lanes::new(self.number, key_of(self.number), send, recv);
            let both = Arc::new(both.with_shared(shared));
            self.send_cq.join(Arc::clone(&both));
            Members { send: Arc::clone(&both), recv: both }
        } else {
            let send = Arc::new(Lanes::new(self.number, key_of(self.number), send, queue(0).1));
            let recv = Lanes::new(self.number, key_of(self.number), queue(0).1, recv);
            let recv = Arc::new(recv.with_shared(shared));
            self.send_cq.join(Arc::clone(&send));
            self.recv_cq.join(Arc::clone(&recv));
            Members { send, recv }
        };
        (send_producer, recv_producer, members)
    }

    /// The queue pair is in RESET: whatever it completed stands in the completion queues already, before the entries
    /// that this gives for the send and the receive queue.
    fn retire(&self) -> (u32, u32) {
        let members = locked(&self.lanes);
        let send = self.send_cq.next_entry();
        members.send.retire(send);
        if Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            return (send, send);
        }
        let recv = self.recv_cq.next_entry();
        members.recv.retire(recv);
        (send, recv)
    }

    /// Destroys the queue pair, which is in RESET; or leaves it with the completion queues, if completions of it may
    /// stand there.
    pub(crate) fn give_up(&mut self, leaver: Leaver<'_>) -> Result<()> {
        let Leaver { qp, pd, is_unused } = leaver;
        let (send_until, recv_until) = self.retire();
        let (send_len, recv_len) = self.lens;
        let send = send_len != 0 && self.send_cq.unread_before(send_until) != 0;
        let recv = (recv_len != 0 || self.shared.is_some()) && self.recv_cq.unread_before(recv_until) != 0;
        let one = Arc::ptr_eq(&self.send_cq, &self.recv_cq);
        let waits: Vec<_> =
            [(send || one && recv, &self.send_cq, send_until), (recv && !one, &self.recv_cq, recv_until)]
                .into_iter()
                .filter(|(stands, ..)| *stands && !is_unused)
                .collect();
        let kept = if waits.is_empty() { None } else { self.domain.take() };
        let Some(domain) = kept else { return qp.destroy() };
        let srq = self.shared.take().map(|shared| shared.object);
        let grave = Grave::new(Remains::new(qp.take(), srq, domain, Arc::clone(pd)), waits.len() as u8);
        for (_, cq, until) in waits {
            cq.graveyard().bury(Arc::clone(&grave), until);
        }
        Ok(())
    }

    /// The queue pair is in RESET, and goes on: with new queues, since the poller may still be at the old ones. Gives
    /// how many entries of the send and of the receive completion queue may be completions of those.
    pub(crate) fn restart(&self, queues: &mut DirectQueues) -> (u32, u32) {
        let (send_until, recv_until) = self.retire();
        let (send_producer, recv_producer, members) = self.make_queues();
        (queues.send.producer, queues.send.lanes) = (send_producer, Arc::clone(&members.send));
        queues.send.fence = Fence::Never;
        (queues.recv.producer, queues.recv.lanes) = (recv_producer, Arc::clone(&members.recv));
        *locked(&self.lanes) = members;
        (self.send_cq.unread_before(send_until), self.recv_cq.unread_before(recv_until))
    }

    /// Its room was left behind.
    pub(crate) fn tell(&self) {
        self.send_cq.tell_news();
        self.recv_cq.tell_news();
    }
}

/// What the direct path needs before a queue pair can be made.
pub(crate) fn prepare(ctx: &Context, pd: *mut sys::ibv_pd) -> Result<OwnDomain> {
    dv::check_mlx5(ctx)?;
    dv::check_unsigned("MLX5_QP_SIGNATURE")?;
    // SAFETY: alive, of this context, and held by the queue pair that comes of it.
    unsafe { OwnDomain::new(ctx, pd) }
}

/// `mlx5dv_create_qp`.
///
/// # Safety
///
/// The completion queues and the shared receive queue, if it is not null, are alive, of `ctx`, and outlive it; so does
/// `domain`.
#[expect(clippy::too_many_arguments, reason = "a queue pair is that many things")]
pub(crate) unsafe fn create<V: Delivery>(
    ctx: &Context,
    domain: &OwnDomain,
    kind: sys::ibv_qp_type,
    send_ops: u32,
    cqs: [*mut sys::ibv_cq; 2],
    srq: *mut sys::ibv_srq,
    cap: sys::ibv_qp_cap,
    signal_all: bool,
    context: *mut c_void,
) -> (*mut sys::ibv_qp, sys::ibv_qp_cap) {
    let [send_cq, recv_cq] = cqs;
    let scatters = V::SCATTERS && kind != sys::IBV_QPT_UD;
    let wanted = QpWanted { kind, send_cq, recv_cq, srq, cap, send_ops, signal_all, scatters, context };
    // SAFETY: by the caller's promise.
    unsafe { dv::create_qp(ctx, domain, &wanted) }
}

/// Takes a new queue pair over.
///
/// # Safety
///
/// `qp` was made by [`create`]; the parts are used only while it is alive.
pub(crate) unsafe fn take(qp: NonNull<sys::ibv_qp>) -> Result<(QpParts, u32)> {
    // SAFETY: by the caller's promise.
    unsafe { Ok((dv::take_qp(qp)?, (*qp.as_ptr()).qp_num)) }
}

/// The queues of a queue pair that was [taken over](take), and its link with its completion queues. It was made in
/// `domain`, which goes after it, and takes its receives from what is `shared`.
pub(crate) fn join(
    (parts, number): (QpParts, u32),
    domain: OwnDomain,
    send_cq: &Arc<DirectCq>,
    recv_cq: &Arc<DirectCq>,
    shared: Option<Shared>,
    signal_all: bool,
) -> (DirectQueues, DirectLink) {
    let QpParts { send, send_blocks, recv, recv_count, recv_stride, record, register } = parts;
    let nobody = Arc::new(Lanes::new(number, RETIRED, queue(0).1, queue(0).1));
    let link = DirectLink {
        send_cq: Arc::clone(send_cq),
        recv_cq: Arc::clone(recv_cq),
        lanes: Mutex::new(Members { send: Arc::clone(&nobody), recv: nobody }),
        number,
        lens: (send_blocks, recv_count),
        shared,
        domain: Some(domain),
    };
    let (send_producer, recv_producer, members) = link.make_queues();
    *locked(&link.lanes) = members.clone();
    let queues = DirectQueues {
        send: SendQueue {
            producer: send_producer,
            lanes: members.send,
            ring: send.unwrap_or(WqeRing::NONE),
            number: u64::from(number) << 8,
            fence: Fence::Never,
            signal_bits: if signal_all { wqe::fm_ce_se(sys::IBV_SEND_SIGNALED) } else { 0 },
            record,
            register,
        },
        recv: RecvQueue {
            producer: recv_producer,
            lanes: members.recv,
            ring: recv.unwrap_or(WqeRing::NONE),
            stride: recv_stride as usize & !(SEGMENT - 1),
            record,
        },
    };
    (queues, link)
}

impl DirectQueues {
    /// Entries of its completion queues that the send and the receive queue can fill.
    pub(crate) fn entries(&self) -> (u32, u32) {
        (self.send.producer.len(), self.recv.producer.len())
    }
}

/// How many requests the send queue of so many is made for: the longest, a bind, must fit in.
pub(crate) fn least_depth(is_datagram: bool, asked: u32) -> u32 {
    const BIND_BLOCKS: u32 = wqe::blocks(12);
    if is_datagram || asked == 0 { asked } else { asked.max(BIND_BLOCKS) }
}

/// How many entries a direct queue pair of these sizes claims of its send and of its receive completion queue (of one,
/// if they are the same, both): the blocks and the receives that its rings have, as libmlx5 makes them.
///
/// A queue pair with a [shared receive queue](crate::SharedReceiveQueue::direct) has no receives of its own:
/// `recv_depth` is 0 then, and [`SharedReceiveQueue::cq_entries`](crate::SharedReceiveQueue::cq_entries) come once for
/// all of them.
///
/// # Examples
///
/// ```no_run
/// use ibv::{CompletionQueue, Context, QpCaps, QueuePairBuilder, Rc, mlx5};
///
/// let ctx = Context::open("mlx5_0")?;
/// let pd = ctx.alloc_pd()?;
/// let caps = QpCaps { send_depth: 64, recv_depth: 128, inline: 64, ..QpCaps::default() };
/// let (sends, receives) = mlx5::cq_entries::<Rc>(&caps);
/// let cq = CompletionQueue::builder(&ctx, 10 * (sends + receives)).build_direct()?;
/// for _peer in 0..10 {
///     let qp = QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).caps(caps).build()?;
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
pub fn cq_entries<T: Transport>(caps: &QpCaps) -> (u32, u32) {
    let (is_datagram, send_ops) = (T::DATAGRAM, T::SEND_OPS);
    let round = |count: u32| count.checked_next_power_of_two().unwrap_or(u32::MAX);
    let has = |ops: u32| send_ops & ops != 0;
    let atomic = sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let header = match () {
        () if is_datagram => 4,
        () if has(atomic) => 3,
        () if has(sys::IBV_QP_EX_WITH_RDMA_WRITE | sys::IBV_QP_EX_WITH_RDMA_READ) => 2,
        () => 1,
    };
    let inline = wqe::inline_units(caps.inline as usize);
    let blocks = wqe::blocks(header + inline.max(caps.send_sges as usize));
    let depth = least_depth(is_datagram, caps.send_depth);
    let send = if depth == 0 { 0 } else { round(depth.saturating_mul(blocks)) };
    let per_block = (WQE_BB / SEGMENT) as u32 / round(caps.recv_sges.max(1)).min(4);
    let recv = if caps.recv_depth == 0 { 0 } else { round(caps.recv_depth).max(per_block) };
    (send, recv)
}

/// What cannot happen: a queue pair without the domain that it was made in.
#[cold]
pub(crate) fn lost() -> Error {
    Error::invalid("the queue pair's domain", "gone", "there")
}
