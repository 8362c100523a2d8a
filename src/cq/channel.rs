//! Completion events.
//!
//! # Safety
//!
//! `ibv_get_cq_event` names a queue by pointer, which is valid until the event is acknowledged: `ibv_destroy_cq`
//! waits for that. So each event is acknowledged here at once, and only the queue's id handed out.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::null_mut;
use std::time::Duration;

use ibv_sys as sys;

use crate::context::Context;
use crate::error::{CloseError, Refused, Result};
use crate::id::CqId;
use crate::parent::Parent;
use crate::raw::Raw;
use crate::readiness::Readiness;

use super::turns::Turns;

/// `ibv_comp_channel`—Where the events of completion queues arrive.
///
/// [`AsFd`] gives a file descriptor to `epoll` or an async runtime, which then calls [`try_event`](Self::try_event)
/// when it is readable. Who only [waits](Self::wait) is better off without: from then on the kernel does a little more
/// for each event.
///
/// `Send` and `Sync`.
///
/// # Examples
///
/// ```no_run
/// use ibv::{Arm, CompletionQueue, WorkCompletion};
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let channel = ctx.create_comp_channel()?;
/// let cq = CompletionQueue::builder(&ctx, 128).channel(&channel).build()?;
/// let mut wcs = [WorkCompletion::default(); 16];
/// loop {
///     cq.arm(Arm::Any)?;
///     let done = cq.poll(&mut wcs)?;
///     if done.is_empty() {
///         channel.wait()?;
///     }
///     for wc in done {
///         wc.result()?;
///     }
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_comp_channel")]
pub struct CompletionChannel<'a> {
    readiness: Readiness,
    turns: Turns,
    // after `readiness`, whose descriptor is its
    raw: Raw<sys::ibv_comp_channel>,
    ctx: Parent<'a, Context>,
}

impl<'a> CompletionChannel<'a> {
    /// `ibv_create_comp_channel`—A new channel.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EMFILE if the process has too many files open, ENOMEM.
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn new(ctx: impl Into<Parent<'a, Context>>) -> Result<Self> {
        let ctx = ctx.into();
        // SAFETY: the context is open.
        let channel = unsafe { sys::ibv_create_comp_channel(ctx.as_ptr()) };
        // SAFETY: `channel` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_create_comp_channel", channel, String::new) }?;
        // SAFETY: the channel is new and alive, and owned beside its readiness.
        let readiness = unsafe { Readiness::new((*raw.as_ptr()).fd, "a completion channel") }?;
        Ok(Self { readiness, turns: Turns::default(), raw, ctx })
    }

    /// `ibv_get_cq_event`—The next event, if one has arrived: the queue to poll. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EIO if the device is gone and no event is left (with older kernels it
    /// is only [`wait`](Self::wait) that says so, and the channel just stays empty); EBADF if something else in the
    /// process closed the channel's descriptor. An empty channel (EAGAIN) is `None`, as one on which another thread
    /// [waits](Self::wait): the next event is for that one. A call that a signal interrupts (EINTR) is made again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{CompletionChannel, CqId};
    /// # fn f(channel: &CompletionChannel<'_>, poll_it: impl Fn(CqId)) -> Result<(), ibv::Error> {
    /// // the descriptor that `as_fd` gave is readable
    /// while let Some(cq) = channel.try_event()? {
    ///     poll_it(cq);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn try_event(&self) -> Result<Option<CqId>> {
        // SAFETY: the channel is alive, and its descriptor open.
        unsafe { self.turns.awake(self.fd(), || self.read()) }
    }

    #[inline(always)]
    fn read(&self) -> Result<Option<CqId>> {
        self.readiness.try_read("ibv_get_cq_event", || {
            let (mut cq, mut cq_context) = (null_mut(), null_mut());
            // SAFETY: the channel is alive, and both out-parameters are ours.
            let result =
                unsafe { sys::ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut cq_context) };
            (result == 0).then(|| {
                // SAFETY: the event just got names `cq`, whose destruction waits for this acknowledgement.
                unsafe { sys::ibv_ack_cq_events(cq, 1) };
                CqId::of_context(cq_context)
            })
        })
    }

    fn fd(&self) -> c_int {
        // SAFETY: the channel is alive.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// `ibv_get_cq_event`—Waits for the next event: the queue to poll. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) as [`try_event`](Self::try_event): EIO if the device is gone, EBADF; or
    /// (`poll`) ENOMEM if the kernel has no memory to wait with. A signal (EINTR) does not end the wait.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self) -> Result<CqId> {
        // SAFETY: the channel is alive, and its descriptor open.
        self.readiness.wait(|| unsafe { self.turns.asleep(self.fd(), || self.read()) })
    }

    /// `ibv_get_cq_event`—Waits for the next event, at most for `timeout`, counted in milliseconds and rounded up;
    /// `None` if none came.
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait): [`Error::Verb`](crate::Error::Verb) with EIO if the device is gone, EBADF, ENOMEM. A
    /// signal (EINTR) does not end the wait, nor make it longer.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # fn f(channel: &ibv::CompletionChannel<'_>, cq: &ibv::CompletionQueue<'_>) -> Result<(), ibv::Error> {
    /// match channel.wait_timeout(Duration::from_millis(100))? {
    ///     Some(id) => assert_eq!(id, cq.id()),
    ///     None => println!("nothing for 100 ms"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<CqId>> {
        self.readiness.wait_timeout(timeout, || self.try_event())
    }

    /// The context that it was made from.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// `ibv_destroy_comp_channel`—Destroys it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the channel, with EBUSY if a completion queue on it was leaked.
    #[doc(alias = "ibv_destroy_comp_channel")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        self.raw.destroy().map_err(|error| Refused::new(self, error))
    }

    /// The C object; see [`Context::as_ptr`].
    pub fn as_ptr(&self) -> *mut sys::ibv_comp_channel {
        self.raw.as_ptr()
    }
}

/// For waiting until it is readable: that is when an event has arrived. It cannot be read itself.
impl AsFd for CompletionChannel<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readiness.as_fd()
    }
}

impl fmt::Debug for CompletionChannel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("fd", &self.readiness).finish_non_exhaustive()
    }
}
