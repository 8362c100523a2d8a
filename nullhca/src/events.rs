//! Completions and completion events.
//!
//! # Safety
//!
//! As in [`cold`](crate::cold).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;

use ibv_sys as sys;

use crate::record::Kind;
use crate::universe::{Arm, Body, Completed, Cq, Object, Universe, misuse, set_errno, with};

pub(crate) fn cq_of(object: &mut Object) -> &mut Cq {
    match &mut object.body {
        Body::Cq(cq) => cq,
        _ => misuse("a completion queue without its body"),
    }
}

/// Puts a completion into the queue, and an event into its channel if it is armed for it.
pub(crate) fn complete(cq: *mut sys::ibv_cq, completed: Completed, solicited: bool) {
    with(|universe| {
        let queue = cq_of(universe.find("Hca::complete", Kind::Cq, cq.addr()));
        let failed = completed.wc.status != sys::IBV_WC_SUCCESS;
        queue.completions.push_back(completed);
        let raise = match queue.armed {
            Some(Arm::Any) => true,
            Some(Arm::Solicited) => solicited || failed,
            None => false,
        };
        if raise {
            queue.armed = None;
            push(universe, cq.addr());
        }
    });
}

/// Puts an event into the queue's channel.
pub(crate) fn raise(cq: *mut sys::ibv_cq) {
    with(|universe| push(universe, cq.addr()));
}

/// Takes the device away from the channel: poll(2) says so, reading does not.
pub(crate) fn unplug(channel: *mut sys::ibv_comp_channel) {
    with(|universe| match &mut universe.find("Hca::unplug", Kind::Channel, channel.addr()).body {
        // closing the writing end hangs the other one up
        Body::Channel(channel) => match File::options().write(true).open("/dev/null") {
            Ok(null) => channel.write = null.into(),
            Err(_) => misuse("/dev/null cannot be opened"),
        },
        _ => misuse("a channel without its body"),
    });
}

fn push(universe: &mut Universe, cq: usize) {
    let channel = cq_of(universe.find("an event", Kind::Cq, cq)).channel;
    if channel == 0 {
        return;
    }
    let Body::Channel(channel) = &mut universe.find("an event", Kind::Channel, channel).body else {
        misuse("a channel without its body")
    };
    channel.events.push_back(cq);
    // SAFETY: an open pipe, and one byte.
    if unsafe { libc::write(channel.write.as_raw_fd(), [1u8].as_ptr().cast(), 1) } != 1 {
        misuse("the channel's pipe is full");
    }
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut sys::ibv_cq, solicited_only: c_int) -> c_int {
    const VERB: &str = "ibv_req_notify_cq";
    with(|universe| {
        let object = universe.find(VERB, Kind::Cq, cq.addr());
        let (id, hca) = (object.id, object.hca);
        let errno = universe.verdict(hca, VERB);
        if errno == 0 {
            let queue = cq_of(universe.find(VERB, Kind::Cq, cq.addr()));
            // armed for all stays so
            if queue.armed != Some(Arm::Any) {
                queue.armed = Some(if solicited_only == 0 { Arm::Any } else { Arm::Solicited });
            }
        }
        universe.note(hca, VERB, Some(id), errno);
        errno
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    const VERB: &str = "ibv_get_cq_event";
    let (fd, verdict) = with(|universe| {
        let object = universe.find(VERB, Kind::Channel, channel.addr());
        let hca = object.hca;
        let Body::Channel(body) = &object.body else { misuse("a channel without its body") };
        let fd = body.read.as_raw_fd();
        (fd, universe.verdict(hca, VERB))
    });
    if verdict != 0 {
        set_errno(verdict);
        return -1;
    }
    loop {
        let mut byte = [0u8; 1];
        // SAFETY: an open pipe, and room for one byte. It blocks, unless the user said otherwise.
        match unsafe { libc::read(fd, byte.as_mut_ptr().cast(), 1) } {
            1 => {}
            // unplugged: empty for ever, as with kernels before 6.4
            0 => {
                set_errno(libc::EAGAIN);
                return -1;
            }
            // errno is set
            _ => return -1,
        }
        let found = with(|universe| {
            let object = universe.find(VERB, Kind::Channel, channel.addr());
            let Body::Channel(body) = &mut object.body else { misuse("a channel without its body") };
            let at = body.events.pop_front()?;
            cq_of(universe.find(VERB, Kind::Cq, at)).events_read += 1;
            Some(std::ptr::with_exposed_provenance_mut::<sys::ibv_cq>(at))
        });
        // none: the byte was of a queue that is gone
        if let Some(found) = found {
            // SAFETY: the caller's out-parameters, and a queue that was alive a moment ago.
            unsafe {
                *cq = found;
                *cq_context = (*found).cq_context;
            }
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_ack_cq_events(cq: *mut sys::ibv_cq, events: c_uint) {
    with(|universe| {
        let queue = cq_of(universe.find("ibv_ack_cq_events", Kind::Cq, cq.addr()));
        queue.events_acked += events;
        if queue.events_acked > queue.events_read {
            misuse("ibv_ack_cq_events: more than there were");
        }
    });
}
