//! What every program here does: a software ConnectX under libmlx5, and rows to be counted on it.
//!
//! `PROGRAM` lists the rows, `PROGRAM ROW N` runs one N times. What is to be counted is what `peer_measured` does; the
//! device works outside of it. A row is the loop of the same name of `benches/twins`.

use std::process::ExitCode;

pub use softhca::Link;
use softhca::{Config, Hca};

/// The depth of all queues, and the most requests of a run.
pub const DEPTH: u32 = 256;
/// Bytes of memory, all of it registered for everything.
pub const MEMORY: usize = 4096;
/// Bytes of a message, and where it is: what is sent, what is written, what is received into.
pub const LENGTH: usize = 64;
pub const TO: usize = 1024;
pub const LANDING: usize = 2048;
/// Bytes of an inline message.
pub const INLINE: usize = 32;

/// A crate's objects: a queue pair connected to itself, with a completion queue for each direction.
pub trait Peer {
    /// The rows that it can do, with the requests or completions of an operation.
    fn rows(&self) -> &'static [(&'static str, u32)];
    /// A row, so many times. The requests have ids that count from 0.
    fn run(&mut self, row: &str, operations: u64);
    /// Posts so many receives.
    fn receive(&mut self, requests: u64);
    /// Posts so many signaled sends.
    fn send(&mut self, requests: u64);
    /// Takes all completions there are, of both queues; all are of success.
    fn drain(&mut self);
}

/// The same, of which the compiler knows nothing.
#[inline(always)]
pub fn opaque<T>(value: &T) -> &T {
    let mut value = std::ptr::from_ref(value);
    // SAFETY: nothing happens, and it is what it was.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) value, options(nomem, nostack, preserves_flags));
        &*value
    }
}

/// The same for what is used exclusively.
#[inline(always)]
pub fn opaque_mut<T>(value: &mut T) -> &mut T {
    let mut value = std::ptr::from_mut(value);
    // SAFETY: nothing happens, and it is what it was.
    unsafe {
        std::arch::asm!("/* {} */", inout(reg) value, options(nomem, nostack, preserves_flags));
        &mut *value
    }
}

/// Does something so many times, at least once, with the number of each. (All loops are this one: how the compiler
/// turns a `for` depends on what is around it.)
#[inline(always)]
pub fn repeat(times: u64, mut operation: impl FnMut(u64)) {
    let mut number = 0;
    loop {
        operation(number);
        number += 1;
        if number == times {
            break;
        }
    }
}

/// Polls so many times, each of which adds the ids that it has found to the sum: the sum of all.
#[inline(always)]
pub fn polls(times: u64, mut poll: impl FnMut(&mut u64)) -> u64 {
    let mut sum = 0;
    repeat(times, |_| poll(&mut sum));
    sum
}

/// The sum of the ids of so many requests.
pub fn ids(requests: u64) -> u64 {
    (0..requests).sum()
}

/// What is counted.
// SAFETY: the only function of this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn peer_measured(peer: &mut dyn Peer, row: &str, operations: u64) {
    peer.run(row, operations);
}

/// Tells callgrind to begin (4) or end (5) counting; elsewhere it does nothing.
#[cfg(target_arch = "x86_64")]
fn instrument(request: u64) {
    /// Of the requests to this tool.
    const CALLGRIND: u64 = u64::from_be_bytes([0, 0, 0, 0, b'C', b'T', 0, 0]);
    let arguments = [CALLGRIND + request, 0, 0, 0, 0, 0];
    // SAFETY: the register turns once around, and nothing else happens, but under valgrind, which reads the arguments.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") arguments.as_ptr(),
            inout("rdx") 0u64 => _,
        );
    }
}

/// A program's `main`, with a device of that link layer; `open` makes the objects for a row.
pub fn main(link: Link, open: impl FnOnce(&str) -> Box<dyn Peer>) -> ExitCode {
    let hca = match Hca::start(Config::new().devices(1, link)) {
        Ok(hca) => hca,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut peer = open(arguments.first().map_or("", String::as_str));
    let [row, operations] = &arguments[..] else {
        for (row, each) in peer.rows() {
            println!("{row} {each}");
        }
        return ExitCode::SUCCESS;
    };
    let Some(&(_, each)) = peer.rows().iter().find(|(name, _)| name == row) else {
        eprintln!("no row {row}");
        return ExitCode::FAILURE;
    };
    let operations: u64 = operations.parse().expect("a number");
    let requests = operations * u64::from(each);
    assert!((1..=u64::from(DEPTH)).contains(&requests), "some, and no more than the queues hold");
    let is_poll = row.contains("poll") && !row.contains("empty");
    if is_poll || row.contains("send") {
        peer.receive(requests);
    }
    if is_poll {
        peer.send(requests);
        hca.run_until_idle();
    }
    // once, since callgrind loses calls when it is told again
    instrument(4);
    peer_measured(&mut *peer, row, operations);
    instrument(5);
    if row.contains("recv") {
        peer.send(requests);
    }
    hca.run_until_idle();
    peer.drain();
    ExitCode::SUCCESS
}
