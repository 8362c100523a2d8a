//! Posting requests.
//!
//! # Safety
//!
//! `qp` is `core`'s, alive as long as the queue pair, and `limits` were granted to it. What is posted lives for `'a`,
//! which the queue pair cannot outlive, or fails to be accessed without harm: a region's key dies before its memory.

#![expect(unsafe_code, reason = "the Safety section above")]

use super::state::{CanPostRecv, CanPostSend, Rts, State};
use super::transport::{OwnReceives, Transport, Windows};
use super::{Backend, Basic, Extended, QueuePair, Verbs};
use crate::mr::RemoteRegion;
use crate::mw::Type1;
use crate::wr::{
    Batch, BatchStorage, BindMw, Keepable, PostError, Prepared, Recv, RecvBatch, RecvStorage, Scatter,
    SendRequest, bind_type_1, post_extended, post_recv, post_send,
};

/// What sends can be posted on: code written for it runs on every backend.
///
/// `'a`: what is posted must live as long as the queue.
///
/// # Examples
///
/// ```
/// use ibv::{MrSlice, PostError, PostSend, Rc, RemoteSlice, write};
///
/// fn store<'a>(
///     queue: &mut impl PostSend<'a, Transport = Rc>,
///     from: MrSlice<'a>,
///     to: RemoteSlice,
/// ) -> Result<(), PostError> {
///     queue.post(write(from, to).signaled())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "sends cannot be posted on `{Self}`",
    label = "give `&mut` of a queue pair in `Rts`, or of a reference to a `Basic` one"
)]
pub trait PostSend<'a> {
    /// The transport.
    type Transport: Transport;

    /// Posts a request.
    ///
    /// # Errors
    ///
    /// Those of [`QueuePair::post`].
    fn post<R: SendRequest<'a, Self::Transport>>(&mut self, request: R) -> Result<(), PostError>;
}

/// What receives can be posted on.
#[diagnostic::on_unimplemented(
    message = "receives cannot be posted on `{Self}`",
    label = "give a queue pair in any state but `Reset`, or the `SharedReceiveQueue` that it was made with"
)]
pub trait PostRecv<'a> {
    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// Those of [`QueuePair::post_recv`].
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError>;
}

impl<'a, T: Transport, S: State> QueuePair<'a, T, S, Basic> {
    /// `ibv_post_send`—Posts a request.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted, unless it is a [`PostError::Device`] that says otherwise. Its errno is ENOMEM
    /// if the queue is full, and EINVAL mostly for a queue pair that has moved to another state.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MrSlice, PostError, QueuePair, send};
    /// # fn f<'a>(qp: &QueuePair<'a>, data: MrSlice<'a>) -> Result<(), PostError> {
    /// match qp.post(send(data).signaled()) {
    ///     Err(full) if full.is_queue_full() => {} // poll, then post it again
    ///     other => other?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub fn post<R>(&self, request: R) -> Result<(), PostError>
    where
        S: CanPostSend,
        R: SendRequest<'a, T>,
    {
        // SAFETY: `qp` is destroyed by `core` alone, which `self` holds; `limits` were granted to it; and `R` is a
        // `SendRequest<'a, _>`, whose regions live for `'a`, or whose detached slices have keys that die before the
        // memory.
        unsafe { post_send(self.qp, &self.limits, &request) }
    }

    /// `ibv_post_send`—Starts a list of requests, which reaches the device with one call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{BatchStorage, MrSlice, PostError, QueuePair, RemoteSlice, write};
    /// # fn f<'a>(qp: &QueuePair<'a>, from: MrSlice<'a>, to: RemoteSlice) -> Result<(), PostError> {
    /// let mut storage = BatchStorage::<16>::new();
    /// let mut batch = qp.batch(&mut storage);
    /// batch.push(write(from, to))?;
    /// batch.push(write(from, to).signaled())?;
    /// batch.submit()
    /// # }
    /// ```
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub fn batch<'l, const N: usize, const E: usize>(
        &'l self,
        storage: &'l mut BatchStorage<N, E>,
    ) -> Batch<'l, 'a, T, E>
    where
        S: CanPostSend,
    {
        // SAFETY: `qp` is `core`'s and `limits` its own; the batch borrows `self` for `'l`, so both are there, and the
        // queue pair in its state, until it is submitted.
        unsafe { Batch::new(self.qp, &self.limits, storage) }
    }

    /// Builds a request once, to be posted many times. An address handle in it must live as long as the queue pair.
    ///
    /// # Errors
    ///
    /// Those [`PostError`]s that need no device, and so have no errno: [`TooManySges`](PostError::TooManySges),
    /// [`InlineTooLong`](PostError::InlineTooLong), [`MessageTooLong`](PostError::MessageTooLong),
    /// [`RemoteTooShort`](PostError::RemoteTooShort), [`OtherContext`](PostError::OtherContext), [`Unsupported`](PostError::Unsupported).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Inline, PostError, QueuePair, RemoteSlice, write};
    /// # fn f(qp: &QueuePair<'_>, flag: RemoteSlice) -> Result<(), PostError> {
    /// let ring = qp.prepare(write(Inline(&[1]), flag).signaled())?; // the byte is copied now
    /// qp.post_prepared(&ring)?;
    /// qp.post_prepared(&ring)
    /// # }
    /// ```
    pub fn prepare<R: SendRequest<'a, T> + Keepable<'a>>(
        &self,
        request: R,
    ) -> Result<Prepared<'a, T>, PostError> {
        Prepared::new(self.id, &self.limits, &request)
    }

    /// `ibv_post_send`—Posts a request that was built before, by this queue pair.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post); and [`PostError::OtherQueuePair`].
    #[doc(alias = "ibv_post_send")]
    #[inline(always)]
    pub fn post_prepared(&self, request: &Prepared<'a, T>) -> Result<(), PostError>
    where
        S: CanPostSend,
    {
        // SAFETY: `qp` is destroyed by `core` alone, which `self` holds, and `id` is its own; what the request names lives
        // for `'a`, as `prepare` demanded.
        unsafe { request.post(self.qp, self.id) }
    }
}

impl<'a, T: Transport, S: State> QueuePair<'a, T, S, Extended> {
    /// `ibv_wr_start` … `ibv_wr_complete`—Posts a request; or by `ibv_post_send`, where those can't be
    /// [trusted](crate::QueuePairBuilder::trust_wr).
    ///
    /// Data that is at hand in memory costs some instructions less by reference (`send(&data)`): it is loaded when it
    /// is written then, and not kept over `ibv_wr_start`.
    ///
    /// # Errors
    ///
    /// As [`post`](QueuePair::post) of the basic backend; a full queue is ENOMEM or ENOSPC, as the provider likes
    /// ([`PostError::is_queue_full`] knows both).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Extended, MrSlice, PostError, QueuePair, Rc, send, state::Rts};
    /// # fn f<'a>(qp: &mut QueuePair<'a, Rc, Rts, Extended>, data: MrSlice<'a>) -> Result<(), PostError> {
    /// qp.post(send(data).signaled().id(1))
    /// # }
    /// ```
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[inline(always)]
    pub fn post<R>(&mut self, request: R) -> Result<(), PostError>
    where
        S: CanPostSend,
        R: SendRequest<'a, T>,
    {
        self.post_all(std::slice::from_ref(&request))
    }

    /// `ibv_wr_start` … `ibv_wr_complete`—Posts requests of one kind with one doorbell. (For those of which some have
    /// immediate data, see [`Immediate`](crate::Immediate); those that concern memory windows are good for one post:
    /// [`post`](Self::post) them.)
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post). By `ibv_wr_*` either all are posted or none, as far as the provider tells; by
    /// `ibv_post_send` [`accepted`](PostError::accepted) of them are.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Extended, MrSlice, PostError, QueuePair, Rc, RemoteSlice, state::Rts, write};
    /// # fn f<'a>(
    /// #     qp: &mut QueuePair<'a, Rc, Rts, Extended>, from: [MrSlice<'a>; 2], to: [RemoteSlice; 2],
    /// # ) -> Result<(), PostError> {
    /// qp.post_list(&[write(from[0], to[0]), write(from[1], to[1]).signaled()])
    /// # }
    /// ```
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[inline(always)]
    pub fn post_list<R>(&mut self, requests: &[R]) -> Result<(), PostError>
    where
        S: CanPostSend,
        R: SendRequest<'a, T> + Copy,
    {
        self.post_all(requests)
    }

    #[inline(always)]
    fn post_all<R: SendRequest<'a, T>>(&mut self, requests: &[R]) -> Result<(), PostError> {
        // SAFETY: `queues` are written to by `&mut self` alone, and lead to `core`'s queue pair, which `self` holds:
        // made with all operations of `T` but those that `limits` lack, whose pointers `build` found, or stood in for.
        // What is posted lives for `'a`, or has keys that die before the memory.
        unsafe { post_extended(&mut self.queues, &self.limits, requests) }
    }
}

impl<'a, T: Transport, S: State, B: Backend> QueuePair<'a, T, S, B> {
    /// `ibv_bind_mw`—Binds a window of type 1, by a request of this queue pair's, and returns what the peer may use
    /// when that is executed: any request posted later finds it so.
    ///
    /// # Errors
    ///
    /// As [`post`](QueuePair::post); and [`PostError::Device`] with EOPNOTSUPP if the provider binds by requests alone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Error, MemoryRegion, MemoryWindow, QueuePair, Remote, RemoteAccess, RemoteRegion, Type1, bind_mw};
    /// # fn f<'a>(
    /// #     qp: &QueuePair<'_>, window: &mut MemoryWindow<'a, Type1>, mr: &'a MemoryRegion<'a, Remote>,
    /// # ) -> Result<RemoteRegion, Error> {
    /// let part = qp.bind_mw(bind_mw(window, mr, ..64, RemoteAccess::READ)?.signaled())?;
    /// # Ok(part)
    /// # }
    /// ```
    #[doc(alias = "ibv_bind_mw")]
    pub fn bind_mw(&self, request: BindMw<'_, Type1>) -> Result<RemoteRegion, PostError>
    where
        S: CanPostSend,
        T: Windows,
        B: Verbs,
    {
        // SAFETY: `qp` is `core`'s, which `self` holds, and `limits` its own.
        unsafe { bind_type_1(self.qp, &self.limits, &request) }
    }
}

impl<'a, T: Transport, S: State, B: Verbs> QueuePair<'a, T, S, B> {
    /// `ibv_post_recv`—Posts room for a message.
    ///
    /// # Errors
    ///
    /// As [`post`](QueuePair::post): [`PostError::Device`] has ENOMEM if the queue is full, EINVAL mostly for a queue
    /// pair that has moved to another state.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MemoryRegion, QueuePair, Rc, recv, state::Init};
    /// # fn f<'a>(qp: &QueuePair<'a, Rc, Init>, mr: &'a MemoryRegion<'a>) -> Result<(), ibv::Error> {
    /// for (id, at) in (0..4096).step_by(1024).enumerate() {
    ///     qp.post_recv(recv(mr.slice(at..at + 1024)?).id(id as u64))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_post_recv")]
    #[inline(always)]
    pub fn post_recv<D>(&self, request: Recv<D>) -> Result<(), PostError>
    where
        S: CanPostRecv,
        T: OwnReceives,
        D: Scatter<'a>,
    {
        // SAFETY: `qp` is destroyed by `core` alone, which `self` holds; `limits` were granted to it; and `D` is a
        // `Scatter<'a>`, whose regions live for `'a`, or whose detached slices have keys that die before the memory.
        unsafe { post_recv(self.qp, &self.limits, &request) }
    }

    /// `ibv_post_recv`—Starts a list of receives, which reaches the device with one call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MrSlice, PostError, QueuePair, RecvStorage, recv};
    /// # fn f<'a>(qp: &QueuePair<'a>, rooms: &[MrSlice<'a>]) -> Result<(), PostError> {
    /// let mut storage = RecvStorage::<16>::new();
    /// let mut batch = qp.recv_batch(&mut storage);
    /// for (id, room) in (0..).zip(rooms) {
    ///     batch.push(recv(*room).id(id))?;
    /// }
    /// batch.submit()
    /// # }
    /// ```
    #[doc(alias = "ibv_post_recv")]
    #[inline(always)]
    pub fn recv_batch<'l, const N: usize, const E: usize>(
        &'l self,
        storage: &'l mut RecvStorage<N, E>,
    ) -> RecvBatch<'l, 'a, E>
    where
        S: CanPostRecv,
        T: OwnReceives,
    {
        // SAFETY: `qp` is `core`'s and `limits` its own, and the list borrows `self` for `'l`, as in `batch`.
        unsafe { RecvBatch::new(self.qp, &self.limits, storage) }
    }
}

impl<'a, T: Transport> PostSend<'a> for QueuePair<'a, T, Rts, Basic> {
    type Transport = T;

    #[inline(always)]
    fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        QueuePair::<'a, T, Rts, Basic>::post(self, request)
    }
}

/// For sharing, like `Write for &File`: the provider locks.
impl<'a, T: Transport> PostSend<'a> for &QueuePair<'a, T, Rts, Basic> {
    type Transport = T;

    #[inline(always)]
    fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        QueuePair::<'a, T, Rts, Basic>::post(self, request)
    }
}

impl<'a, T: Transport> PostSend<'a> for QueuePair<'a, T, Rts, Extended> {
    type Transport = T;

    #[inline(always)]
    fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        QueuePair::<'a, T, Rts, Extended>::post(self, request)
    }
}

impl<'a, T: OwnReceives, S: CanPostRecv, B: Backend> PostRecv<'a> for QueuePair<'a, T, S, B> {
    #[inline(always)]
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError> {
        B::receive(self, request)
    }
}

/// For sharing: the provider locks.
impl<'a, T: OwnReceives, S: CanPostRecv, B: Verbs> PostRecv<'a> for &QueuePair<'a, T, S, B> {
    #[inline(always)]
    fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError> {
        QueuePair::<'a, T, S, B>::post_recv(self, request)
    }
}
