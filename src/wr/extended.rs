//! The backend `ibv_wr_*`: a request is a series of calls through the function pointers of a [`WrTarget`], which is the
//! queue pair itself or stands in for it.
//!
//! # Safety
//!
//! A provider leaves pointers null that were not asked for. A queue pair is made with all operations of its transport
//! that every device has, and each pointer checked then, so those called here are there (a stand-in has them all);
//! which of the others it has is in its [`Limits`], against which each request was checked. No code of the user's runs
//! between `ibv_wr_start`, which takes the provider's lock, and `ibv_wr_complete` or `ibv_wr_abort`, which give it
//! back: requests are sealed, and their data plain. What they point to is theirs, and lives beyond that: a provider
//! reads elements and inline bytes during the call that is given them, a stand-in when the requests are complete. A
//! [`Head`] lies as the fields of an `ibv_qp_ex` do, with what pads them.
//! Whether inline data has room is looked at by the provider: who lets a [`WrTarget`] be the queue pair itself knows
//! that it does, and that a request which it refuses leaves the others alone.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;

use ibv_sys as sys;

use super::encode::{Encode, Head, Limits};
use super::error::PostError;
use super::request::{Address, SendRequest};
use super::stand_in::WrTarget;
use crate::mr::{MrSlice, RemoteSlice, RemoteU64};
use crate::qp::Transport;

struct Builder {
    qp: *mut sys::ibv_qp_ex,
}

impl Builder {
    #[inline(always)]
    fn head(&mut self, head: &Head) {
        // SAFETY: the target is alive, and between start and complete these fields are ours, as is what pads them (see
        // above).
        unsafe { (&raw mut (*self.qp).wr_id).cast::<Head>().copy_from_nonoverlapping(head, 1) };
    }
}

impl Encode for Builder {
    type Done = ();

    #[inline(always)]
    fn send(mut self, head: &Head, imm: Option<u32>) -> Self {
        self.head(head);
        // SAFETY: between start and complete, and the pointers are there.
        unsafe {
            match imm {
                Some(imm) => sys::ibv_wr_send_imm(self.qp, imm.to_be()),
                None => sys::ibv_wr_send(self.qp),
            }
        }
        self
    }

    #[inline(always)]
    fn send_inv(mut self, head: &Head, rkey: u32) -> Self {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_send_inv(self.qp, rkey) };
        self
    }

    #[inline(always)]
    fn write(mut self, head: &Head, to: &RemoteSlice, imm: Option<u32>) -> Self {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe {
            match imm {
                Some(imm) => sys::ibv_wr_rdma_write_imm(self.qp, to.rkey, to.addr, imm.to_be()),
                None => sys::ibv_wr_rdma_write(self.qp, to.rkey, to.addr),
            }
        }
        self
    }

    #[inline(always)]
    fn read(mut self, head: &Head, from: &RemoteSlice) -> Self {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_rdma_read(self.qp, from.rkey, from.addr) };
        self
    }

    #[inline(always)]
    fn cmp_swp(mut self, head: &Head, at: &RemoteU64, compare: u64, swap: u64) -> Self {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_atomic_cmp_swp(self.qp, at.rkey, at.addr, compare, swap) };
        self
    }

    #[inline(always)]
    fn fetch_add(mut self, head: &Head, at: &RemoteU64, add: u64) -> Self {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_atomic_fetch_add(self.qp, at.rkey, at.addr, add) };
        self
    }

    #[inline(always)]
    fn local_inv(mut self, head: &Head, rkey: u32) -> Result<(), PostError> {
        self.head(head);
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_local_inv(self.qp, rkey) };
        Ok(())
    }

    #[inline(always)]
    fn bind_mw(mut self, head: &Head, bind: &sys::ibv_send_wr_u2_bind_mw) -> Result<(), PostError> {
        self.head(head);
        // SAFETY: as in `send`; window and region are alive and of this context.
        unsafe { sys::ibv_wr_bind_mw(self.qp, bind.mw, bind.rkey, &raw const bind.bind_info) };
        Ok(())
    }

    #[inline(always)]
    fn ud(self, to: &Address<'_>) -> Self {
        // SAFETY: as in `send`; the handle is alive and of this context.
        unsafe { sys::ibv_wr_set_ud_addr(self.qp, to.ah.as_ptr(), to.qpn, to.qkey) };
        self
    }

    #[inline(always)]
    fn slice(self, data: &MrSlice<'_>) -> Result<(), PostError> {
        let sge = data.as_sge();
        // SAFETY: as in `send`.
        unsafe { sys::ibv_wr_set_sge(self.qp, sge.lkey, sge.addr, sge.length) };
        Ok(())
    }

    #[inline(always)]
    fn slices(self, data: &[MrSlice<'_>]) -> Result<(), PostError> {
        match MrSlice::as_sges(data) {
            // SAFETY: as in `send`. An element of length 0 is no element.
            [] => unsafe { sys::ibv_wr_set_sge(self.qp, 0, 0, 0) },
            // SAFETY: as in `send`.
            [one] => unsafe { sys::ibv_wr_set_sge(self.qp, one.lkey, one.addr, one.length) },
            sges => {
                // SAFETY: as in `send`; the list is the request's (see above).
                unsafe { sys::ibv_wr_set_sge_list(self.qp, sges.len(), sges.as_ptr()) };
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn inline(self, data: &[u8]) -> Result<(), PostError> {
        // SAFETY: as in `send`; the bytes are those that the request points to (see above).
        unsafe { sys::ibv_wr_set_inline_data(self.qp, data.as_ptr().cast_mut().cast(), data.len()) };
        Ok(())
    }
}

/// Posts requests of one kind with one doorbell.
///
/// # Safety
///
/// `target` is a queue pair's, to which nobody else writes, made with all operations of `T` but those that `limits`,
/// its own, lack; the rest as [`post_send`](super::post_send).
#[inline(always)]
pub(crate) unsafe fn post_extended<'a, T: Transport, R: SendRequest<'a, T>>(
    target: &mut WrTarget,
    limits: &Limits,
    requests: &[R],
) -> Result<(), PostError> {
    let mut too_long = 0;
    for request in requests {
        request.suits(limits)?;
        too_long |= request.too_long();
    }
    if too_long != 0 {
        return Err(PostError::RemoteTooShort);
    }
    let qp = target.as_ptr();
    // SAFETY: alive, by the caller's promise.
    unsafe { sys::ibv_wr_start(qp) };
    for request in requests {
        // SAFETY: checked above.
        if let Err(error) = unsafe { request.encode(Builder { qp }) } {
            // SAFETY: after start.
            unsafe { sys::ibv_wr_abort(qp) };
            return Err(error);
        }
    }
    // SAFETY: after start.
    let errno = unsafe { sys::ibv_wr_complete(qp) };
    let outcome = if errno == 0 {
        Ok(())
    } else {
        // that of the longest data: whoever refuses one for it has posted none
        let inline = requests.iter().map(SendRequest::inline_bytes).max();
        Err(why(errno, target, limits, inline.unwrap_or(0)))
    };
    if !outcome.is_err_and(|error| target.has_refused_all(error)) {
        for request in requests {
            // SAFETY: it is posted, or may be.
            unsafe { request.posted() };
        }
    }
    outcome
}

/// Why `ibv_wr_complete` failed. (Of the requests no more than this, so that none is kept for it.)
#[cold]
#[inline(never)]
fn why(errno: c_int, target: &WrTarget, limits: &Limits, inline: usize) -> PostError {
    limits.inline(inline).err().unwrap_or_else(|| PostError::device(errno, target.accepted()))
}
