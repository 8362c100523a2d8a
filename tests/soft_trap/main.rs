//! As `soft_manual`, and each doorbell store of libmlx5 is checked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../support_soft/rig.rs"]
mod rig;
#[path = "../support_soft/suite.rs"]
mod suite;

const MODE: softhca::Mode = softhca::Mode::Trap;
const LINK: softhca::Link = softhca::Link::RoCE;
