//! Who makes the device work in real time: the application's own calls, and a thread.
//!
//! In pump mode the data-path functions of the stock libraries are wrapped: the pointers in `ibv_context`,
//! `ibv_cq_ex` and `ibv_qp_ex` lead here, and here to the library's own. A post runs the device; a poll that finds
//! nothing runs it and polls again. What arrives while the application sleeps is served by the thread, which a
//! sender wakes; it also fires timers. In thread mode nothing is wrapped and the thread polls the doorbells.
//!
//! # Safety
//!
//! [`wrap`] runs after the kernel side of create-CQ or create-QP succeeded, on the thread that called it: the user
//! handle in the command is the address of the library's object, which begins with the public structures below (as
//! `<infiniband/verbs.h>` declares them). No reference to one is made: other threads may use the context, so single
//! fields are read by pointer, and the pointers to functions are replaced as atomics, by functions of the same type,
//! which call the replaced ones with the caller's own arguments.
#![expect(unsafe_code, reason = "wraps functions of the verbs libraries")]

use crate::fabric;
use crate::model;
use crate::run::service;
use crate::uverbs::abi::ids;
use crate::uverbs::attrs::Attrs;
use libc::{c_int, c_void};
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Work that somebody must look at.
static PENDING: AtomicBool = AtomicBool::new(false);

/// Runs the device now, or leaves it to the thread that is running it.
pub(crate) fn pump() {
    PENDING.store(true, Ordering::Release);
    while PENDING.load(Ordering::Acquire) {
        let Some(mut guard) = model::try_lock() else { return };
        PENDING.store(false, Ordering::Release);
        if let Some(m) = guard.as_mut() {
            m.step();
            service::look_at_timers(m);
        }
    }
}

/// Whether somebody left work to whoever held the lock.
pub(crate) fn take_pending() -> bool {
    PENDING.load(Ordering::Acquire) && PENDING.swap(false, Ordering::AcqRel)
}

/// Polls in a row that found nothing.
static IN_VAIN: AtomicUsize = AtomicUsize::new(0);

/// Runs the device for a poll that found nothing. Who polls in vain gives its processor away every few polls: the
/// peer may need it to answer. (With more busy processes than processors, a ping-pong of two processes took 14 µs
/// with 4 polls in between, and 57 µs with 64.)
fn pump_in_vain() {
    const PATIENCE: usize = 4;
    const STEADY: usize = 8;
    let n = IN_VAIN.fetch_add(1, Ordering::Relaxed);
    // A program that waits by polling needs no waking. (Who polls once before it sleeps does.)
    if n >= STEADY {
        if let Some(s) = fabric::shared() {
            s.note_pumped();
        }
    }
    // In this order: who finds the lock taken by our glance leaves its work to us.
    if !model::is_idle() || PENDING.load(Ordering::Acquire) {
        pump();
    }
    if n % PATIENCE == PATIENCE - 1 {
        std::thread::yield_now();
    }
}

#[repr(C)]
struct ContextOps {
    before: [*mut c_void; 11],
    poll_cq: usize,
    req_notify_cq: usize,
    between: [*mut c_void; 12],
    post_send: usize,
}

#[repr(C)]
struct Context {
    device: *mut c_void,
    ops: ContextOps,
}

#[repr(C)]
struct CqEx {
    context: *mut Context,
    channel: *mut c_void,
    cq_context: *mut c_void,
    handle: u32,
    cqe: c_int,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: [u32; 2],
    comp_mask: u32,
    status: u32,
    wr_id: u64,
    start_poll: usize,
}

/// `struct ibv_qp_ex`.
#[repr(C)]
pub(crate) struct QpEx {
    context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut c_void,
    send_cq: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut c_void,
    handle: u32,
    pub(crate) qp_num: u32,
    state: u32,
    qp_type: u32,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
    comp_mask: u64,
    wr_id: u64,
    wr_flags: u32,
    builders: [*mut c_void; 17],
    wr_start: *mut c_void,
    wr_complete: usize,
}

/// How many different functions of a kind can be wrapped (one per provider, or per variant of a CQ).
const SLOTS: usize = 8;

/// Makes the wrappers of one kind: each has its own slot for the function that it stands for.
macro_rules! wrapper {
    ($module:ident, ($($a:ident: $t:ty),*) -> c_int, $orig:ident => $body:expr) => {
        mod $module {
            use super::*;

            type Function = unsafe extern "C" fn($($t),*) -> c_int;
            static ORIGINAL: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

            unsafe extern "C" fn wrapped<const I: usize>($($a: $t),*) -> c_int {
                let p = ORIGINAL.get(I).map_or(0, |s| s.load(Ordering::Acquire));
                if p == 0 {
                    return libc::EIO;
                }
                // SAFETY: the address that was in the slot of a pointer of this type.
                let f = unsafe { std::mem::transmute::<usize, Function>(p) };
                let $orig = || {
                    // SAFETY: the caller's own arguments.
                    unsafe { f($($a),*) }
                };
                $body
            }

            static WRAPPERS: [Function; SLOTS] = [
                wrapped::<0>, wrapped::<1>, wrapped::<2>, wrapped::<3>, wrapped::<4>, wrapped::<5>, wrapped::<6>,
                wrapped::<7>,
            ];

            /// Wraps the function that `cell` points to, unless it points nowhere or is wrapped.
            ///
            /// # Safety
            /// `cell` is such a pointer in an object of the library, which lives during the call.
            pub(super) unsafe fn install(cell: *mut usize) {
                // SAFETY: aligned, and alive by the caller's word.
                let cell = unsafe { AtomicUsize::from_ptr(cell) };
                let p = cell.load(Ordering::Acquire);
                if p == 0 || WRAPPERS.iter().any(|w| *w as usize == p) {
                    return;
                }
                for (slot, w) in ORIGINAL.iter().zip(&WRAPPERS) {
                    let free = slot.compare_exchange(0, p, Ordering::AcqRel, Ordering::Acquire);
                    if free.is_ok() || free == Err(p) {
                        cell.store(*w as usize, Ordering::Release);
                        return;
                    }
                }
            }
        }
    };
}

wrapper!(poll_cq, (cq: *mut c_void, n: c_int, wc: *mut c_void) -> c_int, f => match f() {
    0 => {
        pump_in_vain();
        f()
    }
    n => {
        IN_VAIN.store(0, Ordering::Relaxed);
        n
    }
});
wrapper!(req_notify_cq, (cq: *mut c_void, solicited: c_int) -> c_int, f => {
    let rc = f();
    // Who arms a CQ is about to sleep: its polls so far don't count any more.
    IN_VAIN.store(0, Ordering::Relaxed);
    if let Some(s) = fabric::shared() {
        s.note_sleeps();
    }
    pump();
    rc
});
wrapper!(post_send, (qp: *mut c_void, wr: *mut c_void, bad: *mut c_void) -> c_int, f => {
    let rc = f();
    pump();
    rc
});
wrapper!(start_poll, (cq: *mut c_void, attr: *mut c_void) -> c_int, f => match f() {
    libc::ENOENT => {
        pump_in_vain();
        f()
    }
    rc => {
        if rc == 0 {
            IN_VAIN.store(0, Ordering::Relaxed);
        }
        rc
    }
});
wrapper!(wr_complete, (qp: *mut c_void) -> c_int, f => {
    let rc = f();
    pump();
    rc
});

/// Wraps the functions of a context.
///
/// # Safety
/// `c` is null or an open context of the library.
unsafe fn wrap_context(c: *mut Context) {
    if c.is_null() {
        return;
    }
    // SAFETY: fields of the library's context, by the caller's word.
    unsafe {
        poll_cq::install(&raw mut (*c).ops.poll_cq);
        req_notify_cq::install(&raw mut (*c).ops.req_notify_cq);
        post_send::install(&raw mut (*c).ops.post_send);
    }
}

/// After a successful command: in pump mode, wraps the new object's data-path functions.
pub(crate) fn wrap(attrs: Attrs) {
    let pumps = matches!(MODE.load(Ordering::Relaxed), PUMP);
    let object = |id| with_exposed_provenance_mut::<c_void>(usize::try_from(attrs.number(id)).unwrap_or(0));
    match attrs.command() {
        (ids::CQ, 0) if pumps => {
            let cq = object(2).cast::<CqEx>();
            if !cq.is_null() {
                // SAFETY: the library's new CQ (module comment). The extended part is there, and zero unless used.
                unsafe {
                    wrap_context((&raw const (*cq).context).read());
                    start_poll::install(&raw mut (*cq).start_poll);
                }
            }
        }
        (ids::QP, 0) if pumps => {
            let qp = object(7).cast::<QpEx>();
            if !qp.is_null() {
                // SAFETY: as above, of the new QP.
                unsafe {
                    wrap_context((&raw const (*qp).context).read());
                    wr_complete::install(&raw mut (*qp).wr_complete);
                }
            }
        }
        _ => {}
    }
}

const OFF: usize = 0;
const PUMP: usize = 1;
const THREAD: usize = 2;
static MODE: AtomicUsize = AtomicUsize::new(OFF);

/// In a forked child, which has no thread: the next open starts one.
pub(crate) fn stop_service() {
    MODE.store(OFF, Ordering::Release);
}

/// Starts the thread that serves real-time modes, once.
pub(crate) fn start_service() {
    use crate::config::Mode;
    let mode = model::with(|m| m.config.mode);
    let kind = match mode {
        Some(Mode::Pump | Mode::PumpTrap) => PUMP,
        Some(Mode::Thread) => THREAD,
        _ => return,
    };
    if MODE.compare_exchange(OFF, kind, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        service::start(kind == THREAD);
    }
}
