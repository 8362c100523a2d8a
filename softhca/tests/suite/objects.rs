//! Objects of most kinds: creation, queries, errnos, events, windows, XRC, multicast.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![expect(unsafe_code, reason = "C calls")]

use crate::common::channel::{Channel, notify};
use crate::common::window::{Window, invalidate, next_key};
use crate::common::*;
use ibv_sys::*;
use std::ptr::null_mut;

const EINVAL: i32 = libc::EINVAL;

#[test]
fn registrations_are_checked() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let mut mem = vec![0u8; 8192];
    let p = mem.as_mut_ptr();
    let reg = |addr: *mut u8, len: usize, access: u32| {
        // SAFETY: the domain is the test's. So is the memory, or it is refused.
        let m = unsafe { ibv_reg_mr(d.pd, addr.cast(), len, access as _) };
        if m.is_null() { Err(errno()) } else { Ok(m) }
    };
    assert_eq!(reg(p, 100, IBV_ACCESS_REMOTE_WRITE), Err(EINVAL));
    assert_eq!(reg(p, 100, IBV_ACCESS_REMOTE_ATOMIC), Err(EINVAL));
    assert_eq!(reg(p, 0, IBV_ACCESS_LOCAL_WRITE), Err(EINVAL));
    assert_eq!(reg(p, 100, IBV_ACCESS_ON_DEMAND), Err(libc::EOPNOTSUPP));
    assert_eq!(reg(std::ptr::without_provenance_mut(4096), 100, 1), Err(libc::EFAULT));
    let m = reg(p, 100, 0xf | IBV_ACCESS_RELAXED_ORDERING).unwrap();
    // SAFETY: the region is there until it is deregistered, and keeps the domain.
    unsafe {
        assert_eq!((*m).lkey, (*m).rkey);
        assert_eq!(ibv_dealloc_pd(d.pd), libc::EBUSY);
        let before = (*m).lkey;
        assert_eq!(ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS as _, null_mut(), null_mut(), 0, 1), 0);
        assert_eq!((*m).lkey, before);
        assert_eq!(ibv_dereg_mr(m), 0);
    }
    d.close();
}

#[test]
fn regions_of_two_gibibytes_and_more() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let count = ((1 << 31) + (1 << 20)) / 4096;
    let pages = Pages::new(count);
    let m = d.mr_at(pages.at, count * 4096, ALL);
    let far = m.addr + (1 << 31) + 100;
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 64)], far, m.rkey()));
    p.a.send(rdma(IBV_WR_RDMA_READ, 2, &mut [p.ma.sge(4096, 64)], far, m.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, 0), (2, 0)]);
    assert_eq!(p.a_bytes(0, 64), p.a_bytes(4096, 64));
    // A message longer than the device takes is a length error of the requester.
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 3, &mut [m.sge(0, (1 << 30) + 1)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(3, IBV_WC_LOC_LEN_ERR)]);
    m.dereg();
    pages.unmap(0, count);
    p.close();
    d.close();
}

#[test]
fn queues_refuse_what_is_out_of_range() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    // SAFETY: the context, the domain and, until `free_cq`, the queue are there; the attributes are of this function.
    unsafe {
        for n in [0, -1, 4_194_304] {
            assert!(ibv_create_cq(d.ctx, n, null_mut(), null_mut(), 0).is_null());
            assert_eq!(errno(), EINVAL);
        }
        assert!(ibv_create_cq(d.ctx, 1, null_mut(), null_mut(), 9).is_null());
        let cq = d.cq(5);
        assert!((*cq).cqe >= 5);
        let q = d.qp(RC, cq, cq);
        assert_eq!(ibv_destroy_cq(cq), libc::EBUSY);
        let mut a = ibv_qp_init_attr::default();
        (a.send_cq, a.recv_cq) = (cq, cq);
        for (kind, e) in [(IBV_QPT_RAW_PACKET, libc::EOPNOTSUPP), (77, EINVAL)] {
            a.qp_type = kind;
            a.cap = ibv_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            };
            assert!(ibv_create_qp(d.pd, &mut a).is_null());
            assert_eq!(errno(), e, "type {kind}");
        }
        a.qp_type = RC;
        a.cap.max_send_wr = 40_000;
        assert!(ibv_create_qp(d.pd, &mut a).is_null());
        q.destroy();
        free_cq(cq);
    }
    d.close();
}

#[test]
fn the_state_machine_refuses_what_is_illegal() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let cq = d.cq(8);
    let q = d.qp(RC, cq, cq);
    assert_eq!(q.to(IBV_QPS_RTS), EINVAL);
    assert_eq!(q.to(IBV_QPS_ERR), EINVAL);
    let mut a = ibv_qp_attr::default();
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 2;
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    assert_eq!(q.modify(&mut a, mask), EINVAL);
    a.port_num = 1;
    a.pkey_index = 5;
    assert_eq!(q.modify(&mut a, mask), EINVAL);
    a.pkey_index = 0;
    assert_eq!(q.modify(&mut a, mask & !IBV_QP_PORT), EINVAL);
    assert_eq!(q.modify(&mut a, mask | IBV_QP_QKEY), EINVAL);
    q.init(0xf);
    assert_eq!(q.query().qp_access_flags as u32, 0xf);
    q.rtr(9, &d, &d, Path::default());
    q.rts(Path::default());
    let a = q.query();
    assert_eq!((a.qp_state, a.dest_qp_num, a.timeout, a.retry_cnt, a.rnr_retry), (IBV_QPS_RTS, 9, 14, 3, 7));
    assert_eq!((a.rq_psn, a.sq_psn, a.path_mtu, a.min_rnr_timer), (7, 7, IBV_MTU_1024, 12));
    assert_eq!((a.ah_attr.dlid, a.port_num), (d.port.lid, 1));
    q.destroy();
    free_cq(cq);
    d.close();
}

#[test]
fn a_channel_tells_of_completions() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let ch = Channel::new(&d);
    let cq = d.cq_with(16, ch.0);
    assert_eq!(ch.destroy(), libc::EBUSY);
    let (a, b) = (d.qp(RC, cq, cq), d.qp(RC, cq, cq));
    a.up(b.num, &d, &d, Path::default());
    b.up(a.num, &d, &d, Path::default());
    let send = |solicited: bool| {
        let mut w = wr(IBV_WR_SEND, 1, &mut []);
        w.send_flags = if solicited { IBV_SEND_SOLICITED as u32 } else { 0 } as _;
        b.recv(2, &mut []);
        a.send(w);
        hca.step();
    };
    // Not armed: no event. Armed with a completion pending: one at once.
    send(false);
    assert!(!ch.ready());
    notify(cq, false);
    hca.step();
    assert!(ch.ready());
    assert_eq!(ch.take(), cq);
    assert_eq!(drain(cq).len(), 1);
    // Armed and empty: one event for the next completion, and only one.
    notify(cq, false);
    hca.step();
    assert!(!ch.ready());
    send(false);
    send(false);
    assert!(ch.ready());
    assert_eq!(ch.take(), cq);
    assert!(!ch.ready());
    assert_eq!(drain(cq).len(), 2);
    // Solicited only.
    notify(cq, true);
    hca.step();
    send(false);
    assert!(!ch.ready());
    send(true);
    assert!(ch.ready());
    // Destroying the CQ discards an event that nobody read.
    a.destroy();
    b.destroy();
    free_cq(cq);
    assert!(!ch.ready());
    assert_eq!(ch.destroy(), 0);
    d.close();
    assert_eq!(hca.take_violations().1, [""; 0]);
}

#[test]
fn a_cq_grows_and_shrinks_with_what_it_holds() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let write = |i| rdma(IBV_WR_RDMA_WRITE, i, &mut [], p.mb.addr, p.mb.rkey());
    for round in 0..6u64 {
        for i in 0..5 {
            p.a.send(write(round * 10 + i));
        }
        hca.run_until_idle();
        // SAFETY: the queue is the pair's.
        assert_eq!(unsafe { ibv_resize_cq(p.ca, if round % 2 == 0 { 200 } else { 40 }) }, 0);
        for i in 5..9 {
            p.a.send(write(round * 10 + i));
        }
        hca.run_until_idle();
        let want: Vec<_> = (0..9).map(|i| (round * 10 + i, 0)).collect();
        assert_eq!(drain(p.ca), want);
    }
    p.close();
    d.close();
}

#[test]
fn a_window_is_bound_used_and_invalidated() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for bad in [false, true] {
        let p = Pair::with(&d, RC, Path::default(), ALL | IBV_ACCESS_MW_BIND as i32);
        let mw = Window::new(&d, IBV_MW_TYPE_2);
        let rkey = next_key(mw.rkey());
        let len = if bad { 9000 } else { 64 };
        p.b.send(mw.bind(1, rkey, p.mb.part(100, len, IBV_ACCESS_REMOTE_WRITE)));
        hca.run_until_idle();
        if bad {
            assert_eq!(drain(p.cb), [(1, IBV_WC_MW_BIND_ERR)]);
        } else {
            assert_eq!(drain(p.cb), [(1, 0)]);
            let at = p.mb.addr + 100;
            p.a.send(rdma(IBV_WR_RDMA_WRITE, 2, &mut [p.ma.sge(0, 64)], at, rkey));
            hca.run_until_idle();
            assert_eq!(drain(p.ca), [(2, 0)]);
            assert_eq!(p.b_bytes(100, 64), p.a_bytes(0, 64));
            // A peer's send takes the window away.
            p.b.recv(3, &mut [p.mb.sge(0, 8)]);
            let mut w = wr(IBV_WR_SEND_WITH_INV, 4, &mut []);
            w.u1.invalidate_rkey = rkey;
            p.a.send(w);
            hca.run_until_idle();
            assert_eq!(drain(p.ca), [(4, 0)]);
            let r = one(p.cb);
            assert_eq!(invalidated(&r), rkey);
            assert_ne!(r.wc_flags & IBV_WC_WITH_INV as u32, 0);
            p.a.send(rdma(IBV_WR_RDMA_WRITE, 5, &mut [p.ma.sge(0, 1)], at, rkey));
            hca.run_until_idle();
            assert_eq!(drain(p.ca), [(5, IBV_WC_REM_ACCESS_ERR)]);
            d.event();
        }
        mw.dealloc();
        p.close();
    }
    d.close();
}

#[test]
fn local_invalidate_and_windows_of_type_one() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::with(&d, RC, Path::default(), ALL | IBV_ACCESS_MW_BIND as i32);
    let mw = Window::new(&d, IBV_MW_TYPE_2);
    let rkey = next_key(mw.rkey());
    p.b.send(mw.bind(1, rkey, p.mb.part(0, 64, IBV_ACCESS_REMOTE_READ)));
    p.b.send(invalidate(2, rkey));
    hca.run_until_idle();
    assert_eq!(drain(p.cb), [(1, 0), (2, 0)]);
    let one = Window::new(&d, IBV_MW_TYPE_1);
    let mut b = ibv_mw_bind::default();
    b.wr_id = 3;
    b.send_flags = IBV_SEND_SIGNALED as _;
    b.bind_info = p.mb.part(0, 64, IBV_ACCESS_REMOTE_WRITE);
    // SAFETY: queue pair, window and region are there, and `b` is of this function.
    assert_eq!(unsafe { ibv_bind_mw(p.b.qp, one.0, &mut b) }, 0);
    hca.run_until_idle();
    assert_eq!(drain(p.cb), [(3, 0)]);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 4, &mut [p.ma.sge(0, 8)], p.mb.addr, one.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(4, 0)]);
    one.dealloc();
    mw.dealloc();
    // A second invalidate of the same key fails.
    p.b.send(invalidate(5, rkey));
    hca.run_until_idle();
    assert_eq!(drain(p.cb), [(5, IBV_WC_MW_BIND_ERR)]);
    p.close();
    d.close();
}

#[test]
fn xrc_sends_to_the_srq_that_is_named() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    // SAFETY: the context, domains, queues and shared queues are there until they are given back below, and each is of
    // this context; the attributes are of this function, and name no descriptor.
    unsafe {
        let mut x = ibv_xrcd_init_attr::default();
        x.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        x.fd = -1;
        x.oflags = libc::O_CREAT;
        let xrcd = ibv_open_xrcd(d.ctx, &mut x);
        assert!(!xrcd.is_null(), "errno {}", errno());
        let (cs, cr) = (d.cq(16), d.cq(16));
        let srq = |cq| {
            let mut a = ibv_srq_init_attr_ex::default();
            a.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
            a.comp_mask =
                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD;
            a.srq_type = IBV_SRQT_XRC;
            (a.xrcd, a.cq, a.pd) = (xrcd, cq, d.pd);
            let s = ibv_create_srq_ex(d.ctx, &mut a);
            assert!(!s.is_null(), "errno {}", errno());
            let mut n = 0;
            assert_eq!(ibv_get_srq_num(s, &mut n), 0);
            (s, n)
        };
        let (s1, s2) = (srq(cr), srq(cr));
        let make = |kind| {
            let mut a = ibv_qp_init_attr_ex::default();
            a.qp_type = kind;
            a.cap = ibv_qp_cap {
                max_send_wr: 8,
                max_recv_wr: 0,
                max_send_sge: 1,
                max_recv_sge: 0,
                max_inline_data: 0,
            };
            if kind == IBV_QPT_XRC_RECV {
                a.cap = ibv_qp_cap::default();
                a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
                a.xrcd = xrcd;
            } else {
                a.comp_mask = IBV_QP_INIT_ATTR_PD;
                (a.pd, a.send_cq) = (d.pd, cs);
            }
            let q = ibv_create_qp_ex(d.ctx, &mut a);
            assert!(!q.is_null(), "errno {}", errno());
            Qp { qp: q, num: (*q).qp_num }
        };
        let (ini, tgt) = (make(IBV_QPT_XRC_SEND), make(IBV_QPT_XRC_RECV));
        ini.up(tgt.num, &d, &d, Path::default());
        tgt.up(ini.num, &d, &d, Path::default());
        let mut mem = vec![7u8; 4096];
        let m = d.mr(&mut mem, ALL);
        for (i, (s, n)) in [s2, s1, s2].into_iter().enumerate() {
            assert_eq!(srq_recv(s, 10 + i as u64, &mut [m.sge(1024, 64)]), 0);
            let mut sges = [m.sge(0, 33)];
            let mut w = wr(IBV_WR_SEND, i as u64, &mut sges);
            w.qp_type.xrc.remote_srqn = n;
            ini.send(w);
            hca.run_until_idle();
            assert_eq!(drain(cs), [(i as u64, 0)]);
            let r = one(cr);
            assert_eq!((r.wr_id, r.byte_len, r.qp_num), (10 + i as u64, 33, tgt.num));
        }
        ini.send({
            let mut w = rdma(IBV_WR_RDMA_WRITE, 9, &mut [m.sge(0, 8)], m.addr + 2048, m.rkey());
            w.qp_type.xrc.remote_srqn = s1.1;
            w
        });
        hca.run_until_idle();
        assert_eq!(drain(cs), [(9, 0)]);
        assert_eq!(ibv_close_xrcd(xrcd), libc::EBUSY);
        ini.destroy();
        tgt.destroy();
        free_srq(s1.0);
        free_srq(s2.0);
        assert_eq!(ibv_close_xrcd(xrcd), 0);
        m.dereg();
        free_cq(cs);
        free_cq(cr);
    }
    d.close();
}

#[test]
fn multicast_reaches_all_members() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let cq = d.cq(64);
    let cs = d.cq(16);
    let members: Vec<_> = (0..3).map(|_| d.qp(UD, cq, cq)).collect();
    let sender = d.qp(UD, cs, cs);
    let mut mem = vec![5u8; 8192];
    let m = d.mr(&mut mem, ALL);
    let mut gid = ibv_gid::default();
    gid.raw = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    for (i, q) in members.iter().enumerate() {
        q.up(0, &d, &d, Path::default());
        if i < 2 {
            // SAFETY: the queue pair is there, and the address of this function.
            assert_eq!(unsafe { ibv_attach_mcast(q.qp, &gid, 0xc001) }, 0);
        }
        q.recv(i as u64, &mut [m.sge(1024 * (i + 1), 100)]);
    }
    sender.up(0, &d, &d, Path::default());
    let mut a = ibv_ah_attr::default();
    a.port_num = 1;
    a.is_global = 1;
    a.dlid = 0xc001;
    a.grh.dgid = gid;
    // SAFETY: the domain is there, and the attributes are of this function.
    let ah = unsafe { ibv_create_ah(d.pd, &mut a) };
    let mut sges = [m.sge(0, 20)];
    let mut w = wr(IBV_WR_SEND, 9, &mut sges);
    w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: 0xff_ffff, remote_qkey: QKEY };
    sender.send(w);
    hca.run_until_idle();
    one(cs);
    let mut got = drain(cq);
    got.sort();
    assert_eq!(got, [(0, 0), (1, 0)]);
    // SAFETY: the queue pairs are there: a member can't be destroyed.
    unsafe {
        assert_eq!(ibv_destroy_qp(members[0].qp), libc::EBUSY);
        for q in &members[..2] {
            assert_eq!(ibv_detach_mcast(q.qp, &gid, 0xc001), 0);
        }
        assert_eq!(ibv_detach_mcast(members[0].qp, &gid, 0xc001), EINVAL);
    }
    free_ah(ah);
    for q in members {
        q.destroy();
    }
    sender.destroy();
    m.dereg();
    free_cq(cq);
    free_cq(cs);
    d.close();
}
