//! The data path's static inline functions, in Rust.
//!
//! In C each of these is one indirect call that the compiler inlines. Through the shim that serves the other
//! static inlines it would be two calls, so they are written here over the same function pointers. Semantics,
//! names and arguments are those of `infiniband/verbs.h`; the first line of each documentation is the C
//! function's body. `tests/inline.rs` calls each one beside its C original and compares what arrives.
//!
//! # Safety
//!
//! Nothing is checked, as in C: the object must be alive, made by the library (or laid out like one), and its
//! provider must have set the function pointer. The pointer's absence is undefined behaviour: a build with
//! debug assertions stops there, another one jumps to nowhere.

use core::ffi::{c_int, c_uint, c_void};
use core::hint::unreachable_unchecked;

use crate::bindings::*;

/// Writes the functions. `= place` is the field with the function pointer, which gets the arguments in order.
macro_rules! hot {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $ty:ty),+ $(,)?) $(-> $result:ty)? = $place:expr;)+) => {
        $(
            $(#[$attribute])*
            ///
            /// # Safety
            ///
            /// The pointers must be valid for what the C function of this name does with them, and the object
            /// must have the function (for `ibv_wr_*` and `ibv_wc_read_*`: it was asked for at creation).
            #[inline]
            pub unsafe fn $name($($argument: $ty),+) $(-> $result)? {
                // SAFETY: the caller vouches for the object, so the field with the function pointer may be read.
                let function = unsafe { $place };
                match function {
                    // SAFETY: the provider set this pointer for these arguments, which the caller vouches for.
                    Some(function) => unsafe { function($($argument),+) },
                    // SAFETY: the caller vouches that the object has the function.
                    None => unsafe { unreachable_unchecked() },
                }
            }
        )+
    };
}

hot! {
    /// `qp->context->ops.post_send(qp, wr, bad_wr)`.
    fn ibv_post_send(
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad_wr: *mut *mut ibv_send_wr,
    ) -> c_int = (*(*qp).context).ops.post_send;

    /// `qp->context->ops.post_recv(qp, wr, bad_wr)`.
    fn ibv_post_recv(
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
    ) -> c_int = (*(*qp).context).ops.post_recv;

    /// `qp->wr_atomic_cmp_swp(qp, rkey, remote_addr, compare, swap)`.
    fn ibv_wr_atomic_cmp_swp(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        compare: u64,
        swap: u64,
    ) = (*qp).wr_atomic_cmp_swp;

    /// `qp->wr_atomic_fetch_add(qp, rkey, remote_addr, add)`.
    fn ibv_wr_atomic_fetch_add(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        add: u64,
    ) = (*qp).wr_atomic_fetch_add;

    /// `qp->wr_bind_mw(qp, mw, rkey, bind_info)`.
    fn ibv_wr_bind_mw(
        qp: *mut ibv_qp_ex,
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: *const ibv_mw_bind_info,
    ) = (*qp).wr_bind_mw;

    /// `qp->wr_local_inv(qp, invalidate_rkey)`.
    fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) = (*qp).wr_local_inv;

    /// `qp->wr_rdma_read(qp, rkey, remote_addr)`.
    fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) = (*qp).wr_rdma_read;

    /// `qp->wr_rdma_write(qp, rkey, remote_addr)`.
    fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) = (*qp).wr_rdma_write;

    /// `qp->wr_rdma_write_imm(qp, rkey, remote_addr, imm_data)`.
    fn ibv_wr_rdma_write_imm(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        imm_data: __be32,
    ) = (*qp).wr_rdma_write_imm;

    /// `qp->wr_send(qp)`.
    fn ibv_wr_send(qp: *mut ibv_qp_ex) = (*qp).wr_send;

    /// `qp->wr_send_imm(qp, imm_data)`.
    fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: __be32) = (*qp).wr_send_imm;

    /// `qp->wr_send_inv(qp, invalidate_rkey)`.
    fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) = (*qp).wr_send_inv;

    /// `qp->wr_send_tso(qp, hdr, hdr_sz, mss)`.
    fn ibv_wr_send_tso(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16) = (*qp).wr_send_tso;

    /// `qp->wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey)`.
    fn ibv_wr_set_ud_addr(
        qp: *mut ibv_qp_ex,
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    ) = (*qp).wr_set_ud_addr;

    /// `qp->wr_set_xrc_srqn(qp, remote_srqn)`.
    fn ibv_wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) = (*qp).wr_set_xrc_srqn;

    /// `qp->wr_set_inline_data(qp, addr, length)`.
    fn ibv_wr_set_inline_data(
        qp: *mut ibv_qp_ex,
        addr: *mut c_void,
        length: usize,
    ) = (*qp).wr_set_inline_data;

    /// `qp->wr_set_inline_data_list(qp, num_buf, buf_list)`.
    fn ibv_wr_set_inline_data_list(
        qp: *mut ibv_qp_ex,
        num_buf: usize,
        buf_list: *const ibv_data_buf,
    ) = (*qp).wr_set_inline_data_list;

    /// `qp->wr_set_sge(qp, lkey, addr, length)`.
    fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) = (*qp).wr_set_sge;

    /// `qp->wr_set_sge_list(qp, num_sge, sg_list)`.
    fn ibv_wr_set_sge_list(
        qp: *mut ibv_qp_ex,
        num_sge: usize,
        sg_list: *const ibv_sge,
    ) = (*qp).wr_set_sge_list;

    /// `qp->wr_start(qp)`.
    fn ibv_wr_start(qp: *mut ibv_qp_ex) = (*qp).wr_start;

    /// `qp->wr_complete(qp)`.
    fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int = (*qp).wr_complete;

    /// `qp->wr_abort(qp)`.
    fn ibv_wr_abort(qp: *mut ibv_qp_ex) = (*qp).wr_abort;

    #[cfg(ibv_has_atomic_write)]
    /// `qp->wr_atomic_write(qp, rkey, remote_addr, atomic_wr)`.
    fn ibv_wr_atomic_write(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        atomic_wr: *const c_void,
    ) = (*qp).wr_atomic_write;

    #[cfg(ibv_has_flush)]
    /// `qp->wr_flush(qp, rkey, remote_addr, len, type, level)`.
    fn ibv_wr_flush(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        len: usize,
        kind: u8,
        level: u8,
    ) = (*qp).wr_flush;
}

hot! {
    /// `cq->context->ops.poll_cq(cq, num_entries, wc)`.
    fn ibv_poll_cq(
        cq: *mut ibv_cq,
        num_entries: c_int,
        wc: *mut ibv_wc,
    ) -> c_int = (*(*cq).context).ops.poll_cq;

    /// `cq->context->ops.req_notify_cq(cq, solicited_only)`.
    fn ibv_req_notify_cq(
        cq: *mut ibv_cq,
        solicited_only: c_int,
    ) -> c_int = (*(*cq).context).ops.req_notify_cq;

    /// `cq->start_poll(cq, attr)`.
    fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int = (*cq).start_poll;

    /// `cq->next_poll(cq)`.
    fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int = (*cq).next_poll;

    /// `cq->end_poll(cq)`.
    fn ibv_end_poll(cq: *mut ibv_cq_ex) = (*cq).end_poll;

    /// `cq->read_opcode(cq)`.
    fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode = (*cq).read_opcode;

    /// `cq->read_vendor_err(cq)`.
    fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_vendor_err;

    /// `cq->read_byte_len(cq)`.
    fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_byte_len;

    /// `cq->read_imm_data(cq)`.
    fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32 = (*cq).read_imm_data;

    /// `cq->read_imm_data(cq)`.
    fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_imm_data;

    /// `cq->read_qp_num(cq)`.
    fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_qp_num;

    /// `cq->read_src_qp(cq)`.
    fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_src_qp;

    /// `cq->read_wc_flags(cq)`.
    fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint = (*cq).read_wc_flags;

    /// `cq->read_slid(cq)`.
    fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_slid;

    /// `cq->read_sl(cq)`.
    fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8 = (*cq).read_sl;

    /// `cq->read_dlid_path_bits(cq)`.
    fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 = (*cq).read_dlid_path_bits;

    /// `cq->read_completion_ts(cq)`.
    fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 = (*cq).read_completion_ts;

    /// `cq->read_completion_wallclock_ns(cq)`.
    fn ibv_wc_read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 = (*cq).read_completion_wallclock_ns;

    /// `cq->read_cvlan(cq)`.
    fn ibv_wc_read_cvlan(cq: *mut ibv_cq_ex) -> u16 = (*cq).read_cvlan;

    /// `cq->read_flow_tag(cq)`.
    fn ibv_wc_read_flow_tag(cq: *mut ibv_cq_ex) -> u32 = (*cq).read_flow_tag;

    /// `cq->read_tm_info(cq, tm_info)`.
    fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) = (*cq).read_tm_info;
}

hot! {
    /// `srq->context->ops.post_srq_recv(srq, recv_wr, bad_recv_wr)`.
    fn ibv_post_srq_recv(
        srq: *mut ibv_srq,
        recv_wr: *mut ibv_recv_wr,
        bad_recv_wr: *mut *mut ibv_recv_wr,
    ) -> c_int = (*(*srq).context).ops.post_srq_recv;

    /// `wq->post_recv(wq, recv_wr, bad_recv_wr)`.
    fn ibv_post_wq_recv(
        wq: *mut ibv_wq,
        recv_wr: *mut ibv_recv_wr,
        bad_recv_wr: *mut *mut ibv_recv_wr,
    ) -> c_int = (*wq).post_recv;
}
