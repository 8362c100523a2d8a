//! Memory windows.

use super::{Dev, errno, wr};
use ibv_sys::*;

/// A window of the tests'.
#[derive(Clone, Copy)]
pub(crate) struct Window(pub(crate) *mut ibv_mw);

impl Window {
    pub(crate) fn new(d: &Dev, kind: u32) -> Self {
        // SAFETY: objects that the test holds (see the module above).
        let mw = unsafe { ibv_alloc_mw(d.pd, kind) };
        assert!(!mw.is_null(), "alloc_mw: errno {}", errno());
        Self(mw)
    }

    pub(crate) fn rkey(self) -> u32 {
        // SAFETY: objects that the test holds (see the module above).
        unsafe { (*self.0).rkey }
    }

    /// A signaled request that binds it, with this key.
    pub(crate) fn bind(self, id: u64, rkey: u32, bind_info: ibv_mw_bind_info) -> ibv_send_wr {
        let mut w = wr(IBV_WR_BIND_MW, id, &mut []);
        w.u2.bind_mw = ibv_send_wr_u2_bind_mw { mw: self.0, rkey, bind_info };
        w
    }

    pub(crate) fn dealloc(self) {
        // SAFETY: objects that the test holds (see the module above).
        assert_eq!(unsafe { ibv_dealloc_mw(self.0) }, 0);
    }
}

/// The key after `key`.
pub(crate) fn next_key(key: u32) -> u32 {
    // SAFETY: arithmetic.
    unsafe { ibv_inc_rkey(key) }
}

/// A signaled request that invalidates `key` here.
pub(crate) fn invalidate(id: u64, key: u32) -> ibv_send_wr {
    let mut w = wr(IBV_WR_LOCAL_INV, id, &mut []);
    w.u1.invalidate_rkey = key;
    w
}
