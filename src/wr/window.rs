//! The requests of memory windows.
//!
//! # Safety
//!
//! A bind has its window and its region by reference until it is posted, or by `Arc` in the window, so that the
//! pointers in it lead to what is alive. That both are of the queue pair's context is checked with its other limits.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::ptr::NonNull;

use ibv_sys as sys;

use super::encode::{Encode, Head, Limits};
use super::error::PostError;
use super::request::{HEAD, SendRequest, sealed, setters};
use crate::error::{Error, Result};
use crate::mr::{Buffer, ForPeers, MemoryRegion, RemoteAccess, RemoteRegion};
use crate::mw::{ByRequest, Keys, MemoryWindow, Type1, Type2, WindowType};
use crate::parent::Parent;
use crate::qp::Windows;

/// The bind of a memory window, made by [`bind_mw`].
#[must_use = "a window is bound when this is posted"]
pub struct BindMw<'w, K: WindowType = Type2> {
    bind: sys::ibv_send_wr_u2_bind_mw,
    context: *mut sys::ibv_context,
    keys: &'w Keys,
    head: Head,
    _type: PhantomData<K>,
}

/// `ibv_mw_bind_info`—Binds `window` to a part of `region`, for what `access` says.
///
/// A window of type 2 (`IBV_WR_BIND_MW`) is bound by a request among others, which is
/// [posted](crate::QueuePair::post) or [pushed](crate::Batch::push), and must be free: new, or invalidated since. One
/// of type 1 is bound by [`QueuePair::bind_mw`](crate::QueuePair::bind_mw), wherever it was bound before; an empty
/// range only unbinds it.
///
/// The device checks the rest, and answers with [`WcStatus::MW_BIND_ERR`](crate::WcStatus::MW_BIND_ERR).
///
/// # Errors
///
/// [`Error::Range`] if the range goes past the region's end; [`Error::Invalid`] if it is empty (type 2), if the region
/// was not registered with [`RemoteAccess::MW_BIND`], or in another protection domain than the window, or if `access`
/// names no right, or `MW_BIND`; [`Error::Limit`] if it is longer than the device's windows can be (mlx5: 2 GiB).
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, Inline, MemoryRegion, MemoryWindow, QueuePair, Remote, RemoteAccess, Type2, bind_mw, send};
/// # fn f<'a>(
/// #     qp: &QueuePair<'_>, window: &mut MemoryWindow<'a, Type2>, mr: &'a MemoryRegion<'a, Remote>,
/// # ) -> Result<(), Error> {
/// let bind = bind_mw(window, mr, ..64, RemoteAccess::READ)?;
/// let told = bind.remote_region().to_wire();
/// qp.post(bind)?; // before what tells the peer of it, on the same queue pair
/// qp.post(send(Inline(&told)).signaled())?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_BIND_MW")]
#[doc(alias = "ibv_mw_bind_info")]
pub fn bind_mw<'w, 'a: 'w, K: WindowType, R: ForPeers, M: Buffer + Send>(
    window: &'w mut MemoryWindow<'a, K>,
    region: impl Into<Parent<'a, MemoryRegion<'a, R, M>>>,
    range: impl RangeBounds<usize>,
    access: RemoteAccess,
) -> Result<BindMw<'w, K>> {
    let region = region.into();
    let bind_info = region.bind_info(range, access)?;
    if bind_info.length == 0 && K::TYPE == sys::IBV_MW_TYPE_2 {
        return Err(Error::invalid("a window's length", 0, "at least 1 byte: `local_inv` unbinds it"));
    }
    let longest = window.pd().context().provider().longest_window();
    Error::check_limit("bytes of a window", bind_info.length, longest)?;
    if region.pd().as_ptr() != window.pd().as_ptr() {
        return Err(Error::invalid("the region", "of another protection domain", "of the window's"));
    }
    window.keep(MemoryRegion::hold(region)?);
    let rkey = window.next_key();
    let bind = sys::ibv_send_wr_u2_bind_mw { mw: window.as_ptr(), rkey, bind_info };
    let context = window.pd().context().as_ptr();
    Ok(BindMw { bind, context, keys: window.keys(), head: HEAD, _type: PhantomData })
}

setters!([K: WindowType] BindMw<'_, K>);

impl<K: ByRequest> BindMw<'_, K> {
    /// What the peer may use once this is executed: address, length and the new key.
    pub fn remote_region(&self) -> RemoteRegion {
        region_of(&self.bind.bind_info, self.bind.rkey)
    }
}

fn region_of(info: &sys::ibv_mw_bind_info, rkey: u32) -> RemoteRegion {
    RemoteRegion { addr: info.addr, len: info.length, rkey }
}

impl<K: WindowType> sealed::Request for BindMw<'_, K> {}

impl<'a, T: Windows, K: ByRequest> SendRequest<'a, T> for BindMw<'_, K> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.op(sys::IBV_QP_EX_WITH_BIND_MW)?;
        limits.window(self.context)
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.bind_mw(&self.head, &self.bind)
    }

    #[inline(always)]
    unsafe fn posted(&self) {
        self.keys.bound(self.bind.rkey);
    }
}

/// `ibv_bind_mw`: what the peer may use then.
///
/// # Safety
///
/// `qp` is alive, and `limits` are its own.
pub(crate) unsafe fn bind_type_1(
    qp: NonNull<sys::ibv_qp>,
    limits: &Limits,
    request: &BindMw<'_, Type1>,
) -> Result<RemoteRegion, PostError> {
    let BindMw { bind: sys::ibv_send_wr_u2_bind_mw { mw, bind_info, .. }, context, head, .. } = *request;
    limits.window(context)?;
    let mut bind = sys::ibv_mw_bind { wr_id: head.id, send_flags: head.flags, bind_info };
    // SAFETY: all three are alive and of one context; the request has the window exclusively.
    let result: c_int = unsafe { sys::ibv_bind_mw(qp.as_ptr(), mw, &raw mut bind) };
    match result {
        // SAFETY: as above.
        0 => Ok(region_of(&bind_info, unsafe { (*mw).rkey })),
        errno => Err(PostError::device(errno, None)),
    }
}

impl<K: WindowType> fmt::Debug for BindMw<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sys::ibv_mw_bind_info { addr, length, .. } = self.bind.bind_info;
        f.debug_struct("BindMw")
            .field("head", &self.head)
            .field("addr", &addr)
            .field("length", &length)
            .finish_non_exhaustive()
    }
}

/// A local invalidate, made by [`local_inv`].
#[derive(Debug)]
#[must_use = "a window is invalidated when this is posted"]
pub struct LocalInv<'w> {
    rkey: u32,
    context: *mut sys::ibv_context,
    keys: &'w Keys,
    head: Head,
}

/// `IBV_WR_LOCAL_INV`—Takes the peer's access to what `window` is bound to away, and frees it for the next bind.
///
/// One bind is invalidated once, here or by the peer: where a peer may do it, tell
/// [`was_invalidated`](MemoryWindow::was_invalidated) of each completion that says so before this, or the request fails
/// (and Soft-RoCE may take its machine down).
///
/// # Errors
///
/// [`Error::Invalid`] if it was not bound since it was made or invalidated.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Error, MemoryWindow, QueuePair, local_inv};
/// # fn f(qp: &QueuePair<'_>, window: &mut MemoryWindow<'_>) -> Result<(), Error> {
/// qp.post(local_inv(window)?.signaled())?; // the peer has lost its access when this has completed
/// # Ok(())
/// # }
/// ```
#[doc(alias = "IBV_WR_LOCAL_INV")]
pub fn local_inv<'w, K: ByRequest>(window: &'w mut MemoryWindow<'_, K>) -> Result<LocalInv<'w>> {
    let context = window.pd().context().as_ptr();
    Ok(LocalInv { rkey: window.live_key()?, context, keys: window.keys(), head: HEAD })
}

setters!([] LocalInv<'_>);

impl sealed::Request for LocalInv<'_> {}

impl<'a, T: Windows> SendRequest<'a, T> for LocalInv<'_> {
    #[inline(always)]
    fn suits(&self, limits: &Limits) -> Result<(), PostError> {
        limits.op(sys::IBV_QP_EX_WITH_LOCAL_INV)?;
        limits.window(self.context)
    }

    #[inline(always)]
    unsafe fn encode<E: Encode>(&self, to: E) -> Result<E::Done, PostError> {
        to.local_inv(&self.head, self.rkey)
    }

    #[inline(always)]
    unsafe fn posted(&self) {
        self.keys.invalidated();
    }
}
