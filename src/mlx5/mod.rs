//! mlx5 direct.

pub(crate) mod barrier;
mod bits;
mod cq;
mod dv;
mod masked;
mod mmio;
mod poller;
mod post;
mod qp;
mod ring;
mod wc;
mod wqe;

pub use poller::Poller;
pub use post::Batch;
pub(crate) use post::SHORT_INLINE;
pub use wc::{Completion, WorkCompletion};

#[doc(hidden)]
pub use cq::DirectCq;
pub(crate) use dv::address_of;
#[doc(hidden)]
pub use qp::{DirectLink, DirectQueues};
pub(crate) use qp::{create, join, lost, prepare, ring_sizes, take};
#[doc(hidden)]
pub use wqe::AddressBytes;
