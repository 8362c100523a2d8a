//! Queue pairs.
//!
//! | file | what |
//! |---|---|
//! | `builder` | making one |
//! | `state`, `transport` | its type parameters, and what they allow |
//! | `attr`, `change`, `transition` | the state machine |
//! | `post` | posting requests; `post_hint`: what the compiler says of those for another backend |
//! | `direct` | the backend `Direct`: where `mlx5` joins in |
//! | `dynamic` | the state as a value, for struct fields |
//! | `core` | the C object |
//!
//! # Safety
//!
//! Only that a [`QueuePair`] may be sent and shared between threads is said here.

#![expect(unsafe_code, reason = "the Safety section above")]

pub mod attr;
mod builder;
mod change;
mod core;
#[cfg(feature = "mlx5")]
mod direct;
mod dynamic;
mod post;
mod post_hint;
pub mod state;
mod transition;
mod transport;

pub use attr::{Connection, InitAttr, UdInitAttr};
pub use builder::{QpCaps, QueuePairBuilder};
pub use dynamic::DynQueuePair;
pub use post::{PostRecv, PostSend};
pub use state::QpState;
pub use transport::{
    Atomics, Connected, Datagram, OwnReceives, Rc, RdmaRead, RdmaWrite, SendInvalidate, Transport, Uc, Ud,
    Unreliable, Windows, WithSrq,
};

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use ibv_sys as sys;

use self::core::QpCore;
#[cfg(feature = "mlx5")]
pub(crate) use self::link::Leaver;
use crate::addr::{Endpoint, LocalPort};
use crate::cq::{Bare, CqKind, Room};
use crate::error::{CloseError, Refused, Result};
use crate::id::QpId;
use crate::pd::ProtectionDomain;
use crate::raw::sole;
use crate::wr::encode::Limits;
use crate::wr::{PostError, Recv, Scatter, WrTarget};
use state::{CanPostRecv, Rts, State};

/// Neither longer nor shorter: a `&QueuePair<'long>` that could be taken for a `&QueuePair<'short>` would accept a
/// short-lived region.
pub(crate) type Invariant<'a> = PhantomData<fn(&'a ()) -> &'a ()>;

/// How requests reach the device, fixed when the queue pair is made; [`Basic`], [`Extended`] or `Direct`.
///
/// | | made by | posts by | for |
/// |---|---|---|---|
/// | [`Basic`] | [`ProtectionDomain::create_qp`] | `&self`, `ibv_post_send` | every device, and threads that share a queue pair; the default |
/// | [`Extended`] | then [`extended`](QueuePairBuilder::extended) | `&mut self`, `ibv_wr_*` where those are safe, else `ibv_post_send`, which costs more than `Basic` | Soft-RoCE |
/// | the same, trusted | then [`trust_wr`](QueuePairBuilder::trust_wr), which is unsafe | `&mut self`, `ibv_wr_*` | other devices, if the program makes sure that there is room: through libmlx5, a WRITE takes 0.8 of the instructions of `Basic` |
/// | `Direct` | `QueuePairBuilder::direct` (feature `mlx5`) | `&mut self`, no call of a library | mlx5 devices: a WRITE takes 0.2 |
///
/// Code that is generic over [`PostSend`] and [`PostRecv`] runs on all of them.
pub trait Backend: sealed::Sealed + Send + Sync + 'static {
    /// The kind of completion queues that it completes to.
    #[doc(hidden)]
    type Cq: CqKind;
    /// What posting needs beside the C object.
    #[doc(hidden)]
    type Queues: Send + Sync;
    /// What there is beside the C object until that is destroyed.
    #[doc(hidden)]
    type Link: link::Link<Self::Queues> + Send + Sync;

    /// Completion queue entries that queues of these sizes can fill.
    #[doc(hidden)]
    fn cq_entries<T: Transport>(caps: &QpCaps) -> (u32, u32) {
        (Room::for_depth(caps.send_depth), Room::for_depth(caps.recv_depth))
    }

    /// For [`PostRecv`], which all backends have.
    #[doc(hidden)]
    fn receive<'a, T: OwnReceives, S: CanPostRecv, D: Scatter<'a>>(
        qp: &mut QueuePair<'a, T, S, Self>,
        request: Recv<D>,
    ) -> Result<(), PostError>
    where
        Self: Sized;
}

/// A backend that posts by calls of libibverbs, [`Basic`] or [`Extended`].
#[diagnostic::on_unimplemented(
    message = "a queue pair of backend `{Self}` does not post by libibverbs",
    label = "post by `&mut` on it: `post`, `post_list`, `post_recv`, `post_recv_list`; for a memory window, take one of type 2, and post its `bind_mw(..)`"
)]
pub trait Verbs: Backend<Cq = Bare, Link = ()> {}

pub(crate) mod link {
    use std::sync::Arc;

    use ibv_sys as sys;

    use crate::error::Result;
    use crate::raw::Raw;

    /// A queue pair that is to be destroyed.
    #[derive(Debug)]
    pub struct Leaver<'q> {
        pub(crate) qp: &'q mut Raw<sys::ibv_qp>,
        #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "others are destroyed at once"))]
        pub(crate) pd: &'q Arc<Raw<sys::ibv_pd>>,
        /// It never left RESET.
        #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "others are destroyed at once"))]
        pub(crate) is_unused: bool,
    }

    /// What stands between a queue pair and its completion queues.
    pub trait Link<Q> {
        /// The queue pair has come to RESET, and may go on. Gives how many entries of its send and of its receive
        /// completion queue may still be completions of before.
        fn restarted(&self, queues: &mut Q) -> (u32, u32);
        /// Destroys the queue pair, or keeps it until that can be: after `Ok` it is the caller's no more. It is in
        /// RESET, if `NEEDS_RESET` says that this matters.
        fn destroy(&mut self, leaver: Leaver<'_>) -> Result<()>;
        /// Its room was left behind: it was given up, or has restarted.
        fn left(&self);
        /// Whether it must be in RESET before it is destroyed.
        const NEEDS_RESET: bool;
    }

    impl<Q> Link<Q> for () {
        #[inline(always)]
        fn restarted(&self, _: &mut Q) -> (u32, u32) {
            (0, 0)
        }
        fn destroy(&mut self, leaver: Leaver<'_>) -> Result<()> {
            leaver.qp.destroy()
        }
        fn left(&self) {}
        const NEEDS_RESET: bool = false;
    }
}

/// `ibv_post_send`: every provider has it; posting takes `&self`.
#[doc(alias = "ibv_post_send")]
#[derive(Debug, Clone, Copy)]
pub enum Basic {}

/// `ibv_wr_*`. As a [`Backend`] of queue pairs: posting takes `&mut self`, and costs fewer instructions where the
/// provider can be [trusted](QueuePairBuilder::trust_wr) with a full queue; by itself, Soft-RoCE's is, and on the
/// others requests go by `ibv_post_send`, which costs more than on a [`Basic`] one. As a kind of completion queue
/// (`ibv_cq_ex`): polled by its one [`Poller`](crate::Poller). Either goes without the other.
#[doc(alias = "ibv_wr_start")]
#[doc(alias = "ibv_qp_ex")]
#[derive(Debug, Clone, Copy)]
pub enum Extended {}

macro_rules! verbs {
    ($($backend:ident: $queues:ty;)*) => {$(
        impl Backend for $backend {
            type Cq = Bare;
            type Queues = $queues;
            type Link = ();

            #[inline(always)]
            fn receive<'a, T: OwnReceives, S: CanPostRecv, D: Scatter<'a>>(
                qp: &mut QueuePair<'a, T, S, Self>,
                request: Recv<D>,
            ) -> Result<(), PostError> {
                // by path: as a method it would be that of the trait, which is made of this
                QueuePair::<'a, T, S, Self>::post_recv(qp, request)
            }
        }
    )*};
}

verbs! {
    Basic: ();
    Extended: WrTarget;
}
impl Verbs for Basic {}
impl Verbs for Extended {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Basic {}
    impl Sealed for super::Extended {}
    #[cfg(feature = "mlx5")]
    impl<V: crate::mlx5::Delivery> Sealed for crate::cq::Direct<V> {}
}

/// `ibv_qp`—A queue pair: a send queue and a receive queue.
///
/// Its type says what it is and what it can do now:
///
/// * `'a`: what it borrows and what is posted on it (regions, address handles) lives at least so long. With parents
///   held by [`Arc`] it is `'static`; see [`OwnedQp`].
/// * `T`: the transport, [`Rc`], [`Uc`] or [`Ud`].
/// * `S`: the state, which each transition changes by taking the queue pair and giving it back:
///
/// ```text
///           init             rtr            rts              sqd
///   Reset ────────▶ Init ──────────▶ Rtr ─────────▶ Rts ◀─────────▶ Sqd
///     ▲              │ connect / activate            ▲     resume
///     │              └───────────────────────────────┘
///     └── reset: from every state             into_error: from every state but Reset ──▶ Error
/// ```
///
/// * `B`: the backend, [`Basic`], [`Extended`] or `Direct`.
///
/// The device can move a queue pair to the error state on its own, when a request fails. The type does not know: posts
/// then still succeed (and complete as flushed) or are refused; [`query`](Self::query) tells. [`reset`](Self::reset)
/// leads back.
///
/// `Send` and `Sync`. Dropping it destroys it; what was in flight is then over, or goes on unseen into regions that
/// stay registered.
///
/// # Examples
///
/// ```no_run
/// use ibv::{Connection, Context, Endpoint, InitAttr, Rc, random_psn, send};
///
/// # fn exchange(ours: Endpoint) -> Endpoint { ours }
/// let ctx = Context::open("mlx5_0")?;
/// let pd = ctx.alloc_pd()?;
/// let cq = ctx.create_cq(128)?;
/// let mr = pd.alloc_local(4096)?;
///
/// let local = ctx.local_port(1)?;
/// let psn = random_psn();
/// let qp = pd.create_qp::<Rc>(&cq, &cq).build()?.init(InitAttr::new(1))?;
/// let peer = exchange(qp.endpoint(&local, psn));
/// let qp = qp.connect(&Connection::new(local, psn, peer))?;
///
/// mr.write(0, b"hello")?;
/// qp.post(send(mr.slice(..5)?).signaled().id(1))?;
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_qp")]
pub struct QueuePair<'a, T: Transport = Rc, S: State = Rts, B: Backend = Basic> {
    /// `core`'s, at hand for posting.
    qp: NonNull<sys::ibv_qp>,
    id: QpId,
    limits: Limits,
    queues: B::Queues,
    core: Arc<QpCore<'a, B>>,
    _is: PhantomData<(T, S, B)>,
    _invariant: Invariant<'a>,
}

// SAFETY: the pointers in it lead to the queue pair that `core` owns and to its context, which may be used from all
// threads; what is posted names regions and handles that may be as well. Where a backend needs to be alone, posting
// takes `&mut`.
unsafe impl<T: Transport, S: State, B: Backend> Send for QueuePair<'_, T, S, B> {}
// SAFETY: as above; the provider locks the queues (a queue pair of a thread domain, where it does not, is none of
// these).
unsafe impl<T: Transport, S: State, B: Backend> Sync for QueuePair<'_, T, S, B> {}

/// A queue pair that shares its parents, so that it can be stored and sent. Slices that it posts are
/// [detached](crate::MrSlice::detach).
pub type OwnedQp<T = Rc, S = Rts, B = Basic> = QueuePair<'static, T, S, B>;

impl<'a, T: Transport, S: State, B: Backend> QueuePair<'a, T, S, B> {
    /// Its number, 24 bits, by which peers name it.
    pub fn qp_num(&self) -> u32 {
        self.core.qp_num()
    }

    /// What a peer must be told of it: it is reached by `local`, and its first packet has `psn`.
    pub fn endpoint(&self, local: &LocalPort, psn: u32) -> Endpoint {
        Endpoint { lid: local.lid, qpn: self.qp_num(), psn, gid: local.gid }
    }

    /// What its events are told apart by.
    pub fn id(&self) -> QpId {
        self.id
    }

    /// The state that its type says, as a value.
    pub fn state(&self) -> QpState {
        S::STATE
    }

    /// The protection domain that it was made from.
    pub fn pd(&self) -> &ProtectionDomain<'a> {
        self.core.pd()
    }

    /// How many bytes of [`Inline`](crate::Inline) data a request can carry: at least what was asked for.
    pub fn max_inline(&self) -> u32 {
        self.limits.max_inline as u32
    }

    /// `ibv_query_qp`—What it really is: its state may have become another than its type says.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EIO if the device is gone, ENOMEM if the kernel has no memory for the
    /// answer.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(qp: &ibv::QueuePair<'_>) -> Result<(), ibv::Error> {
    /// let now = qp.query()?;
    /// if now.state() != qp.state() {
    ///     println!("the device has moved it to {}", now.state());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr> {
        let (attr, init) = self.core.query()?;
        Ok(QpAttr { attr, signals_all: init.sq_sig_all != 0 })
    }

    /// `ibv_destroy_qp`—Destroys it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the queue pair, with EBUSY if something that was made from it is there.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        match sole(&mut self.core, "ibv_destroy_qp").and_then(QpCore::destroy) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// A queue pair cannot be cloned: its type says its state, and there would be two of them for one state.
    ///
    /// This method is here for the compiler's advice alone. It can never be called.
    #[doc(hidden)]
    #[expect(clippy::should_implement_trait, reason = "it is here to say why not")]
    #[must_use]
    pub fn clone(&self) -> Self
    where
        Self: CloneQueuePair,
    {
        CloneQueuePair::never(self)
    }

    /// The C object; see [`Context::as_ptr`](crate::Context::as_ptr). Changing its state, or posting what this crate
    /// would not, is the caller's own risk.
    pub fn as_ptr(&self) -> *mut sys::ibv_qp {
        self.qp.as_ptr()
    }
}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a queue pair cannot be cloned",
    label = "share it as `&qp`, or put it into an `Arc`: posting takes `&self`"
)]
pub trait CloneQueuePair: sealed::Sealed + Sized {
    fn never(&self) -> Self;
}

impl<T: Transport, S: State, B: Backend> fmt::Debug for QueuePair<'_, T, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("transport", &T::NAME)
            .field("state", &S::STATE)
            .field("qp_num", &self.qp_num())
            .finish_non_exhaustive()
    }
}

/// What a queue pair really is (`struct ibv_qp_attr`, `struct ibv_qp_init_attr`).
///
/// # Examples
///
/// ```no_run
/// # fn f(qp: &ibv::QueuePair<'_>) -> Result<(), ibv::Error> {
/// let now = qp.query()?;
/// println!("{} at MTU {} to QP {:#x}", now.state(), now.path_mtu(), now.dest_qpn());
/// println!("{} sends can be outstanding", now.caps().send_depth);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_qp_attr")]
#[doc(alias = "ibv_qp_init_attr")]
#[derive(Clone, Copy)]
pub struct QpAttr {
    attr: sys::ibv_qp_attr,
    signals_all: bool,
}

impl QpAttr {
    /// Its state.
    pub fn state(&self) -> QpState {
        QpState(self.attr.qp_state)
    }

    /// Whether its send queue, stopped by [`sqd`](QueuePair::sqd), has requests under way.
    pub fn is_draining(&self) -> bool {
        self.attr.sq_draining != 0
    }

    /// The sizes of its queues.
    pub fn caps(&self) -> QpCaps {
        QpCaps::from_c(&self.attr.cap)
    }

    /// Whether every send completes visibly, [signaled](crate::Send::signaled) or not.
    pub fn signals_all(&self) -> bool {
        self.signals_all
    }

    /// Its path MTU, from RTR on.
    pub fn path_mtu(&self) -> crate::addr::Mtu {
        crate::addr::Mtu::from_c(self.attr.path_mtu)
    }

    /// The peer's queue pair number, 24 bits; it means something on RC and UC from RTR on.
    pub fn dest_qpn(&self) -> u32 {
        self.attr.dest_qp_num
    }

    /// The port that it is bound to, from 1; from INIT on.
    pub fn port(&self) -> u8 {
        self.attr.port_num
    }

    /// How often it sends again when no acknowledgement comes, at most 7.
    pub fn retry_cnt(&self) -> u8 {
        self.attr.retry_cnt
    }

    /// How often it tries again when the peer has no receive posted; 7 means for ever.
    pub fn rnr_retry(&self) -> u8 {
        self.attr.rnr_retry
    }
}

impl fmt::Debug for QpAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpAttr")
            .field("state", &self.state())
            .field("caps", &self.caps())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_are_sent_and_shared_between_threads() {
        fn all<Q: Send + Sync>() {}
        all::<OwnedQp>();
        all::<OwnedQp<Ud, state::Reset, Extended>>();
        all::<DynQueuePair<'static, Uc>>();
    }
}
