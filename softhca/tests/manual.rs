//! The suite in manual mode: the test steps the device, time is virtual.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod suite;

const MODE: softhca::Mode = softhca::Mode::Manual;

/// Runs the other tests of this file under valgrind's memcheck.
#[test]
fn memcheck_finds_nothing() {
    common::memcheck_finds_nothing();
}
