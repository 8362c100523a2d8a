//! Work requests: what can be asked of a queue pair, and how it reaches the device.
//!
//! A request is a plain value, made by one of the functions here, such as [`send`] or [`write`]. It is
//! [encoded](encode::Encode) where it is posted, by whatever backend the queue pair has:
//!
//! | file | what |
//! |---|---|
//! | `request`, `window`, `gather`, `recv` | the requests and their data: the user's side |
//! | `encode` | what a backend must be able to write: the joint |
//! | `basic`, `extended` | the backends: `struct ibv_send_wr`, and `ibv_wr_*`; `stand_in`: where the latter are not called |
//! | `batch`, `prepared` | many requests with one call, one request many times |

mod basic;
mod batch;
pub(crate) mod encode;
mod error;
mod extended;
mod gather;
mod prepared;
mod recv;
mod request;
mod stand_in;
mod window;

pub use basic::ReceiveQueue;
pub use batch::{Batch, BatchStorage, RecvBatch, RecvStorage};
pub use error::PostError;
pub use gather::{Empty, Gather, Inline, Scatter};
pub use prepared::Prepared;
pub use recv::{Recv, recv};
pub use request::{
    Address, CmpSwp, FetchAdd, Immediate, Keepable, Read, Send, SendInv, SendRequest, SendTo, Write, cmp_swp,
    fetch_add, read, send, send_imm, send_inv, write, write_imm,
};
pub(crate) use stand_in::WrTarget;
pub use window::{BindMw, LocalInv, bind_mw, local_inv};

pub(crate) use basic::{post_recv, post_send};
pub(crate) use extended::post_extended;
pub(crate) use window::bind_type_1;
