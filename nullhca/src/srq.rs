//! Shared receive queues.
//!
//! # Safety
//!
//! As in [`cold`](crate::cold) and [`path`](crate::path).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;

use ibv_sys as sys;

use crate::cold::make;
use crate::path::post_receives;
use crate::record::Kind;
use crate::universe::{Body, New, Object, misuse, with};

fn attr_of(object: &mut Object) -> &mut sys::ibv_srq_attr {
    match &mut object.body {
        Body::Srq(attr) => attr,
        _ => misuse("a shared receive queue without its body"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_srq_init_attr,
) -> *mut sys::ibv_srq {
    const VERB: &str = "ibv_create_srq";
    // SAFETY: the caller's struct.
    let init = unsafe { &mut *init };
    make(VERB, (Kind::Pd, pd.addr()), |universe, hca, at| {
        // SAFETY: alive, since it was found.
        let context = unsafe { (*pd).context };
        let srq = sys::ibv_srq { context, pd, srq_context: init.srq_context, ..Default::default() };
        init.attr.max_wr = (universe.record(hca).config.grant_srq)(init.attr.max_wr);
        let body = Body::Srq(init.attr);
        let new = New { kind: Kind::Srq, context: at, parents: vec![pd.addr()], body };
        Ok(universe.add(VERB, hca, new, srq))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut sys::ibv_srq, attr: *mut sys::ibv_srq_attr) -> c_int {
    const VERB: &str = "ibv_query_srq";
    with(|universe| {
        let object = universe.find(VERB, Kind::Srq, srq.addr());
        let (id, hca, kept) = (object.id, object.hca, *attr_of(object));
        let errno = universe.verdict(hca, VERB);
        if errno == 0 {
            // SAFETY: the caller's out-parameter.
            unsafe { attr.write(kept) };
        }
        universe.note(hca, VERB, Some(id), errno);
        errno
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut sys::ibv_srq,
    attr: *mut sys::ibv_srq_attr,
    mask: c_int,
) -> c_int {
    const VERB: &str = "ibv_modify_srq";
    // SAFETY: the caller's struct.
    let limit = unsafe { (*attr).srq_limit };
    if mask as u32 != sys::IBV_SRQ_LIMIT {
        misuse("ibv_modify_srq of something else than the limit");
    }
    with(|universe| {
        let object = universe.find(VERB, Kind::Srq, srq.addr());
        let (id, hca) = (object.id, object.hca);
        let errno = universe.verdict(hca, VERB);
        if errno == 0 {
            attr_of(universe.find(VERB, Kind::Srq, srq.addr())).srq_limit = limit;
        }
        universe.note(hca, VERB, Some(id), errno);
        errno
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_srq(srq: *mut sys::ibv_srq) -> c_int {
    with(|universe| universe.destroy("ibv_destroy_srq", Kind::Srq, srq.addr()))
}

/// Recorded like those of queue pairs.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut sys::ibv_srq,
    wr: *mut sys::ibv_recv_wr,
    bad: *mut *mut sys::ibv_recv_wr,
) -> c_int {
    with(|universe| {
        let hca = universe.find("ibv_post_srq_recv", Kind::Srq, srq.addr()).hca;
        // SAFETY: the caller's list and out-parameter.
        unsafe { post_receives(universe, hca, wr, bad, None) }
    })
}
