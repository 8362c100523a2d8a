//! As `soft_manual`, and each doorbell store of libmlx5 is checked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../support_soft/leaks.rs"]
mod leaks;
#[path = "../support_soft/rig.rs"]
mod rig;

#[path = "../vm_errors/addresses.rs"]
mod addresses;
#[path = "../support_soft/async_events.rs"]
mod async_events;
#[path = "../vm_ops/buffers.rs"]
mod buffers;
#[path = "../vm_ops/data.rs"]
mod data;
#[path = "../vm_ops/datagrams.rs"]
mod datagrams;
#[path = "../vm_lifecycle/drops.rs"]
mod drops;
#[path = "../support_soft/errors.rs"]
mod errors;
#[path = "../vm_errors/flushes.rs"]
mod flushes;
#[path = "../support_soft/gather.rs"]
mod gather;
#[path = "../support_soft/itself.rs"]
mod itself;
#[path = "../vm_ops/lists.rs"]
mod lists;
#[path = "../vm_ops/notices.rs"]
mod notices;
#[path = "../vm_ops/parents.rs"]
mod parents;
#[path = "../vm_ops/queues.rs"]
mod queues;
#[path = "../vm_errors/remote_access.rs"]
mod remote_access;
#[path = "../vm_ops/shared_receives.rs"]
mod shared_receives;
#[path = "../vm_errors/transitions.rs"]
mod transitions;
#[path = "../vm_lifecycle/unwinding.rs"]
mod unwinding;
#[path = "../vm_ops/windows.rs"]
mod windows;

const MODE: softhca::Mode = softhca::Mode::Trap;
const LINK: softhca::Link = softhca::Link::RoCE;
