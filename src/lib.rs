//! Safe RDMA verbs: libibverbs with the same names and the same cost, in which what would corrupt memory does not
//! compile.
//!
//! ```no_run
//! use ibv::{Connection, Context, Endpoint, InitAttr, Rc, WorkCompletion, random_psn, send};
//!
//! # fn exchange_over_tcp(ours: Endpoint) -> Endpoint { ours }
//! let ctx = Context::open("mlx5_0")?;
//! let pd = ctx.alloc_pd()?;
//! let cq = ctx.create_cq(128)?;
//! let mr = pd.alloc_local(4096)?;
//!
//! let local = ctx.local_port(1)?;
//! let psn = random_psn();
//! let qp = pd.create_qp::<Rc>(&cq, &cq).build()?.init(InitAttr::new(1))?;
//! let peer = exchange_over_tcp(qp.endpoint(&local, psn));
//! let qp = qp.connect(&Connection::new(local, psn, peer))?;
//!
//! mr.write(0, b"hello")?;
//! qp.post(send(mr.slice(..5)?).signaled().id(1))?;
//! let mut wcs = [WorkCompletion::default(); 16];
//! for wc in cq.poll(&mut wcs)? {
//!     println!("{}: {:?}", wc.id(), wc.result()?.opcode());
//! }
//! # Ok::<(), ibv::Error>(())
//! ```
//!
//! # The objects
//!
//! | C | here | made from |
//! |---|---|---|
//! | `ibv_context` | [`Context`] | a [`Device`] of [`devices()`] |
//! | `ibv_pd` | [`ProtectionDomain`] | a context |
//! | `ibv_mr` | [`MemoryRegion`], [`Local`] or [`Remote`] | a domain and a [`Buffer`] |
//! | `ibv_mw` | [`MemoryWindow`], [`Type1`] or [`Type2`] | a domain; bound over [`Remote`] regions by [`bind_mw`] |
//! | `ibv_async_event` | [`AsyncEvent`] of [`AsyncEvents`] | a context |
//! | `ibv_cq`, `ibv_comp_channel` | [`CompletionQueue`], [`CompletionChannel`] | a context |
//! | `ibv_ah` | [`AddressHandle`] | a domain and an [`AddressVector`] |
//! | `ibv_qp` | [`QueuePair`] of [`Rc`], [`Uc`] or [`Ud`]; its [`Backend`] posts | a domain and two completion queues |
//! | `ibv_srq` | [`SharedReceiveQueue`] | a domain; queue pairs of [`WithSrq`] receive from it |
//! | `ibv_send_wr` | [`send`], [`write()`], [`read()`], [`cmp_swp`], [`fetch_add`], and their kin | [`MrSlice`]s, windows |
//! | `ibv_recv_wr` | [`recv`] | [`MrSlice`]s |
//! | `ibv_wc` | [`WorkCompletion`], [`ExtendedCompletion`] | polling; [`PollCq`] is for any queue |
//!
//! # Borrowed or shared
//!
//! Every object holds what it was made from, and every constructor takes that as a reference or as an
//! [`Arc`](std::sync::Arc).
//!
//! * **A reference**, if the parents outlive the object in an outer scope: the borrow checker keeps the order.
//! * **An `Arc`**, if things are stored together in one struct, or returned: the object is then `'static`
//!   ([`OwnedQp`]), and slices that it posts are [detached](MrSlice::detach).
//!
//! ```no_run
//! use std::sync::Arc;
//! use ibv::{CompletionQueue, Context, ProtectionDomain};
//!
//! struct Server {
//!     pd: Arc<ProtectionDomain<'static>>,
//!     cq: Arc<CompletionQueue<'static>>,
//! }
//!
//! fn start() -> Result<Server, ibv::Error> {
//!     let ctx = Arc::new(Context::open("mlx5_0")?);
//!     let pd = Arc::new(ProtectionDomain::new(&ctx)?);
//!     let cq = Arc::new(CompletionQueue::new(ctx, 128)?);
//!     Ok(Server { pd, cq })
//! }
//! ```
//!
//! Borrowing where sharing is needed gives this:
//!
//! ```text
//! error[E0515]: cannot return value referencing local variable `ctx`
//!    |
//! 11 |     let cq = CompletionQueue::new(&ctx, 128)?;
//!    |                                   ---- `ctx` is borrowed here
//! 12 |     Ok(Server { cq, ctx })
//!    |     ^^^^^^^^^^^^^^^^^^^^^^ returns a value referencing data owned by the current function
//! ```
//!
//! What a borrowing queue pair posts must be made *before* it, because it must outlive it; the error otherwise is
//! E0597, "`mr` does not live long enough", with the note "values in a scope are dropped in the opposite order they
//! are defined". Regions and address handles that come up later live in an [`Arena`] that was made before.
//!
//! An owned queue pair that posts a borrowed slice gives E0521, "borrowed data escapes outside of method": say
//! `.detach()`. Import names one by one: with `use ibv::*`, `Send` and `Result` are this crate's.
//!
//! # Memory
//!
//! For one-sided operations the peer needs both: a [`Remote`] region with the right, and a queue pair that allows it
//! ([`InitAttr::access`]).
//!
//! The device writes registered memory whenever it likes, and so may a peer that knows a [`Remote`] region's key. Such
//! memory is therefore never lent as `&[u8]`: a [`MemoryRegion`] is [read](MemoryRegion::read) and
//! [written](MemoryRegion::write) by copying, each byte being old or new. What makes this sound is that a region's key
//! is dead before its memory is anything else, whatever queue pairs still do; if deregistration fails, the memory is
//! leaked. Lifetimes are there to spare you requests that fail. Providers that copy received data on the CPU, when its
//! completion is polled, are kept from it, or refused
//! ([`allow_late_copies`](QueuePairBuilder::allow_late_copies)).
//!
//! # What it does not do
//!
//! * It does not hide that requests fail: a [`WorkCompletion`] is an error or a [`Completion`], and after an error the
//!   queue pair is dead until it is [reset](QueuePair::reset).
//! * It does not keep a peer from writing nonsense into a [`Remote`] region, nor from reading it.
//! * It does not count what is outstanding: a full queue is an error of the post. Queue pairs claim their share of a
//!   completion queue, which keeps it from being overrun on devices that free a request's place only when its
//!   completion was polled. Soft-RoCE frees it earlier: there, poll before you post again. Poll too before a
//!   [reset](QueuePair::reset), or the completions from before it stand beside those from after it.
//!
//! # Threads
//!
//! All objects are `Send` and `Sync` (a region if its buffer is `Send`; a [`Poller`] is `Send` alone); libibverbs
//! locks. Posting on a [`Basic`] queue pair takes `&self`, on an [`Extended`] one `&mut self`. A completion queue is
//! polled by `&self`, an [`Extended`] one through its one [`Poller`]; [`CompletionQueueBuilder`] has all kinds. On the
//! direct path to mlx5 devices, queue pairs and shared receive queues post by `&mut self`, and a completion queue has
//! one `mlx5::Poller`. Opening a device is
//! refused while the environment takes those locks away (`MLX5_SINGLE_THREADED`).
//!
//! # Clean-up
//!
//! Dropping an object destroys it. If the provider refuses (something made from it was leaked), it is leaked and
//! reported by [`tracing`](https://docs.rs/tracing); `close` returns the error instead, with the object.
//! [`std::mem::forget`] is sound on everything.
//!
//! # Features
//!
//! * `serde`: `Serialize` and `Deserialize` for what peers tell each other: [`RemoteRegion`], [`Endpoint`], [`Gid`].
//! * `mlx5`: the direct path to mlx5 devices, module `mlx5`.

#![deny(unsafe_code)]

mod addr;
mod ah;
mod arena;
mod context;
mod cq;
mod device;
mod dma;
mod error;
mod id;
mod lock;
#[cfg(feature = "mlx5")]
pub mod mlx5;
mod mr;
mod mw;
mod parent;
mod pd;
pub mod qp;
mod raw;
mod readiness;
mod srq;
mod wr;

pub use addr::{AddressVector, Endpoint, Gid, Grh, Guid, LocalPort, Mtu, random_psn};
pub use ah::{AddressHandle, GRH_LEN};
pub use arena::{Arena, Peers, RegionArena};
pub use context::{
    AsyncEvent, AsyncEventKind, AsyncEvents, AsyncSubject, Context, GidEntry, GidType, LinkLayer, PortAttr,
    PortState,
};
#[cfg(feature = "mlx5")]
pub use cq::Direct;
pub use cq::{
    Arm, Bare, Completion, CompletionChannel, CompletionQueue, CompletionQueueBuilder, CqFor, CqKind,
    ExtendedCompletion, PollCq, PollError, Poller, WcError, WcFields, WcOpcode, WcStatus, WorkCompletion,
    fields,
};
pub use device::{AtomicCap, Device, DeviceAttr, DeviceList, Devices, NodeType, TransportType, devices};
pub use error::{CloseError, Error, Refused, Result, TransitionError, VerbError};
#[doc(no_inline)]
pub use ibv_sys as sys;
pub use id::{CqId, QpId, SrqId};
pub use mr::{
    Buffer, ForPeers, HugePages, Local, MemoryRegion, MrSlice, MrU64, Pages, PagesBuilder, RangeError,
    RawBuffer, RawMemory, RegionKind, Remote, RemoteAccess, RemoteRegion, RemoteSlice, RemoteU64,
};
pub use mw::{ByRequest, MemoryWindow, Type1, Type2, WindowType};
pub use parent::Parent;
pub use pd::ProtectionDomain;
pub use qp::{
    Atomics, Backend, Basic, Connected, Connection, Datagram, DynQueuePair, Extended, InitAttr, OwnReceives,
    OwnedQp, PostRecv, PostSend, QpAttr, QpCaps, QpState, QueuePair, QueuePairBuilder, Rc, RdmaRead,
    RdmaWrite, SendInvalidate, Transport, Uc, Ud, UdInitAttr, Unreliable, Windows, WithSrq, state,
};
pub use srq::{SharedReceiveQueue, SrqAttr};
pub use wr::{
    Address, Batch, BatchStorage, BindMw, CmpSwp, Empty, FetchAdd, Gather, Immediate, Inline, Keepable,
    LocalInv, PostError, Prepared, Read, ReceiveQueue, Recv, RecvBatch, RecvStorage, Scatter, Send, SendInv,
    SendRequest, SendTo, Write, bind_mw, cmp_swp, fetch_add, local_inv, read, recv, send, send_imm, send_inv,
    write, write_imm,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
