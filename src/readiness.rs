//! Waiting for a descriptor of libibverbs' that events are read from.
//!
//! # Safety
//!
//! The descriptor belongs to a C object, which whoever makes a [`Readiness`] keeps alive for at least as long.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

use crate::error::{Result, VerbError};
use crate::lock::locked;
use crate::raw::last_error;

/// A descriptor that is made non-blocking, and an epoll instance that is readable when it is: who waits is given that.
/// Who reads the descriptor itself takes events that nobody acknowledges, for which a destroy then waits for ever.
///
/// The instance watches the descriptor only once it is given out: the kernel calls it at each event, which who waits by
/// reading need not pay for. Until then it watches one that is ready. So it is readable at all times if the kernel then
/// refuses, which [`AsFd`] cannot say: who waits for it tries in vain, but misses nothing.
pub(crate) struct Readiness {
    fd: c_int,
    epoll: OwnedFd,
    given_out: Once,
    ready: Arc<OwnedFd>,
    what: &'static str,
}

impl Readiness {
    /// Of `what`.
    ///
    /// # Safety
    ///
    /// `fd` is open for as long as this lives.
    pub(crate) unsafe fn new(fd: c_int, what: &'static str) -> Result<Self> {
        // SAFETY: the descriptor is open; these commands touch nothing but its flags.
        let result = unsafe {
            match libc::fcntl(fd, libc::F_GETFL) {
                -1 => -1,
                flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
            }
        };
        if result == -1 {
            return Err(last_error("fcntl", || format!("O_NONBLOCK on {what}")));
        }
        // SAFETY: no precondition.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll == -1 {
            return Err(last_error("epoll_create1", String::new));
        }
        // SAFETY: just opened, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let ready = ready()?;
        watch(&epoll, ready.as_raw_fd())?;
        Ok(Self { fd, epoll, given_out: Once::new(), ready, what })
    }

    /// What `read`, which calls `verb`, makes of the next event: it says whether the verb succeeded. `None` if there is
    /// none.
    #[inline(always)]
    pub(crate) fn try_read<T>(
        &self,
        verb: &'static str,
        mut read: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            if let Some(event) = read() {
                return Ok(Some(event));
            }
            if !is_interrupted(verb)? {
                return Ok(None);
            }
        }
    }

    /// Calls `next` until it has something.
    #[inline(always)]
    pub(crate) fn wait<T>(&self, mut next: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        loop {
            if let Some(event) = next()? {
                return Ok(event);
            }
            self.until_readable(-1)?;
        }
    }

    /// The same, at most for `timeout`.
    pub(crate) fn wait_timeout<T>(
        &self,
        timeout: Duration,
        mut next: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        loop {
            if let Some(event) = next()? {
                return Ok(Some(event));
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

    #[cold]
    fn until_readable(&self, timeout_ms: c_int) -> Result<()> {
        let mut fd = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
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
            _ => Err(last_error("poll", || format!("waiting for {}", self.what))),
        }
    }
}

impl AsFd for Readiness {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.given_out.call_once(|| match watch(&self.epoll, self.fd) {
            Ok(()) => {
                let (epoll, ready) = (self.epoll.as_raw_fd(), self.ready.as_raw_fd());
                // SAFETY: both descriptors are open.
                unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, ready, null_mut()) };
            }
            Err(error) => {
                tracing::warn!(%error, "the descriptor of {} is readable at all times", self.what);
            }
        });
        self.epoll.as_fd()
    }
}

/// The descriptor's number. To give it out only to print it would cost.
impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fd.fmt(f)
    }
}

/// What `verb` failed with: whether it was but interrupted, or there is nothing to read.
#[cold]
fn is_interrupted(verb: &'static str) -> Result<bool> {
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Ok(false),
        Some(libc::EINTR) => Ok(true),
        _ => Err(last_error(verb, String::new)),
    }
}

/// Has an epoll instance be readable when `fd` is, and at once if it is now.
fn watch(epoll: &OwnedFd, fd: c_int) -> Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: `event` is only read; a descriptor that is not open is an error.
    match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
        0 => Ok(()),
        _ => Err(last_error("epoll_ctl", String::new)),
    }
}

/// A descriptor that is readable at all times: one for all, as long as it is used.
fn ready() -> Result<Arc<OwnedFd>> {
    static READY: Mutex<Weak<OwnedFd>> = Mutex::new(Weak::new());
    let mut shared = locked(&READY);
    if let Some(ready) = shared.upgrade() {
        return Ok(ready);
    }
    // SAFETY: no precondition.
    let fd = unsafe { libc::eventfd(1, libc::EFD_CLOEXEC) };
    if fd == -1 {
        return Err(last_error("eventfd", String::new));
    }
    // SAFETY: just opened, and nobody else's.
    let ready = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
    *shared = Arc::downgrade(&ready);
    Ok(ready)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn is_readable(readiness: &Readiness) -> bool {
        let mut fd = libc::pollfd { fd: readiness.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
    }

    /// The descriptors that are watched.
    fn watched(readiness: &Readiness) -> Vec<c_int> {
        let info = format!("/proc/self/fdinfo/{}", readiness.epoll.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        let number = |line: &str| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok();
        info.lines().filter_map(number).collect()
    }

    #[test]
    fn it_is_watched_once_it_is_given_out_and_nothing_is_missed() {
        let (from, mut to) = UnixStream::pair().unwrap();
        // SAFETY: the socket outlives it.
        let readiness = unsafe { Readiness::new(from.as_raw_fd(), "a socket") }.unwrap();
        assert_ne!(watched(&readiness), [from.as_raw_fd()]);
        to.write_all(b"1").unwrap();
        assert!(is_readable(&readiness));
        assert_eq!(watched(&readiness), [from.as_raw_fd()]);
        (&from).read_exact(&mut [0]).unwrap();
        assert!(!is_readable(&readiness));
        to.write_all(b"1").unwrap();
        assert!(is_readable(&readiness));
    }

    #[test]
    fn what_cannot_be_watched_is_readable_at_all_times() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: the file outlives it.
        let readiness = unsafe { Readiness::new(file.as_raw_fd(), "a file") }.unwrap();
        assert!(is_readable(&readiness) && is_readable(&readiness));
    }
}
