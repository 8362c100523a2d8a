//! As `soft_trap`, over InfiniBand: addressed by LIDs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support/leaks.rs"]
mod leaks;
#[path = "../support_soft/rig.rs"]
mod rig;

#[path = "../vm_ops/buffers.rs"]
mod buffers;
#[path = "../vm_ops/data.rs"]
mod data;
#[path = "../support_soft/errors.rs"]
mod errors;
#[path = "../support_soft/gather.rs"]
mod gather;
#[path = "../support_soft/itself.rs"]
mod itself;
mod lids;
#[path = "../vm_ops/lists.rs"]
mod lists;
#[path = "../vm_ops/parents.rs"]
mod parents;
#[path = "../vm_ops/polled.rs"]
mod polled;
#[path = "../vm_ops/queues.rs"]
mod queues;
#[path = "../vm_errors/remote_access.rs"]
mod remote_access;

const MODE: softhca::Mode = softhca::Mode::Trap;
const LINK: softhca::Link = softhca::Link::InfiniBand;
