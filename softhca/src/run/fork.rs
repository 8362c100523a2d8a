//! Forked children: a child has none of its parent's contexts, and a device of its own.
//!
//! # Safety
//!
//! `pthread_atfork` gets three functions that stay. They run on the forking thread; the lock is held across the
//! fork, so the child sees a consistent state. In the child only memory is touched, and descriptors of its own
//! copies.
#![expect(unsafe_code, reason = "fork handlers")]

use crate::model::{self, Model};
use std::cell::RefCell;
use std::sync::MutexGuard;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// The process that the state belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The lock, held across a fork.
    static HELD: RefCell<Option<MutexGuard<'static, Option<Model>>>> = const { RefCell::new(None) };
}

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
    static ONCE: Once = Once::new();
    OWNER.store(pid(), Ordering::Release);
    ONCE.call_once(|| {
        // SAFETY: functions that stay (module comment).
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    let _ = HELD.try_with(|h| *h.borrow_mut() = Some(model::lock()));
}

unsafe extern "C" fn in_parent() {
    let _ = HELD.try_with(|h| h.borrow_mut().take());
}

unsafe extern "C" fn in_child() {
    let held = HELD.try_with(|h| h.borrow_mut().take()).ok().flatten();
    let Some(mut guard) = held else { return };
    OWNER.store(pid(), Ordering::Release);
    crate::interpose::fds::clear();
    super::pump::stop_service();
    crate::fabric::forget();
    if let Some(old) = guard.take() {
        let config = old.config.clone();
        // The parent's queues and mappings are not ours to end.
        std::mem::forget(old);
        *guard = super::restart(config);
    }
}
