//! Who reads a completion channel: one at a time, asleep or not.
//!
//! A descriptor blocks or does not, for all who read it. A C program has one that blocks, and waits by one system call;
//! one that does not block takes three (read, poll, read), of which one comes after the event. So it blocks while
//! somebody waits, and only then: it is changed when waiting follows trying or the other way round, and programs mostly
//! do one of them.
//!
//! # Safety
//!
//! The descriptor is that of a channel that is alive, and nobody else reads it.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};

use crate::error::Result;
use crate::lock::locked;
use crate::raw::last_error;

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Whether the descriptor blocks; held by who reads it.
    blocks: Mutex<bool>,
    /// Whether who holds it is asleep, or will be.
    asleep: AtomicBool,
}

impl Turns {
    /// Reads without waiting. If another thread waits, the next event is for that one, and there is none for this.
    ///
    /// # Safety
    ///
    /// `fd` is open.
    pub(super) unsafe fn awake<T>(
        &self,
        fd: c_int,
        read: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut blocks = loop {
            match self.blocks.try_lock() {
                Ok(blocks) => break blocks,
                Err(TryLockError::Poisoned(blocks)) => break blocks.into_inner(),
                Err(TryLockError::WouldBlock) if self.asleep.load(Ordering::Acquire) => return Ok(None),
                // it is only a moment
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        // SAFETY: passed on.
        unsafe { change(fd, &mut blocks, false) }?;
        read()
    }

    /// Reads, and waits until there is something: `None` is a device that is gone, mostly.
    ///
    /// # Safety
    ///
    /// `fd` is open.
    #[inline(always)]
    pub(super) unsafe fn asleep<T>(
        &self,
        fd: c_int,
        read: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut blocks = locked(&self.blocks);
        // SAFETY: passed on.
        unsafe { change(fd, &mut blocks, true) }?;
        self.asleep.store(true, Ordering::Release);
        let event = read();
        self.asleep.store(false, Ordering::Release);
        event
    }
}

/// # Safety
///
/// `fd` is open.
#[inline(always)]
unsafe fn change(fd: c_int, blocks: &mut bool, wanted: bool) -> Result<()> {
    if *blocks != wanted {
        // SAFETY: passed on.
        unsafe { set_blocking(fd, wanted) }?;
        *blocks = wanted;
    }
    Ok(())
}

/// # Safety
///
/// `fd` is open.
#[cold]
unsafe fn set_blocking(fd: c_int, wanted: bool) -> Result<()> {
    // SAFETY: the caller's descriptor; these commands touch nothing but its flags.
    let result = unsafe {
        match libc::fcntl(fd, libc::F_GETFL) {
            -1 => -1,
            flags if wanted => libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK),
            flags => libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    if result == -1 {
        return Err(last_error("fcntl", || "O_NONBLOCK of a completion channel".to_owned()));
    }
    Ok(())
}
