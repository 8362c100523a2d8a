//! Many requests with one call.
//!
//! # Safety
//!
//! Storage stays where it is while a batch borrows it. The requests in it are linked as they are pushed: each `next`
//! points at the following cell, whether that is ever filled or not, and the last one's is cut before the list goes
//! to the provider. Elements are copied into the cells; inline bytes are borrowed for the batch's life (`R: 'l`).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

use ibv_sys as sys;

use super::basic::{
    Elements, ReceiveQueue, Slot, inline_sge, post_recv_list, post_send_list, recv_wr, without_empty,
};
use super::encode::Limits;
use super::error::PostError;
use super::gather::Scatter;
use super::recv::Recv;
use super::request::SendRequest;
use crate::mr::MrSlice;
use crate::qp::{Invariant, Transport};

/// A request with room for `S` elements.
#[repr(C)]
struct Cell<W, const S: usize> {
    wr: MaybeUninit<W>,
    sges: [MaybeUninit<sys::ibv_sge>; S],
}

/// A C request that can be linked.
trait Link {
    /// # Safety
    ///
    /// `this` points to room for a `Self`.
    unsafe fn set_next(this: *mut Self, next: *mut Self);
}

impl Link for sys::ibv_send_wr {
    #[inline(always)]
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*this).next).write(next) };
    }
}

impl Link for sys::ibv_recv_wr {
    #[inline(always)]
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*this).next).write(next) };
    }
}

/// A list that grows in borrowed cells.
struct List<'l, W, const S: usize> {
    first: *mut Cell<W, S>,
    at: *mut Cell<W, S>,
    end: *mut Cell<W, S>,
    _cells: PhantomData<&'l mut Cell<W, S>>,
}

impl<'l, W: Link, const S: usize> List<'l, W, S> {
    #[inline(always)]
    fn new(cells: &'l mut [Cell<W, S>]) -> Self {
        let cells = cells.as_mut_ptr_range();
        Self { first: cells.start, at: cells.start, end: cells.end, _cells: PhantomData }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        // both point into, or just past, one array
        (self.at.addr() - self.first.addr()) / size_of::<Cell<W, S>>()
    }

    /// Lets `fill` write the next cell, and links it.
    #[inline(always)]
    fn push(&mut self, fill: impl FnOnce(&mut Cell<W, S>) -> Result<(), PostError>) -> Result<(), PostError> {
        if self.at == self.end {
            return Err(PostError::BatchFull);
        }
        // SAFETY: `at` is before `end`, in cells that are borrowed exclusively.
        let cell = unsafe { &mut *self.at };
        fill(cell)?;
        let next = self.at.wrapping_add(1);
        // SAFETY: `wr` has room for a `W`, and was just filled.
        unsafe { W::set_next(cell.wr.as_mut_ptr(), next.cast()) };
        self.at = next;
        Ok(())
    }

    /// The head of the finished list and its end, or `None` if it is empty.
    #[inline(always)]
    fn finish(&mut self) -> Option<(*mut W, *const W)> {
        if self.at == self.first {
            return None;
        }
        // SAFETY: the cell before `at` was filled; `wr` comes first in it (`repr(C)`).
        unsafe { W::set_next(self.at.sub(1).cast(), null_mut()) };
        Some((self.first.cast(), self.at.cast_const().cast()))
    }
}

struct InCell<'s, const S: usize>(&'s mut [MaybeUninit<sys::ibv_sge>; S]);

impl<const S: usize> InCell<'_, S> {
    #[inline(always)]
    fn keep(self, sge: sys::ibv_sge) -> *const sys::ibv_sge {
        const { assert!(S > 0, "a cell has room for at least one element") };
        let [first, ..] = self.0.as_mut_slice() else { return null_mut() };
        first.write(sge)
    }
}

impl<const S: usize> Elements for InCell<'_, S> {
    #[inline(always)]
    fn one(self, sge: &sys::ibv_sge) -> *const sys::ibv_sge {
        self.keep(*sge)
    }

    #[inline(always)]
    fn many(self, sges: &[sys::ibv_sge]) -> Result<*const sys::ibv_sge, PostError> {
        copy_in(self.0, sges)
    }

    #[inline(always)]
    fn inline(self, bytes: &[u8]) -> *const sys::ibv_sge {
        self.keep(inline_sge(bytes))
    }
}

#[inline(always)]
fn copy_in<const S: usize>(
    cells: &mut [MaybeUninit<sys::ibv_sge>; S],
    sges: &[sys::ibv_sge],
) -> Result<*const sys::ibv_sge, PostError> {
    if sges.len() > S {
        return Err(PostError::CellTooNarrow { max: S as u32 });
    }
    for (to, from) in cells.iter_mut().zip(sges) {
        to.write(*from);
    }
    Ok(cells.as_ptr().cast())
}

macro_rules! storage {
    ($(#[$meta:meta])* $name:ident($wr:ident)) => {
        $(#[$meta])*
        pub struct $name<const N: usize, const S: usize = 1>([Cell<sys::$wr, S>; N]);

        impl<const N: usize, const S: usize> $name<N, S> {
            /// Empty storage: nothing is written before it is needed.
            #[inline(always)]
            pub const fn new() -> Self {
                Self([const { Cell { wr: MaybeUninit::uninit(), sges: [MaybeUninit::uninit(); S] } }; N])
            }
        }

        impl<const N: usize, const S: usize> Default for $name<N, S> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<const N: usize, const S: usize> fmt::Debug for $name<N, S> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("requests", &N).field("sges", &S).finish()
            }
        }

        // SAFETY: uninitialised room; the pointers in it are written and read only while a batch borrows it.
        unsafe impl<const N: usize, const S: usize> Send for $name<N, S> {}
        // SAFETY: as above; `&` gives access to nothing.
        unsafe impl<const N: usize, const S: usize> Sync for $name<N, S> {}
    };
}

storage! {
    /// Room for a [`Batch`] of up to `N` requests of up to `S` scatter/gather elements: on the stack, or kept.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{BatchStorage, MrSlice, PostError, QueuePair, RemoteSlice, write};
    /// # fn f<'a>(qp: &QueuePair<'a>, parts: [MrSlice<'a>; 2], to: [RemoteSlice; 8]) -> Result<(), PostError> {
    /// let mut storage = BatchStorage::<8, 2>::new(); // 8 requests of up to 2 elements
    /// let mut batch = qp.batch(&mut storage);
    /// for to in to {
    ///     batch.push(write(parts, to).signaled())?;
    /// }
    /// batch.submit()
    /// # }
    /// ```
    BatchStorage(ibv_send_wr)
}
storage! {
    /// Room for a [`RecvBatch`] of up to `N` receives of up to `S` scatter/gather elements; see
    /// [`recv_batch`](crate::QueuePair::recv_batch).
    RecvStorage(ibv_recv_wr)
}

/// Send requests that reach the device with one call and one doorbell, made by
/// [`QueuePair::batch`](crate::QueuePair::batch).
///
/// Dropping it without [`submit`](Self::submit) posts nothing.
#[must_use = "nothing is posted before `submit`"]
pub struct Batch<'l, 'a, T: Transport, const S: usize = 1> {
    qp: NonNull<sys::ibv_qp>,
    limits: &'l Limits,
    list: List<'l, sys::ibv_send_wr, S>,
    _of: PhantomData<T>,
    _invariant: Invariant<'a>,
}

impl<'l, 'a, T: Transport, const S: usize> Batch<'l, 'a, T, S> {
    /// # Safety
    ///
    /// `qp` is alive for `'l`, and `limits` are its own.
    #[inline(always)]
    pub(crate) unsafe fn new<const N: usize>(
        qp: NonNull<sys::ibv_qp>,
        limits: &'l Limits,
        storage: &'l mut BatchStorage<N, S>,
    ) -> Self {
        Self { qp, limits, list: List::new(&mut storage.0), _of: PhantomData, _invariant: PhantomData }
    }

    /// Appends a request. Inline data is borrowed until the batch is submitted.
    ///
    /// # Errors
    ///
    /// [`PostError::BatchFull`] if the storage is, [`PostError::CellTooNarrow`] if the request has more elements than a
    /// cell of it, and the others that need no device; the batch stays as it was.
    #[inline(always)]
    pub fn push<R: SendRequest<'a, T> + 'l>(&mut self, request: R) -> Result<(), PostError> {
        request.check(self.limits)?;
        self.list.push(|cell| {
            // SAFETY: just checked.
            unsafe { request.encode(Slot { wr: &mut cell.wr, data: InCell(&mut cell.sges) }) }
        })?;
        // SAFETY: it is in the list.
        unsafe { request.posted() };
        Ok(())
    }

    /// How many requests it holds.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `ibv_post_send`—Posts them all, in order.
    ///
    /// # Errors
    ///
    /// [`PostError::Device`], which says how many were accepted: with ENOMEM if the queue is full, EINVAL mostly for a
    /// queue pair that has moved to another state.
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub fn submit(mut self) -> Result<(), PostError> {
        match self.list.finish() {
            // SAFETY: `new`'s promise; the list was encoded by `push`, in one array of cells of this stride.
            Some((first, end)) => unsafe {
                post_send_list(self.qp, first, end, size_of::<Cell<sys::ibv_send_wr, S>>())
            },
            None => Ok(()),
        }
    }
}

/// Receives that reach the device with one call, made by [`QueuePair::recv_batch`](crate::QueuePair::recv_batch) or
/// [`SharedReceiveQueue::recv_batch`](crate::SharedReceiveQueue::recv_batch).
#[must_use = "nothing is posted before `submit`"]
pub struct RecvBatch<'l, 'a, const S: usize = 1, Q: ReceiveQueue = sys::ibv_qp> {
    queue: NonNull<Q>,
    limits: &'l Limits,
    list: List<'l, sys::ibv_recv_wr, S>,
    _invariant: Invariant<'a>,
}

impl<'l, 'a, const S: usize, Q: ReceiveQueue> RecvBatch<'l, 'a, S, Q> {
    /// # Safety
    ///
    /// As [`Batch::new`].
    #[inline(always)]
    pub(crate) unsafe fn new<const N: usize>(
        queue: NonNull<Q>,
        limits: &'l Limits,
        storage: &'l mut RecvStorage<N, S>,
    ) -> Self {
        Self { queue, limits, list: List::new(&mut storage.0), _invariant: PhantomData }
    }

    /// Appends a receive.
    ///
    /// # Errors
    ///
    /// As [`Batch::push`].
    #[inline(always)]
    pub fn push<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError> {
        let Recv { id, into } = request;
        into.check_recv(self.limits)?;
        let sges = MrSlice::as_sges(into.slices());
        self.list.push(|cell| {
            if Q::LEAVES_OUT_EMPTY {
                let kept =
                    without_empty(&mut cell.sges, sges).ok_or(PostError::CellTooNarrow { max: S as u32 })?;
                cell.wr.write(recv_wr(id, kept));
            } else {
                let kept = copy_in(&mut cell.sges, sges)?;
                let wr = cell.wr.write(recv_wr(id, sges));
                wr.sg_list = kept.cast_mut();
            }
            Ok(())
        })
    }

    /// How many receives it holds.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `ibv_post_recv`—Posts them all, in order.
    ///
    /// # Errors
    ///
    /// [`PostError::Device`], which says how many were accepted: with ENOMEM if the queue is full, EINVAL mostly for a
    /// queue pair that has moved to another state.
    #[doc(alias = "ibv_post_recv")]
    #[inline(always)]
    pub fn submit(mut self) -> Result<(), PostError> {
        match self.list.finish() {
            // SAFETY: as in `Batch::submit`.
            Some((first, end)) => unsafe {
                post_recv_list(self.queue, first, end, size_of::<Cell<sys::ibv_recv_wr, S>>())
            },
            None => Ok(()),
        }
    }
}

impl<T: Transport, const S: usize> fmt::Debug for Batch<'_, '_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<const S: usize, Q: ReceiveQueue> fmt::Debug for RecvBatch<'_, '_, S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}
