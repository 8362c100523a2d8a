//! Shared receive queues.
//!
//! # Safety
//!
//! A [`SrqCore`] owns its `ibv_srq`, and the queue pairs that receive from it hold it. It is covariant in `'a`, so that
//! they can; the queue itself is invariant, since what is posted on it lives for `'a`, or fails to be accessed without
//! harm: a region's key dies before its memory.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

use ibv_sys as sys;

use crate::cq::{Bare, CompletionQueue, CqKind, Room};
use crate::error::{CloseError, Error, Refused, Result, VerbError};
use crate::id::SrqId;
use crate::lock::locked;
use crate::parent::Parent;
use crate::pd::{Posting, ProtectionDomain};
use crate::qp::{Invariant, PostRecv};
use crate::raw::{Raw, check, sole};
use crate::wr::encode::Limits;
use crate::wr::{PostError, Recv, RecvBatch, RecvStorage, Scatter, post_recv};

/// `ibv_srq`—A receive queue that several queue pairs take from, so that memory is kept for the messages of all of them
/// and not of each.
///
/// Queue pairs are made with it by [`QueuePairBuilder::srq`](crate::QueuePairBuilder::srq), and have no receives of
/// their own then. A receive completes on the queue pair's completion queue by which the message came
/// ([`WorkCompletion::qp_num`](crate::WorkCompletion::qp_num)).
///
/// When queue pair after queue pair fails, receives that they had taken but not completed are lost: post new ones when
/// [`AsyncEventKind::QP_LAST_WQE_REACHED`](crate::AsyncEventKind::QP_LAST_WQE_REACHED) comes.
///
/// `Send` and `Sync`. It is destroyed when it and all queue pairs that were made with it are gone.
///
/// # Examples
///
/// ```no_run
/// use ibv::{Context, InitAttr, Rc, SharedReceiveQueue, recv};
///
/// let ctx = Context::open("mlx5_0")?;
/// let pd = ctx.alloc_pd()?;
/// let cq = ctx.create_cq(1024)?;
/// let mr = pd.alloc_local(256 * 1024)?;
/// let srq = SharedReceiveQueue::new(&pd, 256, 1)?;
/// for at in 0..256 {
///     srq.post_recv(recv(mr.slice(at * 1024..(at + 1) * 1024)?).id(at as u64))?;
/// }
/// for _peer in 0..100 {
///     let qp = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?.init(InitAttr::new(1))?;
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue<'a, K: CqKind = Bare> {
    /// `core`'s, at hand for posting.
    srq: NonNull<sys::ibv_srq>,
    pub(crate) limits: Limits,
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "others post by the C object alone"))]
    pub(crate) queue: K::SharedQueue,
    core: Arc<SrqCore<'a, K>>,
    _invariant: Invariant<'a>,
}

// SAFETY: the pointers in it lead to the queue that `core` owns and to its context, which may be used from all threads.
unsafe impl<K: CqKind> Send for SharedReceiveQueue<'_, K> {}
// SAFETY: as above; the provider locks, or `&` does not post.
unsafe impl<K: CqKind> Sync for SharedReceiveQueue<'_, K> {}

/// The C object with what it was made in. A direct queue pair that was given up may hold it longer than the program
/// does.
#[derive(Debug)]
pub(crate) struct OwnedSrq {
    raw: Raw<sys::ibv_srq>,
    // after `raw`: it goes before its domain
    _pd: Arc<Raw<sys::ibv_pd>>,
}

/// The C object with its parents.
pub(crate) struct SrqCore<'a, K: CqKind = Bare> {
    owned: Arc<OwnedSrq>,
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "others are looked up by the library"))]
    slots: K::SharedSlots,
    id: SrqId,
    /// Completions that its receives can become: as many entries are promised, once, by each completion queue.
    entries: u32,
    /// Those completion queues, by address.
    takers: Mutex<Vec<Takers>>,
    // after `owned`: it goes before its parents
    /// Where all its receives complete, if they have to do so on one completion queue.
    recv_cq: Option<Parent<'a, CompletionQueue<'a, K>>>,
    pd: Parent<'a, ProtectionDomain<'a>>,
}

/// The queue pairs whose receives complete on one completion queue.
struct Takers {
    cq: usize,
    count: u32,
    /// Whether one of them may have completed something.
    used: bool,
}

impl<'a, K: CqKind> SrqCore<'a, K> {
    pub(crate) fn as_ptr(&self) -> *mut sys::ibv_srq {
        self.owned.raw.as_ptr()
    }

    #[cfg(feature = "mlx5")]
    pub(crate) fn owned(&self) -> &Arc<OwnedSrq> {
        &self.owned
    }

    #[cfg(feature = "mlx5")]
    pub(crate) fn slots(&self) -> &K::SharedSlots {
        &self.slots
    }

    pub(crate) fn recv_cq(&self) -> Option<&CompletionQueue<'a, K>> {
        self.recv_cq.as_deref()
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain<'a> {
        &self.pd
    }

    fn takers(&self) -> MutexGuard<'_, Vec<Takers>> {
        locked(&self.takers)
    }

    /// One more queue pair completes receives on `cq`, whose room that is.
    pub(crate) fn join(&self, cq: usize, room: &Room) -> Result<()> {
        let mut takers = self.takers();
        match takers.iter_mut().find(|takers| takers.cq == cq) {
            Some(takers) => takers.count += 1,
            None => {
                room.promise(self.entries)?;
                takers.push(Takers { cq, count: 1, used: false });
            }
        }
        Ok(())
    }

    /// It is gone, and may have completed something if it was `used`.
    pub(crate) fn leave(&self, cq: usize, room: &Room, used: bool) {
        let mut takers = self.takers();
        let Some(at) = takers.iter().position(|takers| takers.cq == cq) else { return };
        let Some(here) = takers.get_mut(at) else { return };
        here.count -= 1;
        here.used |= used;
        if here.count == 0 {
            let used = here.used;
            takers.swap_remove(at);
            if used {
                room.leave_behind(self.entries);
            } else {
                room.withdraw(self.entries);
            }
        }
    }
}

impl<K: CqKind> Drop for SrqCore<'_, K> {
    /// What its fields do by themselves; said here, so that the borrow checker lets go what was posted only afterwards.
    fn drop(&mut self) {
        if let Some(owned) = Arc::get_mut(&mut self.owned) {
            owned.raw.destroy_or_leak();
        }
    }
}

impl<'a> SharedReceiveQueue<'a> {
    /// `ibv_create_srq`—A queue with room for `depth` receives of up to `sges` scatter elements.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the device can't have so many; [`Error::Invalid`] for 0; [`Error::Verb`] with EOPNOTSUPP if
    /// it has no such queues, EINVAL, ENOMEM.
    #[doc(alias = "ibv_create_srq")]
    pub fn new(pd: impl Into<Parent<'a, ProtectionDomain<'a>>>, depth: u32, sges: u32) -> Result<Self> {
        Self::make(pd.into(), None, depth, sges, |_, _| Ok(((), ())))
    }

    /// `ibv_post_srq_recv`—Posts room for a message.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted, unless it is a [`PostError::Device`] that says otherwise. Its errno is ENOMEM
    /// if the queue is full.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline(always)]
    pub fn post_recv<D: Scatter<'a>>(&self, request: Recv<D>) -> Result<(), PostError> {
        // SAFETY: the queue is destroyed by `core` alone, which `self` holds; `limits` were granted to it; and `D` is a
        // `Scatter<'a>`, whose regions live for `'a`, or whose detached slices have keys that die before the memory.
        unsafe { post_recv(self.srq, &self.limits, &request) }
    }

    /// `ibv_post_srq_recv`—Starts a list of receives, which reaches the device with one call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MrSlice, PostError, RecvStorage, SharedReceiveQueue, recv};
    /// # fn f<'a>(srq: &SharedReceiveQueue<'a>, rooms: &[MrSlice<'a>]) -> Result<(), PostError> {
    /// let mut storage = RecvStorage::<16>::new();
    /// let mut batch = srq.recv_batch(&mut storage);
    /// for (id, room) in (0..).zip(rooms) {
    ///     batch.push(recv(*room).id(id))?;
    /// }
    /// batch.submit()
    /// # }
    /// ```
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline(always)]
    pub fn recv_batch<'l, const N: usize, const E: usize>(
        &'l self,
        storage: &'l mut RecvStorage<N, E>,
    ) -> RecvBatch<'l, 'a, E, sys::ibv_srq> {
        // SAFETY: the queue is `core`'s and `limits` its own; the batch borrows `self` for `'l`, so both are there
        // until it is submitted.
        unsafe { RecvBatch::new(self.srq, &self.limits, storage) }
    }
}

impl<'a, K: CqKind> SharedReceiveQueue<'a, K> {
    /// Makes it. `take` gives what there is beside the new C object.
    pub(crate) fn make(
        pd: Parent<'a, ProtectionDomain<'a>>,
        recv_cq: Option<Parent<'a, CompletionQueue<'a, K>>>,
        depth: u32,
        sges: u32,
        take: impl FnOnce(NonNull<sys::ibv_srq>, &mut Limits) -> Result<(K::SharedQueue, K::SharedSlots)>,
    ) -> Result<Self> {
        let ctx = pd.context();
        Error::check_limit("receives of a shared receive queue", depth, ctx.device_attr().max_srq_wr())?;
        Error::check_limit("elements of a shared queue's receive", sges, ctx.device_attr().max_srq_sge())?;
        if depth == 0 || sges == 0 {
            let expected = "at least 1";
            return Err(Error::invalid("the depth or the elements of a shared receive queue", 0, expected));
        }
        pd.claim(Posting::Borrowed)?;
        let id = SrqId::new();
        // libibverbs reads the padding behind the limits too, as a mask: it must hold zeros.
        // SAFETY: integers and a pointer, for which zeros are values.
        let mut init: sys::ibv_srq_init_attr = unsafe { std::mem::zeroed() };
        init.srq_context = id.to_context();
        (init.attr.max_wr, init.attr.max_sge) = (depth, sges);
        // SAFETY: the domain is alive; srq_context is an id, never followed as a pointer.
        let srq = unsafe { sys::ibv_create_srq(pd.as_ptr(), &raw mut init) };
        let asked = || format!("{depth} receives of {sges} elements");
        // SAFETY: `srq` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_create_srq", srq, asked) }?;
        let mut limits = Limits {
            context: ctx.as_ptr(),
            ops: 0,
            max_send_sge: 0,
            max_recv_sge: sges.max(init.attr.max_sge),
            max_inline: 0,
        };
        let entries = Room::for_depth(depth).max(init.attr.max_wr);
        let srq = raw.as_non_null();
        let (queue, slots) = take(srq, &mut limits)?;
        let owned = Arc::new(OwnedSrq { raw, _pd: Arc::clone(pd.shared()) });
        let core = Arc::new(SrqCore { owned, slots, id, entries, takers: Mutex::default(), recv_cq, pd });
        Ok(Self { srq, limits, queue, core, _invariant: PhantomData })
    }

    /// `ibv_query_srq`—Its sizes, and the limit that is set.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EIO if the device is gone.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SrqAttr> {
        let mut attr = sys::ibv_srq_attr::default();
        // SAFETY: alive; `attr` is ours to write.
        check("ibv_query_srq", unsafe { sys::ibv_query_srq(self.as_ptr(), &raw mut attr) }, String::new)?;
        Ok(SrqAttr { depth: attr.max_wr, sges: attr.max_sge, limit: attr.srq_limit })
    }

    /// `ibv_modify_srq`—When fewer than `receives` are posted, the device raises
    /// [`AsyncEventKind::SRQ_LIMIT_REACHED`](crate::AsyncEventKind::SRQ_LIMIT_REACHED), once: the limit is 0 then, and
    /// has to be set again.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if that is more than it has room for, EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{AsyncEvents, AsyncEventKind, Error, SharedReceiveQueue};
    /// # fn f(srq: &SharedReceiveQueue<'_>, events: &AsyncEvents<'_>, refill: impl Fn()) -> Result<(), Error> {
    /// srq.set_limit(32)?;
    /// if events.wait()?.kind() == AsyncEventKind::SRQ_LIMIT_REACHED {
    ///     refill();
    ///     srq.set_limit(32)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn set_limit(&self, receives: u32) -> Result<()> {
        let mut attr = sys::ibv_srq_attr { srq_limit: receives, ..sys::ibv_srq_attr::default() };
        // SAFETY: alive; `attr` is only read.
        let result =
            unsafe { sys::ibv_modify_srq(self.as_ptr(), &raw mut attr, sys::IBV_SRQ_LIMIT as c_int) };
        check("ibv_modify_srq", result, || format!("limit {receives}"))
    }

    /// What its events are told apart by.
    pub fn id(&self) -> SrqId {
        self.core.id
    }

    /// The protection domain that it was made from.
    pub fn pd(&self) -> &ProtectionDomain<'a> {
        self.core.pd()
    }

    /// `ibv_destroy_srq`—Destroys it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the queue, with EBUSY if a queue pair that was made with it is there, or was leaked, or if
    /// completions of a dropped direct queue pair are still to be polled (a dropped queue is then destroyed later).
    #[doc(alias = "ibv_destroy_srq")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        let closed = sole(&mut self.core, "ibv_destroy_srq")
            .and_then(|core| {
                Arc::get_mut(&mut core.owned).ok_or_else(|| {
                    let asked = "completions of a dropped direct queue pair were not polled yet";
                    VerbError::new("ibv_destroy_srq", libc::EBUSY, asked).into()
                })
            })
            .and_then(|owned| owned.raw.destroy());
        match closed {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// The C object; see [`Context::as_ptr`](crate::Context::as_ptr).
    pub fn as_ptr(&self) -> *mut sys::ibv_srq {
        self.srq.as_ptr()
    }

    pub(crate) fn core(&self) -> &Arc<SrqCore<'a, K>> {
        &self.core
    }
}

impl<'a> PostRecv<'a> for SharedReceiveQueue<'a> {
    #[inline(always)]
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError> {
        SharedReceiveQueue::<'a, Bare>::post_recv(self, request)
    }
}

/// For sharing: the provider locks.
impl<'a> PostRecv<'a> for &SharedReceiveQueue<'a> {
    #[inline(always)]
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError> {
        SharedReceiveQueue::<'a, Bare>::post_recv(self, request)
    }
}

impl<K: CqKind> fmt::Debug for SharedReceiveQueue<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// What a shared receive queue is like (`struct ibv_srq_attr`).
#[doc(alias = "ibv_srq_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqAttr {
    /// Receives that can be outstanding.
    pub depth: u32,
    /// Scatter elements of a receive.
    pub sges: u32,
    /// The limit below which it raises an event; 0 if it raises none.
    pub limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_receive_queues_are_sent_and_shared_between_threads() {
        fn all<Q: Send + Sync>() {}
        all::<SharedReceiveQueue<'static>>();
    }
}
