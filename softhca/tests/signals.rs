//! The signal handlers of trap mode leave the rest of the process's signals alone.
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

const CHILD: &str = "SOFTHCA_TEST_CRASHES";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test once more in a process of its own, where it crashes.
fn crash(name: &str) -> (Option<i32>, String) {
    let exe = std::env::current_exe().unwrap();
    let out = Command::new(exe).args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    (out.status.signal(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn a_stack_overflow_is_still_reported() {
    if is_child() {
        return overflow_the_stack();
    }
    let (signal, text) = crash("a_stack_overflow_is_still_reported");
    assert_eq!(signal, Some(libc::SIGABRT), "{text}");
    assert!(text.contains("has overflowed its stack"), "{text}");
}

#[test]
fn a_wild_pointer_still_kills() {
    if is_child() {
        return follow_a_wild_pointer();
    }
    let (signal, text) = crash("a_wild_pointer_still_kills");
    assert_eq!(signal, Some(libc::SIGSEGV), "{text}");
}

fn work() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.a.send(rdma(ibv_sys::IBV_WR_RDMA_WRITE, 1, &mut [], 0, 0));
    hca.run_until_idle();
    one(p.ca);
    assert!(hca.stats().checked_stores > 0);
    p.close();
    d.close();
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
    for (name, signal) in [("SEGV", libc::SIGSEGV), ("TRAP", libc::SIGTRAP)] {
        let exe = std::env::current_exe().unwrap();
        let args = ["--exact", "signals_that_somebody_sends_still_kill", "--nocapture"];
        let out = Command::new(exe).args(args).env(CHILD, name).output().unwrap();
        assert_eq!(out.status.signal(), Some(signal), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[expect(unsafe_code, reason = "crashes on purpose")]
fn send_signals() {
    let signal = if std::env::var(CHILD).unwrap() == "TRAP" { libc::SIGTRAP } else { libc::SIGSEGV };
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
    let (signal, text) = crash("signals_that_are_ignored_stay_so");
    assert_eq!(signal, None, "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
