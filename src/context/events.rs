//! Asynchronous events: what happens to a device and its objects, besides completions.
//!
//! # Safety
//!
//! `ibv_get_async_event` names an object by pointer, which is valid until the event is acknowledged: its destroy verb
//! waits for that. So the object's id is copied and the event acknowledged here at once, and only the copy handed out.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibv_sys as sys;

use super::Context;
use crate::cq::codes;
use crate::error::Result;
use crate::id::{CqId, QpId, SrqId};
use crate::parent::Parent;
use crate::readiness::Readiness;

codes! {
    /// What has happened (`enum ibv_event_type`). Newer libraries may know more.
    #[doc(alias = "ibv_event_type")]
    AsyncEventKind(sys::ibv_event_type) {
        /// A completion queue was overrun, or failed: it is of no more use, nor are the queue pairs on it.
        CQ_ERR = IBV_EVENT_CQ_ERR,
        /// A queue pair failed, and could not say so by a completion: it is in the error state.
        QP_FATAL = IBV_EVENT_QP_FATAL,
        /// A queue pair received an invalid request, and is in the error state.
        QP_REQ_ERR = IBV_EVENT_QP_REQ_ERR,
        /// A queue pair received a request that its memory does not allow, and is in the error state.
        QP_ACCESS_ERR = IBV_EVENT_QP_ACCESS_ERR,
        /// A queue pair in RTR has received its first packet.
        COMM_EST = IBV_EVENT_COMM_EST,
        /// A queue pair's send queue has run dry, after [`sqd(true)`](crate::QueuePair::sqd).
        SQ_DRAINED = IBV_EVENT_SQ_DRAINED,
        /// A queue pair has changed over to its alternate path.
        PATH_MIG = IBV_EVENT_PATH_MIG,
        /// It could not.
        PATH_MIG_ERR = IBV_EVENT_PATH_MIG_ERR,
        /// The device has failed: close it.
        DEVICE_FATAL = IBV_EVENT_DEVICE_FATAL,
        /// A port can be used.
        PORT_ACTIVE = IBV_EVENT_PORT_ACTIVE,
        /// A port can't be used any more.
        PORT_ERR = IBV_EVENT_PORT_ERR,
        /// A port's LID has changed.
        LID_CHANGE = IBV_EVENT_LID_CHANGE,
        /// A port's P_Key table has changed.
        PKEY_CHANGE = IBV_EVENT_PKEY_CHANGE,
        /// A port's subnet manager has changed.
        SM_CHANGE = IBV_EVENT_SM_CHANGE,
        /// A shared receive queue has failed.
        SRQ_ERR = IBV_EVENT_SRQ_ERR,
        /// Fewer receives are posted on a shared receive queue than its [limit](crate::SharedReceiveQueue::set_limit).
        SRQ_LIMIT_REACHED = IBV_EVENT_SRQ_LIMIT_REACHED,
        /// A queue pair in the error state takes no more from its shared receive queue.
        QP_LAST_WQE_REACHED = IBV_EVENT_QP_LAST_WQE_REACHED,
        /// A port's subnet manager wants its clients to register anew.
        CLIENT_REREGISTER = IBV_EVENT_CLIENT_REREGISTER,
        /// A port's GID table has changed.
        GID_CHANGE = IBV_EVENT_GID_CHANGE,
        /// A work queue has failed.
        WQ_FATAL = IBV_EVENT_WQ_FATAL,
    }
}

/// What it has happened to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum AsyncSubject {
    /// A completion queue: [`CompletionQueue::id`](crate::CompletionQueue::id).
    Cq(CqId),
    /// A queue pair: [`QueuePair::id`](crate::QueuePair::id).
    Qp(QpId),
    /// A shared receive queue: [`SharedReceiveQueue::id`](crate::SharedReceiveQueue::id).
    Srq(SrqId),
    /// A port.
    Port(u8),
    /// The device, or what this crate does not know.
    Device,
}

/// `ibv_async_event`—Something that has happened: a copy, acknowledged already.
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncEvent {
    kind: AsyncEventKind,
    subject: AsyncSubject,
}

impl AsyncEvent {
    /// What has happened.
    pub fn kind(&self) -> AsyncEventKind {
        self.kind
    }

    /// What to. The object may be gone by now.
    pub fn subject(&self) -> AsyncSubject {
        self.subject
    }

    /// # Safety
    ///
    /// `event` was got and is not yet acknowledged.
    unsafe fn of(event: &sys::ibv_async_event) -> Self {
        let kind = AsyncEventKind(event.event_type);
        let element = event.element;
        // SAFETY: each kind says which member there is, and an object is alive until the acknowledgement.
        let subject = unsafe {
            match kind {
                AsyncEventKind::CQ_ERR => AsyncSubject::Cq(CqId::of_context((*element.cq).cq_context)),
                AsyncEventKind::QP_FATAL
                | AsyncEventKind::QP_REQ_ERR
                | AsyncEventKind::QP_ACCESS_ERR
                | AsyncEventKind::COMM_EST
                | AsyncEventKind::SQ_DRAINED
                | AsyncEventKind::PATH_MIG
                | AsyncEventKind::PATH_MIG_ERR
                | AsyncEventKind::QP_LAST_WQE_REACHED => {
                    AsyncSubject::Qp(QpId::of_context((*element.qp).qp_context))
                }
                AsyncEventKind::SRQ_ERR | AsyncEventKind::SRQ_LIMIT_REACHED => {
                    AsyncSubject::Srq(SrqId::of_context((*element.srq).srq_context))
                }
                AsyncEventKind::PORT_ACTIVE
                | AsyncEventKind::PORT_ERR
                | AsyncEventKind::LID_CHANGE
                | AsyncEventKind::PKEY_CHANGE
                | AsyncEventKind::SM_CHANGE
                | AsyncEventKind::CLIENT_REREGISTER
                | AsyncEventKind::GID_CHANGE => AsyncSubject::Port(element.port_num as u8),
                _ => AsyncSubject::Device,
            }
        };
        Self { kind, subject }
    }
}

/// The asynchronous events of a context, made by [`Context::async_events`].
///
/// [`AsFd`] gives a file descriptor to `epoll` or an async runtime, which then calls [`try_event`](Self::try_event)
/// when it is readable. There may be several of one context: each event comes to one of them.
///
/// `Send` and `Sync`.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{AsyncEventKind, AsyncSubject, Context, QueuePair};
/// # fn f(ctx: &Context, qp: &QueuePair<'_>) -> Result<(), ibv::Error> {
/// let events = ctx.async_events()?;
/// loop {
///     let event = events.wait()?;
///     match (event.kind(), event.subject()) {
///         (AsyncEventKind::PORT_ERR, AsyncSubject::Port(port)) => println!("port {port} is down"),
///         (AsyncEventKind::QP_FATAL, AsyncSubject::Qp(id)) if id == qp.id() => break,
///         (kind, subject) => println!("{kind:?} of {subject:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_get_async_event")]
pub struct AsyncEvents<'a> {
    readiness: Readiness,
    // after `readiness`, whose descriptor is its
    ctx: Parent<'a, Context>,
}

impl<'a> AsyncEvents<'a> {
    /// Those of `ctx`. From now on `ibv_get_async_event` of this context does not block in C code either.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EMFILE if the process has too many files open.
    pub fn new(ctx: impl Into<Parent<'a, Context>>) -> Result<Self> {
        let ctx = ctx.into();
        // SAFETY: the context is open, and held.
        let readiness = unsafe { Readiness::new((*ctx.as_ptr()).async_fd, "asynchronous events") }?;
        Ok(Self { readiness, ctx })
    }

    /// `ibv_get_async_event`—The next event, if one has arrived. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EIO if the device is gone and no event is left (with older kernels it
    /// is only [`wait`](Self::wait) that says so).
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn try_event(&self) -> Result<Option<AsyncEvent>> {
        self.readiness.try_read("ibv_get_async_event", || {
            let mut event = MaybeUninit::uninit();
            // SAFETY: the context is open; `event` is ours to write.
            if unsafe { sys::ibv_get_async_event(self.ctx.as_ptr(), event.as_mut_ptr()) } != 0 {
                return None;
            }
            // SAFETY: it was filled in.
            let event = unsafe { event.assume_init_mut() };
            // SAFETY: just got, and acknowledged once, after it was copied.
            unsafe {
                let copy = AsyncEvent::of(event);
                sys::ibv_ack_async_event(event);
                Some(copy)
            }
        })
    }

    /// `ibv_get_async_event`—Waits for the next event. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// As [`try_event`](Self::try_event); or (`poll`) ENOMEM if the kernel has no memory to wait with. A signal (EINTR)
    /// does not end the wait.
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait(&self) -> Result<AsyncEvent> {
        self.readiness.wait(|| self.try_event())
    }

    /// `ibv_get_async_event`—Waits for the next event, at most for `timeout`, counted in milliseconds and rounded up;
    /// `None` if none came.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait).
    #[doc(alias = "ibv_get_async_event")]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<AsyncEvent>> {
        self.readiness.wait_timeout(timeout, || self.try_event())
    }

    /// The context that they are of.
    pub fn context(&self) -> &Context {
        &self.ctx
    }
}

/// For waiting until it is readable: that is when an event has arrived. It cannot be read itself.
impl AsFd for AsyncEvents<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl fmt::Debug for AsyncEvents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents").field("fd", &self.readiness).finish_non_exhaustive()
    }
}
