//! Raw bindings to libibverbs and, by feature, to libmlx5 (`mlx5`) and librdmacm (`rdmacm`).
//!
//! The bindings are made when the crate is built, from the headers that are installed; so structs have the
//! size that this machine's library expects, and what the headers don't have isn't here. Names are C's names:
//! `struct ibv_wc` is [`ibv_wc`], the enumerator `IBV_WC_SUCCESS` is a constant of type `ibv_wc_status`, which
//! is an integer, because values come from the kernel and newer kernels know more of them.
//!
//! - **Unnamed unions and structs** are fields `u1`, `u2`, … in order: `wc.u1.imm_data`, `wr.u2.bind_mw`. Their
//!   types are named after the place: `ibv_wc_u1`, `ibv_send_wr_wr_rdma`.
//! - **Static inline functions** are all here. The data path's are Rust (the functions whose names begin with
//!   `ibv_wr_`, `ibv_wc_read_`, `ibv_post_`, `ibv_poll_`…); the others are compiled C.
//! - **Macros over functions** (`ibv_query_port`, `ibv_reg_mr`, `ibv_reg_mr_iova`) do what the macro does; the
//!   old symbols behind them aren't bound.
//! - **What newer headers added** is announced: `DEP_IBVERBS_HAS_FLUSH=1` in a dependant's build script.
//!
//! # Safety
//!
//! Everything is as safe as it is in C. The crate `ibv` is the safe one.

mod bindings;
mod compat;
mod inline;

/// All of bindgen's output, with the C versions of the functions of `inline.rs`. For this crate's tests.
#[doc(hidden)]
pub mod generated {
    pub use crate::bindings::*;
}

pub use bindings::*;
pub use compat::*;
// By name: an import by name wins over the C version of the same function in `bindings`.
#[cfg(ibv_has_atomic_write)]
pub use inline::ibv_wr_atomic_write;
#[cfg(ibv_has_flush)]
pub use inline::ibv_wr_flush;
pub use inline::{
    ibv_end_poll, ibv_next_poll, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_recv,
    ibv_post_wq_recv, ibv_req_notify_cq, ibv_start_poll, ibv_wc_read_byte_len, ibv_wc_read_completion_ts,
    ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan, ibv_wc_read_dlid_path_bits, ibv_wc_read_flow_tag,
    ibv_wc_read_imm_data, ibv_wc_read_invalidated_rkey, ibv_wc_read_opcode, ibv_wc_read_qp_num,
    ibv_wc_read_sl, ibv_wc_read_slid, ibv_wc_read_src_qp, ibv_wc_read_tm_info, ibv_wc_read_vendor_err,
    ibv_wc_read_wc_flags, ibv_wr_abort, ibv_wr_atomic_cmp_swp, ibv_wr_atomic_fetch_add, ibv_wr_bind_mw,
    ibv_wr_complete, ibv_wr_local_inv, ibv_wr_rdma_read, ibv_wr_rdma_write, ibv_wr_rdma_write_imm,
    ibv_wr_send, ibv_wr_send_imm, ibv_wr_send_inv, ibv_wr_send_tso, ibv_wr_set_inline_data,
    ibv_wr_set_inline_data_list, ibv_wr_set_sge, ibv_wr_set_sge_list, ibv_wr_set_ud_addr,
    ibv_wr_set_xrc_srqn, ibv_wr_start,
};
