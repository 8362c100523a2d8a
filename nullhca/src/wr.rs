//! The data path that records: `ibv_wr_*`.
//!
//! # Safety
//!
//! As in [`path`](crate::path).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_void};

use ibv_sys as sys;

use crate::cold::qp_of;
use crate::fast;
use crate::path::ud_to;
use crate::record::{Atomic, Kind, Remote, Sge, WrCall};
use crate::universe::{misuse, with};
use crate::window::bind_of;

/// Fills in the pointers of the operations that were asked for, and leaves the others null, as rxe does.
pub(crate) fn set_pointers(qp: &mut sys::ibv_qp_ex, ops: u64, is_datagram: bool, is_fast: bool) {
    let has = |op: u32| ops & u64::from(op) != 0;
    fast::set! {
        qp, is_fast:
        wr_start: start, nullhca_fast_wr_start, true;
        wr_complete: complete, nullhca_fast_wr_complete, true;
        wr_abort: abort, nullhca_fast_wr_abort, true;
        wr_set_sge: set_sge, nullhca_fast_wr_set_sge, true;
        wr_set_sge_list: set_sge_list, nullhca_fast_wr_set_sge_list, true;
        wr_set_inline_data: set_inline_data, nullhca_fast_wr_set_inline_data, true;
        wr_set_ud_addr: set_ud_addr, nullhca_fast_wr_set_ud_addr, is_datagram;
        wr_send: send, nullhca_fast_wr_send, has(sys::IBV_QP_EX_WITH_SEND);
        wr_send_imm: send_imm, nullhca_fast_wr_send_imm, has(sys::IBV_QP_EX_WITH_SEND_WITH_IMM);
        wr_send_inv: send_inv, nullhca_fast_wr_send_imm, has(sys::IBV_QP_EX_WITH_SEND_WITH_INV);
        wr_local_inv: local_inv, nullhca_fast_wr_send_imm, has(sys::IBV_QP_EX_WITH_LOCAL_INV);
        wr_bind_mw: bind_mw, nullhca_fast_wr_bind_mw, has(sys::IBV_QP_EX_WITH_BIND_MW);
        wr_rdma_write: rdma_write, nullhca_fast_wr_rdma, has(sys::IBV_QP_EX_WITH_RDMA_WRITE);
        wr_rdma_write_imm: rdma_write_imm, nullhca_fast_wr_rdma_imm,
            has(sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
        wr_rdma_read: rdma_read, nullhca_fast_wr_rdma, has(sys::IBV_QP_EX_WITH_RDMA_READ);
        wr_atomic_cmp_swp: atomic_cmp_swp, nullhca_fast_wr_atomic_cmp_swp,
            has(sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
        wr_atomic_fetch_add: atomic_fetch_add, nullhca_fast_wr_atomic_fetch_add,
            has(sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
    }
}

/// Notes a call; `building` says what must be before and is afterwards. Returns the verdict on `ibv_wr_complete`.
fn note(qp: *mut sys::ibv_qp_ex, building: (bool, bool), call: impl FnOnce(u64, u32) -> WrCall) -> c_int {
    with(|universe| {
        let object = universe.find("ibv_wr_*", Kind::Qp, qp.addr());
        let hca = object.hca;
        let body = qp_of(object);
        if body.building != building.0 {
            misuse("ibv_wr_*: a call out of order, which hangs or writes anywhere");
        }
        body.building = building.1;
        body.inline_too_long &= building.0;
        let (state, inline_too_long) = (body.attr.qp_state, body.inline_too_long);
        // SAFETY: alive, since it was found.
        let call = unsafe { call((*qp).wr_id, (*qp).wr_flags) };
        let completes = call == WrCall::Complete;
        universe.record(hca).wr_calls.push(call);
        match state {
            _ if !completes => 0,
            _ if inline_too_long => libc::ENOMEM,
            sys::IBV_QPS_RTS | sys::IBV_QPS_SQD | sys::IBV_QPS_ERR => {
                universe.verdict(hca, "ibv_wr_complete")
            }
            _ => libc::EINVAL,
        }
    })
}

const INSIDE: (bool, bool) = (true, true);

unsafe extern "C" fn start(qp: *mut sys::ibv_qp_ex) {
    note(qp, (false, true), |_, _| WrCall::Start);
}

unsafe extern "C" fn complete(qp: *mut sys::ibv_qp_ex) -> c_int {
    note(qp, (true, false), |_, _| WrCall::Complete)
}

unsafe extern "C" fn abort(qp: *mut sys::ibv_qp_ex) {
    note(qp, (true, false), |_, _| WrCall::Abort);
}

unsafe extern "C" fn send(qp: *mut sys::ibv_qp_ex) {
    note(qp, INSIDE, |id, flags| WrCall::Send { id, flags });
}

unsafe extern "C" fn send_imm(qp: *mut sys::ibv_qp_ex, imm: u32) {
    note(qp, INSIDE, |id, flags| WrCall::SendImm { id, flags, imm: imm.to_ne_bytes() });
}

unsafe extern "C" fn send_inv(qp: *mut sys::ibv_qp_ex, rkey: u32) {
    note(qp, INSIDE, |id, flags| WrCall::SendInv { id, flags, rkey });
}

unsafe extern "C" fn local_inv(qp: *mut sys::ibv_qp_ex, rkey: u32) {
    note(qp, INSIDE, |id, flags| WrCall::LocalInv { id, flags, rkey });
}

unsafe extern "C" fn bind_mw(
    qp: *mut sys::ibv_qp_ex,
    mw: *mut sys::ibv_mw,
    rkey: u32,
    info: *const sys::ibv_mw_bind_info,
) {
    let bind = with(|universe| {
        let context = universe.find("ibv_wr_bind_mw", Kind::Qp, qp.addr()).context;
        // SAFETY: the caller's struct.
        unsafe { bind_of(universe, context, mw, rkey, &*info) }
    });
    note(qp, INSIDE, |id, flags| WrCall::BindMw { id, flags, bind });
}

unsafe extern "C" fn rdma_write(qp: *mut sys::ibv_qp_ex, rkey: u32, addr: u64) {
    note(qp, INSIDE, |id, flags| WrCall::Write { id, flags, to: Remote { addr, rkey } });
}

unsafe extern "C" fn rdma_write_imm(qp: *mut sys::ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    let imm = imm.to_ne_bytes();
    note(qp, INSIDE, |id, flags| WrCall::WriteImm { id, flags, to: Remote { addr, rkey }, imm });
}

unsafe extern "C" fn rdma_read(qp: *mut sys::ibv_qp_ex, rkey: u32, addr: u64) {
    note(qp, INSIDE, |id, flags| WrCall::Read { id, flags, from: Remote { addr, rkey } });
}

unsafe extern "C" fn atomic_cmp_swp(qp: *mut sys::ibv_qp_ex, rkey: u32, addr: u64, compare: u64, swap: u64) {
    let atomic = Atomic { addr, rkey, compare_add: compare, swap };
    note(qp, INSIDE, |id, flags| WrCall::CmpSwp { id, flags, atomic });
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut sys::ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    let atomic = Atomic { addr, rkey, compare_add: add, swap: 0 };
    note(qp, INSIDE, |id, flags| WrCall::FetchAdd { id, flags, atomic });
}

unsafe extern "C" fn set_ud_addr(qp: *mut sys::ibv_qp_ex, ah: *mut sys::ibv_ah, qpn: u32, qkey: u32) {
    let to = with(|universe| {
        let context = universe.find("ibv_wr_set_ud_addr", Kind::Qp, qp.addr()).context;
        ud_to(universe, context, ah, qpn, qkey)
    });
    note(qp, INSIDE, |_, _| WrCall::SetUdAddr(to));
}

unsafe extern "C" fn set_sge(qp: *mut sys::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    note(qp, INSIDE, |_, _| WrCall::SetSge(Sge { addr, length, lkey }));
}

unsafe extern "C" fn set_sge_list(qp: *mut sys::ibv_qp_ex, count: usize, list: *const sys::ibv_sge) {
    // SAFETY: the caller's elements.
    let sges = (0..count).map(|at| Sge::from(unsafe { &*list.add(at) })).collect();
    note(qp, INSIDE, |_, _| WrCall::SetSgeList(sges));
}

unsafe extern "C" fn set_inline_data(qp: *mut sys::ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the caller's bytes.
    let bytes = (0..length).map(|at| unsafe { *addr.cast::<u8>().add(at) }).collect();
    note(qp, INSIDE, |_, _| WrCall::SetInline(bytes));
    with(|universe| {
        let body = qp_of(universe.find("ibv_wr_set_inline_data", Kind::Qp, qp.addr()));
        // as libmlx5 and librxe do
        body.inline_too_long |= length > body.attr.cap.max_inline_data as usize;
    });
}
