//! A *null provider*: the functions of libibverbs that `ibv` uses, defined here, over a device that is none.
//!
//! A program that links this crate calls these functions instead of libibverbs': a symbol that the program defines
//! comes before that of a shared library. So the whole safe API runs, with no kernel and no device, and a test sees
//! what was asked: which attributes a transition had, what a request looked like, what was destroyed in which order.
//! It also decides what is answered: the next call of a verb fails, a post is refused with a `bad_wr` that points
//! anywhere, a completion arrives.
//!
//! Nothing moves any data. What needs that is tested on a kernel device.
//!
//! Each thread that asks for one has an [`Hca`] of its own, with the devices `null0` and `null1`; a context belongs to
//! the [`Hca`] of the thread that opened it, whichever thread uses it. So tests do not see each other.
//!
//! # Misuse
//!
//! What libibverbs would crash on, hang on, or silently accept to everybody's loss stops the program here with a
//! message: an object that is not alive, one of another context, a destroyed completion queue with events that
//! nobody acknowledged, `ibv_wr_*` calls out of order, `ibv_start_poll` … `ibv_end_poll` too.
//!
//! # Safety
//!
//! The exported functions are C's, and trust their pointers as little as they can: an object is looked up in a table
//! before it is followed.

mod cold;
mod config;
mod device;
mod events;
mod fast;
mod hca;
mod notices;
mod path;
mod polled;
mod record;
mod srq;
mod universe;
mod window;
mod wr;

pub use config::Config;
pub use fast::set_completions;
pub use hca::{Hca, hca};
pub use record::{
    Atomic, Bad, Bind, Call, Id, Kind, Live, Modify, PostFault, RecvWr, Registration, Remote, SendWr, Sge,
    UdTo, WrCall,
};
