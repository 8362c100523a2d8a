//! Counters.

/// How many objects of each kind exist: to find leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Objects {
    /// Open contexts.
    pub contexts: usize,
    /// Protection domains.
    pub pds: usize,
    /// Memory regions.
    pub regions: usize,
    /// Memory windows.
    pub windows: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Shared receive queues.
    pub srqs: usize,
}

/// What the device did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Doorbells rung on send queues.
    pub doorbells: u64,
    /// Send WQEs executed.
    pub wqes: u64,
    /// CQEs written.
    pub cqes: u64,
    /// Error CQEs among them.
    pub error_cqes: u64,
    /// Receiver-not-ready answers.
    pub rnr_naks: u64,
    /// Retransmissions.
    pub retries: u64,
    /// Completion events sent.
    pub completion_events: u64,
    /// Asynchronous events sent.
    pub async_events: u64,
    /// Doorbell stores that were checked (trap mode).
    pub checked_stores: u64,
    /// Doorbell-record stores that were checked (trap mode).
    pub checked_records: u64,
    /// Messages lost by an injected fault.
    pub faults: u64,
}
