//! Safe RDMA verbs.

#![deny(unsafe_code)]

mod addr;
mod ah;
mod arena;
mod context;
mod cq;
mod device;
mod dma;
mod error;
mod mr;
mod parent;
mod pd;
pub mod qp;
mod raw;
mod wr;

pub use addr::{AddressVector, Endpoint, Gid, Grh, Guid, LocalPort, Mtu, random_psn};
pub use ah::{AddressHandle, GRH_LEN};
pub use arena::{Arena, Peers, RegionArena};
pub use context::{Context, GidEntry, GidType, LinkLayer, PortAttr, PortState};
pub use cq::{
    Arm, Bare, Completion, CompletionChannel, CompletionQueue, CompletionQueueBuilder, CqId, CqKind, Direct,
    PollError, Tracked, WcError, WcOpcode, WcStatus, WorkCompletion,
};
pub use device::{AtomicCap, Device, DeviceAttr, DeviceList, Devices, NodeType, TransportType, devices};
pub use error::{CloseError, Error, Refused, Result, TransitionError, VerbError};
#[doc(no_inline)]
pub use ibv_sys as sys;
pub use mr::{
    Buffer, HugePages, Kind, Local, MemoryRegion, MrSlice, MrU64, Pages, PagesBuilder, RangeError, RawBuffer,
    RawMemory, Remote, RemoteAccess, RemoteRegion, RemoteSlice, RemoteU64,
};
pub use parent::Parent;
pub use pd::ProtectionDomain;
pub use qp::{
    Backend, Basic, Connection, DynQueuePair, Extended, InitAttr, OwnedQp, PostRecv, PostSend, QpAttr,
    QpCaps, QpState, QueuePair, QueuePairBuilder, Rc, Transport, Uc, Ud, UdInitAttr, state,
};
pub use wr::{
    Address, Batch, BatchStorage, CmpSwp, Empty, FetchAdd, Gather, Inline, PostError, Prepared, Read, Recv,
    RecvBatch, RecvStorage, Scatter, Send, SendRequest, SendTo, Write, cmp_swp, fetch_add, read, recv, send,
    send_imm, write, write_imm,
};
