//! Thread mode: several threads post and poll while the device thread works.
//!
//! # Safety
//!
//! C calls with objects that each thread made and holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;

use common::*;
use ibv_sys::*;
use std::time::{Duration, Instant};

const MODE: softhca::Mode = softhca::Mode::Thread;

/// Polls until `n` completions came.
fn collect(cq: *mut ibv_cq, n: usize) -> Vec<u64> {
    let end = Instant::now() + Duration::from_secs(60);
    let mut ids = Vec::new();
    while ids.len() < n {
        assert!(Instant::now() < end, "{} of {n} completions", ids.len());
        match poll(cq) {
            Some(w) => {
                assert_eq!(w.status, IBV_WC_SUCCESS);
                ids.push(w.wr_id);
            }
            None => std::thread::yield_now(),
        }
    }
    ids
}

#[test]
fn many_threads_lose_nothing() {
    let (_g, hca) = start();
    let messages: u64 = std::env::var("SOFTHCA_STRESS").map_or(300, |v| v.parse().unwrap());
    let threads: Vec<_> = (0..8u64)
        .map(|t| {
            std::thread::spawn(move || {
                let d = Dev::open(0);
                let p = Pair::new(&d, if t % 2 == 0 { RC } else { UC });
                for i in 0..messages {
                    let len = (i * 37 + t) % 3000 + 1;
                    p.b.recv(i, &mut [p.mb.sge(0, 8192)]);
                    p.a.send(wr(IBV_WR_SEND, i, &mut [p.ma.sge(t as usize, len as u32)]));
                    assert_eq!(collect(p.cb, 1), [i]);
                    assert_eq!(collect(p.ca, 1), [i]);
                    assert_eq!(p.b_bytes(0, len as usize), p.a_bytes(t as usize, len as usize));
                }
                // Windows of requests in flight.
                for _ in 0..messages / 8 {
                    for i in 0..8 {
                        p.a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [p.ma.sge(0, 500)], p.mb.addr, p.mb.rkey()));
                    }
                    assert_eq!(collect(p.ca, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
                }
                p.close();
                d.close();
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(hca.take_violations().1, [""; 0]);
}

/// The device thread finds memory gone: an error of the request, not a crash.
#[test]
fn unmapped_memory_is_an_error_in_the_device_thread_too() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let page = Pages::new(1);
    let m = d.mr_at(page.at, 4096, ALL);
    page.unmap(0, 1);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 8)], m.addr, m.rkey()));
    let end = Instant::now() + Duration::from_secs(60);
    let said = loop {
        let said = drain(p.ca);
        if !said.is_empty() || Instant::now() > end {
            break said;
        }
        std::thread::yield_now();
    };
    assert_eq!(said, [(1, IBV_WC_REM_ACCESS_ERR)]);
    while d.event() >= 0 {}
    m.dereg();
    p.close();
    d.close();
}

#[test]
fn an_idle_device_does_not_burn_a_processor() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    std::thread::sleep(Duration::from_millis(300));
    let before = processor_time();
    std::thread::sleep(Duration::from_millis(1000));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(300), "{used:?} of a second");
    d.close();
}

#[expect(unsafe_code, reason = "a system call")]
fn processor_time() -> Duration {
    // SAFETY: room for the answer.
    unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t);
        Duration::new(t.tv_sec.try_into().unwrap(), t.tv_nsec.try_into().unwrap())
    }
}

/// Not the test that measures time, nor that where the device finds memory unmapped, which memcheck sees too.
#[test]
fn memcheck_finds_nothing() {
    common::memcheck::finds_nothing(&["idle_device", "unmapped"]);
}
