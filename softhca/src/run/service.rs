//! The device thread.
//!
//! # Safety
//!
//! System calls with local arguments only: the signal mask of the calling thread, and a wait on a word of memory
//! that stays for the life of the process.
#![expect(unsafe_code, reason = "signal masks and futexes")]

use crate::fabric::{self, shm::monotonic_ns};
use crate::model;
use std::sync::atomic::{AtomicU32, Ordering};

/// Thread mode: how long the doorbells are polled without a pause after the last work.
const SPIN_NS: u64 = 200_000;
/// And how long with the processor offered to others in between.
const YIELD_NS: u64 = 5_000_000;
/// The shortest and longest sleep.
const SHORT_NS: u64 = 100_000;
const LONG_NS: u64 = 20_000_000;

/// Pump mode: how long the thread leaves the work to an application that polls.
const PATIENCE_NS: u64 = 1_000_000;

static BELL: AtomicU32 = AtomicU32::new(0);

/// Starts the thread, with all signals blocked: the application's handlers must not run on it.
pub(crate) fn start(polls: bool) {
    // SAFETY: sets the mask and restores it below; both sets are initialised by the calls.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    let spawned = std::thread::Builder::new().name("softhca".to_owned()).spawn(move || serve(polls));
    // SAFETY: restores the mask saved above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    if let Err(e) = spawned {
        crate::log::tell(&format!(": device thread: {e}"));
    }
}

/// Sleeps until the bell is rung, for `ns` at most.
fn sleep(bell: &AtomicU32, seen: u32, ns: u64) {
    let t = libc::timespec {
        tv_sec: libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(0),
        tv_nsec: libc::c_long::try_from(ns % 1_000_000_000).unwrap_or(0),
    };
    // SAFETY: waits on the word while it holds `seen`; the timeout is local.
    unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAIT, seen, &raw const t) };
}

fn serve(polls: bool) {
    let bell = fabric::shared().map_or(&BELL, |s| s.bell());
    let mut last_work = monotonic_ns();
    let mut pause = SHORT_NS;
    loop {
        let seen = bell.load(Ordering::Acquire);
        if !polls && fabric::shared().is_some_and(|s| s.is_polling(s.own)) {
            sleep(bell, seen, PATIENCE_NS);
            continue;
        }
        let (busy, next) = model::with(|m| {
            let busy = m.step();
            (busy, m.next_deadline().map(|d| d.saturating_sub(m.now())))
        })
        .unwrap_or_default();
        let now = monotonic_ns();
        // Who found the lock taken while we stepped left it to us.
        if busy || super::pump::take_pending() {
            last_work = now;
            pause = SHORT_NS;
            continue;
        }
        let idle = now - last_work;
        if polls && idle < SPIN_NS {
            std::hint::spin_loop();
            continue;
        }
        if polls && idle < YIELD_NS {
            std::thread::yield_now();
            continue;
        }
        sleep(bell, seen, pause.min(next.unwrap_or(u64::MAX)).max(1000));
        pause = (pause * 2).min(if polls { 1_000_000 } else { LONG_NS });
    }
}
