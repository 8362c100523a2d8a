//! Data moves, through the stock libmlx5: each opcode of each transport.

use crate::common::*;
use ibv_sys::*;

#[test]
fn send_and_receive() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for kind in [RC, UC] {
        let p = Pair::new(&d, kind);
        for len in [0u32, 1, 31, 32, 33, 64, 100, 4096] {
            p.b.recv(1, &mut [p.mb.sge(0, 8192)]);
            p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(5, len)]));
            assert!(poll(p.ca).is_none() && poll(p.cb).is_none(), "nothing happens before a step");
            hca.step();
            let (s, r) = (one(p.ca), one(p.cb));
            assert_eq!((s.wr_id, s.opcode), (2, IBV_WC_SEND));
            assert_eq!((r.wr_id, r.opcode, r.byte_len), (1, IBV_WC_RECV, len));
            assert_eq!(p.b_bytes(0, len as usize), p.a_bytes(5, len as usize));
        }
        p.close();
    }
    d.close();
    assert_eq!(hca.take_violations().1, [""; 0]);
}

#[test]
fn send_with_immediate_and_scattered() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.b.recv(1, &mut [p.mb.sge(0, 10), p.mb.sge(100, 30), p.mb.sge(200, 500)]);
    let mut sges = [p.ma.sge(0, 7), p.ma.sge(1000, 0), p.ma.sge(2000, 90)];
    let mut w = wr(IBV_WR_SEND_WITH_IMM, 3, &mut sges);
    w.u1.imm_data = 0x1234_5678u32.to_be();
    p.a.send(w);
    hca.run_until_idle();
    one(p.ca);
    let r = one(p.cb);
    assert_eq!(r.byte_len, 97);
    assert_eq!(u32::from_be(imm(&r)), 0x1234_5678);
    assert_eq!(r.wc_flags & IBV_WC_WITH_IMM as u32, IBV_WC_WITH_IMM as u32);
    let sent = [p.a_bytes(0, 7), p.a_bytes(2000, 90)].concat();
    let got = [p.b_bytes(0, 10), p.b_bytes(100, 30), p.b_bytes(200, 57)].concat();
    assert_eq!(sent, got);
    p.close();
    d.close();
}

#[test]
fn inline_and_unsignaled_through_the_ring_several_times() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    for i in 0..200u32 {
        let len = i % 60 + 1;
        p.b.recv(u64::from(i), &mut [p.mb.sge(0, 4096)]);
        let mut sges = [p.ma.sge(i as usize, len)];
        let mut w = wr(IBV_WR_SEND, u64::from(i), &mut sges);
        w.send_flags = IBV_SEND_INLINE as _;
        if i % 4 == 3 {
            w.send_flags |= IBV_SEND_SIGNALED as u32;
        }
        p.a.send(w);
        hca.step();
        assert_eq!(poll(p.ca).map(|w| w.wr_id), (i % 4 == 3).then_some(u64::from(i)));
        let r = one(p.cb);
        assert_eq!((r.wr_id, r.byte_len), (u64::from(i), len));
        assert_eq!(p.b_bytes(0, len as usize), p.a_bytes(i as usize, len as usize));
    }
    p.close();
    d.close();
    assert_eq!(hca.take_violations().0, 0);
}

#[test]
fn rdma_write_and_read() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 3000)], p.mb.addr + 11, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(one(p.ca).opcode, IBV_WC_RDMA_WRITE);
    assert_eq!(p.b_bytes(11, 3000), p.a_bytes(0, 3000));
    assert!(poll(p.cb).is_none());

    p.b.recv(9, &mut []);
    let mut sges = [p.ma.sge(1, 2)];
    let mut w = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 2, &mut sges, p.mb.addr, p.mb.rkey());
    w.u1.imm_data = 77u32.to_be();
    p.a.send(w);
    hca.run_until_idle();
    one(p.ca);
    let r = one(p.cb);
    assert_eq!((r.wr_id, r.opcode, r.byte_len), (9, IBV_WC_RECV_RDMA_WITH_IMM, 2));
    assert_eq!(u32::from_be(imm(&r)), 77);

    p.a.send(rdma(
        IBV_WR_RDMA_READ,
        3,
        &mut [p.ma.sge(4000, 10), p.ma.sge(5000, 20)],
        p.mb.addr + 50,
        p.mb.rkey(),
    ));
    hca.run_until_idle();
    let r = one(p.ca);
    assert_eq!((r.opcode, r.byte_len), (IBV_WC_RDMA_READ, 30));
    assert_eq!([p.a_bytes(4000, 10), p.a_bytes(5000, 20)].concat(), p.b_bytes(50, 30));
    p.close();
    d.close();
}

#[test]
fn atomics_give_the_old_value() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for sig_all in [0, 1] {
        // With all requests signaled the answers come in the CQE (scatter-to-CQE of the requester).
        let (ca, cb) = (d.cq(64), d.cq(64));
        let a = d.qp_with(RC, ca, ca, std::ptr::null_mut(), sig_all, 16);
        let b = d.qp(RC, cb, cb);
        a.up(b.num, &d, &d, Path::default());
        b.up(a.num, &d, &d, Path::default());
        let mut mine = vec![0u8; 64];
        let mut far = vec![0u8; 64];
        let off = (8 - far.as_ptr().addr() % 8) % 8;
        let (ma, mb) = (d.mr(&mut mine, ALL), d.mr(&mut far, ALL));
        let at = mb.addr + off as u64;
        let word = |mem: &[u8], at| u64::from_ne_bytes(bytes(mem, at, 8).try_into().unwrap());
        let (old, now) = (|at| word(&mine, at), || word(&far, off));
        a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &mut [ma.sge(0, 8)], at, mb.rkey(), 5, 0));
        a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, &mut [ma.sge(8, 8)], at, mb.rkey(), 6, 0));
        a.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 3, &mut [ma.sge(16, 8)], at, mb.rkey(), 11, 99));
        a.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 4, &mut [ma.sge(24, 8)], at, mb.rkey(), 11, 1));
        hca.run_until_idle();
        assert_eq!(drain(ca), [(1, 0), (2, 0), (3, 0), (4, 0)]);
        assert_eq!((old(0), old(8), old(16), old(24), now()), (0, 5, 11, 99, 99));
        a.destroy();
        b.destroy();
        ma.dereg();
        mb.dereg();
        free_cq(ca);
        free_cq(cb);
    }
    d.close();
}

#[test]
fn datagrams_with_header() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, UD);
    let ah = d.ah(&d);
    p.b.recv(1, &mut [p.mb.sge(0, 4096 + 40)]);
    let mut sges = [p.ma.sge(3, 1000)];
    let mut w = wr(IBV_WR_SEND_WITH_IMM, 5, &mut sges);
    w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: p.b.num, remote_qkey: QKEY };
    w.u1.imm_data = 3u32.to_be();
    p.a.send(w);
    hca.run_until_idle();
    one(p.ca);
    let r = one(p.cb);
    assert_eq!((r.byte_len, r.src_qp, r.slid), (1040, p.a.num, d.port.lid));
    assert_eq!(p.b_bytes(40, 1000), p.a_bytes(3, 1000));
    // A wrong Q_Key, or a queue that isn't there: dropped, and yet sent.
    p.b.recv(2, &mut [p.mb.sge(0, 100)]);
    for (qpn, qkey) in [(p.b.num, QKEY + 1), (0xabcdef, QKEY)] {
        let mut sges = [p.ma.sge(0, 8)];
        let mut w = wr(IBV_WR_SEND, 6, &mut sges);
        w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: qpn, remote_qkey: qkey };
        p.a.send(w);
        hca.run_until_idle();
        one(p.ca);
        assert!(poll(p.cb).is_none());
    }
    free_ah(ah);
    p.close();
    d.close();
}

#[test]
fn shared_receive_queue_serves_in_order() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let srq = d.srq(32);
    let (ca, cb) = (d.cq(64), d.cq(64));
    let (a1, a2) = (d.qp(RC, ca, ca), d.qp(RC, ca, ca));
    let (b1, b2) = (d.qp_with(RC, cb, cb, srq, 0, 16), d.qp_with(RC, cb, cb, srq, 0, 16));
    for (x, y) in [(a1, b1), (a2, b2)] {
        x.up(y.num, &d, &d, Path::default());
        y.up(x.num, &d, &d, Path::default());
    }
    let mut mem = vec![1u8; 4096];
    let m = d.mr(&mut mem, ALL);
    for round in 0..20u64 {
        for i in 0..8 {
            assert_eq!(srq_recv(srq, round * 8 + i, &mut [m.sge(0, 256)]), 0);
        }
        for i in 0..4u64 {
            a1.send(wr(IBV_WR_SEND, i, &mut [m.sge(512, 50)]));
            hca.step();
            a2.send(wr(IBV_WR_SEND, i, &mut [m.sge(512, 10)]));
            hca.step();
        }
        let got: Vec<_> = std::iter::from_fn(|| poll(cb)).map(|w| (w.wr_id, w.qp_num)).collect();
        let want: Vec<_> =
            (0..8).map(|i| (round * 8 + i, if i % 2 == 0 { b1.num } else { b2.num })).collect();
        assert_eq!(got, want);
        assert_eq!(drain(ca).len(), 8);
    }
    for q in [a1, a2, b1, b2] {
        q.destroy();
    }
    free_srq(srq);
    m.dereg();
    free_cq(ca);
    free_cq(cb);
    d.close();
}
