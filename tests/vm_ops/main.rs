//! Every data operation and every question on a real kernel device, with the data checked.
// xtask: timeout=240
// xtask: kernel=6.12

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../support/rig.rs"]
mod rig;

mod buffers;
mod data;
mod datagrams;
mod late_copies;
mod lists;
mod notices;
mod parents;
mod polled;
mod queries;
mod queues;
mod shared_receives;
mod windows;
