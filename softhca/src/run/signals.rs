//! Signals wait while the device runs: a handler of the program may do what must not happen in the middle of it.
//! (It may fork, for which the C library locks its allocator; it may close a channel, for which we lock the state.)
//!
//! # Safety
//!
//! Reads and sets the calling thread's signal mask, from local sets that the calls initialise.
#![expect(unsafe_code, reason = "sets the signal mask")]

use std::ptr::null_mut;

/// While it lives, this thread gets no signals but those of its own faults, and those even if the program blocked
/// them: `mem::guard` needs them.
#[derive(Debug)]
pub(crate) struct Held(libc::sigset_t);

impl Held {
    pub(crate) fn new() -> Self {
        const FAULTS: [libc::c_int; 5] =
            [libc::SIGSEGV, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        // SAFETY: both sets are local (module comment).
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            for signal in FAULTS {
                libc::sigdelset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, &raw mut old);
            Self(old)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the mask of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}
