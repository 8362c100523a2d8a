//! Extended completion queues: `ibv_create_cq_ex`, `ibv_start_poll` … `ibv_end_poll`, `ibv_wc_read_*`.
//!
//! # Safety
//!
//! As in [`path`](crate::path).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_uint};

use ibv_sys as sys;

use crate::cold::NewCq;
use crate::events::cq_of;
use crate::fast;
use crate::record::Kind;
use crate::universe::{Completed, misuse, with};

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_cq_init_attr_ex,
) -> *mut sys::ibv_cq_ex {
    // SAFETY: the caller's struct.
    let attr = unsafe { &*attr };
    if attr.comp_mask != 0 {
        misuse("ibv_create_cq_ex with another comp_mask than it knows");
    }
    NewCq {
        verb: "ibv_create_cq_ex",
        context,
        cqe: attr.cqe as c_int,
        cq_context: attr.cq_context,
        channel: attr.channel,
        comp_vector: attr.comp_vector as c_int,
        wc_flags: Some(attr.wc_flags),
    }
    .make()
}

/// Fills in the pointers of the readers that were asked for, and leaves the others null, as rxe does.
pub(crate) fn set_pointers(cq: &mut sys::ibv_cq_ex, wc_flags: u64, is_fast: bool) {
    let has = |flag: u32| wc_flags & u64::from(flag) != 0;
    fast::set! {
        cq, is_fast:
        start_poll: start_poll, nullhca_fast_start_poll, true;
        next_poll: next_poll, nullhca_fast_next_poll, true;
        end_poll: end_poll, nullhca_fast_end_poll, true;
        read_opcode: read_opcode, nullhca_fast_read_opcode, true;
        read_vendor_err: read_vendor_err, nullhca_fast_read, true;
        read_wc_flags: read_wc_flags, nullhca_fast_read, true;
        read_byte_len: read_byte_len, nullhca_fast_read, has(sys::IBV_WC_EX_WITH_BYTE_LEN);
        read_imm_data: read_imm_data, nullhca_fast_read, has(sys::IBV_WC_EX_WITH_IMM);
        read_qp_num: read_qp_num, nullhca_fast_read, has(sys::IBV_WC_EX_WITH_QP_NUM);
        read_src_qp: read_src_qp, nullhca_fast_read, has(sys::IBV_WC_EX_WITH_SRC_QP);
        read_slid: read_slid, nullhca_fast_read, has(sys::IBV_WC_EX_WITH_SLID);
        read_sl: read_sl, nullhca_fast_read_u8, has(sys::IBV_WC_EX_WITH_SL);
        read_dlid_path_bits: read_dlid_path_bits, nullhca_fast_read_u8, has(sys::IBV_WC_EX_WITH_DLID_PATH_BITS);
        read_completion_ts: read_completion_ts, nullhca_fast_read_u64,
            has(sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
        read_completion_wallclock_ns: read_completion_wallclock_ns, nullhca_fast_read_u64,
            has(sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
    }
}

/// Goes on to the next completion, from where `verb` may be called: 0, or what it returns.
fn step(verb: &'static str, cq: *mut sys::ibv_cq_ex, is_start: bool) -> c_int {
    with(|universe| {
        let hca = universe.find(verb, Kind::Cq, cq.addr()).hca;
        let verdict = universe.verdict(hca, verb);
        let queue = cq_of(universe.find(verb, Kind::Cq, cq.addr()));
        match (queue.run, is_start) {
            (Some(_), true) => misuse("ibv_start_poll: in a run, where it waits for ever"),
            (None, false) => misuse("ibv_next_poll: not after ibv_start_poll"),
            _ => {}
        }
        if verdict != 0 {
            return verdict;
        }
        let Some(completed) = queue.completions.pop_front() else { return libc::ENOENT };
        queue.run = Some(completed);
        // SAFETY: alive, since it was found.
        unsafe {
            (*cq).wr_id = completed.wc.wr_id;
            (*cq).status = completed.wc.status;
        }
        0
    })
}

unsafe extern "C" fn start_poll(cq: *mut sys::ibv_cq_ex, attr: *mut sys::ibv_poll_cq_attr) -> c_int {
    // SAFETY: the caller's struct.
    if unsafe { (*attr).comp_mask } != 0 {
        return libc::EINVAL;
    }
    step("ibv_start_poll", cq, true)
}

unsafe extern "C" fn next_poll(cq: *mut sys::ibv_cq_ex) -> c_int {
    step("ibv_next_poll", cq, false)
}

unsafe extern "C" fn end_poll(cq: *mut sys::ibv_cq_ex) {
    with(|universe| {
        let object = universe.find("ibv_end_poll", Kind::Cq, cq.addr());
        let (id, hca) = (object.id, object.hca);
        if cq_of(object).run.take().is_none() {
            misuse("ibv_end_poll: not after ibv_start_poll");
        }
        universe.note(hca, "ibv_end_poll", Some(id), 0);
    });
}

fn current(cq: *mut sys::ibv_cq_ex) -> Completed {
    with(|universe| match cq_of(universe.find("ibv_wc_read_*", Kind::Cq, cq.addr())).run {
        Some(completed) => completed,
        None => misuse("ibv_wc_read_*: not between ibv_start_poll and ibv_end_poll"),
    })
}

macro_rules! readers {
    ($($name:ident -> $type:ty, |$completed:ident| $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut sys::ibv_cq_ex) -> $type {
            let $completed = current(cq);
            $value
        }
    )*};
}

readers! {
    read_opcode -> sys::ibv_wc_opcode, |completed| completed.wc.opcode;
    read_vendor_err -> u32, |completed| completed.wc.vendor_err;
    read_byte_len -> u32, |completed| completed.wc.byte_len;
    // SAFETY: plain integers.
    read_imm_data -> u32, |completed| unsafe { completed.wc.u1.imm_data };
    read_qp_num -> u32, |completed| completed.wc.qp_num;
    read_src_qp -> u32, |completed| completed.wc.src_qp;
    read_wc_flags -> c_uint, |completed| completed.wc.wc_flags;
    read_slid -> u32, |completed| completed.wc.slid.into();
    read_sl -> u8, |completed| completed.wc.sl;
    read_dlid_path_bits -> u8, |completed| completed.wc.dlid_path_bits;
    read_completion_ts -> u64, |completed| completed.ticks;
    read_completion_wallclock_ns -> u64, |completed| completed.ticks.wrapping_mul(1000);
}
