//! Each error status that a requester or responder can report, provoked through the stock libmlx5.

use crate::common::*;
use ibv_sys::*;
use std::time::Duration;

const EVENT_QP_FATAL: i32 = 1;
const EVENT_QP_REQ_ERR: i32 = 2;
const EVENT_QP_ACCESS_ERR: i32 = 3;
const EVENT_COMM_EST: i32 = 4;
const EVENT_SQ_DRAINED: i32 = 5;
const EVENT_SRQ_LIMIT: i32 = 15;
const EVENT_LAST_WQE: i32 = 16;

fn state(q: &Qp) -> u32 {
    q.query().qp_state
}

#[test]
fn local_length_and_remote_invalid_request() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.b.recv(1, &mut [p.mb.sge(0, 10)]);
    p.b.recv(2, &mut [p.mb.sge(0, 10)]);
    p.a.send(wr(IBV_WR_SEND, 3, &mut [p.ma.sge(0, 11)]));
    p.a.send(wr(IBV_WR_SEND, 4, &mut [p.ma.sge(0, 1)]));
    hca.run_until_idle();
    assert_eq!(drain(p.cb), [(1, IBV_WC_LOC_LEN_ERR), (2, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(drain(p.ca), [(3, IBV_WC_REM_INV_REQ_ERR), (4, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!((state(&p.a), state(&p.b)), (IBV_QPS_ERR, IBV_QPS_ERR));
    p.close();
    d.close();
}

#[test]
fn local_protection() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for case in 0..4 {
        let p = Pair::new(&d, RC);
        let mut s = p.ma.sge(0, 8);
        match case {
            0 => s.lkey ^= 1,
            1 => s.length = 8193,
            2 => s.addr -= 1,
            _ => s.lkey = 0,
        }
        p.a.send(wr(IBV_WR_RDMA_WRITE, 1, &mut [s]));
        p.a.send(wr(IBV_WR_SEND, 2, &mut []));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)], "case {case}");
        assert_eq!(state(&p.b), IBV_QPS_RTS);
        p.close();
    }
    d.close();
}

#[test]
fn a_read_needs_local_write() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let mut mem = vec![0u8; 64];
    let m = d.mr(&mut mem, 0);
    p.a.send(rdma(IBV_WR_RDMA_READ, 1, &mut [m.sge(0, 8)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_LOC_PROT_ERR)]);
    m.dereg();
    p.close();
    d.close();
}

#[test]
fn receive_protection_and_remote_operation() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let mut s = p.mb.sge(0, 100);
    s.lkey ^= 0x55;
    p.b.recv(1, &mut [s]);
    p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(0, 11)]));
    hca.run_until_idle();
    assert_eq!(drain(p.cb), [(1, IBV_WC_LOC_PROT_ERR)]);
    assert_eq!(drain(p.ca), [(2, IBV_WC_REM_OP_ERR)]);
    p.close();
    d.close();
}

#[test]
fn remote_access() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    // Wrong key, out of bounds, right missing in the QP, right missing in the region.
    for case in 0..5 {
        let path = Path { access: if case == 3 { 1 } else { 0xf }, ..Path::default() };
        let p = Pair::with(&d, RC, path, if case == 4 { LOCAL_WRITE } else { ALL });
        let (mut addr, mut key, mut op) = (p.mb.addr, p.mb.rkey(), IBV_WR_RDMA_WRITE);
        match case {
            0 => key ^= 1,
            1 => addr += 8185,
            2 => (addr, op) = (addr - 8, IBV_WR_RDMA_READ),
            _ => {}
        }
        p.a.send(rdma(op, 1, &mut [p.ma.sge(0, 8)], addr, key));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(1, IBV_WC_REM_ACCESS_ERR)], "case {case}");
        assert_eq!(state(&p.b), IBV_QPS_ERR);
        assert_eq!(d.event(), EVENT_QP_ACCESS_ERR);
        p.close();
    }
    d.close();
}

/// Keys of another domain: of a send's memory, a receive's, and a peer's.
#[test]
fn a_key_of_another_domain_is_no_key() {
    let (_g, hca) = start();
    let (d, other) = (Dev::open(0), Dev::open(0));
    let mut mem = vec![0u8; 64];
    let foreign = other.mr(&mut mem, ALL);
    let p = Pair::new(&d, RC);
    p.a.send(wr(IBV_WR_SEND, 1, &mut [foreign.sge(0, 8)]));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_LOC_PROT_ERR)]);
    p.close();
    let p = Pair::new(&d, RC);
    p.b.recv(1, &mut [foreign.sge(0, 64)]);
    p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(0, 40)]));
    hca.run_until_idle();
    assert_eq!((drain(p.ca), drain(p.cb)), (vec![(2, IBV_WC_REM_OP_ERR)], vec![(1, IBV_WC_LOC_PROT_ERR)]));
    p.close();
    for op in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
        let p = Pair::new(&d, RC);
        p.a.send(rdma(op, 1, &mut [p.ma.sge(0, 8)], foreign.addr, foreign.rkey()));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(1, IBV_WC_REM_ACCESS_ERR)]);
        assert_eq!(d.event(), EVENT_QP_ACCESS_ERR);
        p.close();
    }
    while d.event() >= 0 {}
    foreign.dereg();
    other.close();
    d.close();
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let at = (p.mb.addr + 8) / 8 * 8 + 4;
    p.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &mut [p.ma.sge(0, 8)], at, p.mb.rkey(), 1, 0));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_REM_INV_REQ_ERR)]);
    assert_eq!(d.event(), EVENT_QP_REQ_ERR);
    p.close();
    d.close();
}

#[test]
fn local_qp_operation() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    // UC has no reads; the queue stops sending but goes on receiving.
    let p = Pair::new(&d, UC);
    p.a.send(rdma(IBV_WR_RDMA_READ, 1, &mut [p.ma.sge(0, 8)], p.mb.addr, p.mb.rkey()));
    p.a.send(wr(IBV_WR_SEND, 2, &mut []));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_LOC_QP_OP_ERR), (2, IBV_WC_WR_FLUSH_ERR)]);
    assert_eq!(state(&p.a), IBV_QPS_SQE);
    assert_eq!(p.a.to(IBV_QPS_RTS), 0);
    p.b.recv(7, &mut []);
    p.a.send(wr(IBV_WR_SEND, 3, &mut []));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(3, 0)]);
    assert_eq!(drain(p.cb), [(7, 0)]);
    p.close();
    d.close();
}

/// A length's top bit means inline data to the device, of which a WQE has what it has room for.
#[test]
fn inline_data_beyond_the_request() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for (len, status) in [(1 << 31, IBV_WC_SUCCESS), (1 << 31 | 64, IBV_WC_LOC_QP_OP_ERR)] {
        let p = Pair::new(&d, RC);
        p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, len)], p.mb.addr, p.mb.rkey()));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(1, status)], "{len:#x}");
        p.close();
    }
    d.close();
}

#[test]
fn too_long_for_a_datagram() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, UD);
    let ah = d.ah(&d);
    let mut sges = [p.ma.sge(0, 4097)];
    let mut w = wr(IBV_WR_SEND, 1, &mut sges);
    w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: p.b.num, remote_qkey: QKEY };
    p.a.send(w);
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_LOC_LEN_ERR)]);
    free_ah(ah);
    p.close();
    d.close();
}

#[test]
fn retry_exceeded_in_virtual_time() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let path = Path { timeout: 14, retry: 3, ..Path::default() };
    let p = Pair::with(&d, RC, path, ALL);
    assert_eq!(p.b.to(IBV_QPS_RESET), 0);
    let before = hca.now();
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 8)]));
    hca.step();
    assert!(poll(p.ca).is_none());
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_RETRY_EXC_ERR)]);
    // Four transmissions of 4.096 µs · 2^14 each.
    assert_eq!(hca.now() - before, Duration::from_nanos(4 * (4096 << 14)));
    p.close();
    d.close();
}

#[test]
fn wrong_psn_is_never_answered() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let path = Path { sq_psn: 100, rq_psn: 50, ..Path::default() };
    let p = Pair::with(&d, RC, path, ALL);
    p.b.recv(1, &mut [p.mb.sge(0, 10)]);
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 8)]));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_RETRY_EXC_ERR)]);
    assert!(poll(p.cb).is_none());
    p.close();
    d.close();
}

#[test]
fn rnr_retry_exceeded_and_rnr_overcome() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::with(&d, RC, Path { rnr_retry: 2, ..Path::default() }, ALL);
    let before = hca.now();
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 8)]));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_RNR_RETRY_EXC_ERR)]);
    // Two waits of code 12: 0.64 ms.
    assert_eq!(hca.now() - before, Duration::from_micros(2 * 640));
    p.close();

    let p = Pair::new(&d, RC);
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 8)]));
    // Retries for ever, and yet this ends.
    hca.run_until_idle();
    assert!(poll(p.ca).is_none());
    p.b.recv(2, &mut [p.mb.sge(0, 8)]);
    hca.run_until_idle();
    one(p.ca);
    one(p.cb);
    p.close();
    d.close();
}

#[test]
fn flush_keeps_order_and_takes_later_posts() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    for i in 0..5 {
        p.a.recv(10 + i, &mut [p.ma.sge(0, 8)]);
    }
    for i in 0..3 {
        let mut s = [p.ma.sge(0, 8)];
        let mut w = wr(IBV_WR_SEND, i, &mut s);
        w.send_flags = 0;
        p.a.send(w);
    }
    assert_eq!(p.a.to(IBV_QPS_ERR), 0);
    let got = drain(p.ca);
    let want: Vec<_> = [0, 1, 2, 10, 11, 12, 13, 14].map(|i| (i, IBV_WC_WR_FLUSH_ERR)).to_vec();
    assert_eq!(got, want);
    p.a.send(wr(IBV_WR_SEND, 20, &mut []));
    p.a.recv(21, &mut []);
    hca.run_until_idle();
    let mut got = drain(p.ca);
    got.sort();
    assert_eq!(got, [(20, IBV_WC_WR_FLUSH_ERR), (21, IBV_WC_WR_FLUSH_ERR)]);
    p.close();
    d.close();
}

#[test]
fn reset_and_use_again() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    for _ in 0..5 {
        p.b.recv(1, &mut [p.mb.sge(0, 8)]);
        p.b.recv(2, &mut [p.mb.sge(0, 8)]);
        p.a.send(wr(IBV_WR_SEND, 3, &mut [p.ma.sge(0, 8)]));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(3, 0)]);
        assert_eq!(drain(p.cb), [(1, 0)]);
        for (x, y) in [(p.a, p.b), (p.b, p.a)] {
            assert_eq!(x.to(IBV_QPS_RESET), 0);
            assert_eq!(x.to(IBV_QPS_ERR), libc_einval());
            x.up(y.num, &d, &d, Path::default());
        }
        // What was posted before is forgotten.
        hca.run_until_idle();
        assert!(poll(p.cb).is_none());
    }
    p.close();
    d.close();
    assert_eq!(hca.take_violations().0, 0);
}

fn libc_einval() -> i32 {
    22
}

#[test]
fn draining() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    // A send that waits for a receive is outstanding while the queue drains.
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 8)]));
    hca.step();
    let mut a = p.a.query();
    a.qp_state = IBV_QPS_SQD;
    a.en_sqd_async_notify = 1;
    assert_eq!(p.a.modify(&mut a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    assert_eq!(p.a.query().sq_draining, 1);
    assert_eq!(d.event(), -1);
    p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(0, 8)]));
    p.b.recv(3, &mut [p.mb.sge(0, 8)]);
    p.b.recv(4, &mut [p.mb.sge(0, 8)]);
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, 0)]);
    assert_eq!(d.event(), EVENT_SQ_DRAINED);
    assert_eq!(p.a.query().sq_draining, 0);
    assert_eq!(p.a.to(IBV_QPS_RTS), 0);
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(2, 0)]);
    p.close();
    d.close();
}

#[test]
fn communication_established_and_last_wqe() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let srq = d.srq(8);
    let (ca, cb) = (d.cq(16), d.cq(16));
    let a = d.qp(RC, ca, ca);
    let b = d.qp_with(RC, cb, cb, srq, 0, 8);
    a.up(b.num, &d, &d, Path::default());
    b.init(0xf);
    b.rtr(a.num, &d, &d, Path::default());
    let mut mem = vec![0u8; 64];
    let m = d.mr(&mut mem, ALL);
    let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 2 };
    assert_eq!(modify_srq(srq, &mut limit), 0);
    for i in 0..3 {
        assert_eq!(srq_recv(srq, i, &mut [m.sge(0, 8)]), 0);
    }
    for i in 0..2 {
        a.send(wr(IBV_WR_SEND, i, &mut [m.sge(0, 8)]));
        hca.run_until_idle();
        assert_eq!(drain(cb), [(i, 0)]);
        // Two are left, then one: fewer than the limit.
        assert_eq!(d.event(), [EVENT_COMM_EST, EVENT_SRQ_LIMIT][i as usize]);
        assert_eq!(d.event(), -1);
    }
    assert_eq!(query_srq(srq).srq_limit, 0);
    b.rts(Path::default());
    assert_eq!(b.to(IBV_QPS_ERR), 0);
    assert_eq!(d.event(), EVENT_LAST_WQE);
    assert_eq!(d.event(), -1);
    a.destroy();
    b.destroy();
    free_srq(srq);
    free_cq(ca);
    free_cq(cb);
    m.dereg();
    d.close();
}

#[expect(unsafe_code, reason = "C calls")]
fn modify_srq(s: *mut ibv_srq, a: &mut ibv_srq_attr) -> i32 {
    // SAFETY: made by the test.
    unsafe { ibv_modify_srq(s, a, IBV_SRQ_LIMIT as _) }
}

#[expect(unsafe_code, reason = "C calls")]
fn query_srq(s: *mut ibv_srq) -> ibv_srq_attr {
    let mut a = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 9 };
    // SAFETY: made by the test.
    assert_eq!(unsafe { ibv_query_srq(s, &mut a) }, 0);
    a
}

#[test]
fn an_overrun_kills_queue_and_pair() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let small = d.cq(3);
    let cb = d.cq(64);
    let (a, b) = (d.qp(RC, small, small), d.qp(RC, cb, cb));
    a.up(b.num, &d, &d, Path::default());
    b.up(a.num, &d, &d, Path::default());
    let mut mem = vec![0u8; 64];
    let m = d.mr(&mut mem, ALL);
    for i in 0..6 {
        a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [m.sge(0, 8)], m.addr, m.rkey()));
    }
    hca.run_until_idle();
    const CQ_ERR: i32 = 0;
    assert_eq!(d.event(), CQ_ERR);
    assert_eq!(d.event(), EVENT_QP_FATAL);
    assert_eq!(state(&a), IBV_QPS_ERR);
    assert_eq!(drain(small), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    a.destroy();
    b.destroy();
    free_cq(small);
    free_cq(cb);
    m.dereg();
    d.close();
}
