//! The state as a value: for a queue pair that lives in a struct's field and changes there.

use std::fmt;

use super::attr::{Connection, change_of};
use super::change::Change;
use super::state::{QpState, Rts, State};
use super::transport::{Connected, Datagram, OwnReceives, Transport};
use super::{Backend, Basic, Extended, QpAttr, QueuePair, Verbs};
use crate::addr::{Endpoint, LocalPort};
use crate::error::{CloseError, Error, Result};
use crate::wr::{PostError, Prepared, Recv, Scatter, SendRequest};

/// A [`QueuePair`] whose state is a value: transitions take `&mut self`, and what its state does not allow is an error
/// at run time. Posting costs one comparison more.
///
/// # Examples
///
/// ```no_run
/// use ibv::{Connection, DynQueuePair, InitAttr, Rc};
///
/// struct Peer {
///     qp: DynQueuePair<'static, Rc>,
/// }
///
/// impl Peer {
///     fn reconnect(&mut self, connection: &Connection) -> Result<(), ibv::Error> {
///         self.qp.reset()?;
///         self.qp.init(InitAttr::new(1))?;
///         self.qp.connect(connection)
///     }
/// }
/// ```
pub struct DynQueuePair<'a, T: Transport, B: Backend = Basic> {
    /// Its state is `state`, whatever the type says.
    qp: QueuePair<'a, T, Rts, B>,
    state: QpState,
}

impl<'a, T: Transport, S: State, B: Backend> From<QueuePair<'a, T, S, B>> for DynQueuePair<'a, T, B> {
    fn from(qp: QueuePair<'a, T, S, B>) -> Self {
        Self { qp: qp.now(), state: S::STATE }
    }
}

impl<'a, T: Transport, B: Backend> DynQueuePair<'a, T, B> {
    /// Its state, as far as this side has brought it.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// The queue pair with its state in the type.
    ///
    /// # Errors
    ///
    /// Itself, if `S` is not its state.
    pub fn into_typed<S: State>(self) -> Result<QueuePair<'a, T, S, B>, Self> {
        if self.state == S::STATE { Ok(self.qp.now()) } else { Err(self) }
    }

    /// As [`QueuePair::qp_num`].
    pub fn qp_num(&self) -> u32 {
        self.qp.qp_num()
    }

    /// As [`QueuePair::endpoint`].
    pub fn endpoint(&self, local: &LocalPort, psn: u32) -> Endpoint {
        self.qp.endpoint(local, psn)
    }

    /// As [`QueuePair::max_inline`].
    pub fn max_inline(&self) -> u32 {
        self.qp.max_inline()
    }

    /// As [`QueuePair::query`].
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EIO if the device is gone, ENOMEM if the kernel has no memory for the answer.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr> {
        self.qp.query()
    }

    /// As [`QueuePair::init`]: from RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] in another state, and those of [`QueuePair::init`].
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, attr: T::Init) -> Result<()> {
        if self.state != QpState::RESET {
            return Err(Error::invalid("the queue pair's state", self.state, "RESET: call `reset` first"));
        }
        self.go(QpState::INIT, change_of(&attr))
    }

    /// As [`QueuePair::reset`]: from every state.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EIO if the device is gone, EINVAL if it refuses (Soft-RoCE does while a queue pair
    /// [drains](QpAttr::is_draining)). The state stays as it was.
    #[doc(alias = "ibv_modify_qp")]
    pub fn reset(&mut self) -> Result<()> {
        self.go(QpState::RESET, Change::default())
    }

    /// As [`QueuePair::into_error`]: from every state but RESET.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] in RESET; [`Error::Verb`] with EIO if the device is gone, EINVAL if it refuses. The state
    /// stays as it was.
    #[doc(alias = "ibv_modify_qp")]
    pub fn into_error(&mut self) -> Result<()> {
        if self.state == QpState::RESET {
            return Err(Error::invalid("the queue pair's state", self.state, "any but RESET"));
        }
        self.go(QpState::ERROR, Change::default())
    }

    /// As [`QueuePair::close`].
    ///
    /// # Errors
    ///
    /// [`CloseError`] with itself.
    pub fn close(self) -> Result<(), CloseError<Self>> {
        let state = self.state;
        self.qp.close().map_err(|refused| refused.map(|qp| Self { qp, state }))
    }

    fn go(&mut self, to: QpState, change: Change) -> Result<()> {
        self.qp.change(self.state, to, change)?;
        self.state = to;
        Ok(())
    }

    /// Both steps, or back to RESET, as with the state in the type.
    fn rtr_then_rts(&mut self, rtr: Result<T::Rtr>, rts: &T::Rts) -> Result<()> {
        if self.state != QpState::INIT {
            return Err(Error::invalid("the queue pair's state", self.state, "INIT: call `init` first"));
        }
        let done = rtr
            .and_then(|rtr| self.go(QpState::RTR, change_of(&rtr)))
            .and_then(|()| self.go(QpState::RTS, change_of(rts)));
        done.inspect_err(|_| {
            if let Err(error) = self.reset() {
                tracing::error!(%error, "a queue pair could not be reset after a failed transition");
            }
        })
    }
}

impl<'a, T: Transport, B: Verbs> DynQueuePair<'a, T, B> {
    /// As [`QueuePair::post_recv`]: in every state but RESET.
    ///
    /// # Errors
    ///
    /// [`PostError::WrongState`] in RESET, and those of [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv<D: Scatter<'a>>(&self, request: Recv<D>) -> Result<(), PostError>
    where
        T: OwnReceives,
    {
        if self.state == QpState::RESET {
            return Err(PostError::WrongState { state: self.state });
        }
        self.qp.post_recv(request)
    }
}

impl<T: Connected, B: Backend> DynQueuePair<'_, T, B> {
    /// As [`QueuePair::connect`]: from INIT.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] in another state, and those of [`QueuePair::connect`], after which it is in RESET.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&mut self, connection: &Connection) -> Result<()> {
        self.rtr_then_rts(T::rtr(connection), &T::rts(connection))
    }
}

impl<T: Datagram, B: Backend> DynQueuePair<'_, T, B> {
    /// As [`QueuePair::activate`]: from INIT.
    ///
    /// # Errors
    ///
    /// As [`connect`](DynQueuePair::connect).
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(&mut self, psn: u32) -> Result<()> {
        self.rtr_then_rts(Ok(T::rtr()), &T::rts(psn))
    }
}

impl<'a, T: Transport> DynQueuePair<'a, T, Basic> {
    /// As [`QueuePair::post`]: in RTS.
    ///
    /// # Errors
    ///
    /// [`PostError::WrongState`] in another state, and those of [`QueuePair::post`].
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<R: SendRequest<'a, T>>(&self, request: R) -> Result<(), PostError> {
        self.ready()?.post(request)
    }

    /// As [`QueuePair::post_prepared`]: in RTS. What it posts was prepared by [`ready`](Self::ready)`()?.prepare(..)`,
    /// or before the queue pair came here.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_prepared(&self, request: &Prepared<'a, T>) -> Result<(), PostError> {
        self.ready()?.post_prepared(request)
    }

    /// The queue pair as one in RTS, for everything that those can do by `&self`.
    ///
    /// # Errors
    ///
    /// [`PostError::WrongState`] in another state.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{BatchStorage, DynQueuePair, MrSlice, PostError, Rc, send};
    /// # fn f<'a>(qp: &DynQueuePair<'a, Rc>, data: MrSlice<'a>) -> Result<(), PostError> {
    /// let mut storage = BatchStorage::<4>::new();
    /// let mut batch = qp.ready()?.batch(&mut storage);
    /// batch.push(send(data).signaled())?;
    /// batch.submit()
    /// # }
    /// ```
    #[inline]
    pub fn ready(&self) -> Result<&QueuePair<'a, T, Rts, Basic>, PostError> {
        if self.state == QpState::RTS {
            Ok(&self.qp)
        } else {
            Err(PostError::WrongState { state: self.state })
        }
    }
}

impl<'a, T: Transport> DynQueuePair<'a, T, Extended> {
    /// As [`QueuePair::post`]: in RTS.
    ///
    /// # Errors
    ///
    /// As with the basic backend.
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        if self.state != QpState::RTS {
            return Err(PostError::WrongState { state: self.state });
        }
        self.qp.post(request)
    }
}

#[cfg(feature = "mlx5")]
impl<'a, T: Transport, V: crate::mlx5::Delivery> DynQueuePair<'a, T, crate::cq::Direct<V>> {
    /// As [`QueuePair::post`]: in RTS.
    ///
    /// # Errors
    ///
    /// As with the basic backend.
    #[inline]
    pub fn post<R: SendRequest<'a, T>>(&mut self, request: R) -> Result<(), PostError> {
        if self.state != QpState::RTS {
            return Err(PostError::WrongState { state: self.state });
        }
        self.qp.post(request)
    }

    /// As [`QueuePair::post_recv`]: in every state but RESET.
    ///
    /// # Errors
    ///
    /// [`PostError::WrongState`] in RESET, and those of [`QueuePair::post_recv`].
    #[inline]
    pub fn post_recv<D: Scatter<'a>>(&mut self, request: Recv<D>) -> Result<(), PostError>
    where
        T: OwnReceives,
    {
        if self.state == QpState::RESET {
            return Err(PostError::WrongState { state: self.state });
        }
        self.qp.post_recv(request)
    }
}

impl<T: Transport, B: Backend> fmt::Debug for DynQueuePair<'_, T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynQueuePair")
            .field("transport", &T::NAME)
            .field("state", &self.state)
            .field("qp_num", &self.qp_num())
            .finish_non_exhaustive()
    }
}
