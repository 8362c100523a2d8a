//! What the requests of an extended queue pair are written to: the queue pair, or a stand-in that posts them by
//! `ibv_post_send`.
//!
//! # Safety
//!
//! A [`StandIn`] is an `ibv_qp_ex` to those who call its functions, which [`extended`](super::extended) alone does: no
//! provider sees it. They are called between `wr_start` and `wr_complete` or `wr_abort`, one at a time, and get the
//! pointer to the whole of it. What a request points to lives until `wr_complete` has returned.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};

use ibv_sys as sys;

use super::basic::{OnStack, Slot, post_send_list, set_elements, set_ud};
use super::encode::{Encode, Head};
use super::error::PostError;
use crate::mr::{RemoteSlice, RemoteU64};

/// What the requests of a queue pair are written to. Those that are written to the queue pair itself pay nothing for
/// the choice.
#[derive(Debug)]
pub struct WrTarget {
    to: NonNull<sys::ibv_qp_ex>,
    is_stand_in: bool,
}

// SAFETY: a stand-in is its own alone and of no thread, a queue pair may be used from all; requests are written to
// either by `&mut`.
unsafe impl Send for WrTarget {}
// SAFETY: as above; by `&`, a stand-in is only read.
unsafe impl Sync for WrTarget {}

impl WrTarget {
    /// The queue pair itself.
    pub(crate) fn itself(qp: NonNull<sys::ibv_qp>) -> Self {
        // an `ibv_qp_ex` starts with its `ibv_qp` (`ibv_qp_to_qp_ex` is this cast, checked at creation)
        Self { to: qp.cast(), is_stand_in: false }
    }

    /// A stand-in for a queue pair that was made for so much inline data, and outlives this.
    pub(crate) fn stand_in(qp: NonNull<sys::ibv_qp>, max_inline: usize) -> Self {
        let stand_in = Box::new(StandIn {
            operations: operations(),
            qp,
            max_inline,
            list: Vec::new(),
            refused: 0,
            accepted: None,
        });
        Self { to: NonNull::from(Box::leak(stand_in)).cast(), is_stand_in: true }
    }

    #[inline(always)]
    pub(super) fn as_ptr(&mut self) -> *mut sys::ibv_qp_ex {
        self.to.as_ptr()
    }

    /// How many requests were posted when `wr_complete` failed, if that is known.
    pub(super) fn accepted(&self) -> Option<u32> {
        // SAFETY: of `stand_in`, and nobody is writing.
        if self.is_stand_in { unsafe { self.to.cast::<StandIn>().as_ref() }.accepted } else { None }
    }

    /// Whether none was, if it failed so.
    pub(super) fn has_refused_all(&self, error: PostError) -> bool {
        // but for a full queue, a failing complete of a provider's does not say what became of the requests: rxe can
        // fail after it has published them
        error.accepted() == Some(0) || !self.is_stand_in && error.is_queue_full()
    }
}

impl Drop for WrTarget {
    fn drop(&mut self) {
        if self.is_stand_in {
            // SAFETY: leaked by `stand_in`, and dropped once.
            drop(unsafe { Box::from_raw(self.to.cast::<StandIn>().as_ptr()) });
        }
    }
}

/// An `ibv_qp_ex` that makes a list of what is written to it, and posts that by `ibv_post_send`.
#[repr(C)]
struct StandIn {
    operations: sys::ibv_qp_ex,
    qp: NonNull<sys::ibv_qp>,
    max_inline: usize,
    /// With room for the longest list that there was.
    list: Vec<Request>,
    /// Why the list can't be posted, an errno; 0 if it can.
    refused: c_int,
    accepted: Option<u32>,
}

#[repr(C)]
struct Request {
    /// `next` is set, and `sg_list` if that is `sge`, when the list is complete and moves no more.
    wr: MaybeUninit<sys::ibv_send_wr>,
    sge: MaybeUninit<sys::ibv_sge>,
}

/// Of one element, if it is the request's own `sge`.
const OWN: *const sys::ibv_sge = null();

impl StandIn {
    /// # Safety
    ///
    /// As the module's: `this` is the whole of one.
    unsafe fn of<'s>(this: *mut sys::ibv_qp_ex) -> &'s mut Self {
        // SAFETY: by the caller's promise; nobody else has a reference.
        unsafe { &mut *this.cast() }
    }

    fn start(&mut self) {
        self.list.clear();
        (self.refused, self.accepted) = (0, Some(0));
    }

    /// Appends a request, without data yet.
    #[inline(always)]
    fn begin(&mut self, write: impl FnOnce(Slot<'_, OnStack<'_>>, &Head)) {
        let len = self.list.len();
        if len == self.list.capacity() && !self.grow() {
            return;
        }
        // SAFETY: there is room, and a request may be without values.
        unsafe { self.list.set_len(len + 1) };
        let head = Head { id: self.operations.wr_id, flags: self.operations.wr_flags };
        self.set(|Request { wr, sge }| {
            write(Slot { wr, data: OnStack(sge) }, &head);
            set_elements(wr, null(), 0);
        });
    }

    /// Makes room for one more; whether there is.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> bool {
        let is_room = self.list.try_reserve(1).is_ok();
        if !is_room {
            // ENOMEM would say that the queue is full, and polling makes no memory
            self.refused = libc::ENOBUFS;
        }
        is_room
    }

    /// Says something of the request that was begun last.
    #[inline(always)]
    fn set(&mut self, set: impl FnOnce(&mut Request)) {
        // the one before, or none, if that had no room: then the list is not posted
        if let Some(request) = self.list.last_mut() {
            set(request);
        }
    }

    #[inline(always)]
    fn set_sge(&mut self, sge: sys::ibv_sge) {
        self.set(|request| {
            request.sge.write(sge);
            set_elements(&mut request.wr, OWN, 1);
        });
    }

    fn complete(&mut self) -> c_int {
        let count = self.list.len();
        if self.refused != 0 || count == 0 {
            return self.refused;
        }
        let first = self.list.as_mut_ptr();
        let end = first.wrapping_add(count);
        let mut at = first;
        while at != end {
            let next = at.wrapping_add(1);
            // SAFETY: one of the list's, whose elements were set; all pointers come from that of the list.
            unsafe {
                let wr = (&raw mut (*at).wr).cast::<sys::ibv_send_wr>();
                (&raw mut (*wr).next).write(if next == end { null_mut() } else { next.cast() });
                if (*wr).num_sge == 1 && (*wr).sg_list.cast_const() == OWN {
                    (*wr).sg_list = (&raw mut (*at).sge).cast();
                }
            }
            at = next;
        }
        let end = end.cast_const().cast();
        // SAFETY: the queue pair is alive. These are requests that `extended` has checked, in an array in which they
        // come first (`repr(C)`); what they point to lives through the call.
        match unsafe { post_send_list(self.qp, first.cast(), end, size_of::<Request>()) } {
            Ok(()) => 0,
            Err(error) => {
                self.accepted = error.accepted();
                // it comes of one
                error.errno().unwrap_or(libc::EIO)
            }
        }
    }
}

/// The functions of a [`StandIn`].
fn operations() -> sys::ibv_qp_ex {
    macro_rules! operations {
        ($($name:ident($this:ident $(, $arg:ident: $type:ty)*) $(-> $result:ty)? { $($body:tt)* })*) => {{
            $(unsafe extern "C" fn $name(this: *mut sys::ibv_qp_ex $(, $arg: $type)*) $(-> $result)? {
                // SAFETY: see the module.
                let $this = unsafe { StandIn::of(this) };
                $($body)*
            })*
            sys::ibv_qp_ex { $($name: Some($name),)* ..Default::default() }
        }};
    }
    /// Whether it is long enough was seen before.
    fn remote(addr: u64, rkey: u32) -> RemoteSlice {
        RemoteSlice { addr, len: 0, rkey }
    }
    operations! {
        wr_start(this) { this.start(); }
        wr_complete(this) -> c_int { this.complete() }
        wr_abort(this) { this.start(); }

        wr_send(this) { this.begin(|wr, head| _ = wr.send(head, None)); }
        wr_send_imm(this, imm: u32) { this.begin(|wr, head| _ = wr.send(head, Some(u32::from_be(imm)))); }
        wr_send_inv(this, rkey: u32) { this.begin(|wr, head| _ = wr.send_inv(head, rkey)); }
        wr_rdma_write(this, rkey: u32, addr: u64) {
            this.begin(|wr, head| _ = wr.write(head, &remote(addr, rkey), None));
        }
        wr_rdma_write_imm(this, rkey: u32, addr: u64, imm: u32) {
            this.begin(|wr, head| _ = wr.write(head, &remote(addr, rkey), Some(u32::from_be(imm))));
        }
        wr_rdma_read(this, rkey: u32, addr: u64) {
            this.begin(|wr, head| _ = wr.read(head, &remote(addr, rkey)));
        }
        wr_atomic_cmp_swp(this, rkey: u32, addr: u64, compare: u64, swap: u64) {
            this.begin(|wr, head| _ = wr.cmp_swp(head, &RemoteU64 { addr, rkey }, compare, swap));
        }
        wr_atomic_fetch_add(this, rkey: u32, addr: u64, add: u64) {
            this.begin(|wr, head| _ = wr.fetch_add(head, &RemoteU64 { addr, rkey }, add));
        }
        wr_local_inv(this, rkey: u32) { this.begin(|wr, head| _ = wr.local_inv(head, rkey)); }
        wr_bind_mw(this, mw: *mut sys::ibv_mw, rkey: u32, info: *const sys::ibv_mw_bind_info) {
            // SAFETY: the caller's struct.
            let bind = sys::ibv_send_wr_u2_bind_mw { mw, rkey, bind_info: unsafe { *info } };
            this.begin(|wr, head| _ = wr.bind_mw(head, &bind));
        }

        wr_set_ud_addr(this, ah: *mut sys::ibv_ah, qpn: u32, qkey: u32) {
            this.set(|request| set_ud(&mut request.wr, ah, qpn, qkey));
        }
        wr_set_sge(this, lkey: u32, addr: u64, length: u32) {
            // one of length 0 is no element
            if length != 0 {
                this.set_sge(sys::ibv_sge { addr, length, lkey });
            }
        }
        wr_set_sge_list(this, count: usize, list: *const sys::ibv_sge) {
            this.set(|request| set_elements(&mut request.wr, list, count));
        }
        wr_set_inline_data(this, data: *mut c_void, length: usize) {
            if length <= this.max_inline {
                // fits 32 bits, in which C holds the limit
                this.set_sge(sys::ibv_sge { addr: data as u64, length: length as u32, lkey: 0 });
            } else {
                this.refused = libc::ENOMEM;
            }
        }
    }
}
