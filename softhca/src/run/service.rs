//! The device thread. In thread mode, and while the program drives rings of its own (see `interpose/mlx5dv`), it
//! watches the doorbells; else it sleeps until a peer, a timer or the pump wakes it.
//!
//! # Safety
//!
//! System calls with local arguments only: the signal mask and timer slack of the calling thread, and a wait on a word
//! of memory that stays for the life of the process.
#![expect(unsafe_code, reason = "signal masks and futexes")]

use crate::fabric::{self, shm::monotonic_ns};
use crate::model::{self, Model};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Thread mode: how long the doorbells are polled without a pause after the last work.
const SPIN_NS: u64 = 200_000;
/// And how long with the processor offered to others in between.
const YIELD_NS: u64 = 5_000_000;
/// Pump mode, while the program drives rings of its own: how long before the first short sleep. (It polls without a
/// pause, and so may its peer: with the thread spinning or yielding too, 1000 messages took 2 to 14 s on a machine with
/// more to do than processors. And the thread is often woken on the program's own processor, which then cannot post:
/// where it first spun for 20 µs and then slept for 100, that was what each READ took; so it is 40 µs instead of 200.)
const GLANCE_NS: u64 = 2_000;
/// Its first sleep after work; the next ones are longer and longer.
const HURRIED_NS: u64 = 5_000;
/// The shortest and longest sleeps else; the longest while doorbells must be looked at.
const SHORT_NS: u64 = 100_000;
const WATCHING_NS: u64 = 1_000_000;
const LONG_NS: u64 = 20_000_000;

/// Pump mode: how long the thread leaves the work to an application that polls.
const PATIENCE_NS: u64 = 1_000_000;

static BELL: AtomicU32 = AtomicU32::new(0);

/// Until when (in the device's time) the thread means to sleep. Written and read under the state's lock.
static ASLEEP_UNTIL: AtomicU64 = AtomicU64::new(0);

fn bell() -> &'static AtomicU32 {
    fabric::shared().map_or(&BELL, |s| s.bell())
}

/// Wakes the thread.
pub(crate) fn wake() {
    fabric::shm::ring(bell());
}

/// Wakes the thread if a timer fires before it would wake: the application may be about to sleep.
pub(crate) fn look_at_timers(m: &Model) {
    if m.next_deadline().is_some_and(|d| d < ASLEEP_UNTIL.load(Ordering::Relaxed)) {
        ASLEEP_UNTIL.store(0, Ordering::Relaxed);
        wake();
    }
}

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

/// Whether the thread goes on watching without a sleep, after `idle` ns without work.
fn stays_awake(thread_mode: bool, idle: u64) -> bool {
    if idle < if thread_mode { SPIN_NS } else { GLANCE_NS } {
        std::hint::spin_loop();
    } else if thread_mode && idle < YIELD_NS {
        std::thread::yield_now();
    } else {
        return false;
    }
    true
}

fn serve(thread_mode: bool) {
    let bell = bell();
    // else each sleep is 50 µs longer
    // SAFETY: sets a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    let mut last_work = monotonic_ns();
    let mut pause = SHORT_NS;
    // Whether there are doorbells that nobody tells of.
    let mut watches = thread_mode;
    loop {
        let seen = bell.load(Ordering::Acquire);
        let leaves_it = !watches && fabric::shared().is_some_and(|s| s.is_polling(s.own));
        let (busy, sleep_ns) = model::with(|m| {
            watches = thread_mode || !m.direct.is_empty();
            let busy = !leaves_it && m.step();
            let now = m.now();
            let longest = if leaves_it { PATIENCE_NS } else { pause };
            let next = m.next_deadline().filter(|_| !leaves_it).map_or(u64::MAX, |d| d.saturating_sub(now));
            let sleep_ns = longest.min(next).max(1000);
            ASLEEP_UNTIL.store(now.saturating_add(sleep_ns), Ordering::Relaxed);
            (busy, sleep_ns)
        })
        .unwrap_or((false, pause));
        let now = monotonic_ns();
        // Who found the lock taken by us left its work to us.
        if leaves_it && super::pump::take_pending() {
            super::pump::pump();
        }
        if busy || !leaves_it && super::pump::take_pending() {
            last_work = now;
            pause = if watches && !thread_mode { HURRIED_NS } else { SHORT_NS };
            continue;
        }
        if watches && stays_awake(thread_mode, now - last_work) {
            continue;
        }
        sleep(bell, seen, sleep_ns);
        if !leaves_it {
            pause = (pause * 2).min(if watches { WATCHING_NS } else { LONG_NS });
        }
    }
}
