//! Shared receive queues.

/// A shared receive queue: a linked list in the application's memory.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) pd: u32,
    pub(crate) user: u64,
    pub(crate) buf: u64,
    pub(crate) db: u64,
    /// Log2 of the stride.
    pub(crate) shift: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// The limit, while it is armed.
    pub(crate) limit: u32,
    /// The next WQE to use.
    pub(crate) head: u16,
    /// WQEs used so far.
    pub(crate) used: u16,
    pub(crate) async_fd: Option<u32>,
    pub(crate) async_events: u32,
    pub(crate) uses: u32,
    pub(crate) xrc: Option<XrcSrq>,
}

/// What an XRC SRQ has besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XrcSrq {
    pub(crate) xrcd: u32,
    pub(crate) cqn: u32,
    /// The user index for its CQEs.
    pub(crate) uidx: u32,
}
