//! Signals wait while the device runs: a handler of the program may do what must not happen in the middle of it.
//! (It may fork, for which the C library locks its allocator; it may close a channel, for which we lock the state.)
//! So does cancellation: the device writes to channels and logs, which are cancellation points, inside calls that
//! are none, and half a pass of it must not stay behind.
//!
//! # Safety
//!
//! Reads and sets the calling thread's signal mask, from local sets that the calls initialise, and its cancellation
//! state.
#![expect(unsafe_code, reason = "sets the signal mask and the cancellation state")]

use libc::c_int;
use std::ptr::null_mut;

// SAFETY: as <pthread.h> declares it.
unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While it lives, this thread isn't cancelled and gets no signals but those of its own faults, and those even if the
/// program blocked them: `mem::guard` needs them.
#[derive(Debug)]
pub(crate) struct Held {
    signals: libc::sigset_t,
    cancellation: c_int,
}

impl Held {
    pub(crate) fn new() -> Self {
        const FAULTS: [c_int; 5] = [libc::SIGSEGV, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        // SAFETY: the sets and the old state are local (module comment).
        unsafe {
            let mut cancellation = 0;
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancellation);
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut old: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            for signal in FAULTS {
                libc::sigdelset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, &raw mut old);
            Self { signals: old, cancellation }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the mask and the state of before.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, null_mut());
            pthread_setcancelstate(self.cancellation, null_mut());
        }
    }
}
