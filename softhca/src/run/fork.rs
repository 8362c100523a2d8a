//! Forked children: a child has none of its parent's contexts, and a device of its own as soon as it looks for one.
//!
//! A fork may come at any moment: from a signal handler that interrupted the device, or while another thread runs it.
//! So nothing is locked for it, and the child only forgets: what its parent had stays where it is, unused.
//!
//! # Safety
//!
//! `pthread_atfork` gets a function that stays. In the child it stores to atomics and closes a descriptor, which is
//! allowed there whatever was interrupted.
#![expect(unsafe_code, reason = "a fork handler")]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The process that the state belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::getpid() }
}

/// Whether this process is the one that the state belongs to (and not a child of `vfork`, which shares it).
pub(crate) fn is_owner() -> bool {
    OWNER.load(Ordering::Acquire) == pid()
}

/// Looks out for forks from now on.
pub(crate) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    OWNER.store(pid(), Ordering::Release);
    if !WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: a function that stays (module comment).
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

unsafe extern "C" fn in_child() {
    crate::interpose::fds::forget();
    crate::interpose::sysfs::forget();
    crate::model::forget();
    crate::check::forget();
    crate::fabric::forget();
    super::pump::stop_service();
    super::start::forget();
}
