//! What objects are told apart by, in completions and events: in C a pointer of the user's, here a number.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(1);

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident;)*) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(usize);

        impl $name {
            pub(crate) fn new() -> Self {
                Self(NEXT.fetch_add(1, Ordering::Relaxed))
            }

            /// As the object's context in C: an address that is none.
            pub(crate) fn to_context(self) -> *mut c_void {
                std::ptr::without_provenance_mut(self.0)
            }

            pub(crate) fn of_context(context: *mut c_void) -> Self {
                Self(context.addr())
            }
        }
    )*};
}

ids! {
    /// What a completion queue's events are told apart by: unique in the process, never reused.
    CqId;
    /// What a queue pair's events are told apart by: unique in the process, never reused.
    QpId;
    /// What a shared receive queue's events are told apart by: unique in the process, never reused.
    SrqId;
}
