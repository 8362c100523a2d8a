//! The data path that records: `ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`.
//!
//! # Safety
//!
//! Requests are read as a provider reads them: the fields that opcode and transport give a meaning, and no others.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::collections::VecDeque;
use std::ffi::c_int;

use ibv_sys as sys;

use crate::cold::qp_of;
use crate::events::cq_of;
use crate::record::{Atomic, Bad, Kind, PostFault, RecvWr, Remote, SendWr, Sge, UdTo};
use crate::universe::{Universe, misuse, with};
use crate::window::bind_of;

/// A request that can be walked.
trait Request: Sized {
    /// # Safety
    ///
    /// `this` is a request.
    unsafe fn next(this: *mut Self) -> *mut Self;
}

impl Request for sys::ibv_send_wr {
    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: by the caller's promise.
        unsafe { (*this).next }
    }
}

impl Request for sys::ibv_recv_wr {
    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: by the caller's promise.
        unsafe { (*this).next }
    }
}

/// Reads the list up to where `fault` stops it: what was accepted, and the result.
///
/// # Safety
///
/// `wr` is a list of requests, `bad` an out-parameter.
unsafe fn walk<W: Request, R>(
    mut wr: *mut W,
    bad: *mut *mut W,
    fault: Option<PostFault>,
    mut read: impl FnMut(*mut W) -> R,
) -> (Vec<R>, c_int) {
    let first = wr;
    let mut accepted = Vec::new();
    while !wr.is_null() {
        if let Some(fault) = fault.filter(|fault| fault.accept == accepted.len()) {
            let mut count = accepted.len();
            let refused = wr;
            while !wr.is_null() {
                count += 1;
                // SAFETY: a request of the list.
                wr = unsafe { W::next(wr) };
            }
            let point_at = match fault.bad {
                Bad::Nth => Some(refused),
                Bad::Null => Some(std::ptr::null_mut()),
                Bad::Untouched => None,
                Bad::Foreign => Some(std::ptr::without_provenance_mut(0xdead_0000)),
                Bad::Misaligned => Some(refused.wrapping_byte_add(4)),
                Bad::PastTheEnd => Some(first.wrapping_add(count)),
            };
            if let Some(point_at) = point_at {
                // SAFETY: the caller's out-parameter.
                unsafe { *bad = point_at };
            }
            return (accepted, fault.errno);
        }
        accepted.push(read(wr));
        // SAFETY: a request of the list.
        wr = unsafe { W::next(wr) };
    }
    (accepted, 0)
}

/// # Safety
///
/// `list` are `count` elements.
unsafe fn sges(list: *const sys::ibv_sge, count: c_int) -> Vec<Sge> {
    let Ok(count) = usize::try_from(count) else { misuse("a negative num_sge") };
    // SAFETY: by the caller's promise.
    (0..count).map(|at| Sge::from(unsafe { &*list.add(at) })).collect()
}

/// # Safety
///
/// The address handle is one that the caller of a post gave.
pub(crate) fn ud_to(
    universe: &mut Universe,
    context: usize,
    ah: *mut sys::ibv_ah,
    qpn: u32,
    qkey: u32,
) -> UdTo {
    let ah = universe.find_in("a datagram's address handle", Kind::Ah, ah.addr(), context).id;
    UdTo { ah, qpn, qkey }
}

/// # Safety
///
/// `wr` is a request for a queue pair of that type.
unsafe fn read_send(
    universe: &mut Universe,
    context: usize,
    qp_type: sys::ibv_qp_type,
    wr: *mut sys::ibv_send_wr,
) -> SendWr {
    // SAFETY: fields that every request has, by the caller's promise.
    let mut read = unsafe {
        SendWr {
            wr_id: (*wr).wr_id,
            opcode: (*wr).opcode,
            send_flags: (*wr).send_flags,
            imm_data: (*wr).u1.imm_data.to_ne_bytes(),
            sges: sges((*wr).sg_list, (*wr).num_sge),
            ..SendWr::default()
        }
    };
    if read.send_flags & sys::IBV_SEND_INLINE != 0 {
        for sge in &mut read.sges {
            // a provider may not look at the key
            sge.lkey = 0;
            let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            for at in 0..sge.length as usize {
                // SAFETY: inline data is there while the post is.
                read.inline.push(unsafe { *from.add(at) });
            }
            sge.addr = 0;
        }
    }
    // SAFETY: each union member goes with its opcode, or with the queue pair's type.
    unsafe {
        match read.opcode {
            sys::IBV_WR_RDMA_WRITE | sys::IBV_WR_RDMA_WRITE_WITH_IMM | sys::IBV_WR_RDMA_READ => {
                let rdma = (*wr).wr.rdma;
                read.remote = Some(Remote { addr: rdma.remote_addr, rkey: rdma.rkey });
            }
            sys::IBV_WR_ATOMIC_CMP_AND_SWP | sys::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let atomic = &raw const (*wr).wr.atomic;
                let swaps = read.opcode == sys::IBV_WR_ATOMIC_CMP_AND_SWP;
                read.atomic = Some(Atomic {
                    addr: (*atomic).remote_addr,
                    rkey: (*atomic).rkey,
                    compare_add: (*atomic).compare_add,
                    swap: if swaps { (*atomic).swap } else { 0 },
                });
            }
            sys::IBV_WR_SEND | sys::IBV_WR_SEND_WITH_IMM if qp_type == sys::IBV_QPT_UD => {
                let ud = &raw const (*wr).wr.ud;
                let to = ud_to(universe, context, (*ud).ah, (*ud).remote_qpn, (*ud).remote_qkey);
                read.ud = Some(to);
            }
            sys::IBV_WR_SEND | sys::IBV_WR_SEND_WITH_IMM => {}
            sys::IBV_WR_SEND_WITH_INV | sys::IBV_WR_LOCAL_INV => {
                read.invalidate = Some((*wr).u1.invalidate_rkey);
                read.imm_data = [0; 4];
            }
            sys::IBV_WR_BIND_MW => {
                let bind = (*wr).u2.bind_mw;
                read.bind = Some(bind_of(universe, context, bind.mw, bind.rkey, &bind.bind_info));
            }
            other => misuse(&format!("ibv_post_send: opcode {other}")),
        }
    }
    read
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    bad: *mut *mut sys::ibv_send_wr,
) -> c_int {
    with(|universe| {
        let object = universe.find("ibv_post_send", Kind::Qp, qp.addr());
        let (hca, context) = (object.hca, object.context);
        let body = qp_of(object);
        let (state, qp_type) = (body.attr.qp_state, body.init.qp_type);
        if body.building {
            misuse("ibv_post_send between ibv_wr_start and its end: this hangs");
        }
        let mut fault = universe.record(hca).post_faults.pop_front();
        if ![sys::IBV_QPS_RTS, sys::IBV_QPS_SQD, sys::IBV_QPS_ERR].contains(&state) {
            fault = Some(PostFault { accept: 0, errno: libc::EINVAL, bad: Bad::Nth });
        }
        // SAFETY: the caller's list and out-parameter, for this queue pair.
        let (posted, errno) = unsafe { walk(wr, bad, fault, |wr| read_send(universe, context, qp_type, wr)) };
        universe.record(hca).sends.push(posted);
        errno
    })
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut sys::ibv_qp,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    with(|universe| {
        let object = universe.find("ibv_post_recv", Kind::Qp, qp.addr());
        let hca = object.hca;
        let body = qp_of(object);
        if !body.init.srq.is_null() {
            misuse("ibv_post_recv on a queue pair with a shared receive queue");
        }
        let fault = (body.attr.qp_state == sys::IBV_QPS_RESET).then_some(PostFault {
            accept: 0,
            errno: libc::EINVAL,
            bad: Bad::Nth,
        });
        // SAFETY: the caller's list and out-parameter.
        unsafe { post_receives(universe, hca, wr, bad, fault) }
    })
}

/// Records receives, up to `fault` or the next one that was asked for.
///
/// # Safety
///
/// A list of receives and an out-parameter.
pub(crate) unsafe fn post_receives(
    universe: &mut Universe,
    hca: usize,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
    fault: Option<PostFault>,
) -> c_int {
    let asked = universe.record(hca).post_faults.pop_front();
    // SAFETY: by the caller's promise; all fields of a receive have a meaning.
    let (posted, errno) = unsafe {
        walk(wr, bad, fault.or(asked), |wr| RecvWr {
            wr_id: (*wr).wr_id,
            sges: sges((*wr).sg_list, (*wr).num_sge),
        })
    };
    universe.record(hca).recvs.push(posted);
    errno
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut sys::ibv_cq, room: c_int, wcs: *mut sys::ibv_wc) -> c_int {
    with(|universe| {
        let hca = universe.find("ibv_poll_cq", Kind::Cq, cq.addr()).hca;
        let verdict = universe.verdict(hca, "ibv_poll_cq");
        if verdict != 0 {
            return -verdict;
        }
        let queue = cq_of(universe.find("ibv_poll_cq", Kind::Cq, cq.addr()));
        if queue.run.is_some() {
            misuse("ibv_poll_cq: after ibv_start_poll, where it waits for ever");
        }
        let completions: &mut VecDeque<_> = &mut queue.completions;
        let count = completions.len().min(usize::try_from(room).unwrap_or(0));
        for (at, completed) in completions.drain(..count).enumerate() {
            // SAFETY: the caller's array has that room.
            unsafe { wcs.add(at).write(completed.wc) };
        }
        count as c_int
    })
}
