//! Memory windows: parts of a region that peers are given, and lose again, by requests.
//!
//! # Safety
//!
//! A [`MemoryWindow`] owns its `ibv_mw`. A provider reads its key while a bind is posted, and writes it in
//! `ibv_bind_mw`: so a bind has the window exclusively until it was posted.
//!
//! A window leads to its region's memory after the region's own key is dead, if the device lets it be deregistered
//! under a bound window (it should not). When a bind, an invalidate, by whomever, or a queue pair's end has come into
//! force is not known here. So a window holds every region that it was ever to be bound to, or what that region counts
//! its windows by, until it is deallocated; and a region whose count says that there is a window, which can only be one
//! that was forgotten or could not be deallocated, is not deregistered, and leaked.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ibv_sys as sys;

use crate::error::{CloseError, Error, Refused, Result};
use crate::parent::Parent;
use crate::pd::{Posting, ProtectionDomain};
use crate::raw::Raw;

/// The type of a memory window; [`Type1`] or [`Type2`].
pub trait WindowType: sealed::Sealed + Send + Sync + 'static {
    #[doc(hidden)]
    const TYPE: sys::ibv_mw_type;
}

/// A window that every queue pair of its protection domain serves: bound, and bound elsewhere, by
/// [`QueuePair::bind_mw`](crate::QueuePair::bind_mw).
#[doc(alias = "IBV_MW_TYPE_1")]
#[derive(Debug, Clone, Copy)]
pub enum Type1 {}

/// A window that the queue pair alone serves by which it was bound: bound by the request [`bind_mw`](crate::bind_mw),
/// and free for the next bind when it was invalidated, by [`local_inv`](crate::local_inv) or the peer's
/// [`send_inv`](crate::send_inv).
#[doc(alias = "IBV_MW_TYPE_2")]
#[derive(Debug, Clone, Copy)]
pub enum Type2 {}

impl WindowType for Type1 {
    const TYPE: sys::ibv_mw_type = sys::IBV_MW_TYPE_1;
}

impl WindowType for Type2 {
    const TYPE: sys::ibv_mw_type = sys::IBV_MW_TYPE_2;
}

/// A type of windows that are bound and invalidated by requests: [`Type2`].
#[diagnostic::on_unimplemented(
    message = "a window of `{Self}` is neither bound nor invalidated by a request among others",
    label = "bind it by `qp.bind_mw(bind_mw(..)?)?`, and with an empty range to take it back; or make the window with `alloc_mw::<Type2>()`"
)]
pub trait ByRequest: WindowType {}

impl ByRequest for Type2 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Type1 {}
    impl Sealed for super::Type2 {}
}

/// `ibv_mw`—A memory window: a key for a part of a [`Remote`](crate::Remote) region, which is given and taken by
/// requests, quicker than by registering, and with rights of its own.
///
/// The region is registered with [`RemoteAccess::MW_BIND`](crate::RemoteAccess::MW_BIND), and outlives the window: it
/// is borrowed for `'a`, or shared by an [`Arc`], which the window keeps. What [`std::mem::forget`] takes a window of
/// stays registered for good.
///
/// Requests of one queue pair are executed in order, so a SEND after the bind may tell the peer the new key. After an
/// invalidate the peer has lost its access when that has completed.
///
/// A bind that completes in error, or was in a list that is not submitted or refused, leaves the window in doubt: make
/// a new one. (Soft-RoCE wants to be told the present key with each bind.) Drop a window of type 2 before the queue
/// pair that bound it: Soft-RoCE takes a minute to destroy that otherwise.
///
/// `Send` and `Sync`. Dropping it takes the peers' access away; what is under way may still arrive.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Inline, ProtectionDomain, QueuePair, RemoteAccess, Type2, bind_mw, local_inv, send};
/// # fn f<'a>(pd: &'a ProtectionDomain<'a>, qp: &QueuePair<'a>) -> Result<(), ibv::Error> {
/// let mr = pd.alloc_remote(1 << 20, RemoteAccess::MW_BIND)?; // peers get at it through windows alone
/// let mut window = pd.alloc_mw::<Type2>()?;
///
/// let bind = bind_mw(&mut window, &mr, 4096..8192, RemoteAccess::WRITE)?;
/// let part = bind.remote_region();
/// qp.post(bind)?;
/// qp.post(send(Inline(&part.to_wire())))?; // the peer may write 4096 bytes …
/// // … until it says that it has, and this has completed:
/// qp.post(local_inv(&mut window)?.signaled())?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow<'a, K: WindowType = Type2> {
    raw: Raw<sys::ibv_mw>,
    keys: Keys,
    /// What it may be bound to.
    regions: Vec<Arc<dyn Send + Sync + 'a>>,
    // after `raw`: the window goes before its domain
    pd: Parent<'a, ProtectionDomain<'a>>,
    _type: PhantomData<K>,
}

/// The keys of a window of type 2. Atomic, since requests change them through a shared reference; they have the window
/// exclusively.
#[derive(Debug)]
pub(crate) struct Keys {
    /// That of the last bind that was posted.
    last: AtomicU32,
    /// Whether that is to be invalidated still: none is twice, since Soft-RoCE takes its machine down then.
    live: AtomicBool,
}

impl Keys {
    pub(crate) fn bound(&self, rkey: u32) {
        self.last.store(rkey, Ordering::Relaxed);
        self.live.store(true, Ordering::Relaxed);
    }

    /// That of the last bind.
    pub(crate) fn invalidated(&self) {
        self.live.store(false, Ordering::Relaxed);
    }

    fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }

    fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }
}

impl<'a, K: WindowType> MemoryWindow<'a, K> {
    /// `ibv_alloc_mw`—A new window of `pd`, bound to nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EOPNOTSUPP or EINVAL if the device has no windows of this type, ENOMEM if it has no more.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn new(pd: impl Into<Parent<'a, ProtectionDomain<'a>>>) -> Result<Self> {
        let pd = pd.into();
        pd.claim(Posting::Borrowed)?;
        // SAFETY: the domain is alive.
        let mw = unsafe { sys::ibv_alloc_mw(pd.as_ptr(), K::TYPE) };
        // SAFETY: `mw` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_alloc_mw", mw, || format!("type {}", K::TYPE)) }?;
        // SAFETY: just made.
        let rkey = unsafe { (*raw.as_ptr()).rkey };
        let keys = Keys { last: AtomicU32::new(rkey), live: AtomicBool::new(false) };
        Ok(Self { raw, keys, regions: Vec::with_capacity(1), pd, _type: PhantomData })
    }

    /// The protection domain that it is of.
    pub fn pd(&self) -> &ProtectionDomain<'a> {
        &self.pd
    }

    /// `ibv_dealloc_mw`—Gives it back, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the window.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        self.raw.destroy().map_err(|error| Refused::new(self, error))
    }

    /// The C object; see [`Context::as_ptr`](crate::Context::as_ptr).
    pub fn as_ptr(&self) -> *mut sys::ibv_mw {
        self.raw.as_ptr()
    }

    /// Keeps `region` until the window is gone, since a bind to it is asked for.
    pub(crate) fn keep(&mut self, region: Arc<dyn Send + Sync + 'a>) {
        if !self.regions.iter().any(|known| Arc::ptr_eq(known, &region)) {
            self.regions.push(region);
        }
    }

    /// The key of the next bind of a window of type 2, whose C object is told of the last one; for type 1, the provider
    /// has the keys.
    pub(crate) fn next_key(&mut self) -> u32 {
        let last = self.keys.last();
        if K::TYPE == sys::IBV_MW_TYPE_2 {
            // SAFETY: alive; by `&mut self` no bind of it is being posted, and nothing else reads the field.
            unsafe { (*self.raw.as_ptr()).rkey = last };
        }
        // `ibv_inc_rkey`: the low 8 bits are the program's
        last & !0xff | last.wrapping_add(1) & 0xff
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl<K: ByRequest> MemoryWindow<'_, K> {
    /// A received completion said that a peer has invalidated `rkey`
    /// ([`Completion::invalidated_rkey`](crate::Completion::invalidated_rkey)). If that is this window's key, it is
    /// free to be bound again, and [`local_inv`](crate::local_inv) has nothing left to do. Whether it is.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MemoryWindow, WorkCompletion};
    /// # fn f(window: &mut MemoryWindow<'_>, wc: &WorkCompletion) -> Result<(), ibv::Error> {
    /// if let Some(rkey) = wc.result()?.invalidated_rkey() {
    ///     window.was_invalidated(rkey);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn was_invalidated(&mut self, rkey: u32) -> bool {
        let is_ours = rkey == self.keys.last();
        if is_ours {
            self.keys.invalidated();
        }
        is_ours
    }

    /// The key to be invalidated.
    pub(crate) fn live_key(&self) -> Result<u32> {
        if !self.keys.is_live() {
            return Err(Error::invalid(
                "the memory window",
                "not bound, or invalidated already",
                "bound by a request `bind_mw` since",
            ));
        }
        Ok(self.keys.last())
    }
}

impl<K: WindowType> Drop for MemoryWindow<'_, K> {
    fn drop(&mut self) {
        if self.raw.is_alive() && !self.raw.destroy_or_leak() {
            std::mem::forget(std::mem::take(&mut self.regions));
        }
    }
}

impl<K: WindowType> fmt::Debug for MemoryWindow<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow").field("type", &K::TYPE).field("pd", &self.pd).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_sent_and_shared_between_threads() {
        fn all<W: Send + Sync>() {}
        all::<MemoryWindow<'static, Type1>>();
        all::<MemoryWindow<'static, Type2>>();
    }
}
