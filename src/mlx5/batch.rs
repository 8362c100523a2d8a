//! Several requests with one doorbell.
//!
//! # Safety
//!
//! Only that a [`Batch`] may be sent and shared between threads is said here.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::marker::PhantomData;

use super::mmio::Block;
use super::qp::{DirectQueues, SendQueue};
use crate::qp::{Invariant, Transport};
use crate::wr::encode::Limits;
use crate::wr::{PostError, SendRequest};

/// Requests that stand in the queue already, and reach the device with one doorbell: made by
/// [`QueuePair::batch`](crate::QueuePair::batch) of a direct queue pair.
///
/// Dropping it without [`submit`](Self::submit) takes them back; if it is forgotten instead (`mem::forget`), they go
/// with what is posted next.
#[must_use = "nothing is posted before `submit`"]
pub struct Batch<'l, 'a, T: Transport> {
    queue: &'l mut SendQueue,
    limits: &'l Limits,
    /// Where it started.
    first: u32,
    last: Option<Block>,
    _of: PhantomData<T>,
    _invariant: Invariant<'a>,
}

// SAFETY: a queue by `&mut`, which may be sent, and a place in it.
unsafe impl<T: Transport> Send for Batch<'_, '_, T> {}
// SAFETY: `&` gives access to nothing.
unsafe impl<T: Transport> Sync for Batch<'_, '_, T> {}

impl<'l, 'a, T: Transport> Batch<'l, 'a, T> {
    #[inline(always)]
    pub(crate) fn new(queues: &'l mut DirectQueues, limits: &'l Limits) -> Self {
        let queue = &mut queues.send;
        let first = queue.producer.head();
        Self { queue, limits, first, last: None, _of: PhantomData, _invariant: PhantomData }
    }

    /// Appends a request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the batch stays as it was.
    #[inline(always)]
    pub fn push<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        self.encode(&request)
    }

    #[inline(always)]
    pub(super) fn encode<R: SendRequest<'a, T>>(&mut self, request: &R) -> Result<(), PostError> {
        let written = self.queue.write::<T, R, false>(self.limits, request)?;
        self.last = Some(written.block);
        // SAFETY: it is in the ring.
        unsafe { request.posted() };
        Ok(())
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Posts them all, in order.
    #[inline(always)]
    pub fn submit(mut self) {
        if let Some(last) = self.last.take() {
            self.first = self.queue.producer.head();
            self.queue.tell(self.first);
            self.queue.ring_by_word(last);
        }
    }
}

impl<T: Transport> Drop for Batch<'_, '_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.last.is_some() {
            self.queue.roll_back(self.first);
        }
    }
}

impl<T: Transport> fmt::Debug for Batch<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}
