//! The tests of real devices, and what only a software HCA can promise.

#[path = "../vm_errors/addresses.rs"]
mod addresses;
#[path = "async_events.rs"]
mod async_events;
#[path = "../vm_ops/buffers.rs"]
mod buffers;
#[path = "../vm_ops/data.rs"]
mod data;
#[path = "../vm_ops/datagrams.rs"]
mod datagrams;
#[path = "../vm_lifecycle/drops.rs"]
mod drops;
#[path = "errors.rs"]
mod errors;
#[path = "../vm_errors/flushes.rs"]
mod flushes;
#[path = "gather.rs"]
mod gather;
#[path = "itself.rs"]
mod itself;
#[path = "../vm_ops/late_copies.rs"]
mod late_copies;
#[path = "../vm_ops/lists.rs"]
mod lists;
#[path = "../vm_ops/notices.rs"]
mod notices;
#[path = "../vm_ops/parents.rs"]
mod parents;
#[path = "../vm_ops/polled.rs"]
mod polled;
#[path = "../vm_ops/queries.rs"]
mod queries;
#[path = "../vm_ops/queues.rs"]
mod queues;
#[path = "../vm_errors/remote_access.rs"]
mod remote_access;
#[path = "../vm_ops/shared_receives.rs"]
mod shared_receives;
#[path = "times.rs"]
mod times;
#[path = "../vm_errors/transitions.rs"]
mod transitions;
#[path = "../vm_lifecycle/unwinding.rs"]
mod unwinding;
#[path = "window_rules.rs"]
mod window_rules;
#[path = "../vm_ops/windows.rs"]
mod windows;
