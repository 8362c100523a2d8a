//! Memory windows.
//!
//! # Safety
//!
//! As in [`cold`](crate::cold).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;

use ibv_sys as sys;

use crate::cold::make;
use crate::record::{Bind, Kind, SendWr};
use crate::universe::{Body, New, Universe, misuse, with};

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut sys::ibv_pd, type_: sys::ibv_mw_type) -> *mut sys::ibv_mw {
    const VERB: &str = "ibv_alloc_mw";
    make(VERB, (Kind::Pd, pd.addr()), |universe, hca, at| {
        let rkey = universe.new_key(hca) << 8;
        // SAFETY: alive, since it was found.
        let mw = sys::ibv_mw { context: unsafe { (*pd).context }, pd, rkey, handle: 0, type_ };
        let new = New { kind: Kind::Mw, context: at, parents: vec![pd.addr()], body: Body::Plain };
        Ok(universe.add(VERB, hca, new, mw))
    })
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut sys::ibv_mw) -> c_int {
    with(|universe| {
        let hca = universe.find("ibv_dealloc_mw", Kind::Mw, mw.addr()).hca;
        // SAFETY: alive, since it was found.
        let key = unsafe { (*mw).rkey } >> 8;
        let errno = universe.destroy("ibv_dealloc_mw", Kind::Mw, mw.addr());
        if errno == 0 {
            universe.free_key(hca, key);
        }
        errno
    })
}

/// What a bind says.
///
/// # Safety
///
/// Window and region are what the caller of a post gave.
pub(crate) unsafe fn bind_of(
    universe: &mut Universe,
    context: usize,
    mw: *mut sys::ibv_mw,
    rkey: u32,
    info: &sys::ibv_mw_bind_info,
) -> Bind {
    let window = universe.find_in("a bind's window", Kind::Mw, mw.addr(), context).id;
    let mr = universe.find_in("a bind's region", Kind::Mr, info.mr.addr(), context).id;
    let &sys::ibv_mw_bind_info { addr, length, mw_access_flags: access, .. } = info;
    // SAFETY: alive, since it was found.
    let old_rkey = unsafe { (*mw).rkey };
    if old_rkey >> 8 != rkey >> 8 || old_rkey == rkey {
        misuse("the bind of a window to a key that is not its own, or not new");
    }
    Bind { mw: window, old_rkey, rkey, mr, addr, length, access }
}

/// Recorded as the request that it is.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut sys::ibv_qp,
    mw: *mut sys::ibv_mw,
    bind: *mut sys::ibv_mw_bind,
) -> c_int {
    const VERB: &str = "ibv_bind_mw";
    // SAFETY: the caller's struct.
    let sys::ibv_mw_bind { wr_id, send_flags, bind_info } = unsafe { *bind };
    with(|universe| {
        let object = universe.find(VERB, Kind::Qp, qp.addr());
        let (hca, context) = (object.hca, object.context);
        let errno = universe.verdict(hca, VERB);
        if errno == 0 {
            // SAFETY: what the caller gave, which is alive if it is found.
            let bind = unsafe {
                let rkey = sys::ibv_inc_rkey((*mw).rkey);
                let bind = bind_of(universe, context, mw, rkey, &bind_info);
                (*mw).rkey = rkey;
                bind
            };
            let opcode = sys::IBV_WR_BIND_MW;
            let wr = SendWr { wr_id, opcode, send_flags, bind: Some(bind), ..SendWr::default() };
            universe.record(hca).sends.push(vec![wr]);
        }
        errno
    })
}
