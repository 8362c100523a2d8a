//! The suite on a device that the tests step, over RoCE.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../../softhca/tests/common/memcheck.rs"]
mod memcheck;
#[path = "../support_soft/rig.rs"]
mod rig;
#[path = "../support_soft/suite.rs"]
mod suite;

const MODE: softhca::Mode = softhca::Mode::Manual;
const LINK: softhca::Link = softhca::Link::RoCE;

/// Not the test that runs another program on the device, which is not to be found from within valgrind.
#[test]
fn memcheck_finds_nothing() {
    memcheck::finds_nothing(&["devinfo"]);
}
