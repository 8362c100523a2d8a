//! Values that stay for the life of the process and are found without a lock: a forked child drops them by
//! forgetting where they are, which is all that may be done there (its parent's threads may have held any lock).
//!
//! # Safety
//!
//! The pointer is null or leads to a leaked box that nobody frees or borrows exclusively.
#![expect(unsafe_code, reason = "reads a leaked value without a lock")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for one leaked value.
#[derive(Debug)]
pub(crate) struct Leaked<T>(AtomicPtr<T>);

impl<T: Sync + 'static> Leaked<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a leaked value (module comment).
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Puts a value there, in place of the one of before.
    pub(crate) fn set(&self, value: T) -> &'static T {
        let value: &'static T = Box::leak(Box::new(value));
        self.0.store(std::ptr::from_ref(value).cast_mut(), Ordering::Release);
        value
    }

    /// The value; made by `make` if there is none. Of two threads that make one at a time, one's is kept.
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        let new = Box::into_raw(Box::new(make()));
        match self.0.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the box just made, which stays from now on.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: the box just made, which nobody else has seen.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: not null, so a leaked value.
                unsafe { &*other }
            }
        }
    }

    /// From now on there is none.
    pub(crate) fn forget(&self) {
        self.0.store(null_mut(), Ordering::Release);
    }
}
