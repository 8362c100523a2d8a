//! Asynchronous events.
//!
//! # Safety
//!
//! As in [`cold`](crate::cold).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

use ibv_sys as sys;

use crate::device::context_at;
use crate::record::Kind;
use crate::universe::{Body, Universe, misuse, set_errno, with};

/// A context's events.
pub(crate) struct Notices {
    /// One byte in the pipe for each event.
    pub(crate) read: OwnedFd,
    pub(crate) write: OwnedFd,
    waiting: VecDeque<Notice>,
    /// What the events that were read and not acknowledged name.
    unacknowledged: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Notice {
    event_type: sys::ibv_event_type,
    /// Address of the object, or the port.
    element: usize,
}

impl Notices {
    pub(crate) fn new((read, write): (OwnedFd, OwnedFd)) -> Self {
        Self { read, write, waiting: VecDeque::new(), unacknowledged: Vec::new() }
    }
}

fn of<'u>(universe: &'u mut Universe, verb: &str, context: usize) -> &'u mut Notices {
    match &mut universe.find(verb, Kind::Context, context).body {
        Body::Context(notices) => notices,
        _ => misuse("a context without its body"),
    }
}

/// Puts an event into the context's file.
pub(crate) fn raise(context: *mut sys::ibv_context, event_type: sys::ibv_event_type, element: usize) {
    with(|universe| {
        let notices = of(universe, "Hca::notify", context_at(context));
        notices.waiting.push_back(Notice { event_type, element });
        // SAFETY: an open pipe, and one byte.
        if unsafe { libc::write(notices.write.as_raw_fd(), [1u8].as_ptr().cast(), 1) } != 1 {
            misuse("the context's pipe is full");
        }
    });
}

/// An object goes: what waits of it goes too, and what was read of it must have been acknowledged.
pub(crate) fn forget(universe: &mut Universe, context: usize, object: usize) {
    let Some(Body::Context(notices)) = universe.body(context) else { return };
    notices.waiting.retain(|notice| notice.element != object);
    if notices.unacknowledged.contains(&object) {
        misuse("the destruction would wait for ever: an asynchronous event was not acknowledged");
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut sys::ibv_context,
    event: *mut sys::ibv_async_event,
) -> c_int {
    const VERB: &str = "ibv_get_async_event";
    let at = context_at(context);
    let (fd, verdict) = with(|universe| {
        let hca = universe.find(VERB, Kind::Context, at).hca;
        (of(universe, VERB, at).read.as_raw_fd(), universe.verdict(hca, VERB))
    });
    if verdict != 0 {
        set_errno(verdict);
        return -1;
    }
    loop {
        let mut byte = [0u8; 1];
        // SAFETY: an open pipe, and room for one byte. It blocks, unless the user said otherwise.
        if unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) } != 1 {
            return -1;
        }
        let found = with(|universe| {
            let notices = of(universe, VERB, at);
            let notice = notices.waiting.pop_front()?;
            notices.unacknowledged.push(notice.element);
            Some(notice)
        });
        // none: the byte was of an object that is gone
        if let Some(Notice { event_type, element }) = found {
            // SAFETY: the caller's out-parameter. A port is in the low bits of the union, like the rest.
            unsafe {
                (*event).event_type = event_type;
                (*event).element.qp = std::ptr::with_exposed_provenance_mut(element);
            }
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut sys::ibv_async_event) {
    // SAFETY: the caller's struct; all members of the union begin with these bits.
    let element = unsafe { (*event).element.qp }.addr();
    let found = with(|universe| {
        universe.bodies().any(|body| match body {
            Body::Context(notices) => {
                let at = notices.unacknowledged.iter().position(|&known| known == element);
                at.map(|at| notices.unacknowledged.swap_remove(at)).is_some()
            }
            _ => false,
        })
    });
    if !found {
        misuse("ibv_ack_async_event of what was not read");
    }
}
