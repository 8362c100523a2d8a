//! The backend `ibv_post_send`: a request is an `ibv_send_wr` and its elements.
//!
//! # Safety
//!
//! Only the fields that a request has are written: which ones those are follows from the opcode (`man ibv_post_send`).
//! Some providers copy others as well (rxe and siw the remote address of a SEND), but do nothing with them; to Rust
//! they stay uninitialised, and are not read. `imm_data` is always written, since providers copy it before they look.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::{NonNull, null, null_mut};

use ibv_sys as sys;

use super::encode::{Encode, Head, Limits};
use super::error::PostError;
use super::gather::Scatter;
use super::recv::Recv;
use super::request::{Address, SendRequest};
use crate::mr::{MrSlice, RemoteSlice, RemoteU64};
use crate::qp::Transport;

/// An `ibv_send_wr` in the making. `data` says where its elements are kept.
pub(super) struct Slot<'s, D> {
    pub(super) wr: &'s mut MaybeUninit<sys::ibv_send_wr>,
    pub(super) data: D,
}

/// Where the elements of a request are kept while the provider may read them.
pub(super) trait Elements {
    fn one(self, sge: &sys::ibv_sge) -> *const sys::ibv_sge;
    fn many(self, sges: &[sys::ibv_sge]) -> Result<*const sys::ibv_sge, PostError>;
    fn inline(self, bytes: &[u8]) -> *const sys::ibv_sge;
}

/// The element that means these bytes, for the inline copy of a post: it has no key.
#[inline(always)]
pub(super) fn inline_sge(bytes: &[u8]) -> sys::ibv_sge {
    // at most the queue pair's limit, which C holds in 32 bits
    sys::ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 }
}

macro_rules! set {
    ($wr:expr, $($field:tt).+ = $value:expr) => {
        // SAFETY: a field of the struct that `wr` has room for; nothing is read.
        unsafe { (&raw mut (*$wr.as_mut_ptr()).$($field).+).write($value) }
    };
}

impl<D> Slot<'_, D> {
    #[inline(always)]
    fn head(&mut self, opcode: sys::ibv_wr_opcode, head: &Head, imm: Option<u32>) {
        set!(self.wr, wr_id = head.id);
        set!(self.wr, next = null_mut());
        set!(self.wr, opcode = opcode);
        set!(self.wr, send_flags = head.flags);
        set!(self.wr, u1.imm_data = imm.map_or(0, u32::to_be));
    }

    #[inline(always)]
    fn remote(&mut self, at: &RemoteSlice) {
        set!(self.wr, wr.rdma.remote_addr = at.addr);
        set!(self.wr, wr.rdma.rkey = at.rkey);
    }

    #[inline(always)]
    fn atomic(&mut self, at: &RemoteU64, compare_add: u64, swap: u64) {
        set!(self.wr, wr.atomic.remote_addr = at.addr);
        set!(self.wr, wr.atomic.compare_add = compare_add);
        set!(self.wr, wr.atomic.swap = swap);
        set!(self.wr, wr.atomic.rkey = at.rkey);
    }
}

#[inline(always)]
pub(super) fn set_elements(wr: &mut MaybeUninit<sys::ibv_send_wr>, sges: *const sys::ibv_sge, count: usize) {
    set!(wr, sg_list = sges.cast_mut());
    // at most the queue pair's limit, which C holds in 32 bits
    set!(wr, num_sge = count as c_int);
}

#[inline(always)]
pub(super) fn set_ud(wr: &mut MaybeUninit<sys::ibv_send_wr>, ah: *mut sys::ibv_ah, qpn: u32, qkey: u32) {
    set!(wr, wr.ud.ah = ah);
    set!(wr, wr.ud.remote_qpn = qpn);
    set!(wr, wr.ud.remote_qkey = qkey);
}

impl<D: Elements> Encode for Slot<'_, D> {
    type Done = ();

    #[inline(always)]
    fn send(mut self, head: &Head, imm: Option<u32>) -> Self {
        let opcode = if imm.is_some() { sys::IBV_WR_SEND_WITH_IMM } else { sys::IBV_WR_SEND };
        self.head(opcode, head, imm);
        self
    }

    #[inline(always)]
    fn send_inv(mut self, head: &Head, rkey: u32) -> Self {
        self.head(sys::IBV_WR_SEND_WITH_INV, head, None);
        set!(self.wr, u1.invalidate_rkey = rkey);
        self
    }

    #[inline(always)]
    fn write(mut self, head: &Head, to: &RemoteSlice, imm: Option<u32>) -> Self {
        let opcode = if imm.is_some() { sys::IBV_WR_RDMA_WRITE_WITH_IMM } else { sys::IBV_WR_RDMA_WRITE };
        self.head(opcode, head, imm);
        self.remote(to);
        self
    }

    #[inline(always)]
    fn read(mut self, head: &Head, from: &RemoteSlice) -> Self {
        self.head(sys::IBV_WR_RDMA_READ, head, None);
        self.remote(from);
        self
    }

    #[inline(always)]
    fn cmp_swp(mut self, head: &Head, at: &RemoteU64, compare: u64, swap: u64) -> Self {
        self.head(sys::IBV_WR_ATOMIC_CMP_AND_SWP, head, None);
        self.atomic(at, compare, swap);
        self
    }

    #[inline(always)]
    fn fetch_add(mut self, head: &Head, at: &RemoteU64, add: u64) -> Self {
        self.head(sys::IBV_WR_ATOMIC_FETCH_AND_ADD, head, None);
        self.atomic(at, add, 0);
        self
    }

    #[inline(always)]
    fn local_inv(mut self, head: &Head, rkey: u32) -> Result<(), PostError> {
        self.head(sys::IBV_WR_LOCAL_INV, head, None);
        set!(self.wr, u1.invalidate_rkey = rkey);
        set_elements(self.wr, null(), 0);
        Ok(())
    }

    #[inline(always)]
    fn bind_mw(mut self, head: &Head, bind: &sys::ibv_send_wr_u2_bind_mw) -> Result<(), PostError> {
        self.head(sys::IBV_WR_BIND_MW, head, None);
        set!(self.wr, u2.bind_mw = *bind);
        set_elements(self.wr, null(), 0);
        Ok(())
    }

    #[inline(always)]
    fn ud(self, to: &Address<'_>) -> Self {
        set_ud(self.wr, to.ah.as_ptr(), to.qpn, to.qkey);
        self
    }

    #[inline(always)]
    fn slice(self, data: &MrSlice<'_>) -> Result<(), PostError> {
        set_elements(self.wr, self.data.one(data.as_sge()), 1);
        Ok(())
    }

    #[inline(always)]
    fn slices(self, data: &[MrSlice<'_>]) -> Result<(), PostError> {
        set_elements(self.wr, self.data.many(MrSlice::as_sges(data))?, data.len());
        Ok(())
    }

    #[inline(always)]
    fn inline(self, data: &[u8]) -> Result<(), PostError> {
        set_elements(self.wr, self.data.inline(data), 1);
        Ok(())
    }
}

/// For a request that is posted at once: its own elements live through the call, and one more is on the stack.
pub(super) struct OnStack<'s>(pub(super) &'s mut MaybeUninit<sys::ibv_sge>);

impl Elements for OnStack<'_> {
    #[inline(always)]
    fn one(self, sge: &sys::ibv_sge) -> *const sys::ibv_sge {
        self.0.write(*sge)
    }

    #[inline(always)]
    fn many(self, sges: &[sys::ibv_sge]) -> Result<*const sys::ibv_sge, PostError> {
        Ok(sges.as_ptr())
    }

    #[inline(always)]
    fn inline(self, bytes: &[u8]) -> *const sys::ibv_sge {
        self.0.write(inline_sge(bytes))
    }
}

/// `ibv_post_send` of one request.
///
/// # Safety
///
/// `qp` is alive, and `limits` are its own. What `request` names stays registered, or fails to be accessed without
/// harm, until the device is done with it.
#[inline(always)]
pub(crate) unsafe fn post_send<'a, T: Transport, R: SendRequest<'a, T>>(
    qp: NonNull<sys::ibv_qp>,
    limits: &Limits,
    request: &R,
) -> Result<(), PostError> {
    let (mut wr, mut sge) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    request.check(limits)?;
    // SAFETY: just checked.
    unsafe { request.encode(Slot { wr: &mut wr, data: OnStack(&mut sge) }) }?;
    // SAFETY: one encoded request, whose elements live until this function returns; the rest by the caller's promise.
    let outcome = unsafe { post_one_send(qp, wr.as_mut_ptr()) };
    if !outcome.is_err_and(|error| error.accepted() == Some(0)) {
        // SAFETY: it is posted, or may be: rxe can fail after it has published it, and names none then.
        unsafe { request.posted() };
    }
    outcome
}

/// `ibv_post_send` of one encoded request.
///
/// # Safety
///
/// As [`post_send`].
#[inline(always)]
pub(super) unsafe fn post_one_send(
    qp: NonNull<sys::ibv_qp>,
    wr: *mut sys::ibv_send_wr,
) -> Result<(), PostError> {
    // SAFETY: by the caller's promise; a list of one.
    unsafe { post_send_list(qp, wr, wr.wrapping_add(1), size_of::<sys::ibv_send_wr>()) }
}

/// `ibv_post_send` of a list.
///
/// # Safety
///
/// As [`post_send`]; `first` heads a list of encoded requests that stand in order, `stride` bytes apart, and end
/// before `end`.
#[inline(always)]
pub(super) unsafe fn post_send_list(
    qp: NonNull<sys::ibv_qp>,
    first: *mut sys::ibv_send_wr,
    end: *const sys::ibv_send_wr,
    stride: usize,
) -> Result<(), PostError> {
    let mut bad = null_mut();
    // SAFETY: by the caller's promise; `bad` is ours.
    let result = unsafe { sys::ibv_post_send(qp.as_ptr(), first, &raw mut bad) };
    if result == 0 { Ok(()) } else { Err(refused(result, bad.addr(), first.addr()..end.addr(), stride)) }
}

/// A queue that receives are posted on.
pub trait ReceiveQueue {
    /// Whether elements without bytes are left out here. libmlx5 does so itself, but on queue pairs alone: in a shared
    /// queue it passes their length on, and 0 means 2³¹ to the device.
    #[doc(hidden)]
    const LEAVES_OUT_EMPTY: bool;

    /// # Safety
    ///
    /// As `ibv_post_recv`.
    #[doc(hidden)]
    unsafe fn post(this: *mut Self, first: *mut sys::ibv_recv_wr, bad: *mut *mut sys::ibv_recv_wr) -> c_int;
}

impl ReceiveQueue for sys::ibv_qp {
    const LEAVES_OUT_EMPTY: bool = false;

    #[inline(always)]
    unsafe fn post(this: *mut Self, first: *mut sys::ibv_recv_wr, bad: *mut *mut sys::ibv_recv_wr) -> c_int {
        // SAFETY: by the caller's promise.
        unsafe { sys::ibv_post_recv(this, first, bad) }
    }
}

impl ReceiveQueue for sys::ibv_srq {
    const LEAVES_OUT_EMPTY: bool = true;

    #[inline(always)]
    unsafe fn post(this: *mut Self, first: *mut sys::ibv_recv_wr, bad: *mut *mut sys::ibv_recv_wr) -> c_int {
        // SAFETY: by the caller's promise.
        unsafe { sys::ibv_post_srq_recv(this, first, bad) }
    }
}

/// `ibv_post_recv`, or `ibv_post_srq_recv`, of one request.
///
/// # Safety
///
/// As [`post_send`].
#[inline(always)]
pub(crate) unsafe fn post_recv<'a, Q: ReceiveQueue, D: Scatter<'a>>(
    queue: NonNull<Q>,
    limits: &Limits,
    request: &Recv<D>,
) -> Result<(), PostError> {
    let Recv { id, into } = request;
    into.check_recv(limits)?;
    let sges = MrSlice::as_sges(into.slices());
    if Q::LEAVES_OUT_EMPTY && sges.iter().any(is_empty) {
        // SAFETY: by the caller's promise.
        return unsafe { post_recv_without_empty(queue, *id, sges) };
    }
    // SAFETY: by the caller's promise; the elements live until this function returns.
    unsafe { post_one_recv(queue, recv_wr(*id, sges)) }
}

/// As [`post_one_recv`], of what is left of `sges`.
///
/// # Safety
///
/// As [`post_send`].
#[cold]
unsafe fn post_recv_without_empty<Q: ReceiveQueue>(
    queue: NonNull<Q>,
    id: u64,
    sges: &[sys::ibv_sge],
) -> Result<(), PostError> {
    /// More than mlx5's shared queues have.
    const MOST: usize = 32;
    let mut storage = [MaybeUninit::uninit(); MOST];
    let kept = without_empty(&mut storage, sges).ok_or(PostError::TooManySges { max: MOST as u32 })?;
    // SAFETY: by the caller's promise; the elements live until this function returns.
    unsafe { post_one_recv(queue, recv_wr(id, kept)) }
}

/// Those of `sges` that have bytes, if `storage` has room for them.
pub(super) fn without_empty<'s>(
    storage: &'s mut [MaybeUninit<sys::ibv_sge>],
    sges: &[sys::ibv_sge],
) -> Option<&'s [sys::ibv_sge]> {
    let mut count = 0;
    for sge in sges.iter().filter(|sge| !is_empty(sge)) {
        storage.get_mut(count)?.write(*sge);
        count += 1;
    }
    // SAFETY: so many were written.
    Some(unsafe { std::slice::from_raw_parts(storage.as_ptr().cast(), count) })
}

#[inline(always)]
fn is_empty(sge: &sys::ibv_sge) -> bool {
    sge.length == 0
}

/// `ibv_post_recv`, or `ibv_post_srq_recv`, of one request.
///
/// # Safety
///
/// As [`post_send`].
#[inline(always)]
unsafe fn post_one_recv<Q: ReceiveQueue>(
    queue: NonNull<Q>,
    mut wr: sys::ibv_recv_wr,
) -> Result<(), PostError> {
    // SAFETY: one request; the rest by the caller's promise.
    unsafe {
        post_recv_list(queue, &raw mut wr, (&raw const wr).wrapping_add(1), size_of::<sys::ibv_recv_wr>())
    }
}

/// The C form of a receive; `sges` must live until it was posted.
#[inline(always)]
pub(super) fn recv_wr(id: u64, sges: &[sys::ibv_sge]) -> sys::ibv_recv_wr {
    sys::ibv_recv_wr {
        wr_id: id,
        next: null_mut(),
        sg_list: sges.as_ptr().cast_mut(),
        num_sge: sges.len() as c_int,
    }
}

/// `ibv_post_recv`, or `ibv_post_srq_recv`, of a list.
///
/// # Safety
///
/// As [`post_send_list`].
#[inline(always)]
pub(super) unsafe fn post_recv_list<Q: ReceiveQueue>(
    queue: NonNull<Q>,
    first: *mut sys::ibv_recv_wr,
    end: *const sys::ibv_recv_wr,
    stride: usize,
) -> Result<(), PostError> {
    let mut bad = null_mut();
    // SAFETY: by the caller's promise; `bad` is ours.
    let result = unsafe { Q::post(queue.as_ptr(), first, &raw mut bad) };
    if result == 0 { Ok(()) } else { Err(refused(result, bad.addr(), first.addr()..end.addr(), stride)) }
}

/// How far a refused list got: `bad` is the address of the first request that was not posted, if the provider set it.
/// Anything that is no request of the `list` tells nothing.
#[cold]
fn refused(errno: c_int, bad: usize, list: Range<usize>, stride: usize) -> PostError {
    let accepted = Some(bad)
        .filter(|bad| list.contains(bad))
        .map(|bad| bad - list.start)
        .filter(|offset| offset.checked_rem(stride) == Some(0))
        .and_then(|offset| u32::try_from(offset.checked_div(stride)?).ok());
    PostError::device(errno, accepted)
}
