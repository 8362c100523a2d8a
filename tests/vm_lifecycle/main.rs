//! Events, the order in which things end, and attacks on memory that safe code could try, on a real kernel device.
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

mod contexts;
mod drops;
mod events;
mod forgotten;
mod unwinding;
