//! The backend `Direct`: where the module `mlx5` joins in.
//!
//! # Safety
//!
//! As in `builder`: the parents are alive and of one context when the queue pair is made, and held by it from then on.
//! What is posted lives for `'a`, or fails to be accessed without harm, as in `post`.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::sync::Arc;

use super::builder::Depths;
use super::link::{Leaver, Link};
use super::state::{CanPostRecv, CanPostSend, Reset, Rts, State};
use super::{Backend, OwnReceives, PostSend, QpCaps, QueuePair, QueuePairBuilder, Transport};
use crate::cq::{CqFor, Direct};
use crate::error::Result;
use crate::mlx5::{self, Delivery, DirectLink, DirectQueues};
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::wr::{PostError, Recv, Scatter, SendRequest};

impl<V: Delivery> Backend for Direct<V> {
    type Cq = Self;
    type Queues = DirectQueues;
    type Link = DirectLink;

    fn cq_entries<T: Transport>(caps: &QpCaps) -> (u32, u32) {
        mlx5::cq_entries::<T>(caps)
    }

    #[inline(always)]
    fn receive<'a, T: OwnReceives, S: CanPostRecv, D: Scatter<'a>>(
        qp: &mut QueuePair<'a, T, S, Self>,
        request: Recv<D>,
    ) -> std::result::Result<(), PostError> {
        QueuePair::<'a, T, S, Self>::post_recv(qp, request)
    }
}

impl Link<DirectQueues> for DirectLink {
    fn restarted(&self, queues: &mut DirectQueues) -> (u32, u32) {
        self.restart(queues)
    }

    fn destroy(&mut self, leaver: Leaver<'_>) -> Result<()> {
        self.give_up(leaver)
    }

    fn left(&self) {
        self.tell();
    }

    const NEEDS_RESET: bool = true;
}

impl<'a, T: Transport, V: Delivery> QueuePairBuilder<'a, T, Direct<V>> {
    /// A queue pair whose queues are written here, on an mlx5 device; see [`mlx5`](crate::mlx5). Its completion queues
    /// are made by [`build_direct`](crate::CompletionQueueBuilder::build_direct), or by
    /// [`build_direct_scattered`](crate::CompletionQueueBuilder::build_direct_scattered), if short data shall come in
    /// the completions.
    pub fn direct(
        pd: impl Into<Parent<'a, ProtectionDomain<'a>>>,
        send_cq: impl CqFor<'a, Direct<V>>,
        recv_cq: impl CqFor<'a, Direct<V>>,
    ) -> Self {
        Self::of(pd.into(), send_cq.into_parent(), recv_cq.into_parent())
    }

    /// `mlx5dv_create_qp`—Makes it, in a thread domain of its own, and takes its queues over.
    ///
    /// # Errors
    ///
    /// As the basic `build`; and [`Error::Verb`](crate::Error::Verb) with EOPNOTSUPP if it is no mlx5 device, or one
    /// without thread domains; [`Error::Invalid`](crate::Error::Invalid) if its WQEs would be
    /// [signed](crate::mlx5#what-it-needs).
    #[doc(alias = "mlx5dv_create_qp")]
    #[doc(alias = "mlx5dv_init_obj")]
    pub fn build(mut self) -> Result<QueuePair<'a, T, Reset, Direct<V>>> {
        let domain = mlx5::prepare(self.pd.context(), self.pd.as_ptr())?;
        let [send_cq, recv_cq] =
            [&self.send_cq, &self.recv_cq].map(|cq| Arc::clone(cq.direct().state().shared()));
        // what these leave may be what the device has no room for
        send_cq.sweep();
        recv_cq.sweep();
        let signal_all = self.signal_all;
        self.caps.send_depth = mlx5::least_depth(T::DATAGRAM, self.caps.send_depth);
        // it goes last, whatever happens
        let domain = std::cell::Cell::new(Some(domain));
        let shared = self
            .srq
            .as_ref()
            .map(|srq| mlx5::Shared { slots: srq.slots().clone(), object: Arc::clone(srq.owned()) });
        self.make(
            "mlx5dv_create_qp",
            |this| {
                let cqs = [this.send_cq.as_ptr(), this.recv_cq.as_ptr()];
                let held = domain.take();
                let made = held.as_ref().map_or((std::ptr::null_mut(), Default::default()), |held| {
                    let (ctx, cap, id) = (this.pd.context(), this.asked().to_c(), this.id.to_context());
                    let srq = this.srq_ptr();
                    // SAFETY: the parents are alive and of one context; the domain goes after the queue pair.
                    unsafe {
                        mlx5::create::<V>(ctx, held, T::QP_TYPE, T::SEND_OPS, cqs, srq, cap, signal_all, id)
                    }
                });
                domain.set(held);
                made
            },
            |qp, limits, depths| {
                if !T::DATAGRAM {
                    limits.max_inline = limits.max_inline.max(mlx5::SHORT_INLINE);
                }
                // SAFETY: just made; the queues lie beside the core that owns it, and are used by `&mut` on both.
                let taken = unsafe { mlx5::take(qp) }?;
                let Some(held) = domain.take() else { return Err(mlx5::lost()) };
                let (queues, link) = mlx5::join(taken, held, &send_cq, &recv_cq, shared, signal_all);
                let (send, recv) = queues.entries();
                *depths = Depths { send, recv };
                Ok((queues, link))
            },
        )
    }
}

impl<'a, T: Transport, S: State, V: Delivery> QueuePair<'a, T, S, Direct<V>> {
    /// Posts a request: writes it into the queue, and rings.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted.
    #[inline(always)]
    pub fn post<R>(&mut self, request: R) -> Result<(), PostError>
    where
        S: CanPostSend,
        R: SendRequest<'a, T>,
    {
        self.queues.post::<T, R>(&self.limits, &request)
    }

    /// Posts requests of one kind with one doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted.
    #[inline(always)]
    pub fn post_list<R>(&mut self, requests: &[R]) -> Result<(), PostError>
    where
        S: CanPostSend,
        R: SendRequest<'a, T> + Copy,
    {
        self.queues.post_list::<T, R>(&self.limits, requests)
    }

    /// Starts requests of any kind that reach the device with one doorbell.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Direct, MrSlice, PostError, QueuePair, Rc, RemoteSlice, send, state::Rts, write};
    /// # type Qp<'a> = QueuePair<'a, Rc, Rts, Direct>;
    /// # fn f<'a>(qp: &mut Qp<'a>, from: MrSlice<'a>, to: RemoteSlice) -> Result<(), PostError> {
    /// let mut batch = qp.batch();
    /// batch.push(write(from, to))?;
    /// batch.push(send(from).signaled())?;
    /// batch.submit();
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn batch(&mut self) -> mlx5::Batch<'_, 'a, T>
    where
        S: CanPostSend,
    {
        mlx5::Batch::new(&mut self.queues, &self.limits)
    }

    /// Posts room for a message.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted.
    #[inline(always)]
    pub fn post_recv<D>(&mut self, request: Recv<D>) -> Result<(), PostError>
    where
        S: CanPostRecv,
        T: OwnReceives,
        D: Scatter<'a>,
    {
        self.post_recv_list(std::slice::from_ref(&request))
    }

    /// Posts room for messages with one doorbell.
    ///
    /// # Errors
    ///
    /// [`PostError`]: nothing was posted.
    #[inline(always)]
    pub fn post_recv_list<D>(&mut self, requests: &[Recv<D>]) -> Result<(), PostError>
    where
        S: CanPostRecv,
        T: OwnReceives,
        D: Scatter<'a>,
    {
        self.queues.post_recv(&self.limits, requests)
    }
}

impl<'a, T: Transport, V: Delivery> PostSend<'a> for QueuePair<'a, T, Rts, Direct<V>> {
    type Transport = T;

    #[inline(always)]
    fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        QueuePair::<'a, T, Rts, Direct<V>>::post(self, request)
    }
}
