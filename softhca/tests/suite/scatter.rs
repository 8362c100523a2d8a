//! Scatter-to-CQE: short data comes in the completion itself, and libmlx5 takes it from there.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![expect(unsafe_code, reason = "C calls")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use super::ring::{Ring, create};
use crate::common::*;
use ibv_sys::*;
use std::ptr::null_mut;

/// A QP with a scatter policy of its own (0: as usual).
fn qp(d: &Dev, cq: *mut ibv_cq, sig_all: i32, create_flags: u32) -> Qp {
    let mut a = ibv_qp_init_attr_ex::default();
    a.qp_type = RC;
    a.send_cq = cq;
    a.recv_cq = cq;
    a.sq_sig_all = sig_all;
    a.cap =
        ibv_qp_cap { max_send_wr: 16, max_recv_wr: 16, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 0 };
    a.comp_mask = IBV_QP_INIT_ATTR_PD as _;
    a.pd = d.pd;
    let mut m = mlx5dv_qp_init_attr::default();
    m.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS as _;
    m.create_flags = create_flags;
    // SAFETY: domain and queue are the test's, and the attributes of this function.
    unsafe {
        let qp = mlx5dv_create_qp(d.ctx, &mut a, &mut m);
        assert!(!qp.is_null(), "errno {}", errno());
        Qp { qp, num: (*qp).qp_num }
    }
}

#[test]
fn received_data_of_32_or_64_bytes_comes_in_the_entry() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem: Vec<u8> = (0..4096).map(|i| (i % 241) as u8).collect();
    let m = d.mr(&mut mem, ALL);
    for (kind, size, room, format) in [(RC, 64, 32, 1), (RC, 128, 64, 2), (UC, 64, 32, 1), (UC, 128, 64, 2)] {
        for shared in [false, true] {
            let cq = create(&d, 63, size, None, null_mut());
            let ring = Ring::of(cq);
            let srq = if shared { d.srq(16) } else { null_mut() };
            let (x, y) = (d.qp(kind, cq, cq), d.qp_with(kind, cq, cq, srq, 0, 16));
            x.up(y.num, &d, &d, Path::default());
            y.up(x.num, &d, &d, Path::default());
            for (i, len) in [0u32, 1, 31, 32, 33, 63, 64, 65, 500].into_iter().enumerate() {
                let mut sges = [m.sge(2000, 7), m.sge(3000, 600)];
                if shared {
                    assert_eq!(srq_recv(srq, 1, &mut sges), 0);
                } else {
                    y.recv(1, &mut sges);
                }
                x.send(wr(IBV_WR_SEND, 2, &mut [m.sge(len as usize, len)]));
                hca.step();
                // The receiver's entry comes first.
                let inside = len > 0 && len <= room;
                assert_eq!(ring.format(2 * i as u32), if inside { format } else { 0 }, "{size} {len}");
                let mut got = drain(cq);
                got.sort();
                assert_eq!(got, [(1, 0), (2, 0)]);
                let n = len as usize;
                let arrived = [bytes(&mem, 2000, n.min(7)), bytes(&mem, 3000, n.saturating_sub(7))].concat();
                assert_eq!(arrived, bytes(&mem, n, n), "{size} {len}");
            }
            x.destroy();
            y.destroy();
            if shared {
                free_srq(srq);
            }
            free_cq(cq);
        }
    }
    m.dereg();
    d.close();
}

/// With all requests signaled, or if the program allows it, and not if it forbids it.
#[test]
fn answers_of_32_or_64_bytes_come_in_the_entry() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem: Vec<u8> = (0..4096).map(|i| (i % 241) as u8).collect();
    let m = d.mr(&mut mem, ALL);
    let (allow, forbid) =
        (MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE as u32, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE as u32);
    for (size, room, format) in [(64, 32, 1), (128, 64, 2)] {
        for (sig_all, flags, scatters) in [(0, 0, false), (1, 0, true), (0, allow, true), (1, forbid, false)]
        {
            let cq = create(&d, 63, size, None, null_mut());
            let ring = Ring::of(cq);
            let (x, y) = (qp(&d, cq, sig_all, flags), d.qp(RC, cq, cq));
            x.up(y.num, &d, &d, Path::default());
            y.up(x.num, &d, &d, Path::default());
            // libmlx5 44 takes data of 64 bytes from one byte before the entry (mended in later versions): not of the
            // first, before which there is nothing.
            x.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [m.sge(0, 1)], m.addr, m.rkey()));
            hca.step();
            assert_eq!(drain(cq), [(1, 0)]);
            for (i, len) in (1u32..).zip([1u32, 8, 32, 33, 64, 65]) {
                let n = len as usize;
                let want = bytes(&mem, 100 + n, n);
                let mut sges = [m.sge(1000, 3.min(len)), m.sge(2000, len.saturating_sub(3).max(1))];
                let count = if len > 3 { 2 } else { 1 };
                x.send(rdma(IBV_WR_RDMA_READ, 3, &mut sges[..count], m.addr + 100 + n as u64, m.rkey()));
                hca.step();
                let inside = scatters && len <= room;
                assert_eq!(ring.format(i), if inside { format } else { 0 }, "{size} {len}");
                if inside && size == 128 {
                    assert_eq!(ring.extra(i)[..n], want);
                    assert_eq!(drain(cq), [(3, 0)]);
                    continue;
                }
                assert_eq!(drain(cq), [(3, 0)]);
                let arrived = [bytes(&mem, 1000, n.min(3)), bytes(&mem, 2000, n.saturating_sub(3))].concat();
                assert_eq!(arrived, want, "{size} {len}");
            }
            let before = mem.as_ptr().addr() % 8;
            let word = m.addr + 8 - before as u64 + 200;
            let old = bytes(&mem, 8 - before + 200, 8);
            x.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 4, &mut [m.sge(1000, 8)], word, m.rkey(), 1, 0));
            hca.step();
            assert_eq!(ring.format(7), if scatters { format } else { 0 });
            assert_eq!(drain(cq), [(4, 0)]);
            if scatters && size == 128 {
                assert_eq!(ring.extra(7)[..8], old);
            } else {
                assert_eq!(bytes(&mem, 1000, 8), old);
            }
            x.destroy();
            y.destroy();
            free_cq(cq);
        }
    }
    m.dereg();
    d.close();
}
