//! The objects of the verbs interface, as the device keeps them.

pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod keys;
pub(crate) mod qp;
pub(crate) mod slab;
pub(crate) mod srq;
pub(crate) mod transitions;

pub(crate) use context::Context;
pub(crate) use cq::Cq;
pub(crate) use qp::{Qp, QpKind, QpState};
pub(crate) use srq::Srq;

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    Pd(u32),
    /// The index of the key.
    Mr(u32),
    Mw(u32),
    Cq(u32),
    Qp(u32),
    /// An XRC target QP opened by another handle.
    QpShare(u32),
    Srq(u32),
    /// An address handle; it holds its PD.
    Ah(u32),
    Xrcd(u32),
    Uar(u32),
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    /// Objects in it.
    pub(crate) uses: u32,
}

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) dev: usize,
    /// The file that it is shared by.
    pub(crate) inode: Option<(u64, u64)>,
    pub(crate) opens: u32,
    pub(crate) uses: u32,
}

/// Access rights: the bits of `ibv_access_flags`.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const MW_BIND: u32 = 1 << 4;
    pub(crate) const ZERO_BASED: u32 = 1 << 5;
    pub(crate) const ON_DEMAND: u32 = 1 << 6;
    pub(crate) const HUGETLB: u32 = 1 << 7;
    /// Flags that a device may ignore.
    pub(crate) const OPTIONAL: u32 = 0x3ff0_0000;
    pub(crate) const KNOWN: u32 =
        LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND | ZERO_BASED | HUGETLB | OPTIONAL;
}

/// Asynchronous events: the values of `ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Event {
    CqError = 0,
    QpFatal = 1,
    QpRequestError = 2,
    QpAccessError = 3,
    CommEstablished = 4,
    SqDrained = 5,
    PortActive = 9,
    PortError = 10,
    SrqLimitReached = 15,
    LastWqeReached = 16,
}
