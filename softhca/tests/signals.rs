//! The device's signal handlers leave the rest of the process's signals alone.
//!
//! # Safety
//!
//! The child processes crash on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use common::*;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const MODE: softhca::Mode = softhca::Mode::Trap;

/// In a child: the mode, by name.
const CHILD: &str = "SOFTHCA_TEST_CRASHES";
const MODES: [&str; 2] = ["trap", "manual"];

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test once more in a process of its own, where it crashes.
fn crash(name: &str, mode: &str) -> (Option<i32>, String) {
    let exe = std::env::current_exe().unwrap();
    let out = Command::new(exe).args(["--exact", name, "--nocapture"]).env(CHILD, mode).output().unwrap();
    (out.status.signal(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn a_stack_overflow_is_still_reported() {
    if is_child() {
        return overflow_the_stack();
    }
    for mode in MODES {
        let (signal, text) = crash("a_stack_overflow_is_still_reported", mode);
        assert_eq!(signal, Some(libc::SIGABRT), "{text}");
        assert!(text.contains("has overflowed its stack"), "{text}");
    }
}

#[test]
fn a_wild_pointer_still_kills() {
    if is_child() {
        return follow_a_wild_pointer();
    }
    for mode in MODES {
        let (signal, text) = crash("a_wild_pointer_still_kills", mode);
        assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
    }
}

fn work() {
    let traps = !std::env::var(CHILD).unwrap().starts_with("manual");
    let mode = if traps { MODE } else { softhca::Mode::Manual };
    let (_g, hca) = start_with(softhca::Config::new().mode(mode));
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.a.send(rdma(ibv_sys::IBV_WR_RDMA_WRITE, 1, &mut [], 0, 0));
    hca.run_until_idle();
    one(p.ca);
    assert_eq!(hca.stats().checked_stores > 0, traps);
    fault_in_the_device(&hca, &d, &p);
    p.close();
    d.close();
}

/// An access of the device that faults, which its own handler takes.
fn fault_in_the_device(hca: &softhca::Hca, d: &Dev, p: &Pair) {
    let hole = Pages::new(1);
    let m = d.mr_at(hole.at, 4096, ALL);
    hole.unmap(0, 1);
    p.a.send(rdma(ibv_sys::IBV_WR_RDMA_WRITE, 2, &mut [p.ma.sge(0, 8)], m.addr, m.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(2, ibv_sys::IBV_WC_REM_ACCESS_ERR)]);
    m.dereg();
    while d.event() >= 0 {}
}

fn overflow_the_stack() {
    work();
    fn deeper(n: u64) -> u64 {
        let room = std::hint::black_box([n; 1000]);
        if std::hint::black_box(n) == u64::MAX { 0 } else { deeper(n + 1) + room[7] }
    }
    println!("{}", deeper(0));
}

#[expect(unsafe_code, reason = "crashes on purpose")]
fn follow_a_wild_pointer() {
    work();
    // SAFETY: not safe: this is the crash.
    unsafe { std::ptr::without_provenance_mut::<u64>(0x10_0000).write_volatile(1) };
}

#[test]
fn signals_that_somebody_sends_still_kill() {
    if is_child() {
        return send_signals();
    }
    let cases = [
        ("trap SEGV", libc::SIGSEGV),
        ("trap TRAP", libc::SIGTRAP),
        ("manual SEGV", libc::SIGSEGV),
        ("manual BUS", libc::SIGBUS),
    ];
    for (name, signal) in cases {
        let exe = std::env::current_exe().unwrap();
        let args = ["--exact", "signals_that_somebody_sends_still_kill", "--nocapture"];
        let out = Command::new(exe).args(args).env(CHILD, name).output().unwrap();
        assert_eq!(out.status.signal(), Some(signal), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[expect(unsafe_code, reason = "crashes on purpose")]
fn send_signals() {
    let signal = match std::env::var(CHILD).unwrap().split_once(' ').unwrap().1 {
        "TRAP" => libc::SIGTRAP,
        "BUS" => libc::SIGBUS,
        _ => libc::SIGSEGV,
    };
    // SAFETY: takes std's handler away, which ignores signals that are sent.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    work();
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), signal) };
    std::thread::sleep(std::time::Duration::from_millis(200));
}

#[test]
#[expect(unsafe_code, reason = "sets a signal's disposition")]
fn signals_that_are_ignored_stay_so() {
    if is_child() {
        // SAFETY: in a process of its own.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_IGN) };
        work();
        for _ in 0..2 {
            // SAFETY: sends a signal that is ignored.
            unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
        }
        // The handler is still there.
        return work();
    }
    for mode in MODES {
        let (signal, text) = crash("signals_that_are_ignored_stay_so", mode);
        assert_eq!(signal, None, "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
#[expect(unsafe_code, reason = "sets the signal mask")]
fn a_thread_that_blocks_signals_is_no_exception() {
    if is_child() {
        // SAFETY: a local set.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        }
        return work();
    }
    let (signal, text) = crash("a_thread_that_blocks_signals_is_no_exception", "manual");
    assert_eq!(signal, None, "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
