//! What a test says and asks.
//!
//! # Safety
//!
//! Memory is written only inside a region that is registered.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;

use ibv_sys as sys;

use crate::config::Config;
use crate::events;
use crate::notices;
use crate::record::{Call, Id, Kind, Live, Modify, PostFault, RecvWr, Registration, SendWr, WrCall};
use crate::universe::{Body, Completed, misuse, with};

/// A thread's own devices: what they were asked, and what they shall answer. See [`hca`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hca(usize);

/// This thread's devices.
pub fn hca() -> Hca {
    Hca(with(|universe| universe.current()))
}

impl Hca {
    /// Changes what the devices are like.
    pub fn configure(self, change: impl FnOnce(&mut Config)) {
        with(|universe| change(&mut universe.record(self.0).config));
    }

    /// The next call of `verb` fails with `errno`. (`ibv_reg_mr` means all of its variants; `ibv_post_send` and
    /// `ibv_post_recv` have [`refuse_post`](Self::refuse_post).)
    pub fn fail(self, verb: &'static str, errno: c_int) {
        self.script(verb, &[errno]);
    }

    /// The next calls of `verb` have these results, 0 being success.
    pub fn script(self, verb: &'static str, errnos: &[c_int]) {
        with(|universe| universe.record(self.0).verdicts.entry(verb).or_default().extend(errnos));
    }

    /// The next call of `ibv_post_send` or `ibv_post_recv` ends so.
    pub fn refuse_post(self, fault: PostFault) {
        with(|universe| universe.record(self.0).post_faults.push_back(fault));
    }

    /// How many objects are alive.
    pub fn live(self) -> Live {
        with(|universe| universe.live(self.0))
    }

    /// The calls of verbs so far; those of the data path are recorded apart.
    pub fn calls(self) -> Vec<Call> {
        with(|universe| universe.record(self.0).calls.clone())
    }

    /// How often `verb` was called.
    pub fn count(self, verb: &str) -> usize {
        self.calls().iter().filter(|call| call.verb == verb).count()
    }

    /// What was destroyed with success, in order.
    pub fn destroyed(self) -> Vec<Id> {
        let ends = |call: &Call| {
            let verb = call.verb;
            call.errno == 0
                && (verb.starts_with("ibv_d") && !verb.ends_with("list") || verb == "ibv_close_device")
        };
        self.calls().iter().filter(|call| ends(call)).filter_map(|call| call.object).collect()
    }

    /// The calls of `ibv_modify_qp` since this was asked last.
    pub fn take_modifies(self) -> Vec<Modify> {
        with(|universe| std::mem::take(&mut universe.record(self.0).modifies))
    }

    /// The calls of `ibv_post_send` since this was asked last, each with the requests that it posted.
    pub fn take_sends(self) -> Vec<Vec<SendWr>> {
        with(|universe| std::mem::take(&mut universe.record(self.0).sends))
    }

    /// The calls of `ibv_post_recv` since this was asked last.
    pub fn take_recvs(self) -> Vec<Vec<RecvWr>> {
        with(|universe| std::mem::take(&mut universe.record(self.0).recvs))
    }

    /// The calls of `ibv_wr_*` since this was asked last.
    pub fn take_wr_calls(self) -> Vec<WrCall> {
        with(|universe| std::mem::take(&mut universe.record(self.0).wr_calls))
    }

    /// The object at that address, if one is alive there.
    pub fn id<T>(self, object: *const T) -> Option<Id> {
        with(|universe| universe.get(object.addr()).map(|object| object.id))
    }

    /// The regions that are registered.
    pub fn registrations(self) -> Vec<Registration> {
        with(|universe| {
            let of = universe.objects().filter(|(_, object)| object.hca == self.0);
            of.filter_map(|(_, object)| match object.body {
                Body::Mr(registration) => Some(registration),
                _ => None,
            })
            .collect()
        })
    }

    /// Writes to registered memory, as a device may at any moment. False if no region has the range.
    pub fn device_writes(self, addr: u64, bytes: &[u8]) -> bool {
        let inside = |region: &Registration| {
            addr.checked_sub(region.addr)
                .and_then(|at| at.checked_add(bytes.len() as u64))
                .is_some_and(|end| end <= region.length as u64)
        };
        let inside = self.registrations().iter().any(inside);
        if inside {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
            // SAFETY: whoever registered memory promised that it may be written until it is deregistered.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        }
        inside
    }

    /// A request completes so. If the queue is armed for all completions, or the status is an error, it raises an
    /// event.
    pub fn complete(self, cq: *mut sys::ibv_cq, wc: sys::ibv_wc) {
        self.complete_at(cq, wc, 0);
    }

    /// The same, at a time: so many ticks of the device's clock, each a microsecond of the machine's.
    pub fn complete_at(self, cq: *mut sys::ibv_cq, wc: sys::ibv_wc, ticks: u64) {
        events::complete(cq, Completed { wc, ticks }, false);
    }

    /// The same, for a request that was solicited.
    pub fn complete_solicited(self, cq: *mut sys::ibv_cq, wc: sys::ibv_wc) {
        events::complete(cq, Completed { wc, ticks: 0 }, true);
    }

    /// An event without a completion, as if the queue were armed.
    pub fn raise_event(self, cq: *mut sys::ibv_cq) {
        events::raise(cq);
    }

    /// Takes the device away under a channel, as old kernels show it: poll(2) says so, reading only finds it empty.
    pub fn unplug(self, channel: *mut sys::ibv_comp_channel) {
        events::unplug(channel);
    }

    /// Events of that queue which were read, and of those acknowledged.
    pub fn events(self, cq: *mut sys::ibv_cq) -> (u32, u32) {
        with(|universe| match &universe.find("Hca::events", Kind::Cq, cq.addr()).body {
            Body::Cq(cq) => (cq.events_read, cq.events_acked),
            _ => misuse("a completion queue without its body"),
        })
    }

    /// An asynchronous event of a context; `element` is the address of what it names, or the port.
    pub fn notify(self, context: *mut sys::ibv_context, event_type: sys::ibv_event_type, element: usize) {
        notices::raise(context, event_type, element);
    }

    /// The device moves a queue pair to another state on its own.
    pub fn set_state(self, qp: *mut sys::ibv_qp, state: sys::ibv_qp_state) {
        with(|universe| match &mut universe.find("Hca::set_state", Kind::Qp, qp.addr()).body {
            Body::Qp(qp) => qp.attr.qp_state = state,
            _ => misuse("a queue pair without its body"),
        });
    }
}
