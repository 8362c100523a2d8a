//! The direct path to mlx5 devices (ConnectX-4 and later, BlueField): requests are written into the device's queues,
//! and completions read from its ring, by this crate. No call of a library, no lock and no load fence is on the way.
//!
//! ```no_run
//! use ibv::mlx5::Poller;
//! use ibv::{CompletionQueue, Connection, Context, Endpoint, InitAttr, QueuePairBuilder, Rc, random_psn, send};
//!
//! # fn exchange(ours: Endpoint) -> Endpoint { ours }
//! let ctx = Context::open("mlx5_0")?;
//! let pd = ctx.alloc_pd()?;
//! let cq = CompletionQueue::builder(&ctx, 256).build_direct()?;
//! let mr = pd.alloc_local(4096)?;
//! let mut poller = Poller::new(&cq)?;
//!
//! let (local, psn) = (ctx.local_port(1)?, random_psn());
//! let qp = QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).send_depth(64).inline(64).build()?;
//! let qp = qp.init(InitAttr::new(1))?;
//! let peer = exchange(qp.endpoint(&local, psn));
//! let mut qp = qp.connect(&Connection::new(local, psn, peer))?;
//!
//! qp.post(send(mr.slice(..64)?).signaled().id(1))?;
//! while let Some(wc) = poller.poll() {
//!     println!("{} is done: {:?}", wc.id(), wc.result()?);
//! }
//! # Ok::<(), ibv::Error>(())
//! ```
//!
//! # When to use it
//!
//! Where a post or a poll counts: small messages at a high rate, or the last fraction of a microsecond. In
//! instructions, beside Debian's libmlx5 44.0 on queues of the same size, which is given requests that were built
//! before (`cargo xtask bench counts`; the locks of libmlx5 are about 12 of its own):
//!
//! | | here | libmlx5 | |
//! |---|---|---|---|
//! | one WRITE | 64 | 318 | 0.20 |
//! | one WRITE of 8 inline bytes | 71 | 340 | 0.21 |
//! | one of 16 WRITEs with one doorbell | 48 | 180 | 0.27 |
//! | one completion | 32 | 208 | 0.15 |
//! | one of 16 completions | 34 | 116 | 0.29 |
//! | one of 16 receives' completions, with its length | 53 | 151 | 0.35 |
//! | one of 16 receives with 32 bytes [in the completion](ToCqe), where libmlx5 copies them | 97 | 227 | 0.43 |
//! | no completion | 16 | 107 | 0.15 |
//! | one receive | 36 | 134 | 0.27 |
//! | one of 16 receives | 24 | 68 | 0.34 |
//! | one shared receive | 53 | 105 | 0.51 |
//! | one of 16 shared receives | 31 | 50 | 0.63 |
//! | the completion of one | 123 | 196 | 0.63 |
//!
//! Elsewhere [`Basic`](crate::Basic) is as good, runs on every device, and is shared by `&`. Code that is generic over
//! [`PostSend`](crate::PostSend), [`PostRecv`](crate::PostRecv) and [`PollCq`](crate::PollCq) runs on both.
//!
//! # What it needs
//!
//! * An mlx5 device with thread domains, and libmlx5. Other devices are refused when a completion queue or queue pair
//!   is made.
//! * Queue pairs and completion queues that are *made* direct, and stay it.
//! * One [`Poller`] for each completion queue, and `&mut` of a queue pair for posting: ownership does what locks do
//!   elsewhere. Each queue pair is in a thread domain of its own, so it has a register page half to itself. Give a
//!   thread its queue pairs, and the poller to itself or to another: both can be sent, and they may run at the same
//!   time.
//! * WQEs that are not signed: neither `MLX5_QP_SIGNATURE` nor `MLX5_SRQ_SIGNATURE` is in the environment, with
//!   whatever value.
//!
//! What a direct queue does not have: windows of type 1, [prepared](crate::QueuePair::prepare) requests, resizing,
//! overcommitted completion queues. How its kinds are chosen:
//! [`CompletionQueueBuilder`](crate::CompletionQueueBuilder).
//!
//! # Data in completions
//!
//! libmlx5 has the device put short data into the completion, and copies it from there when it polls. Here nothing is
//! copied on the way: data goes to memory, or, where the completion queue is made for that
//! ([`build_direct_scattered`](crate::CompletionQueueBuilder::build_direct_scattered)), is read in the completion that
//! is lent ([`Completion::scattered`]). [`ToCqe`] says when that pays.
//!
//! # What to know
//!
//! * A completion queue has room for as many completions as its queue pairs' rings have blocks;
//!   [`cq_entries`] tells how many that are. The device's ring is twice as long, so
//!   that it is told how far the poller has come only once in so many completions.
//! * Completions that stand in the ring when their queue pair is reset or dropped are passed over. Until they are, a
//!   queue pair that was reset needs room for others beside them, and leaves RESET only if there is
//!   ([`Error::CqRoom`](crate::Error::CqRoom)). A dropped queue pair is kept until they are, so that nobody else has
//!   its number meanwhile: the poller destroys it when it next finds the queue empty, or comes to the end of half the
//!   ring. Its protection domain may be dropped before; closing that says EBUSY until then.
//! * A [compressed](crate::CompletionQueueBuilder::compressed) completion queue's sessions are put into the ring in
//!   full when the poller comes to them, all at once and under a lock: fewer bytes come over the bus, but more is done
//!   here.
//! * A [shared receive queue](crate::SharedReceiveQueue::direct) is made direct too, with the completion queue on which
//!   all its receives complete: the poller of that makes room for new ones, as it reads their completions. Those that
//!   it passes over, of queue pairs that were reset or dropped, make room as well, but nobody is told their ids.
//! * Binds of memory windows take three blocks of the send queue and local invalidates two, where the queue was made
//!   for requests of one: it is full with fewer of them than were asked for.
//! * The poller [arms](Poller::arm) the queue for events, since it alone knows how far it has come.
//! * The C object is there ([`as_ptr`](crate::QueuePair::as_ptr)), but libmlx5 must not post or poll on it.
//!
//! # What has been proven, and what has not
//!
//! All of it was tried on `softhca`, a software ConnectX under the stock libmlx5, not yet on a real device:
//!
//! * The bytes in queue, doorbell record and register are those that libmlx5 writes, for more than 300,000 random
//!   requests, and in shared receive queues for receives that complete in any order; completions say what `ibv_poll_cq`
//!   makes of the same ring, of 64-byte entries and of 128-byte ones, compressed or with data in them. On InfiniBand
//!   and on RoCE.
//! * Indices go round past 2¹⁶ and 2²⁴; errors, flushes, resets, numbers used again, and queues on several threads.
//! * Fences are counted, as the processor runs them and on each way through the machine code (`cargo xtask bench
//!   assembly`): one store fence for a BlueFlame copy, two for a doorbell, none for receives and for polls that go on
//!   with the queue pair of before. Each store to a doorbell is checked against what is in the ring then; planted
//!   mistakes are found.
//!
//! Not proven without hardware: that a missing fence would show (the model's memory is ordinary memory), what firmware
//! does beyond the manual (in compressed sessions of a shared queue's receives, for one), latency and message rates,
//! and the barriers of aarch64, which are rdma-core's: they are found in the machine code (`tests/aarch64.sh`), but
//! were never run.
//!
//! # The files
//!
//! | file | what |
//! |---|---|
//! | `bits` | wire formats: where what stands |
//! | `wqe` | segments of requests; pure |
//! | `ring` | indices; pure |
//! | `chain` | the order in which the slots of a shared receive queue are used; pure |
//! | `masked` | tables that go round |
//! | `barrier` | the only fences |
//! | `mmio` | registers, records and rings of requests: the only volatile stores |
//! | `cqe_ring` | rings of completions |
//! | `dv` | the only calls of libmlx5 for this path |
//! | `qp`, `post`, `batch` | queue pairs: their lives, and posting |
//! | `srq` | shared receive queues |
//! | `session` | compressed completions; pure |
//! | `grave` | queue pairs that wait to be destroyed |
//! | `cq`, `poller`, `wc` | completion queues, polling, and what completions say |
//! | `delivery` | data in completions |

mod barrier;
mod batch;
mod bits;
mod chain;
mod cq;
mod cqe_ring;
mod delivery;
mod dv;
mod grave;
mod masked;
mod mmio;
mod poller;
mod post;
mod qp;
mod ring;
mod session;
mod srq;
mod wc;
mod wqe;

pub use batch::Batch;
pub use delivery::{Delivery, Scattered, ToCqe, ToMemory};
pub use poller::Poller;
pub use wc::{Completion, WorkCompletion};

#[doc(hidden)]
pub use cq::{DirectCq, OwnedCq};
pub(crate) use dv::address_of;
pub(crate) use post::SHORT_INLINE;
pub use qp::cq_entries;
#[doc(hidden)]
pub use qp::{DirectLink, DirectQueues};
pub(crate) use qp::{Shared, create, join, least_depth, lost, prepare, take};
#[doc(hidden)]
pub use srq::{DirectSrq, SharedSlots};
#[doc(hidden)]
pub use wqe::AddressBytes;
