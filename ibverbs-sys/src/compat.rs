//! What the headers say with macros that bindgen cannot read.
//!
//! # Safety
//!
//! The functions ask of their caller what the C functions ask.

use core::ffi::{c_int, c_uint, c_void};

use crate::bindings::{___ibv_query_port, ibv_context, ibv_mr, ibv_pd, ibv_port_attr, ibv_reg_mr_iova2};

/// `IBV_ALLOCATOR_USE_DEFAULT` (`verbs.h`): what an allocator of a parent domain returns to pass.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = usize::MAX as *mut c_void;

/// `__VERBS_ABI_IS_EXTENDED` (`verbs.h`): the value of `ibv_context.abi_compat` in a `verbs_context`.
pub const __VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// `ibv_query_port(context, port_num, port_attr)`, the macro of `verbs.h`.
///
/// Asks the provider for the whole of [`ibv_port_attr`]. Where it has no such operation, falls back to the
/// symbol `ibv_query_port`, which only knows the struct's first 48 bytes; the rest is zero then. (The symbol is
/// not bound: whoever calls it with this struct gets fields that nobody wrote.)
///
/// # Safety
///
/// `context` must be an open device, `port_attr` valid for writing.
#[inline]
pub unsafe fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the same function under the name that the macro gives it; the caller vouches for the arguments.
    unsafe { ___ibv_query_port(context, port_num, port_attr) }
}

/// `ibv_reg_mr(pd, addr, length, access)`, the macro of `verbs.h`.
///
/// With access flags that aren't a constant of the C compiler the macro calls `ibv_reg_mr_iova2`, which knows
/// all flags that are optional (`IBV_ACCESS_RELAXED_ORDERING`) and leaves out those that the kernel doesn't
/// know. So does this, always: for the other flags the two functions do the same.
///
/// # Safety
///
/// `pd` must be a live protection domain, and the memory must stay valid as long as the region is registered.
#[inline]
pub unsafe fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: the caller vouches for the arguments. The conversion of `access` is the macro's.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr as u64, access as c_uint) }
}

/// `ibv_reg_mr_iova(pd, addr, length, iova, access)`, the macro of `verbs.h`; see [`ibv_reg_mr`].
///
/// # Safety
///
/// As for [`ibv_reg_mr`].
#[inline]
pub unsafe fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller vouches for the arguments. The conversion of `access` is the macro's.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

/// `verbs_get_ctx_op(ctx, op)`, the macro of `verbs.h`: the device's extended operations if `op` is one that
/// the library and the provider have, else null.
///
/// The test is the header's: the library's table (whose size is in `sz`, counted from the end, because the
/// table grows at the front) must reach back to `op` as it lies in *these* headers' table.
///
/// # Safety
///
/// To be called in an `unsafe` block, with a pointer to an open device.
#[macro_export]
macro_rules! verbs_get_ctx_op {
    ($context:expr, $op:ident) => {{
        let extended: *mut $crate::verbs_context = $crate::verbs_get_ctx($context);
        let needed = ::core::mem::size_of::<$crate::verbs_context>()
            - ::core::mem::offset_of!($crate::verbs_context, $op);
        // In this order: an older library's table ends before `op`, which then isn't ours to read.
        if extended.is_null() || (*extended).sz < needed || (*extended).$op.is_none() {
            ::core::ptr::null_mut()
        } else {
            extended
        }
    }};
}

/// `vext_field_avail(type, field, size)`, the macro of `verbs.h`: whether a struct of `size` bytes has the field.
#[macro_export]
macro_rules! vext_field_avail {
    ($ty:ty, $field:ident, $size:expr) => {
        ::core::mem::offset_of!($ty, $field) < $size
    };
}

/// `MLX5DV_RES_TYPE_QP` (`mlx5dv.h`).
#[cfg(feature = "mlx5")]
pub const MLX5DV_RES_TYPE_QP: u64 = resource(1);
/// `MLX5DV_RES_TYPE_RWQ` (`mlx5dv.h`).
#[cfg(feature = "mlx5")]
pub const MLX5DV_RES_TYPE_RWQ: u64 = resource(2);
/// `MLX5DV_RES_TYPE_DBR` (`mlx5dv.h`).
#[cfg(feature = "mlx5")]
pub const MLX5DV_RES_TYPE_DBR: u64 = resource(3);
/// `MLX5DV_RES_TYPE_SRQ` (`mlx5dv.h`).
#[cfg(feature = "mlx5")]
pub const MLX5DV_RES_TYPE_SRQ: u64 = resource(4);
/// `MLX5DV_RES_TYPE_CQ` (`mlx5dv.h`).
#[cfg(feature = "mlx5")]
pub const MLX5DV_RES_TYPE_CQ: u64 = resource(5);

/// A resource type as `mlx5dv.h` builds it: the driver's number in the upper half.
#[cfg(feature = "mlx5")]
const fn resource(number: u64) -> u64 {
    ((crate::bindings::RDMA_DRIVER_MLX5 as u64) << 32) | number
}
