//! One request many times.
//!
//! # Safety
//!
//! A [`Prepared`] owns a request in C's form and all that it points to but the registered memory: its elements and
//! inline bytes are in `Vec`s (not boxes: moving one of those would claim that nothing else points into it), which
//! never change. What it names lives for `'a`: regions like those of any post, an address handle because the request is
//! `Keepable<'a>`.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ibv_sys as sys;

use super::basic::{Elements, Slot, inline_sge, post_one_send};
use super::encode::Limits;
use super::error::PostError;
use super::request::{Keepable, SendRequest};
use crate::id::QpId;
use crate::qp::{Invariant, Transport};

/// A request that was built once, to be posted many times on one queue pair: made by
/// [`QueuePair::prepare`](crate::QueuePair::prepare).
///
/// Each post sends what the regions hold then; inline data is that of the preparation.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{MrSlice, PostError, QueuePair, RemoteSlice, write};
/// # fn f<'a>(qp: &QueuePair<'a>, from: MrSlice<'a>, to: RemoteSlice) -> Result<(), PostError> {
/// let mut beat = qp.prepare(write(from, to).signaled())?;
/// for id in 0..3 {
///     beat.set_id(id);
///     qp.post_prepared(&beat)?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Prepared<'a, T: Transport> {
    /// A cell, since the provider is given it as mutable.
    wr: UnsafeCell<MaybeUninit<sys::ibv_send_wr>>,
    /// The queue pair's, that its sizes were checked against, and its address handle, which a provider takes for one of
    /// its own. (A later queue pair may lie where this one did.)
    id: QpId,
    _keep: Keep,
    _of: PhantomData<T>,
    _invariant: Invariant<'a>,
}

/// What the request points to.
#[derive(Default)]
struct Keep {
    sges: Vec<sys::ibv_sge>,
    bytes: Vec<u8>,
}

impl Elements for &mut Keep {
    fn one(self, sge: &sys::ibv_sge) -> *const sys::ibv_sge {
        self.sges = vec![*sge];
        self.sges.as_ptr()
    }

    fn many(self, sges: &[sys::ibv_sge]) -> Result<*const sys::ibv_sge, PostError> {
        self.sges = sges.into();
        Ok(self.sges.as_ptr())
    }

    fn inline(self, bytes: &[u8]) -> *const sys::ibv_sge {
        self.bytes = bytes.into();
        self.one(&inline_sge(&self.bytes))
    }
}

// SAFETY: the pointers in it lead to its own heap and to objects that may be used from all threads.
unsafe impl<T: Transport> Send for Prepared<'_, T> {}
// SAFETY: as above; providers only read a request that they are given.
unsafe impl<T: Transport> Sync for Prepared<'_, T> {}

impl<'a, T: Transport> Prepared<'a, T> {
    pub(crate) fn new<R: SendRequest<'a, T> + Keepable<'a>>(
        id: QpId,
        limits: &Limits,
        request: &R,
    ) -> Result<Self, PostError> {
        let mut wr = MaybeUninit::uninit();
        let mut keep = Keep::default();
        request.check(limits)?;
        // SAFETY: just checked.
        unsafe { request.encode(Slot { wr: &mut wr, data: &mut keep }) }?;
        Ok(Self { wr: UnsafeCell::new(wr), id, _keep: keep, _of: PhantomData, _invariant: PhantomData })
    }

    /// From the next post on, its completions carry this id.
    #[inline(always)]
    pub fn set_id(&mut self, id: u64) {
        // SAFETY: a field of the struct that `wr` has room for.
        unsafe { (&raw mut (*self.wr.get_mut().as_mut_ptr()).wr_id).write(id) };
    }

    /// # Safety
    ///
    /// `qp` is alive, and `id` is its own.
    #[inline(always)]
    pub(crate) unsafe fn post(&self, qp: NonNull<sys::ibv_qp>, id: QpId) -> Result<(), PostError> {
        if self.id != id {
            return Err(PostError::OtherQueuePair);
        }
        // SAFETY: one encoded request with its elements, which live as long as `self`; providers do not write it.
        unsafe { post_one_send(qp, self.wr.get().cast()) }
    }
}

impl<T: Transport> fmt::Debug for Prepared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}
