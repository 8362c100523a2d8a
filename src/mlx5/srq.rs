//! The shared receive queue whose chain is written here.
//!
//! # Safety
//!
//! WQEs and record are those of the shared receive queue: [`DirectSrq`] lies beside the core that owns it, and goes
//! before it. A slot is written only while it is the CPU's: after the chain said that it is free, and until it was told
//! to the device.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ptr::NonNull;
use std::sync::Arc;

use ibv_sys as sys;

use super::barrier;
use super::bits::{SEGMENT, srq};
use super::chain::{Back, Front, chain};
use super::delivery::Delivery;
use super::dv::{self, SrqParts};
use super::mmio::{Record, WqeRing};
use super::post::put_list;
use crate::cq::{CqFor, Direct, Room};
use crate::error::Result;
use crate::mr::MrSlice;
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::qp::PostRecv;
use crate::srq::SharedReceiveQueue;
use crate::wr::encode::Limits;
use crate::wr::{PostError, Recv, Scatter};

/// What posting on a direct shared receive queue needs.
#[derive(Debug)]
pub struct DirectSrq {
    front: Front,
    ring: WqeRing,
    stride: usize,
    record: Record,
}

// SAFETY: the pointers in it lead to memory of the queue that it goes with, which is written by `&mut` alone.
unsafe impl Send for DirectSrq {}
// SAFETY: as above; `&` gives access to nothing.
unsafe impl Sync for DirectSrq {}

/// What its queue pairs' completions are looked up in.
#[derive(Debug, Clone)]
pub struct SharedSlots(pub(super) Arc<Back>);

/// Takes a new shared receive queue over.
///
/// # Safety
///
/// `srq` is alive, of libmlx5, and nothing was posted on it; what comes of it is used only while it is alive.
unsafe fn take_srq(srq: NonNull<sys::ibv_srq>) -> Result<(DirectSrq, SharedSlots)> {
    // SAFETY: by the caller's promise.
    let SrqParts { ring, slots, stride, record } = unsafe { dv::take_srq(srq) }?;
    let (front, back) = chain(slots);
    Ok((DirectSrq { front, ring, stride: stride as usize, record }, SharedSlots(back)))
}

impl DirectSrq {
    /// Elements that a receive has room for.
    fn max_sges(&self) -> u32 {
        (self.stride / SEGMENT) as u32 - 1
    }

    /// Posts receives with one doorbell record; all, or none.
    #[inline(always)]
    fn post_recv<'a, D: Scatter<'a>>(
        &mut self,
        limits: &Limits,
        requests: &[Recv<D>],
    ) -> Result<(), PostError> {
        if !self.front.has_room(requests.len()) {
            return Err(PostError::QueueFull);
        }
        let (ring, stride) = (self.ring, self.stride);
        let posted = self.front.push_each(requests, |slot, after, request| {
            let Recv { id, into } = request;
            into.check_recv(limits)?;
            let slot = ring.shared_slot(slot as usize * stride);
            // SAFETY: the chain says that the slot is free, so it is ours.
            unsafe { slot.link(after as u16) };
            put_list(MrSlice::as_sges(into.slices()), stride - SEGMENT, |at, segment| {
                // SAFETY: as above; a request has no more elements than its WQE.
                unsafe { slot.put(at, segment) };
            });
            Ok(*id)
        })?;
        barrier::wqe_before_record();
        self.record.store::<{ srq::RECORD }>((posted & 0xffff) as u32);
        Ok(())
    }
}

impl SharedReceiveQueue<'_, Direct> {
    /// How many entries a queue of `depth` receives claims of its completion queue, when the first queue pair is made
    /// with it.
    pub fn cq_entries(depth: u32) -> u32 {
        Room::for_depth(depth)
    }
}

impl<'a, V: Delivery> SharedReceiveQueue<'a, Direct<V>> {
    /// `ibv_create_srq`—A queue with room for `depth` receives of up to `sges` scatter elements, which is written here
    /// on an mlx5 device; see [`mlx5`](crate::mlx5). All its receives complete on `recv_cq`, whose poller makes room
    /// for new ones: it is the receive completion queue of each queue pair that is made with it.
    ///
    /// # Errors
    ///
    /// As [`new`](SharedReceiveQueue::new); [`Error::OtherContext`](crate::Error::OtherContext); and
    /// [`Error::Verb`](crate::Error::Verb) with EOPNOTSUPP if it is no mlx5 device,
    /// [`Error::Invalid`](crate::Error::Invalid) if its WQEs would be [signed](crate::mlx5#what-it-needs).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ibv::mlx5::Poller;
    /// use ibv::{CompletionQueue, Context, InitAttr, QueuePairBuilder, Rc, SharedReceiveQueue, recv};
    ///
    /// let ctx = Context::open("mlx5_0")?;
    /// let pd = ctx.alloc_pd()?;
    /// let mr = pd.alloc_local(256 * 1024)?;
    /// let cq = CompletionQueue::builder(&ctx, 4096).build_direct()?;
    /// let mut poller = Poller::new(&cq)?;
    /// let mut srq = SharedReceiveQueue::direct(&pd, &cq, 255, 1)?;
    /// for at in 0..255 {
    ///     srq.post_recv(recv(mr.slice(at * 1024..(at + 1) * 1024)?).id(at as u64))?;
    /// }
    /// for _peer in 0..100 {
    ///     let qp = QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).srq(&srq).build()?.init(InitAttr::new(1))?;
    /// }
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "mlx5dv_init_obj")]
    pub fn direct(
        pd: impl Into<Parent<'a, ProtectionDomain<'a>>>,
        recv_cq: impl CqFor<'a, Direct<V>>,
        depth: u32,
        sges: u32,
    ) -> Result<Self> {
        let (pd, recv_cq) = (pd.into(), recv_cq.into_parent().into_own());
        pd.context().check_same(recv_cq.context(), "receive completion queue")?;
        dv::check_mlx5(pd.context())?;
        dv::check_unsigned("MLX5_SRQ_SIGNATURE")?;
        // what it leaves may be what the device has no room for
        recv_cq.state().shared().sweep();
        Self::make(pd, Some(recv_cq), depth, sges, |srq, limits| {
            // SAFETY: new, and alive: the core that owns it goes after what is made here.
            let (queue, slots) = unsafe { take_srq(srq) }?;
            limits.max_recv_sge = queue.max_sges();
            Ok((queue, slots))
        })
    }

    /// Posts room for a message.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted. [`QueueFull`](PostError::QueueFull) until completions were polled.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline(always)]
    pub fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> std::result::Result<(), PostError> {
        self.post_recv_list(std::slice::from_ref(&request))
    }

    /// Posts room for messages with one doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted. [`QueueFull`](PostError::QueueFull) until completions were polled.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline(always)]
    pub fn post_recv_list<D: Scatter<'a>>(
        &mut self,
        requests: &[Recv<D>],
    ) -> std::result::Result<(), PostError> {
        self.queue.post_recv(&self.limits, requests)
    }
}

impl<'a, V: Delivery> PostRecv<'a> for SharedReceiveQueue<'a, Direct<V>> {
    #[inline(always)]
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> std::result::Result<(), PostError> {
        SharedReceiveQueue::<'a, Direct<V>>::post_recv(self, request)
    }
}
