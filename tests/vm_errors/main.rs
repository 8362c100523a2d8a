//! What goes wrong, and every transition of a queue pair, on a real kernel device.
//!
//! Kernels differ in the status of some errors: those are only held to be errors.
// xtask: timeout=240
// xtask: kernel=6.12

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../support/rig.rs"]
mod rig;

mod addresses;
mod flushes;
mod limits;
mod peers;
mod remote_access;
mod transitions;
