//! What the poller of an extended completion queue polls: the queue, or a stand-in on which every poll fails, so that
//! a poll need not ask beforehand whether there is anything else to look at.
//!
//! # Safety
//!
//! The stand-in has the functions that a poll calls first, `start_poll` and its context's `poll_cq`, which fail without
//! looking at anything: so the others, which it lacks, are not called. Its status is read with the failure. Nobody
//! writes to it.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use ibv_sys as sys;

/// The queue, or the stand-in.
#[derive(Debug)]
pub(crate) struct Front(AtomicPtr<sys::ibv_cq_ex>);

impl Front {
    /// Of a queue that nobody polls by this.
    pub(super) const fn none() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// What is to be polled.
    #[inline(always)]
    pub(super) fn get(&self) -> *mut sys::ibv_cq_ex {
        // whoever finds the stand-in goes by `open` before looking at anything else
        self.0.load(Ordering::Relaxed)
    }

    /// Whether this is the stand-in.
    pub(super) fn is_closed(front: *mut sys::ibv_cq_ex) -> bool {
        front.cast_const() == &raw const STAND_IN.0
    }

    /// Puts the queue there. What was done before it was closed is seen after this; what is done later closes it again.
    pub(super) fn open(&self, queue: *mut sys::ibv_cq_ex) {
        self.0.swap(queue, Ordering::AcqRel);
    }

    /// Puts the stand-in there: the next poll is to look at what was done before.
    pub(super) fn close(&self) {
        // exchanged, and not just stored, so that what others did before they closed it is not forgotten
        self.0.swap((&raw const STAND_IN.0).cast_mut(), Ordering::Release);
    }
}

struct Unwritten<T>(T);

// SAFETY: there are the two below, which nobody writes to, and one points to the other.
unsafe impl<T> Sync for Unwritten<T> {}

static STAND_IN: Unwritten<sys::ibv_cq_ex> = {
    unsafe extern "C" fn start_poll(_: *mut sys::ibv_cq_ex, _: *mut sys::ibv_poll_cq_attr) -> c_int {
        libc::EIO
    }
    // SAFETY: integers, pointers and optional functions, for which zero is a value.
    let mut cq: sys::ibv_cq_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    cq.start_poll = Some(start_poll);
    cq.context = (&raw const CONTEXT.0).cast_mut();
    Unwritten(cq)
};

static CONTEXT: Unwritten<sys::ibv_context> = {
    unsafe extern "C" fn poll_cq(_: *mut sys::ibv_cq, _: c_int, _: *mut sys::ibv_wc) -> c_int {
        -libc::EIO
    }
    // SAFETY: as above.
    let mut context: sys::ibv_context = unsafe { MaybeUninit::zeroed().assume_init() };
    context.ops.poll_cq = Some(poll_cq);
    Unwritten(context)
};
