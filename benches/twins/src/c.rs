//! The C twins (`benches/c/twins.c`).

use std::ffi::{c_int, c_void};

use ibv::sys::{
    ibv_ah, ibv_cq, ibv_cq_ex, ibv_pd, ibv_qp, ibv_qp_ex, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc,
};

/// A part of a peer's memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) rkey: u32,
}

/// A WRITE to be made.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) data: ibv_sge,
    pub(crate) to: Remote,
    pub(crate) id: u64,
    pub(crate) flags: u32,
}

unsafe extern "C" {
    pub(crate) fn c_post_write(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_post_unsignaled(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_designated_write(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_post_send(qp: *mut ibv_qp, data: *const ibv_sge, operations: u64) -> c_int;
    pub(crate) fn c_post_send_inline(
        qp: *mut ibv_qp,
        data: *const c_void,
        length: usize,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_post_fetch_add(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        at: *const Remote,
        add: u64,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_post_ud_send(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        ah: *mut ibv_ah,
        qpn: u32,
        qkey: u32,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_prepare_write(wr: *mut ibv_send_wr, sge: *mut ibv_sge, to: *const Remote);
    pub(crate) fn c_post_prepared(qp: *mut ibv_qp, wr: *mut ibv_send_wr, operations: u64) -> c_int;
    pub(crate) fn c_write_list_16(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_write_distinct_16(
        qp: *mut ibv_qp,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_post_recv(qp: *mut ibv_qp, data: *const ibv_sge, operations: u64) -> c_int;
    pub(crate) fn c_recv_list_16(qp: *mut ibv_qp, data: *const ibv_sge, operations: u64) -> c_int;
    pub(crate) fn c_wr_write(
        qp: *mut ibv_qp_ex,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_wr_write_value(
        qp: *mut ibv_qp_ex,
        data: *const ibv_sge,
        to: *const Remote,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_wr_send_inline(
        qp: *mut ibv_qp_ex,
        data: *const c_void,
        length: usize,
        operations: u64,
    ) -> c_int;
    pub(crate) fn c_wr_write_list_16(qp: *mut ibv_qp_ex, requests: *const Request, operations: u64) -> c_int;
    pub(crate) fn c_untrusted_list_16(qp: *mut ibv_qp, requests: *const Request, operations: u64) -> c_int;
    pub(crate) fn c_arm(cq: *mut ibv_cq, operations: u64) -> c_int;
    pub(crate) fn c_register(pd: *mut ibv_pd, memory: *mut c_void, length: usize, operations: u64) -> c_int;
    pub(crate) fn c_create_qp(pd: *mut ibv_pd, cq: *mut ibv_cq, operations: u64) -> c_int;
    pub(crate) fn c_poll_1(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    pub(crate) fn c_poll_16(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    pub(crate) fn c_poll_empty(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    pub(crate) fn c_poll_ex_ids_16(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    pub(crate) fn c_poll_ex_1(cq: *mut ibv_cq_ex, operations: u64) -> u64;
    pub(crate) fn c_poll_ex_16(cq: *mut ibv_cq_ex, operations: u64) -> u64;
    pub(crate) fn c_poll_ex_empty(cq: *mut ibv_cq_ex, operations: u64) -> u64;
    pub(crate) fn c_poll_ex_fields_16(cq: *mut ibv_cq_ex, operations: u64) -> u64;
}

// What stands beside the direct path; each posts what was built, or polls, `operations` times.
unsafe extern "C" {
    /// 0 if all succeeded.
    pub fn c_direct_write(qp: *mut ibv_qp, wr: *mut ibv_send_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_inline(qp: *mut ibv_qp, wr: *mut ibv_send_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_list_16(qp: *mut ibv_qp, wr: *mut ibv_send_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_recv_list_16(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_shared_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, operations: u64) -> c_int;
    /// 0 if all succeeded.
    pub fn c_direct_shared_recv_list_16(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, operations: u64) -> c_int;
    /// The sum of the ids, or -1; so are the others.
    pub fn c_direct_poll_1(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    /// With room for 16.
    pub fn c_direct_poll_16(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    /// With room for 8.
    pub fn c_direct_shared_poll_8(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    /// With room for 16, of receives, with their lengths.
    pub fn c_direct_poll_recv_16(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    /// With room for 32.
    pub fn c_direct_poll_empty(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
    /// With room for 16, of receives whose data is in the completions.
    pub fn c_direct_poll_data_16(cq: *mut ibv_cq, wcs: *mut ibv_wc, operations: u64) -> u64;
}
