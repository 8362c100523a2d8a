//! Waiting for a descriptor of libibverbs' that events are read from.
//!
//! # Safety
//!
//! The descriptor belongs to a C object, which whoever makes a [`Readiness`] keeps alive for at least as long.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::error::{Result, VerbError};
use crate::raw::last_error;

/// A descriptor that is made non-blocking, and an epoll instance that is readable when it is: who waits is given that.
/// Who reads the descriptor itself takes events that nobody acknowledges, for which a destroy then waits for ever.
#[derive(Debug)]
pub(crate) struct Readiness {
    fd: c_int,
    epoll: OwnedFd,
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
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open, and `event` is only read.
        match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
            0 => Ok(Self { fd, epoll, what }),
            _ => Err(last_error("epoll_ctl", || what.to_owned())),
        }
    }

    /// What `read`, which calls `verb`, makes of the next event: it says whether the verb succeeded. `None` if there is
    /// none.
    pub(crate) fn try_read<T>(
        &self,
        verb: &'static str,
        mut read: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        loop {
            if let Some(event) = read() {
                return Ok(Some(event));
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::EINTR) => {}
                _ => return Err(last_error(verb, String::new)),
            }
        }
    }

    /// Calls `next` until it has something.
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
        self.epoll.as_fd()
    }
}
