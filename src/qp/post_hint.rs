//! What the compiler says where requests are collected, or prepared, in the way of another backend.

use super::state::State;
use super::{Basic, Extended, QueuePair, Transport};
#[cfg(feature = "mlx5")]
use crate::cq::Direct;
#[cfg(feature = "mlx5")]
use crate::mlx5::Delivery;
use crate::wr::{Batch, BatchStorage, PostError, Prepared};

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a queue pair of backend `Basic` collects requests in a batch",
    label = "`let mut batch = qp.batch(&mut storage)`, `batch.push(..)?` of each, `batch.submit()?`, where `storage` is a `BatchStorage` (for receives: `recv_batch`, `RecvStorage`)"
)]
pub trait PostsSlices {
    fn never<T>(&self) -> T;
}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a queue pair of backend `Extended` collects requests in a slice",
    label = "`qp.post_list(&[..])?`, all of one kind: where some have immediate data, the others are made by `write_imm(.., None)` or `send_imm(.., None)`"
)]
pub trait Batches {
    fn never<T>(&self) -> T;
}

/// Implemented by nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "requests are prepared for queue pairs of backend `Basic`",
    label = "on one of another backend, `qp.post(request)?` each time"
)]
pub trait Prepares {
    fn never<T>(&self) -> T;
}

// these methods are here for the compiler's advice alone, and can never be called
impl<T: Transport, S: State> QueuePair<'_, T, S, Basic> {
    #[doc(hidden)]
    pub fn post_list<R>(&self, _: &[R]) -> Result<(), PostError>
    where
        Self: PostsSlices,
    {
        self.never()
    }
}

// as above
impl<'a, T: Transport, S: State> QueuePair<'a, T, S, Extended> {
    #[doc(hidden)]
    pub fn batch<'l, const N: usize, const E: usize>(
        &'l self,
        _: &'l mut BatchStorage<N, E>,
    ) -> Batch<'l, 'a, T, E>
    where
        Self: Batches,
    {
        self.never()
    }
    #[doc(hidden)]
    pub fn prepare<R>(&self, _: R) -> Result<Prepared<'a, T>, PostError>
    where
        Self: Prepares,
    {
        self.never()
    }
}

// as above
#[cfg(feature = "mlx5")]
impl<'a, T: Transport, S: State, V: Delivery> QueuePair<'a, T, S, Direct<V>> {
    #[doc(hidden)]
    pub fn prepare<R>(&self, _: R) -> Result<Prepared<'a, T>, PostError>
    where
        Self: Prepares,
    {
        self.never()
    }
}
