//! Completion events.
//!
//! # Safety
//!
//! `ibv_get_cq_event` names a queue by pointer, which is valid until the event is acknowledged: `ibv_destroy_cq`
//! waits for that. So each event is acknowledged here at once, and only the queue's id handed out.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ibv_sys as sys;

use crate::context::Context;
use crate::error::{CloseError, Refused, Result, VerbError};
use crate::parent::Parent;
use crate::raw::{Raw, last_error};

/// What a completion queue's events are told apart by: unique in the process, never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CqId(usize);

impl CqId {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn to_cq_context(self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0)
    }
}

/// `ibv_comp_channel`—Where the events of completion queues arrive.
///
/// [`AsFd`] gives a file descriptor to `epoll` or an async runtime, which then calls [`try_event`](Self::try_event) when
/// it is readable.
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
    raw: Raw<sys::ibv_comp_channel>,
    /// An epoll instance that is readable when the channel is. The channel's own descriptor is not given out: who reads
    /// it takes events that nobody acknowledges, for which `ibv_destroy_cq` then waits for ever.
    readiness: OwnedFd,
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
        // SAFETY: the channel is new and alive.
        let fd = unsafe { (*raw.as_ptr()).fd };
        // SAFETY: the descriptor is open; these commands touch nothing but its flags.
        let result = unsafe {
            match libc::fcntl(fd, libc::F_GETFL) {
                -1 => -1,
                flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
            }
        };
        if result == -1 {
            return Err(last_error("fcntl", || "O_NONBLOCK on a completion channel".to_owned()));
        }
        Ok(Self { raw, readiness: readiness_of(fd)?, ctx })
    }

    /// `ibv_get_cq_event`—The next event, if one has arrived: the queue to poll. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) with EIO if the device is gone and no event is left (with older kernels it is
    /// only [`wait`](Self::wait) that says so, and the channel just stays empty); EBADF if something else in the process closed
    /// the channel's descriptor. An empty channel (EAGAIN) is `None`, and a call that a signal interrupts (EINTR) is
    /// made again.
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
        let (mut cq, mut cq_context) = (null_mut(), null_mut());
        loop {
            // SAFETY: the channel is alive, and both out-parameters are ours.
            let result =
                unsafe { sys::ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut cq_context) };
            if result == 0 {
                // SAFETY: the event just got names `cq`, whose destruction waits for this acknowledgement.
                unsafe { sys::ibv_ack_cq_events(cq, 1) };
                return Ok(Some(CqId(cq_context.addr())));
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::EINTR) => {}
                _ => return Err(last_error("ibv_get_cq_event", String::new)),
            }
        }
    }

    /// `ibv_get_cq_event`—Waits for the next event: the queue to poll. It is acknowledged already.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`](crate::Error::Verb) as [`try_event`](Self::try_event): EIO if the device is gone, EBADF; or
    /// (`poll`) ENOMEM if the kernel has no memory to wait with. A signal (EINTR) does not end the wait.
    #[doc(alias = "ibv_get_cq_event")]
    pub fn wait(&self) -> Result<CqId> {
        loop {
            if let Some(id) = self.try_event()? {
                return Ok(id);
            }
            self.until_readable(-1)?;
        }
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
        let start = Instant::now();
        loop {
            if let Some(id) = self.try_event()? {
                return Ok(Some(id));
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            // rounded up, or the last part of a millisecond is spent spinning
            let millis = left.as_nanos().div_ceil(1_000_000);
            self.until_readable(c_int::try_from(millis).unwrap_or(c_int::MAX))?;
        }
    }

    fn until_readable(&self, timeout_ms: c_int) -> Result<()> {
        // SAFETY: the channel is alive.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&raw mut fd, 1, timeout_ms) } != -1 {
            // older kernels say only here that the device is gone, and for ever that there is nothing to read
            let gone = fd.revents & libc::POLLIN == 0 && fd.revents != 0;
            return if gone {
                Err(VerbError::new("poll", libc::EIO, "the device is gone").into())
            } else {
                Ok(())
            };
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => Ok(()),
            _ => Err(last_error("poll", || "waiting for a completion event".to_owned())),
        }
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

/// A descriptor that is readable when `fd` is.
fn readiness_of(fd: c_int) -> Result<OwnedFd> {
    // SAFETY: no precondition.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if epoll == -1 {
        return Err(last_error("epoll_create1", String::new));
    }
    // SAFETY: just opened, and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are open, and `event` is only read.
    match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
        0 => Ok(epoll),
        _ => Err(last_error("epoll_ctl", || "a completion channel".to_owned())),
    }
}

impl fmt::Debug for CompletionChannel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("fd", &self.as_fd()).finish_non_exhaustive()
    }
}
