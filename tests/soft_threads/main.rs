//! The data path while a thread is the device, in real time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../../softhca/tests/common/memcheck.rs"]
mod memcheck;
#[path = "../support_soft/rig.rs"]
mod rig;

#[path = "../vm_ops/data.rs"]
mod data;
#[path = "../vm_ops/lists.rs"]
mod lists;
#[path = "../vm_ops/polled.rs"]
mod polled;
#[path = "../vm_ops/queues.rs"]
mod queues;
mod stress;

const MODE: softhca::Mode = softhca::Mode::Thread;
const LINK: softhca::Link = softhca::Link::InfiniBand;

#[test]
fn memcheck_finds_nothing() {
    memcheck::finds_nothing(&[]);
}
