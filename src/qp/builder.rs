//! Making a queue pair.
//!
//! # Safety
//!
//! The parents are alive and of one context when the queue pair is created, and held by it from then on.
//! For [`Extended`] every function pointer that a post may call is checked here.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use ibv_sys as sys;

use super::core::{QpCore, Share};
use super::link::{Leaver, Link};
use super::state::Reset;
use super::transport::{ATOMICS, OwnReceives, Transport, WithSrq};
use super::{Backend, Basic, Extended, QueuePair, Verbs};
use crate::context::Maker;
use crate::cq::{CqFor, CqParent};
use crate::device::AtomicCap;
use crate::error::{Error, Result, VerbError};
use crate::id::QpId;
use crate::parent::Parent;
use crate::pd::{Posting, ProtectionDomain};
use crate::raw::{Raw, last_errno};
use crate::srq::{SharedReceiveQueue, SrqCore};
use crate::wr::WrTarget;
use crate::wr::encode::Limits;

/// Sizes of a queue pair's queues (`struct ibv_qp_cap`). The default is what a [`QueuePairBuilder`] has if nothing is
/// said.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCaps {
    /// Outstanding sends.
    pub send_depth: u32,
    /// Outstanding receives.
    pub recv_depth: u32,
    /// Scatter/gather elements of a send.
    pub send_sges: u32,
    /// Scatter/gather elements of a receive.
    pub recv_sges: u32,
    /// Bytes of inline data of a send.
    pub inline: u32,
}

impl Default for QpCaps {
    fn default() -> Self {
        Self { send_depth: 16, recv_depth: 16, send_sges: 1, recv_sges: 1, inline: 0 }
    }
}

impl QpCaps {
    pub(super) fn from_c(cap: &sys::ibv_qp_cap) -> Self {
        Self {
            send_depth: cap.max_send_wr,
            recv_depth: cap.max_recv_wr,
            send_sges: cap.max_send_sge,
            recv_sges: cap.max_recv_sge,
            inline: cap.max_inline_data,
        }
    }

    pub(super) fn to_c(self) -> sys::ibv_qp_cap {
        sys::ibv_qp_cap {
            max_send_wr: self.send_depth,
            max_recv_wr: self.recv_depth,
            max_send_sge: self.send_sges,
            max_recv_sge: self.recv_sges,
            max_inline_data: self.inline,
        }
    }
}

/// Requests that the rings of a new queue pair really have room for.
pub(super) struct Depths {
    pub(super) send: u32,
    pub(super) recv: u32,
}

/// How to make a [`QueuePair`]: `ibv_qp_init_attr`.
///
/// If nothing is said: 16 sends and 16 receives outstanding, 1 scatter/gather element each, no inline data, and only
/// signaled requests complete visibly.
///
/// # Examples
///
/// ```no_run
/// # use ibv::Rc;
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// # let pd = ctx.alloc_pd()?;
/// # let cq = ctx.create_cq(256)?;
/// let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(64).recv_depth(128).inline(64).build()?;
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_qp_init_attr")]
#[doc(alias = "ibv_qp_init_attr_ex")]
#[must_use = "`build` makes the queue pair"]
pub struct QueuePairBuilder<'a, T: Transport, B: Backend = Basic> {
    pub(super) pd: Parent<'a, ProtectionDomain<'a>>,
    pub(super) send_cq: CqParent<'a, B::Cq>,
    pub(super) recv_cq: CqParent<'a, B::Cq>,
    pub(super) caps: QpCaps,
    pub(super) signal_all: bool,
    pub(super) srq: Option<Arc<SrqCore<'a, B::Cq>>>,
    late_copies: bool,
    trusts_wr: bool,
    pub(super) id: QpId,
    _makes: PhantomData<(T, B)>,
}

impl<'a, T: Transport> QueuePairBuilder<'a, T, Basic> {
    /// Sends complete on `send_cq`, receives on `recv_cq`, which may be the same. Each parent is a reference, or an
    /// [`Arc`].
    pub fn new(
        pd: impl Into<Parent<'a, ProtectionDomain<'a>>>,
        send_cq: impl CqFor<'a>,
        recv_cq: impl CqFor<'a>,
    ) -> Self {
        Self::of(pd.into(), send_cq.into_parent(), recv_cq.into_parent())
    }

    /// `ibv_create_qp_ex`—Posts shall go by `ibv_wr_*`, the [`Extended`] backend, where they can safely: on Soft-RoCE,
    /// and where [`trust_wr`](QueuePairBuilder::trust_wr) promises it. Elsewhere [`Basic`] costs less. Posting takes
    /// `&mut self`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{CompletionQueue, ProtectionDomain, Rc};
    /// # fn f(pd: &ProtectionDomain<'_>, cq: &CompletionQueue<'_>) -> Result<(), ibv::Error> {
    /// let qp = pd.create_qp::<Rc>(cq, cq).send_depth(64).extended().build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_create_qp_ex")]
    #[doc(alias = "ibv_wr_start")]
    pub fn extended(self) -> QueuePairBuilder<'a, T, Extended> {
        self.of_kind()
    }

    /// `ibv_create_qp`—Makes it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the device can't have queues of that size; [`Error::Invalid`] for 0 elements;
    /// [`Error::CqRoom`] if they could overrun a completion queue; [`Error::OtherContext`];
    /// [`Error::Verb`] with EINVAL if the sizes do not go together on this device (inline data, mostly), ENOMEM,
    /// EOPNOTSUPP if it lacks the transport, or its provider copies received data late
    /// ([`allow_late_copies`](Self::allow_late_copies)).
    #[doc(alias = "ibv_create_qp")]
    pub fn build(self) -> Result<QueuePair<'a, T, Reset, Basic>> {
        let maker = self.maker()?;
        self.make("ibv_create_qp", |this| this.create_by(maker, None), |_, _, _| Ok(((), ())))
    }
}

impl<'a, T: Transport> QueuePairBuilder<'a, T, Extended> {
    /// Requests shall go by the provider's `ibv_wr_*`, although it is not known to refuse them cleanly.
    ///
    /// Without this, only Soft-RoCE's are called. libmlx5's write over the request that was posted last if the queue is
    /// full (in all of its releases up to rdma-core 64): that one is lost, and what was refused may be sent in its
    /// place. Others have faults like it. On those, and on all that nobody has looked at, requests are posted by
    /// `ibv_post_send`, which costs more than on a [`Basic`] queue pair.
    ///
    /// # Safety
    ///
    /// No request is posted, nor list of them, by which more would be outstanding than the
    /// [`send_depth`](Self::send_depth) that was asked for. A request is outstanding until its completion, or that of a
    /// later one, was polled, or the queue pair was reset. Posting until the queue is full is no way to find out how
    /// much room there is.
    ///
    /// On providers other than libmlx5 and librxe, no [`Inline`](crate::Inline) data is longer than
    /// [`max_inline`](QueuePair::max_inline), and the provider's `ibv_wr_*` do as their manual page says.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{CompletionQueue, ProtectionDomain, Rc};
    /// # fn f(pd: &ProtectionDomain<'_>, cq: &CompletionQueue<'_>) -> Result<(), ibv::Error> {
    /// let builder = pd.create_qp::<Rc>(cq, cq).send_depth(64).extended();
    /// // SAFETY: this program counts: of its requests, each of which is signaled, there are never more than 64 whose
    /// // completions were not polled
    /// let qp = unsafe { builder.trust_wr() }.build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_wr_start")]
    pub unsafe fn trust_wr(mut self) -> Self {
        self.trusts_wr = true;
        self
    }

    /// `ibv_create_qp_ex`—Makes it, with all operations of its transport. If the device lacks atomics, or what concerns
    /// memory windows and invalidation, without these: they are
    /// [`PostError::Unsupported`](crate::PostError::Unsupported) then.
    ///
    /// On rxe, requests have one scatter/gather element at the most: its `ibv_wr_set_sge_list` sends wrong lengths
    /// before rdma-core 64.
    ///
    /// Where `ibv_wr_*` are not [trusted](Self::trust_wr), it is made as a [`Basic`] one.
    ///
    /// # Errors
    ///
    /// As the basic `build`; and, if `ibv_wr_*` are to be called, [`Error::Verb`] with EOPNOTSUPP if the provider lacks
    /// them, or one of the operations.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn build(self) -> Result<QueuePair<'a, T, Reset, Extended>> {
        let maker = self.maker()?;
        let provider = self.pd.context().provider();
        if !(self.trusts_wr || provider.refuses_cleanly()) {
            let create = |this: &Self| this.create_by(maker, None);
            return self.make("ibv_create_qp", create, |qp, limits, _| {
                Ok((WrTarget::stand_in(qp, limits.max_inline), ()))
            });
        }
        let needed = self.ops() & T::SEND_OPS;
        let optional = Cell::new(T::OPTIONAL_OPS);
        self.make(
            "ibv_create_qp_ex",
            |this| {
                let made = this.create_by(maker, Some(needed | T::OPTIONAL_OPS));
                if !made.0.is_null() || last_errno() != libc::EOPNOTSUPP || T::OPTIONAL_OPS == 0 {
                    return made;
                }
                optional.set(0);
                this.create_by(maker, Some(needed))
            },
            |qp, limits, _| {
                // SAFETY: the queue pair is new and alive.
                let granted = unsafe { granted(qp.as_ptr(), T::DATAGRAM) };
                if granted & needed != needed {
                    return Err(VerbError::new("ibv_create_qp_ex", libc::EOPNOTSUPP, T::NAME).into());
                }
                limits.ops &= granted & (needed | optional.get());
                limits.max_send_sge = limits.max_send_sge.min(provider.most_elements());
                Ok((WrTarget::itself(qp), ()))
            },
        )
    }
}

impl<'a, T: Transport, B: Backend> QueuePairBuilder<'a, T, B> {
    pub(super) fn of(
        pd: Parent<'a, ProtectionDomain<'a>>,
        send_cq: CqParent<'a, B::Cq>,
        recv_cq: CqParent<'a, B::Cq>,
    ) -> Self {
        Self {
            pd,
            send_cq,
            recv_cq,
            caps: QpCaps::default(),
            signal_all: false,
            srq: None,
            late_copies: false,
            trusts_wr: false,
            id: QpId::new(),
            _makes: PhantomData,
        }
    }

    /// The same, made of other parts.
    fn of_kind<U: Transport, C: Backend<Cq = B::Cq>>(self) -> QueuePairBuilder<'a, U, C> {
        let Self { pd, send_cq, recv_cq, caps, signal_all, srq, late_copies, trusts_wr, id, _makes } = self;
        let _makes = PhantomData;
        QueuePairBuilder { pd, send_cq, recv_cq, caps, signal_all, srq, late_copies, trusts_wr, id, _makes }
    }

    /// `ibv_qp_init_attr.srq`—Receives shall be taken from `srq`, which the queue pair keeps. It has none of its own
    /// then: what [`recv_depth`](Self::recv_depth) and [`recv_sges`](Self::recv_sges) say does not count. A direct one
    /// is of the queue pair's receive completion queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{CompletionQueue, ProtectionDomain, Rc, SharedReceiveQueue};
    /// # fn f(pd: &ProtectionDomain<'_>, cq: &CompletionQueue<'_>) -> Result<(), ibv::Error> {
    /// let srq = SharedReceiveQueue::new(pd, 256, 1)?;
    /// let qp = pd.create_qp::<Rc>(cq, cq).srq(&srq).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn srq<'s: 'a>(mut self, srq: &SharedReceiveQueue<'s, B::Cq>) -> QueuePairBuilder<'a, WithSrq<T>, B>
    where
        T: OwnReceives,
    {
        let core: Arc<SrqCore<'s, B::Cq>> = Arc::clone(srq.core());
        self.srq = Some(core);
        self.of_kind()
    }

    /// Takes the provider as it is by itself, where that means that it may copy short data on the CPU when a completion
    /// is polled, to where the request said that it should go. It saves the device a write to memory.
    ///
    /// Without this, mlx5 devices are told not to (`MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`); for devices that can't
    /// be told (those of libhns) there is no queue pair.
    ///
    /// # Safety
    ///
    /// Memory that a request on the queue pair or on its shared receive queue lets the device write (a receive, a READ,
    /// an atomic) stays registered, and no thread accesses it, until the request's completion was polled, or the queue
    /// pair is [closed](QueuePair::close), reset or dropped. `'a` alone does not say so: the queue pair must not be
    /// forgotten, nor slices be [detached](crate::MrSlice::detach) from regions that go earlier.
    pub unsafe fn allow_late_copies(mut self) -> Self
    where
        B: Verbs,
    {
        self.late_copies = true;
        self
    }

    fn maker(&self) -> Result<Maker> {
        if self.late_copies {
            return Ok(Maker::PLAIN);
        }
        let ctx = self.pd.context();
        ctx.provider().maker(ctx.device_name())
    }

    /// Calls what creates it, for posts by `ibv_wr_*` if `ops` are given; null with errno set if there is none. Gives
    /// its sizes too.
    fn create_by(
        &self,
        maker: Maker,
        ops: Option<sys::ibv_qp_create_send_ops_flags>,
    ) -> (*mut sys::ibv_qp, sys::ibv_qp_cap) {
        let mut attr = sys::ibv_qp_init_attr_ex {
            qp_context: self.id.to_context(),
            send_cq: self.send_cq.as_ptr(),
            recv_cq: self.recv_cq.as_ptr(),
            srq: self.srq_ptr(),
            cap: self.asked().to_c(),
            qp_type: T::QP_TYPE,
            sq_sig_all: self.signal_all.into(),
            pd: self.pd.as_ptr(),
            comp_mask: sys::IBV_QP_INIT_ATTR_PD,
            ..Default::default()
        };
        if let Some(ops) = ops {
            attr.comp_mask |= sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = ops.into();
        }
        // SAFETY: the parents are alive and of one context.
        let qp = unsafe { maker.create(self.pd.context().as_ptr(), &mut attr) };
        (qp, attr.cap)
    }

    pub(super) fn srq_ptr(&self) -> *mut sys::ibv_srq {
        self.srq.as_ref().map_or(std::ptr::null_mut(), |srq| srq.as_ptr())
    }

    pub(super) fn asked(&self) -> QpCaps {
        match self.srq {
            Some(_) => QpCaps { recv_depth: 0, recv_sges: 0, ..self.caps },
            None => self.caps,
        }
    }

    /// All sizes at once.
    pub fn caps(mut self, caps: QpCaps) -> Self {
        self.caps = caps;
        self
    }

    /// How many sends can be outstanding at least; 16 if not said.
    pub fn send_depth(mut self, requests: u32) -> Self {
        self.caps.send_depth = requests;
        self
    }

    /// How many receives can be outstanding; 16 if not said.
    pub fn recv_depth(mut self, requests: u32) -> Self {
        self.caps.recv_depth = requests;
        self
    }

    /// How many scatter/gather elements a send can have, at least 1, which it is if not said.
    pub fn send_sges(mut self, elements: u32) -> Self {
        self.caps.send_sges = elements;
        self
    }

    /// How many scatter/gather elements a receive can have, at least 1, which it is if not said.
    pub fn recv_sges(mut self, elements: u32) -> Self {
        self.caps.recv_sges = elements;
        self
    }

    /// How many bytes of [`Inline`](crate::Inline) data a send can carry; 0 if not said.
    pub fn inline(mut self, bytes: u32) -> Self {
        self.caps.inline = bytes;
        self
    }

    /// Every send shall complete visibly, as if it were [signaled](crate::Send::signaled).
    pub fn signal_all(mut self, all: bool) -> Self {
        self.signal_all = all;
        self
    }

    /// The operations of the transport that the device has, as far as it tells. libmlx5 refuses an atomic when it has
    /// begun to write it: of a list, those before it are not sent then, and one after a bind does not wait for that.
    fn ops(&self) -> sys::ibv_qp_create_send_ops_flags {
        let all = T::SEND_OPS | T::OPTIONAL_OPS;
        if self.pd.context().device_attr().atomic_cap() == AtomicCap::NONE { all & !ATOMICS } else { all }
    }

    fn check(&self) -> Result<()> {
        let ctx = self.pd.context();
        ctx.check_same(self.send_cq.context(), "send completion queue")?;
        ctx.check_same(self.recv_cq.context(), "receive completion queue")?;
        if let Some(srq) = &self.srq {
            ctx.check_same(srq.pd().context(), "shared receive queue")?;
            if srq.recv_cq().is_some_and(|cq| cq.as_ptr() != self.recv_cq.as_ptr()) {
                return Err(Error::invalid(
                    "the receive completion queue",
                    "not that of the shared receive queue",
                    "the one that `SharedReceiveQueue::direct` was given: one poller completes all its receives",
                ));
            }
        }
        let QpCaps { send_depth, recv_depth, send_sges, recv_sges, .. } = self.asked();
        let device = ctx.device_attr();
        Error::check_limit("outstanding sends", send_depth, device.max_qp_wr())?;
        Error::check_limit("outstanding receives", recv_depth, device.max_qp_wr())?;
        Error::check_limit("scatter/gather elements of a send", send_sges, device.max_sge())?;
        Error::check_limit("scatter/gather elements of a receive", recv_sges, device.max_sge())?;
        if send_sges == 0 || recv_sges == 0 && self.srq.is_none() {
            return Err(Error::invalid("scatter/gather elements of a request", 0, "at least 1"));
        }
        Ok(())
    }

    /// Everything around the creating call.
    pub(super) fn make(
        self,
        verb: &'static str,
        create: impl FnOnce(&Self) -> (*mut sys::ibv_qp, sys::ibv_qp_cap),
        accept: impl FnOnce(NonNull<sys::ibv_qp>, &mut Limits, &mut Depths) -> Result<(B::Queues, B::Link)>,
    ) -> Result<QueuePair<'a, T, Reset, B>> {
        self.check()?;
        self.pd.claim(Posting::Borrowed)?;
        let needed = B::cq_entries::<T>(&self.asked());
        let (send_cq, recv_cq) = (self.send_cq.clone(), self.recv_cq.clone());
        let (mut send, mut recv) = match &self.srq {
            Some(srq) => Share::with_srq(send_cq, recv_cq, needed.0, srq)?,
            None => Share::pair(send_cq, recv_cq, needed)?,
        };
        let (qp, cap) = create(&self);
        // SAFETY: `qp` is new, or null with errno set.
        let mut raw = unsafe { Raw::new(verb, qp, || format!("{}, {:?}", T::NAME, self.caps)) }?;
        let mut limits = Limits {
            context: self.pd.context().as_ptr(),
            ops: self.ops(),
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline: cap.max_inline_data as usize,
        };
        let mut depths = Depths { send: cap.max_send_wr, recv: cap.max_recv_wr };
        let accepted = accept(raw.as_non_null(), &mut limits, &mut depths).and_then(|(queues, mut link)| {
            // a provider that tells its real sizes may have made larger rings than were counted on
            match send.grow(depths.send).and_then(|()| recv.grow(depths.recv)) {
                Ok(()) => Ok((queues, link)),
                Err(error) => {
                    // before what it was made in
                    if let Err(error) =
                        link.destroy(Leaver { qp: &mut raw, pd: self.pd.shared(), is_unused: true })
                    {
                        tracing::error!(%error, "a queue pair could not be destroyed and is leaked");
                        raw.leak();
                        send.keep_for_ever();
                        recv.keep_for_ever();
                    }
                    Err(error)
                }
            }
        });
        let (queues, link) = accepted?;
        Ok(QueuePair {
            qp: raw.as_non_null(),
            id: self.id,
            limits,
            queues,
            core: Arc::new(QpCore::new(raw, link, send, recv, self.pd)),
            _is: PhantomData,
            _invariant: PhantomData,
        })
    }
}

/// The operations that a queue pair has the function pointers of; none if it lacks those that every request needs.
///
/// # Safety
///
/// `qp` is alive.
unsafe fn granted(qp: *mut sys::ibv_qp, is_datagram: bool) -> sys::ibv_qp_create_send_ops_flags {
    // SAFETY: alive, by the caller's promise.
    let Some(qp) = NonNull::new(unsafe { sys::ibv_qp_to_qp_ex(qp) }) else { return 0 };
    // SAFETY: as above; the fields are written once, at creation.
    let qp = unsafe { qp.as_ref() };
    let common = qp.wr_start.is_some()
        && qp.wr_complete.is_some()
        && qp.wr_abort.is_some()
        && qp.wr_set_sge.is_some()
        && qp.wr_set_sge_list.is_some()
        && qp.wr_set_inline_data.is_some()
        && (!is_datagram || qp.wr_set_ud_addr.is_some());
    if !common {
        return 0;
    }
    [
        (qp.wr_send.is_some(), sys::IBV_QP_EX_WITH_SEND),
        (qp.wr_send_imm.is_some(), sys::IBV_QP_EX_WITH_SEND_WITH_IMM),
        (qp.wr_send_inv.is_some(), sys::IBV_QP_EX_WITH_SEND_WITH_INV),
        (qp.wr_rdma_write.is_some(), sys::IBV_QP_EX_WITH_RDMA_WRITE),
        (qp.wr_rdma_write_imm.is_some(), sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM),
        (qp.wr_rdma_read.is_some(), sys::IBV_QP_EX_WITH_RDMA_READ),
        (qp.wr_atomic_cmp_swp.is_some(), sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP),
        (qp.wr_atomic_fetch_add.is_some(), sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD),
        (qp.wr_local_inv.is_some(), sys::IBV_QP_EX_WITH_LOCAL_INV),
        (qp.wr_bind_mw.is_some(), sys::IBV_QP_EX_WITH_BIND_MW),
    ]
    .into_iter()
    .fold(0, |ops, (is_there, op)| if is_there { ops | op } else { ops })
}

impl<T: Transport, B: Backend> fmt::Debug for QueuePairBuilder<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairBuilder")
            .field("transport", &T::NAME)
            .field("caps", &self.caps)
            .field("signal_all", &self.signal_all)
            .finish_non_exhaustive()
    }
}
