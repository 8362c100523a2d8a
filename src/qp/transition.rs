//! The state machine: each transition takes the queue pair, and gives it back in its new state.
//!
//! A test holds every call made here against the kernel's table of legal transitions.

use std::marker::PhantomData;

use super::attr::{Connection, change_of};
use super::change::Change;
use super::state::{CanFail, Error, Init, Is, QpState, Reset, Rtr, Rts, Sqd, State};
use super::transport::{Connected, Datagram, Transport, Unreliable};
use super::{Backend, QueuePair};
use crate::error::{Refused, Result, TransitionError};

/// The queue pair in its new state, or as it was.
type Moved<'a, T, From, To, B> = Result<QueuePair<'a, T, To, B>, TransitionError<QueuePair<'a, T, From, B>>>;

/// The queue pair in `Rts`, or back in `Reset`.
type Activated<'a, T, B> = Result<QueuePair<'a, T, Rts, B>, TransitionError<QueuePair<'a, T, Reset, B>>>;

impl<'a, T: Transport, S: State, B: Backend> QueuePair<'a, T, S, B> {
    fn go<N: State>(self, change: Change) -> Moved<'a, T, S, N, B> {
        let mut this = self;
        match this.change(S::STATE, N::STATE, change) {
            Ok(()) => Ok(this.now()),
            Err(error) => Err(Refused::new(this, error)),
        }
    }

    /// `ibv_modify_qp`, and what goes with it here.
    pub(super) fn change(&mut self, from: QpState, to: QpState, change: Change) -> Result<()> {
        self.core.modify(from, to, change)?;
        if to == QpState::RESET {
            self.core.restarted(&mut self.queues);
        }
        Ok(())
    }

    /// The same queue pair, whose state has become `N`.
    pub(super) fn now<N: State>(self) -> QueuePair<'a, T, N, B> {
        let Self { qp, id, limits, queues, core, .. } = self;
        QueuePair { qp, id, limits, queues, core, _is: PhantomData, _invariant: PhantomData }
    }

    fn stay(&self, change: Change) -> Result<()> {
        self.core.modify_in_place(S::STATE, change)
    }

    /// `ibv_modify_qp`, any state → RESET—Forgets everything outstanding: it will never complete.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Verb`](crate::Error::Verb) with EIO if the device is
    /// gone, EINVAL if it refuses (Soft-RoCE does while a queue pair [drains](crate::QpAttr::is_draining)).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Connection, InitAttr, QueuePair};
    /// # fn f<'a>(qp: QueuePair<'a>, again: &Connection) -> Result<QueuePair<'a>, ibv::Error> {
    /// // poll first: nothing else will come of what is outstanding
    /// let qp = qp.reset()?.init(InitAttr::new(1))?.connect(again)?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn reset(self) -> Moved<'a, T, S, Reset, B> {
        self.go(Change::default())
    }

    /// `ibv_modify_qp`, any state but RESET → ERR—Flushes everything outstanding: each request completes with
    /// [`WcStatus::WR_FLUSH_ERR`](crate::WcStatus::WR_FLUSH_ERR).
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Verb`](crate::Error::Verb) with EIO if the device is
    /// gone, EINVAL if it refuses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, Rc, state};
    /// # fn f<'a>(qp: QueuePair<'a>) -> Result<QueuePair<'a, Rc, state::Error>, ibv::Error> {
    /// let qp = qp.into_error()?; // now every receive that was posted completes, with `WR_FLUSH_ERR`
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn into_error(self) -> Moved<'a, T, S, Error, B>
    where
        S: CanFail,
    {
        self.go(Change::default())
    }

    /// `ibv_modify_qp`, RESET → INIT—Binds it to a port. From now on receives can be posted.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Verb`](crate::Error::Verb) with EINVAL if there is
    /// no such port or P_Key index; EPERM for a Q_Key with its top bit set and no CAP_NET_RAW; EIO if the device is
    /// gone. [`Error::CqRoom`](crate::Error::CqRoom) if it is direct, was reset, and what it completed before leaves no
    /// room in its completion queue: poll that until it is empty.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{InitAttr, QueuePair, Rc, RemoteAccess, state};
    /// # fn f<'a>(qp: QueuePair<'a, Rc, state::Reset>) -> Result<QueuePair<'a, Rc, state::Init>, ibv::Error> {
    /// let qp = qp.init(InitAttr::new(1).access(RemoteAccess::READ | RemoteAccess::WRITE))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(self, attr: T::Init) -> Moved<'a, T, S, Init, B>
    where
        S: Is<Reset>,
    {
        self.go(change_of(&attr))
    }

    /// `ibv_modify_qp`, INIT → INIT—Changes attributes; what is not named stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) as [`init`](QueuePair::init): EINVAL if there is no such port or P_Key
    /// index, EPERM for a Q_Key with its top bit set and no CAP_NET_RAW, EIO if the device is gone.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify_init(&mut self, attr: &T::InitModify) -> Result<()>
    where
        S: Is<Init>,
    {
        self.stay(change_of(attr))
    }

    /// `ibv_modify_qp`, INIT → RTR—Ready to receive. [`connect`](Self::connect) does this and [`rts`](QueuePair::rts).
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Limit`](crate::Error::Limit) for a value out of
    /// its range; [`Error::Verb`](crate::Error::Verb) with EINVAL if the path is wrong (RoCE needs a GRH, and the
    /// port of `init`) or its MTU larger than the port's; ENODATA if the GID index is empty; ETIMEDOUT if the peer's
    /// GID can't be resolved to a MAC address; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{AddressVector, Endpoint, LocalPort, QueuePair, Rc, qp::attr::{RcRtrAttr, RcRtsAttr}, state::Init};
    /// # fn f<'a>(
    /// #     qp: QueuePair<'a, Rc, Init>, local: LocalPort, psn: u32, peer: Endpoint,
    /// # ) -> Result<QueuePair<'a>, ibv::Error> {
    /// let path = AddressVector::to_peer(&local, &peer)?;
    /// let qp = qp.rtr(RcRtrAttr::new(&path, local.mtu, peer.qpn, peer.psn).min_rnr_timer(14))?;
    /// let qp = qp.rts(RcRtsAttr::new(psn).timeout(18))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn rtr(self, attr: T::Rtr) -> Moved<'a, T, S, Rtr, B>
    where
        S: Is<Init>,
    {
        self.go(change_of(&attr))
    }

    /// Both steps, or back to `Reset`.
    fn rtr_then_rts(self, rtr: T::Rtr, rts: T::Rts) -> Activated<'a, T, B>
    where
        S: Is<Init>,
    {
        match self.rtr(rtr) {
            Ok(qp) => qp.rts(rts).map_err(back_to_reset),
            Err(refused) => Err(back_to_reset(refused)),
        }
    }

    /// `ibv_modify_qp`, INIT → RTR → RTS—Connects it to its peer, which does the same. Receives for what the peer sends
    /// first are best posted before: a SEND that finds none [waits](Connection#when-a-request-has-to-wait).
    ///
    /// # Errors
    ///
    /// Those of [`rtr`](Self::rtr) and [`rts`](QueuePair::rts); [`Error::Invalid`](crate::Error::Invalid) if the peer
    /// names a GID and the local port has none. The queue pair comes back in `Reset`: all receives posted on it are
    /// forgotten. It is lost (`None`) only if the device refuses the reset too.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Connection, Endpoint, LocalPort, QueuePair, Rc, state::Init};
    /// # fn f<'a>(
    /// #     qp: QueuePair<'a, Rc, Init>, local: LocalPort, psn: u32, peer: Endpoint,
    /// # ) -> Result<QueuePair<'a>, ibv::Error> {
    /// let qp = qp.connect(&Connection::new(local, psn, peer))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(self, connection: &Connection) -> Activated<'a, T, B>
    where
        S: Is<Init>,
        T: Connected,
    {
        match T::rtr(connection) {
            Ok(rtr) => self.rtr_then_rts(rtr, T::rts(connection)),
            Err(error) => Err(back_to_reset(Refused::new(self, error))),
        }
    }

    /// `ibv_modify_qp`, INIT → RTR → RTS—Makes a datagram queue pair ready; its first packet has `psn`.
    ///
    /// # Errors
    ///
    /// As [`connect`](QueuePair::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, Ud, UdInitAttr, random_psn, state::Reset};
    /// # fn f<'a>(qp: QueuePair<'a, Ud, Reset>) -> Result<QueuePair<'a, Ud>, ibv::Error> {
    /// let qp = qp.init(UdInitAttr::new(1, 0x1111_1111))?.activate(random_psn())?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(self, psn: u32) -> Activated<'a, T, B>
    where
        S: Is<Init>,
        T: Datagram,
    {
        self.rtr_then_rts(T::rtr(), T::rts(psn))
    }

    /// `ibv_modify_qp`, RTR → RTS—Ready to send.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Limit`](crate::Error::Limit) for a value out of its
    /// range; [`Error::Verb`](crate::Error::Verb) with EINVAL if the device can't have so many READs and atomics under
    /// way; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, Rc, qp::attr::RcRtsAttr, state::Rtr};
    /// # fn f<'a>(qp: QueuePair<'a, Rc, Rtr>, psn: u32) -> Result<QueuePair<'a>, ibv::Error> {
    /// let qp = qp.rts(RcRtsAttr::new(psn).retry_cnt(3).max_rd_atomic(4))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn rts(self, attr: T::Rts) -> Moved<'a, T, S, Rts, B>
    where
        S: Is<Rtr>,
    {
        self.go(change_of(&attr))
    }

    /// `ibv_modify_qp`, RTS → RTS—Changes attributes; what is not named stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`](crate::Error::Limit) for a value out of its range; [`Error::Verb`](crate::Error::Verb) with
    /// EINVAL if the device can't do what is asked, or the queue pair is no longer in RTS; EPERM for a Q_Key with its
    /// top bit set and no CAP_NET_RAW; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, RemoteAccess, qp::attr::RcModifyAttr};
    /// # fn f(qp: &mut QueuePair<'_>) -> Result<(), ibv::Error> {
    /// qp.modify(&RcModifyAttr::new().access(RemoteAccess::READ))?; // from now on the peer may only read
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, attr: &T::RtsModify) -> Result<()>
    where
        S: Is<Rts>,
    {
        self.stay(change_of(attr))
    }

    /// `ibv_modify_qp`, RTS → SQD—Lets the send queue run dry: what has started goes on, what has not waits.
    ///
    /// [`QpAttr::is_draining`](crate::QpAttr::is_draining) tells when nothing is under way any more; with `notify`, the
    /// device raises [`AsyncEventKind::SQ_DRAINED`](crate::AsyncEventKind::SQ_DRAINED) then. Until then the device may
    /// refuse to [change](Self::modify_drained), [resume](Self::resume) or [reset](Self::reset) it.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Verb`](crate::Error::Verb) with EINVAL if it is no
    /// longer in RTS, or its driver has no such transition; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, qp::attr::{RcModifyAttr, RcSqdAttr}};
    /// # fn f<'a>(qp: QueuePair<'a>) -> Result<QueuePair<'a>, ibv::Error> {
    /// let mut qp = qp.sqd(false)?;
    /// while qp.query()?.is_draining() {
    ///     std::thread::yield_now();
    /// }
    /// qp.modify_drained(&RcSqdAttr::new().retry_cnt(3))?;
    /// let qp = qp.resume(RcModifyAttr::new())?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn sqd(self, notify: bool) -> Moved<'a, T, S, Sqd, B>
    where
        S: Is<Rts>,
    {
        let mut change = Change::default();
        change.notify_when_drained(notify);
        self.go(change)
    }

    /// `ibv_modify_qp`, SQE → RTS—Goes on after a failed send on UC or UD, where the device stops the send queue alone.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if it is in another state; [`Error::Verb`](crate::Error::Verb) as
    /// [`query`](Self::query), or with EINVAL if the device refuses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QpState, QueuePair, Ud};
    /// # fn f(qp: &mut QueuePair<'_, Ud>) -> Result<(), ibv::Error> {
    /// // a send has completed with an error
    /// if qp.query()?.state() == QpState::SQE {
    ///     qp.resume_after_send_error()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn resume_after_send_error(&mut self) -> Result<()>
    where
        S: Is<Rts>,
        T: Unreliable,
    {
        // some drivers (rxe) believe the current state that they are told, and would revive a dead queue pair
        let state = self.query()?.state();
        if state != QpState::SQE {
            return Err(crate::Error::invalid("the queue pair's state", state, "SQE, after a failed send"));
        }
        let mut change = Change::default();
        change.current_state(QpState::SQE);
        self.core.modify(QpState::SQE, QpState::RTS, change)
    }

    /// `ibv_modify_qp`, SQD → SQD—Changes attributes of the drained queue pair, such as the path. The device may
    /// [drain](crate::QpAttr::is_draining) it once more.
    ///
    /// Linux refuses a new path (`address`) on UC: it adds the port, which it does not allow there.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`](crate::Error::Limit) for a value out of its range; [`Error::Verb`](crate::Error::Verb) with
    /// EINVAL, also if it is not drained yet; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{AddressVector, QueuePair, Rc, qp::attr::RcSqdAttr, state::Sqd};
    /// # fn f(qp: &mut QueuePair<'_, Rc, Sqd>, path: AddressVector) -> Result<(), ibv::Error> {
    /// qp.modify_drained(&RcSqdAttr::new().address(&path))?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify_drained(&mut self, attr: &T::SqdModify) -> Result<()>
    where
        S: Is<Sqd>,
    {
        self.stay(change_of(attr))
    }

    /// `ibv_modify_qp`, SQD → RTS—Lets the send queue go on.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] with the queue pair as it was: [`Error::Verb`](crate::Error::Verb) with EINVAL if it is not
    /// drained yet, or no longer in SQD; EIO if the device is gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{QueuePair, Rc, RemoteAccess, qp::attr::RcModifyAttr, state::Sqd};
    /// # fn f<'a>(qp: QueuePair<'a, Rc, Sqd>) -> Result<QueuePair<'a>, ibv::Error> {
    /// let qp = qp.resume(RcModifyAttr::new().access(RemoteAccess::READ))?;
    /// # Ok(qp)
    /// # }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn resume(self, attr: T::RtsModify) -> Moved<'a, T, S, Rts, B>
    where
        S: Is<Sqd>,
    {
        self.go(change_of(&attr))
    }
}

/// A state in the middle of several steps is nobody's: better none.
fn back_to_reset<'a, T: Transport, S: State, B: Backend>(
    refused: TransitionError<QueuePair<'a, T, S, B>>,
) -> TransitionError<QueuePair<'a, T, Reset, B>> {
    let (qp, error) = refused.into_parts();
    let reset = qp.and_then(|qp| match qp.reset() {
        Ok(qp) => Some(qp),
        Err(refused) => {
            tracing::error!(error = %refused, "a queue pair could not be reset after a failed transition, and is dropped");
            None
        }
    });
    Refused::new(reset, error)
}
