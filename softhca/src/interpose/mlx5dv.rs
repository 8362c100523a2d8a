//! `mlx5dv_init_obj`: who asks where the rings of a queue are will drive them itself, past all functions that pump
//! mode wraps. From then on, and as long as the queue exists, the device's thread watches the doorbells.
//!
//! # Safety
//!
//! The C function's contract is kept: after it succeeded, what its arguments point to is filled in as
//! `<infiniband/mlx5dv.h>` declares it, of which the structures below are the beginnings.
#![expect(unsafe_code, reason = "defines a function of libmlx5")]

use super::real;
use crate::run;
use libc::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Keeps this module's function in the link.
pub(crate) fn anchor() -> usize {
    (mlx5dv_init_obj as *const ()).addr()
}

/// `struct mlx5dv_obj`, as far as it matters.
#[repr(C)]
pub(crate) struct Objects {
    qp: *mut run::pump::QpEx,
    qp_out: *mut libc::c_void,
    cq: *mut libc::c_void,
    cq_out: *mut CqOut,
}

/// `struct mlx5dv_cq`, up to its number.
#[repr(C)]
struct CqOut {
    buf: *mut libc::c_void,
    dbrec: *mut u32,
    cqe_cnt: u32,
    cqe_size: u32,
    cq_uar: *mut libc::c_void,
    cqn: u32,
}

const OBJ_QP: u64 = 1;
const OBJ_CQ: u64 = 2;

type Function = unsafe extern "C" fn(*mut Objects, u64) -> c_int;

/// The provider's function: the next one, or (if a library that was loaded later brought it) the loaded provider's.
fn provider() -> Option<Function> {
    static CELL: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
    const NAME: &std::ffi::CStr = c"mlx5dv_init_obj";
    let mut p = real::next(&CELL, NAME);
    if p.is_null() {
        // SAFETY: C strings; a library that isn't loaded stays so, and the handle is kept.
        p = unsafe {
            let lib = libc::dlopen(c"libmlx5.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if lib.is_null() { lib } else { libc::dlsym(lib, NAME.as_ptr()) }
        };
        CELL.store(p, Ordering::Relaxed);
    }
    // SAFETY: null, or the function of this name.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Function>>(p) }
}

/// `mlx5dv_init_obj(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mlx5dv_init_obj(obj: *mut Objects, kind: u64) -> c_int {
    let Some(f) = provider() else { return libc::EOPNOTSUPP };
    // SAFETY: the caller's arguments, handed on.
    let rc = unsafe { f(obj, kind) };
    if rc == 0 {
        // SAFETY: the call succeeded, so the parts that `kind` names are there.
        unsafe {
            if kind & OBJ_QP != 0 {
                run::drives_itself(run::Direct::Qp((*(*obj).qp).qp_num));
            }
            if kind & OBJ_CQ != 0 {
                run::drives_itself(run::Direct::Cq((*(*obj).cq_out).cqn));
            }
        }
    }
    rc
}
