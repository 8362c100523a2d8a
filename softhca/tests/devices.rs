//! Several devices, of a configuration of one's own, and the log.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

mod common;

use common::*;
use ibv_sys::*;
use softhca::{Config, Device, Gid, GidKind, Hca, Link};
use std::sync::MutexGuard;

const MODE: softhca::Mode = softhca::Mode::Manual;

/// Two InfiniBand devices (one with a P_Key table), two RoCE devices.
fn devices() -> (MutexGuard<'static, ()>, Hca) {
    let ib = Device::new(Link::InfiniBand).guid(0x1122_3344_5566_7788).pkeys(&[0xffff, 0x8001, 0x0001]);
    let small = Device::new(Link::InfiniBand).name("small").mtu(1024);
    let raw = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    let roce = Device::new(Link::RoCE);
    let gid = |kind| Gid { raw, kind };
    let custom = Device::new(Link::RoCE).gid(gid(GidKind::RoCEv1)).gid(gid(GidKind::RoCEv2));
    let config = Config::new().device(ib).device(small).device(roce).device(custom);
    start_with(config)
}

fn connected(x: &Dev, y: &Dev) -> (Qp, Qp, *mut ibv_cq) {
    let (cx, cy) = (x.cq(16), y.cq(16));
    let (a, b) = (x.qp(RC, cx, cx), y.qp(RC, cy, cy));
    a.up(b.num, x, y, Path::default());
    b.up(a.num, y, x, Path::default());
    (a, b, cx)
}

#[test]
fn devices_are_as_configured() {
    let (_g, _hca) = devices();
    let all: Vec<_> = (0..4).map(Dev::open).collect();
    let lids: Vec<_> = all.iter().map(|d| d.port.lid).collect();
    assert_eq!(lids, [1, 2, 0, 0]);
    assert_eq!(all.iter().map(|d| d.port.active_mtu).collect::<Vec<_>>(), [5, 3, 5, 5]);
    assert_eq!(name(&all[0]), ("mlx5_0".to_owned(), 0x1122_3344_5566_7788));
    assert_eq!(name(&all[1]).0, "small");
    assert_eq!((pkey(&all[0], 1), pkey(&all[0], 2)), (Some(0x8001), Some(1)));
    assert_eq!((pkey(&all[0], 3), pkey(&all[1], 1)), (None, None));
    for d in all {
        d.close();
    }
}

#[expect(unsafe_code, reason = "C calls")]
fn name(d: &Dev) -> (String, u64) {
    // SAFETY: an open device.
    unsafe {
        let dev = (*d.ctx).device;
        let name = std::ffi::CStr::from_ptr(ibv_get_device_name(dev)).to_str().unwrap().to_owned();
        (name, u64::from_be(ibv_get_device_guid(dev)))
    }
}

#[expect(unsafe_code, reason = "C calls")]
fn pkey(d: &Dev, i: i32) -> Option<u16> {
    let mut v = 0;
    // SAFETY: an open device, and room for the answer.
    (unsafe { ibv_query_pkey(d.ctx, 1, i, &mut v) } == 0).then(|| u16::from_be(v))
}

#[test]
fn ports_of_one_link_layer_reach_each_other() {
    let (_g, hca) = devices();
    for (i, j, reach) in [(0, 1, true), (1, 0, true), (2, 3, true), (3, 2, true), (3, 3, true)] {
        let (x, y) = (Dev::open(i), Dev::open(j));
        let (a, b, cq) = connected(&x, &y);
        let (mut from, mut to) = (vec![9u8; 100], vec![0u8; 100]);
        let (mx, my) = (x.mr(&mut from, ALL), y.mr(&mut to, ALL));
        a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [mx.sge(0, 100)], my.addr, my.rkey()));
        hca.run_until_idle();
        let status = drain(cq);
        assert_eq!(status == [(1, IBV_WC_SUCCESS)], reach, "{i} to {j}: {status:?}");
        a.destroy();
        b.destroy();
        mx.dereg();
        my.dereg();
    }
}

#[test]
fn a_region_of_one_device_is_unknown_to_another() {
    let (_g, hca) = devices();
    let (x, y) = (Dev::open(0), Dev::open(1));
    let (a, _b, cq) = connected(&x, &y);
    let mut mem = vec![0u8; 100];
    let m = x.mr(&mut mem, ALL);
    // Registered on x, named to y.
    a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [m.sge(0, 8)], m.addr, m.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(cq), [(1, IBV_WC_REM_ACCESS_ERR)]);
}

#[test]
#[expect(unsafe_code, reason = "C calls")]
fn partitions_keep_queues_apart() {
    let (_g, hca) = devices();
    let d = Dev::open(0);
    // (index of one side, of the other, whether they talk): full with limited, limited with limited, others.
    for (i, j, talk) in [(1, 1, true), (1, 2, true), (2, 2, false), (0, 1, false)] {
        let cq = d.cq(16);
        let (a, b) = (d.qp(RC, cq, cq), d.qp(RC, cq, cq));
        for (q, pkey) in [(a, i), (b, j)] {
            // SAFETY: integers only.
            let mut x: ibv_qp_attr = unsafe { std::mem::zeroed() };
            x.qp_state = IBV_QPS_INIT;
            x.port_num = 1;
            x.pkey_index = pkey;
            x.qp_access_flags = 0xf;
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            assert_eq!(q.modify(&mut x, mask), 0);
        }
        a.rtr(b.num, &d, &d, Path::default());
        b.rtr(a.num, &d, &d, Path::default());
        a.rts(Path::default());
        a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [], 0, 0));
        hca.run_until_idle();
        let want = if talk { IBV_WC_SUCCESS } else { IBV_WC_RETRY_EXC_ERR };
        assert_eq!(drain(cq), [(1, want)], "{i} {j}");
        a.destroy();
        b.destroy();
        free_cq(cq);
    }
    d.close();
}
