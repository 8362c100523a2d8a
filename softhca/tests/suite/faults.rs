//! Faults that a test asks for: each happens as said, the same each time, and the device is as good as before then.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![expect(unsafe_code, reason = "C calls")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use super::ring::Ring;
use crate::common::*;
use ibv_sys::*;
use softhca::{Hca, Syndrome};
use std::ptr::null_mut;
use std::time::Duration;

const QP_FATAL: i32 = IBV_EVENT_QP_FATAL as i32;
const CQ_ERR: i32 = IBV_EVENT_CQ_ERR as i32;

/// How long `n` writes of a pair take, one after the other.
fn times(hca: &Hca, p: &Pair, n: u64) -> Vec<u64> {
    let run = |i| {
        let before = hca.now();
        p.a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [], p.mb.addr, p.mb.rkey()));
        hca.run_until_idle();
        assert_eq!(drain(p.ca), [(i, 0)]);
        u64::try_from((hca.now() - before).as_nanos()).unwrap()
    };
    (0..n).map(run).collect()
}

/// One timeout of a QP of the tests.
const TIMEOUT: u64 = 4096 << 14;

#[test]
fn lost_messages_are_repeated() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.drop_message(1);
    hca.drop_message(2);
    hca.drop_message(5);
    assert_eq!(times(&hca, &p, 4), [2 * TIMEOUT, 0, TIMEOUT, 0]);
    p.close();
    d.close();
}

/// What was executed is not executed again when it comes again, but answered.
#[test]
fn messages_whose_answer_is_lost_are_executed_once() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let word = p.mb.addr.next_multiple_of(8);
    let at = usize::try_from(word - p.mb.addr).unwrap();
    let now = || u64::from_ne_bytes(p.b_bytes(at, 8).try_into().unwrap());
    let old = || u64::from_ne_bytes(p.a_bytes(100, 8).try_into().unwrap());
    let repeated = |w| {
        hca.drop_answer(1);
        let before = hca.now();
        p.a.send(w);
        hca.run_until_idle();
        assert_eq!(one(p.ca).wr_id, 1);
        assert_eq!(hca.now() - before, Duration::from_nanos(TIMEOUT));
    };
    for i in 0..2 {
        p.b.recv(i, &mut [p.mb.sge(1000, 100)]);
    }
    repeated(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
    assert_eq!(drain(p.cb), [(0, 0)]);
    let mut into = [p.ma.sge(100, 8)];
    for (add, was) in [(5, 0), (6, 5)] {
        repeated(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &mut into, word, p.mb.rkey(), add, 0));
        assert_eq!((old(), now()), (was, was + add));
    }
    repeated(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 1, &mut into, word, p.mb.rkey(), 11, 12));
    assert_eq!((old(), now()), (11, 12));
    repeated(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 50)], p.mb.addr + 2000, p.mb.rkey()));
    repeated(rdma(IBV_WR_RDMA_READ, 1, &mut [p.ma.sge(3000, 50)], p.mb.addr + 2000, p.mb.rkey()));
    assert_eq!(p.a_bytes(3000, 50), p.a_bytes(0, 50));
    // Nothing is repeated where nothing is answered.
    let q = Pair::new(&d, UC);
    hca.drop_answer(1);
    assert_eq!(times(&hca, &q, 1), [0]);
    q.close();
    p.close();
    d.close();
}

#[test]
fn losses_by_chance_depend_on_the_seed_alone() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::with(&d, RC, Path { retry: 7, ..Path::default() }, ALL);
    let run = |seed| {
        hca.lose_messages(300_000, seed);
        let t = times(&hca, &p, 40);
        hca.lose_messages(0, 0);
        t
    };
    let first = run(5);
    let lost = first.iter().filter(|t| **t > 0).count();
    assert!((5..25).contains(&lost), "{lost} of 40");
    assert_eq!(run(5), first);
    assert_ne!(run(6), first);
    assert_eq!(times(&hca, &p, 10), [0; 10]);
    p.close();
    d.close();
}

#[test]
fn late_messages_keep_the_order() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.delay_message(1, Duration::from_millis(5));
    let before = hca.now();
    for i in 0..3 {
        p.a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [], p.mb.addr, p.mb.rkey()));
    }
    hca.step();
    assert!(poll(p.ca).is_none());
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(hca.now() - before, Duration::from_millis(5));
    p.close();
    d.close();
}

#[test]
fn a_slow_device_takes_its_time_for_each_message() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let (p, q) = (Pair::new(&d, RC), Pair::new(&d, UC));
    hca.slow_down(Duration::from_micros(20));
    assert_eq!(times(&hca, &p, 3), [20_000; 3]);
    assert_eq!(times(&hca, &q, 2), [20_000; 2]);
    // The messages of one queue one after the other, those of two queues at the same time.
    let before = hca.now();
    for x in [&p, &q] {
        for i in 0..4 {
            x.a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [], x.mb.addr, x.mb.rkey()));
        }
    }
    hca.run_until_idle();
    assert_eq!((drain(p.ca).len(), drain(q.ca).len()), (4, 4));
    assert_eq!(hca.now() - before, Duration::from_micros(80));
    hca.slow_down(Duration::ZERO);
    assert_eq!(times(&hca, &p, 2), [0; 2]);
    p.close();
    q.close();
    d.close();
}

#[test]
fn a_corrupt_message_differs_in_one_bit() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.corrupt_message(2);
    for i in 0..3 {
        p.b.recv(i, &mut [p.mb.sge(0, 100)]);
        p.a.send(wr(IBV_WR_SEND, i, &mut [p.ma.sge(0, 50)]));
        hca.step();
        one(p.ca);
        one(p.cb);
        let (sent, got) = (p.a_bytes(0, 50), p.b_bytes(0, 50));
        let wrong: u32 = sent.iter().zip(&got).map(|(s, g)| (s ^ g).count_ones()).sum();
        assert_eq!(wrong, u32::from(i == 1));
    }
    p.close();
    d.close();
}

#[test]
fn a_dead_link_is_told_and_loses_everything() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.set_link(0, false);
    hca.set_link(0, false);
    assert_eq!((d.event(), d.event()), (IBV_EVENT_PORT_ERR as i32, -1));
    assert_eq!(d.port_state(), IBV_PORT_DOWN);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [], p.mb.addr, p.mb.rkey()));
    hca.step();
    assert!(poll(p.ca).is_none());
    // It comes back in time.
    hca.set_link(0, true);
    assert_eq!((d.event(), d.event()), (IBV_EVENT_PORT_ACTIVE as i32, -1));
    assert_eq!(d.port_state(), IBV_PORT_ACTIVE);
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, 0)]);
    // It doesn't.
    hca.set_link(0, false);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 2, &mut [], p.mb.addr, p.mb.rkey()));
    let before = hca.now();
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(2, IBV_WC_RETRY_EXC_ERR)]);
    // The retries of the tests' paths: three.
    assert_eq!(hca.now() - before, Duration::from_nanos(4 * TIMEOUT));
    hca.set_link(0, true);
    while d.event() >= 0 {}
    p.close();
    d.close();
}

#[test]
fn every_syndrome_has_its_status() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    for (syndrome, status) in [
        (Syndrome::LocalLength, IBV_WC_LOC_LEN_ERR),
        (Syndrome::LocalQpOp, IBV_WC_LOC_QP_OP_ERR),
        (Syndrome::LocalProtection, IBV_WC_LOC_PROT_ERR),
        (Syndrome::Flushed, IBV_WC_WR_FLUSH_ERR),
        (Syndrome::MwBind, IBV_WC_MW_BIND_ERR),
        (Syndrome::BadResponse, IBV_WC_BAD_RESP_ERR),
        (Syndrome::LocalAccess, IBV_WC_LOC_ACCESS_ERR),
        (Syndrome::RemoteInvalidRequest, IBV_WC_REM_INV_REQ_ERR),
        (Syndrome::RemoteAccess, IBV_WC_REM_ACCESS_ERR),
        (Syndrome::RemoteOperation, IBV_WC_REM_OP_ERR),
        (Syndrome::RetryExceeded, IBV_WC_RETRY_EXC_ERR),
        (Syndrome::RnrRetryExceeded, IBV_WC_RNR_RETRY_EXC_ERR),
        (Syndrome::RemoteAborted, IBV_WC_REM_ABORT_ERR),
    ] {
        let p = Pair::new(&d, RC);
        hca.fail_next_completion(syndrome);
        for i in 0..2 {
            p.a.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [], p.mb.addr, p.mb.rkey()));
        }
        hca.run_until_idle();
        let said: Vec<_> = std::iter::from_fn(|| poll(p.ca)).collect();
        let ids: Vec<_> = said.iter().map(|w| (w.wr_id, w.status)).collect();
        assert_eq!(ids, [(0, status), (1, IBV_WC_WR_FLUSH_ERR)], "{syndrome:?}");
        assert_eq!(said[0].vendor_err, 0x80 | syndrome as u32);
        p.close();
    }
    d.close();
}

/// A request that makes no completion is none that could be an error.
#[test]
fn the_next_completion_is_that_of_a_signaled_request() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.fail_next_completion(Syndrome::RemoteOperation);
    for i in 0..4 {
        let mut w = rdma(IBV_WR_RDMA_WRITE, i, &mut [], p.mb.addr, p.mb.rkey());
        w.send_flags = if i == 2 { IBV_SEND_SIGNALED as _ } else { 0 };
        p.a.send(w);
    }
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(2, IBV_WC_REM_OP_ERR), (3, IBV_WC_WR_FLUSH_ERR)]);
    p.close();
    d.close();
}

#[test]
fn a_queue_pair_that_dies_can_be_used_again() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    p.b.recv(7, &mut [p.mb.sge(0, 8)]);
    hca.fail_qp(p.b.num);
    assert_eq!((d.event(), d.event()), (QP_FATAL, -1));
    assert_eq!((p.b.query().qp_state, drain(p.cb)), (IBV_QPS_ERR, vec![(7, IBV_WC_WR_FLUSH_ERR)]));
    hca.fail_qp(p.b.num);
    hca.fail_qp(0xffff);
    assert_eq!(d.event(), -1, "dead already, and not there");
    for (x, y) in [(p.a, p.b), (p.b, p.a)] {
        assert_eq!(x.to(IBV_QPS_RESET), 0);
        x.up(y.num, &d, &d, Path::default());
    }
    assert_eq!(times(&hca, &p, 3), [0; 3]);
    p.close();
    d.close();
}

#[test]
fn an_overrun_that_is_asked_for() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let (p, q) = (Pair::new(&d, RC), Pair::new(&d, RC));
    // Another queue pair on the queue that dies.
    let r = d.qp(RC, p.ca, p.ca);
    r.up(q.b.num, &d, &d, Path::default());
    let cqn = Ring::of(p.ca).number();
    assert_eq!(times(&hca, &p, 2), [0; 2]);
    hca.overrun_cq(cqn);
    assert_eq!(times(&hca, &q, 2), [0; 2], "it is another's");
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 9, &mut [], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!((d.event(), d.event(), d.event()), (CQ_ERR, QP_FATAL, -1));
    assert_eq!((drain(p.ca), p.a.query().qp_state), (vec![], IBV_QPS_ERR));
    // Nothing comes to the queue any more, and who uses it dies.
    r.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [], 0, 0));
    hca.run_until_idle();
    while d.event() >= 0 {}
    assert_eq!(drain(p.ca), []);
    r.destroy();
    p.close();
    // The number is used again at once, for a queue that lives.
    let again = Pair::new(&d, RC);
    assert!([Ring::of(again.ca).number(), Ring::of(again.cb).number()].contains(&cqn));
    assert_eq!(times(&hca, &again, 3), [0; 3]);
    again.close();
    q.close();
    d.close();
}

/// A session, whose n-th verb fails: every verb's failure is told, and leaves nothing behind.
#[test]
fn each_verb_can_fail() {
    let (_g, hca) = start();
    let nothing = hca.objects();
    // SAFETY: the context is open to the end, and only what was made, as was looked at, is used or given back: once, or
    // once more if that failed.
    let session = |n: u64| unsafe {
        let d = Dev::open(0);
        let mut mem = vec![0u8; 64];
        hca.fail_verb(n, libc::ENOMEM);
        let mut failed = 0u64;
        let mut told = |ok: bool| failed += u64::from(!ok);
        let ch = ibv_create_comp_channel(d.ctx);
        told(!ch.is_null());
        let cq = ibv_create_cq(d.ctx, 15, null_mut(), ch, 0);
        told(!cq.is_null());
        let mr = ibv_reg_mr(d.pd, mem.as_mut_ptr().cast(), 64, 1);
        told(!mr.is_null());
        let mw = ibv_alloc_mw(d.pd, IBV_MW_TYPE_2);
        told(!mw.is_null());
        let mut a = ibv_srq_init_attr::default();
        (a.attr.max_wr, a.attr.max_sge) = (4, 1);
        let srq = ibv_create_srq(d.pd, &mut a);
        told(!srq.is_null());
        let mut a = ibv_qp_init_attr::default();
        (a.qp_type, a.send_cq, a.recv_cq, a.cap.max_send_wr, a.cap.max_send_sge) = (RC, cq, cq, 4, 1);
        let qp = if cq.is_null() { null_mut() } else { ibv_create_qp(d.pd, &mut a) };
        told(!qp.is_null() || cq.is_null());
        if !qp.is_null() {
            let q = Qp { qp, num: (*qp).qp_num };
            let mut a = ibv_qp_attr::default();
            (a.qp_state, a.port_num) = (IBV_QPS_INIT, 1);
            let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
            told(q.modify(&mut a, mask) == 0);
            let mut i = ibv_qp_init_attr::default();
            told(ibv_query_qp(qp, &mut a, IBV_QP_STATE as _, &mut i) == 0);
        }
        let mut twice = |f: &dyn Fn() -> i32| {
            let rc = f();
            told(rc == 0);
            assert!(rc == 0 || f() == 0, "what failed to go away is still there, and goes then");
        };
        if !qp.is_null() {
            twice(&|| ibv_destroy_qp(qp));
        }
        if !srq.is_null() {
            twice(&|| ibv_destroy_srq(srq));
        }
        if !mw.is_null() {
            twice(&|| ibv_dealloc_mw(mw));
        }
        if !mr.is_null() {
            twice(&|| ibv_dereg_mr(mr));
        }
        if !cq.is_null() {
            twice(&|| ibv_destroy_cq(cq));
        }
        if !ch.is_null() {
            assert_eq!(ibv_destroy_comp_channel(ch), 0);
        }
        let mut left = hca.objects();
        (left.contexts, left.pds) = (left.contexts - 1, left.pds - 1);
        assert_eq!(left, nothing, "{n}");
        (d, failed)
    };
    let mut n = 1;
    loop {
        let (d, failed) = session(n);
        if failed == 0 {
            // The next call, which is another one's, fails in its stead.
            // SAFETY: it is there, and stays since this fails.
            assert_eq!(unsafe { ibv_dealloc_pd(d.pd) }, libc::ENOMEM);
            d.close();
            break;
        }
        assert_eq!(failed, 1, "{n}");
        d.close();
        n += 1;
    }
    // The first call after those of the session.
    assert!(n > 12, "{n} verbs");
    assert_eq!(hca.objects(), nothing);
}
