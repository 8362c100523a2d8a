//! C's requests, built before.

use ibv::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};
use ibv::{MemoryRegion, Remote};
use ibv_bench_twins::sge_of;

/// Pointers to what is there for ever, and nobody else looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Requests {
    pub(super) write: *mut ibv_send_wr,
    pub(super) inline: *mut ibv_send_wr,
    /// 16, linked.
    pub(super) list: *mut ibv_send_wr,
    pub(super) recv: *mut ibv_recv_wr,
    /// 16, linked.
    pub(super) recv_list: *mut ibv_recv_wr,
    /// Room for 32 completions.
    pub(super) wcs: *mut ibv_wc,
}

fn leaked<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Links the requests of a list.
macro_rules! linked {
    ($request:expr) => {{
        let list = Box::leak(Box::new([$request; 16]));
        let first = list.as_mut_ptr();
        for (at, wr) in list.iter_mut().enumerate().take(15) {
            wr.next = first.wrapping_add(at + 1);
        }
        first
    }};
}

impl Requests {
    /// Of the first 64 bytes of `mr`, 8 bytes inline, to 1024 and into 2048.
    pub(super) fn new(mr: &MemoryRegion<'static, Remote>) -> Self {
        let region = mr.remote_region();
        let sge = sge_of(mr, 64);
        let bytes = Box::leak(Box::new([7u8; 8]));
        let inline = ibv_sge { addr: bytes.as_ptr().addr() as u64, length: 8, lkey: 0 };
        let landing = ibv_sge { addr: sge.addr + 2048, length: 256, ..sge };
        let wr = |sge: ibv_sge, flags: u32| {
            let mut wr = ibv_send_wr {
                sg_list: leaked(sge),
                num_sge: 1,
                opcode: IBV_WR_RDMA_WRITE,
                send_flags: IBV_SEND_SIGNALED | flags,
                ..Default::default()
            };
            wr.wr.rdma.remote_addr = region.addr + 1024;
            wr.wr.rdma.rkey = region.rkey;
            wr
        };
        let write = wr(sge, 0);
        let recv = ibv_recv_wr { sg_list: leaked(landing), num_sge: 1, ..Default::default() };
        Self {
            write: leaked(write),
            inline: leaked(wr(inline, IBV_SEND_INLINE)),
            list: linked!(write),
            recv: leaked(recv),
            recv_list: linked!(recv),
            wcs: leaked([ibv_wc::default(); 32]).cast(),
        }
    }
}
