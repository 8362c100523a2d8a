//! Completion channels.

use super::{Dev, errno};
use ibv_sys::*;
use std::ptr::null_mut;

/// A channel of the tests'.
pub(crate) struct Channel(pub(crate) *mut ibv_comp_channel);

impl Channel {
    pub(crate) fn new(d: &Dev) -> Self {
        // SAFETY: objects that the test holds (see the module above).
        let ch = unsafe { ibv_create_comp_channel(d.ctx) };
        assert!(!ch.is_null(), "create_comp_channel: errno {}", errno());
        Self(ch)
    }

    /// Whether there is an event.
    pub(crate) fn ready(&self) -> bool {
        // SAFETY: objects that the test holds (see the module above), and one entry.
        unsafe {
            let mut p = libc::pollfd { fd: (*self.0).fd, events: libc::POLLIN, revents: 0 };
            libc::poll(&mut p, 1, 0) == 1
        }
    }

    /// Takes an event, which must be there, and acknowledges it; gives the queue that it is of.
    pub(crate) fn take(&self) -> *mut ibv_cq {
        let (mut cq, mut id) = (null_mut(), null_mut());
        // SAFETY: objects that the test holds (see the module above), and so is the queue that an event names.
        unsafe {
            assert_eq!(ibv_get_cq_event(self.0, &mut cq, &mut id), 0);
            ibv_ack_cq_events(cq, 1);
        }
        cq
    }

    /// 0, or why not.
    pub(crate) fn destroy(&self) -> i32 {
        // SAFETY: objects that the test holds (see the module above).
        unsafe { ibv_destroy_comp_channel(self.0) }
    }
}

/// Asks for an event.
pub(crate) fn notify(cq: *mut ibv_cq, solicited: bool) {
    // SAFETY: objects that the test holds (see the module above).
    assert_eq!(unsafe { ibv_req_notify_cq(cq, solicited.into()) }, 0);
}
