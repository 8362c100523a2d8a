//! The suite in manual mode: the test steps the device, time is virtual.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod suite;

const MODE: softhca::Mode = softhca::Mode::Manual;

/// Not the test that posts behind libmlx5's back and polls through it, nor the one that writes garbage: libmlx5 then
/// reads lists of its own that nobody wrote. Nor those where the device finds memory unmapped, which memcheck sees too.
#[test]
fn memcheck_finds_nothing() {
    common::memcheck::finds_nothing(&["direct_path", "garbage", "unmapped"]);
}
