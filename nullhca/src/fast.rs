//! The data path that does nothing, so that what is around it can be counted.
//!
//! The functions have names, so that a profiler can be told to leave them out.
//!
//! # Safety
//!
//! Exported C functions, which follow no pointer but a completion queue's and the caller's array.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_void};

use ibv_sys as sys;

use crate::record::Kind;
use crate::universe::with;

/// Fills in the pointers of an object: of each that is there at all, the function that records, or that of this module.
macro_rules! set {
    ($object:ident, $is_fast:ident: $($field:ident: $slow:ident, $fast:ident, $when:expr;)*) => {$(
        if $when {
            $object.$field = if $is_fast { Some($crate::fast::$fast) } else { Some($slow) };
        }
    )*};
}
pub(crate) use set;

macro_rules! nothing {
    ($($name:ident($($type:ty),*) $(-> $result:ident)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($(_: $type),*) $(-> $result)? {
            $($result::default())?
        }
    )*};
}

nothing! {
    nullhca_fast_post_send(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> c_int;
    nullhca_fast_post_recv(*mut sys::ibv_qp, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> c_int;
    nullhca_fast_req_notify_cq(*mut sys::ibv_cq, c_int) -> c_int;
    nullhca_fast_end_poll(*mut sys::ibv_cq_ex);
    nullhca_fast_read(*mut sys::ibv_cq_ex) -> u32;
    nullhca_fast_read_u8(*mut sys::ibv_cq_ex) -> u8;
    nullhca_fast_read_u64(*mut sys::ibv_cq_ex) -> u64;
    nullhca_fast_wr_start(*mut sys::ibv_qp_ex);
    nullhca_fast_wr_complete(*mut sys::ibv_qp_ex) -> c_int;
    nullhca_fast_wr_abort(*mut sys::ibv_qp_ex);
    nullhca_fast_wr_send(*mut sys::ibv_qp_ex);
    nullhca_fast_wr_send_imm(*mut sys::ibv_qp_ex, u32);
    nullhca_fast_wr_bind_mw(*mut sys::ibv_qp_ex, *mut sys::ibv_mw, u32, *const sys::ibv_mw_bind_info);
    nullhca_fast_wr_rdma(*mut sys::ibv_qp_ex, u32, u64);
    nullhca_fast_wr_rdma_imm(*mut sys::ibv_qp_ex, u32, u64, u32);
    nullhca_fast_wr_atomic_cmp_swp(*mut sys::ibv_qp_ex, u32, u64, u64, u64);
    nullhca_fast_wr_atomic_fetch_add(*mut sys::ibv_qp_ex, u32, u64, u64);
    nullhca_fast_wr_set_ud_addr(*mut sys::ibv_qp_ex, *mut sys::ibv_ah, u32, u32);
    nullhca_fast_wr_set_sge(*mut sys::ibv_qp_ex, u32, u64, u32);
    nullhca_fast_wr_set_sge_list(*mut sys::ibv_qp_ex, usize, *const sys::ibv_sge);
    nullhca_fast_wr_set_inline_data(*mut sys::ibv_qp_ex, *mut c_void, usize);
}

/// A completion queue of a fast context has so many completions at every poll from now on, all of success.
pub fn set_completions(cq: *mut sys::ibv_cq, count: u32) {
    with(|universe| _ = universe.find("set_completions", Kind::Cq, cq.addr()));
    let cq: *mut sys::ibv_cq = std::ptr::with_exposed_provenance_mut(cq.addr());
    // SAFETY: alive, since it was found; the field is used for nothing else here.
    unsafe { (*cq).async_events_completed = count };
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nullhca_fast_poll_cq(
    cq: *mut sys::ibv_cq,
    room: c_int,
    wcs: *mut sys::ibv_wc,
) -> c_int {
    // SAFETY: the caller's queue is alive.
    let count = unsafe { (*cq).async_events_completed }.min(room as u32);
    for at in 0..count {
        // SAFETY: the caller's array has that room.
        unsafe {
            let wc = wcs.add(at as usize);
            (*wc).wr_id = at.into();
            (*wc).status = sys::IBV_WC_SUCCESS;
            (*wc).opcode = sys::IBV_WC_RECV;
            (*wc).byte_len = 64;
            (*wc).wc_flags = 0;
        }
    }
    count as c_int
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nullhca_fast_start_poll(
    cq: *mut sys::ibv_cq_ex,
    _attr: *mut sys::ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: the caller's queue is alive.
    unsafe {
        if (*cq).async_events_completed == 0 {
            return libc::ENOENT;
        }
        (*cq).wr_id = 0;
        (*cq).status = sys::IBV_WC_SUCCESS;
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nullhca_fast_next_poll(cq: *mut sys::ibv_cq_ex) -> c_int {
    // SAFETY: the caller's queue is alive.
    unsafe {
        if (*cq).wr_id + 1 >= u64::from((*cq).async_events_completed) {
            return libc::ENOENT;
        }
        (*cq).wr_id += 1;
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn nullhca_fast_read_opcode(_cq: *mut sys::ibv_cq_ex) -> sys::ibv_wc_opcode {
    sys::IBV_WC_RECV
}
