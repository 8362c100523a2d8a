//! The log of a short session, as a whole: each verb, doorbell, WQE and CQE is a line that can be read.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]
#![expect(unsafe_code, reason = "C calls")]

mod common;

use common::window::{Window, invalidate, next_key};
use common::*;
use ibv_sys::*;
use softhca::{Config, Hca, LogTarget};

const MODE: softhca::Mode = softhca::Mode::Manual;

/// The lines, with addresses as offsets into `mem` (and others as `?`).
fn lines(hca: &Hca, mem: &[(char, u64)]) -> String {
    let address = |word: &str| {
        let at = u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().filter(|a| *a > 0xffff_ffff)?;
        let known = mem.iter().find(|(_, start)| (*start..start + 8192).contains(&at));
        Some(known.map_or_else(|| "?".to_owned(), |(name, start)| format!("{name}+{}", at - start)))
    };
    let word = |w: &str| {
        let (open, bare) = w.strip_prefix('[').map_or(("", w), |w| ("[", w));
        let (bare, close) = bare.strip_suffix(',').map_or((bare, ""), |w| (w, ","));
        address(bare).map_or_else(|| w.to_owned(), |a| format!("{open}{a}{close}"))
    };
    let line = |l: &String| l.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n";
    hca.take_log().iter().map(line).collect()
}

/// The test of each part says what the log must be.
fn check(got: &str, want: &str) {
    let want: String = want.trim().lines().map(|l| l.trim().to_owned() + "\n").collect();
    assert_eq!(got, want, "\n{got}");
}

/// An open device; the log without how rdma-core opens it, which differs from version to version.
fn opened(hca: &Hca) -> Dev {
    let d = Dev::open(0);
    hca.take_log();
    d
}

/// One after the other: which number an object gets depends on what was there before.
#[test]
fn the_log_reads_as_written_here() {
    let (_g, hca) = start_with(Config::new().mode(MODE).log(LogTarget::Memory));
    verbs(&hca);
    requests(&hca);
    troubles(&hca);
    datagrams_windows_and_shared_queues(&hca);
}

fn verbs(hca: &Hca) {
    let d = opened(hca);
    // SAFETY: the context is open.
    let ch = unsafe { ibv_create_comp_channel(d.ctx) };
    let p = Pair::new(&d, RC);
    let mem = [('a', p.ma.addr), ('b', p.mb.addr)];
    check(
        &lines(hca, &mem),
        "
        ctx 1 create_comp_channel
        ctx 1 create_cq makes CQ 1, 128 entries of 64 bytes
        ctx 1 create_cq makes CQ 2, 128 entries of 64 bytes
        ctx 1 alloc_uar makes doorbell page 1
        ctx 1 create_qp of PD 1, CQ 1, CQ 1 makes QP 0x100, RC, 128 send blocks, 16 receives
        ctx 1 create_qp of PD 1, CQ 2, CQ 2 makes QP 0x101, RC, 128 send blocks, 16 receives
        ctx 1 modify_qp of QP 0x100, Reset to Init
        ctx 1 modify_qp of QP 0x100, Init to Rtr
        ctx 1 modify_qp of QP 0x100, Rtr to Rts
        ctx 1 modify_qp of QP 0x101, Reset to Init
        ctx 1 modify_qp of QP 0x101, Init to Rtr
        ctx 1 modify_qp of QP 0x101, Rtr to Rts
        ctx 1 reg_mr of PD 1 makes MR 0x24a, 8192 bytes at a+0, access 0xf
        ctx 1 reg_mr of PD 1 makes MR 0x36f, 8192 bytes at b+0, access 0xf",
    );
    hca.fail_verb(1, libc::ENOMEM);
    // SAFETY: refused before anything is registered; the domain is alive.
    assert!(unsafe { ibv_reg_mr(d.pd, p.mem_a.as_ptr().cast_mut().cast(), 1, 0) }.is_null());
    assert_ne!(p.a.to(IBV_QPS_INIT), 0);
    p.a.query();
    p.close();
    // SAFETY: the channel is alive, and its queues are gone.
    unsafe { ibv_destroy_comp_channel(ch) };
    d.close();
    check(
        &lines(hca, &mem),
        "
        ctx 1 reg_mr, by a fault: ENOMEM
        ctx 1 modify_qp of QP 0x100: EINVAL
        ctx 1 query_qp of QP 0x100
        ctx 1 destroy_qp of QP 0x100
        ctx 1 destroy_qp of QP 0x101
        ctx 1 destroy_cq of CQ 1
        ctx 1 destroy_cq of CQ 2
        ctx 1 dereg_mr of MR 0x24a
        ctx 1 dereg_mr of MR 0x36f
        ctx 1 dealloc_pd of PD 1
        ctx 1 free_uar of doorbell page 1
        ctx 1 free_uar of doorbell page 0
        ctx 1 closed",
    );
}

fn requests(hca: &Hca) {
    let d = opened(hca);
    let p = Pair::new(&d, RC);
    let mem = [('a', p.ma.addr), ('b', p.mb.addr)];
    hca.take_log();
    // By BlueFlame, inline, with an event.
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { ibv_req_notify_cq(p.cb, 1) }, 0);
    p.b.recv(1, &mut [p.mb.sge(0, 100), p.mb.sge(4096, 50)]);
    let mut sges = [p.ma.sge(8, 60)];
    let mut w = wr(IBV_WR_SEND_WITH_IMM, 2, &mut sges);
    w.u1.imm_data = 0x1234_5678u32.to_be();
    w.send_flags = (IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_SOLICITED) as _;
    p.a.send(w);
    hca.step();
    drain(p.ca);
    drain(p.cb);
    check(
        &lines(hca, &mem),
        "
        ctx 1 page 0 +0x20: CQ 1
        CQ 1 armed (solicited) at 0
        ctx 1 page 1 +0x800: BlueFlame, QP 0x101 WQE 0 SEND_IMM
        QP 0x101 send record 2, next WQE 0
        QP 0x101 RC WQE 0 SEND_IMM imm 0x12345678 [60 inline] signaled solicited
        QP 0x100 receive WQE 0 [b+0 +100 key 0x24a] [b+4096 +50 key 0x24a]
        CQE on CQ 1: QP 0x100 WQE 0 received with immediate, 60 bytes, imm 0x12345678, solicited
        CQE on CQ 2: QP 0x101 WQE 0 sent SEND_IMM",
    );
    // A list rings once; not each is signaled.
    let mut one = [p.ma.sge(0, 4000), p.ma.sge(4000, 4000)];
    let mut two = [p.ma.sge(0, 8)];
    let mut second = rdma(IBV_WR_RDMA_READ, 4, &mut two, p.mb.addr + 1000, p.mb.rkey());
    second.send_flags |= IBV_SEND_FENCE as u32;
    let mut first = rdma(IBV_WR_RDMA_WRITE, 3, &mut one, p.mb.addr, p.mb.rkey());
    first.send_flags = 0;
    first.next = &mut second;
    p.a.send(first);
    hca.step();
    drain(p.ca);
    check(
        &lines(hca, &mem),
        "
        ctx 1 page 1 +0x900: doorbell, QP 0x101 WQE 3 RDMA_READ
        QP 0x101 send record 4, next WQE 2
        QP 0x101 RC WQE 2 RDMA_WRITE b+0 key 0x24a [a+0 +4000 key 0x36f] [a+4000 +4000 key 0x36f]
        QP 0x101 RC WQE 3 RDMA_READ b+1000 key 0x24a [a+0 +8 key 0x36f] signaled fenced
        CQE on CQ 2: QP 0x101 WQE 3 sent RDMA_READ",
    );
    let word = p.mb.addr.next_multiple_of(8);
    p.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 5, &mut two, word, p.mb.rkey(), 7, 0));
    p.a.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 6, &mut two, word, p.mb.rkey(), 1, 2));
    hca.step();
    drain(p.ca);
    let word = |l: &str| l.replace(&format!("b+{}", word - p.mb.addr), "b+WORD");
    check(
        &word(&lines(hca, &mem)),
        "
        ctx 1 page 1 +0x800: BlueFlame, QP 0x101 WQE 4 ATOMIC_FA
        ctx 1 page 1 +0x900: BlueFlame, QP 0x101 WQE 5 ATOMIC_CS
        QP 0x101 send record 6, next WQE 4
        QP 0x101 RC WQE 4 ATOMIC_FA b+WORD key 0x24a add 7 [a+0 +8 key 0x36f] signaled
        CQE on CQ 2: QP 0x101 WQE 4 sent ATOMIC_FA
        QP 0x101 RC WQE 5 ATOMIC_CS b+WORD key 0x24a compare 1 swap 2 [a+0 +8 key 0x36f] signaled
        CQE on CQ 2: QP 0x101 WQE 5 sent ATOMIC_CS",
    );
    p.close();
    d.close();
}

fn troubles(hca: &Hca) {
    let d = opened(hca);
    let p = Pair::with(&d, RC, Path { rnr_retry: 1, ..Path::default() }, ALL);
    let mem = [('a', p.ma.addr), ('b', p.mb.addr)];
    hca.take_log();
    hca.drop_message(1);
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
    p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(0, 40)]));
    p.b.recv(3, &mut [p.mb.sge(0, 50)]);
    hca.run_until_idle();
    while d.event() >= 0 {}
    drain(p.ca);
    drain(p.cb);
    check(
        &lines(hca, &mem),
        "
        ctx 1 page 1 +0x800: BlueFlame, QP 0x100 WQE 0 SEND
        ctx 1 page 1 +0x900: BlueFlame, QP 0x100 WQE 1 SEND
        QP 0x100 send record 2, next WQE 0
        QP 0x100 RC WQE 0 SEND [a+0 +100 key 0x24a] signaled
        QP 0x100 WQE 0 lost by a fault
        QP 0x100 WQE 0 waits 67108864 ns: no answer
        QP 0x100 RC WQE 0 SEND [a+0 +100 key 0x24a] signaled
        QP 0x101 receive WQE 0 [b+0 +50 key 0x36f]
        CQE on CQ 2: QP 0x101 WQE 0 receive error LocalLength
        QP 0x101 to ERR
        CQE on CQ 1: QP 0x100 WQE 0 send error RemoteInvalidRequest
        QP 0x100 to ERR
        CQE on CQ 1: QP 0x100 WQE 1 send error Flushed",
    );
    p.close();
    let p = Pair::with(&d, RC, Path { rnr_retry: 1, ..Path::default() }, ALL);
    let mem = [('a', p.ma.addr), ('b', p.mb.addr)];
    hca.take_log();
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
    hca.run_until_idle();
    hca.set_link(0, false);
    hca.set_link(0, true);
    while d.event() >= 0 {}
    drain(p.ca);
    check(
        &lines(hca, &mem),
        "
        ctx 1 page 1 +0x800: BlueFlame, QP 0x101 WQE 0 SEND
        QP 0x101 send record 1, next WQE 0
        QP 0x101 RC WQE 0 SEND [a+0 +100 key 0x36f] signaled
        QP 0x101 WQE 0 waits 640000 ns: receiver not ready
        QP 0x101 RC WQE 0 SEND [a+0 +100 key 0x36f] signaled
        CQE on CQ 2: QP 0x101 WQE 0 send error RnrRetryExceeded
        QP 0x101 to ERR
        device 0: link down
        device 0: link up",
    );
    p.close();
    d.close();
}

fn datagrams_windows_and_shared_queues(hca: &Hca) {
    let d = opened(hca);
    let p = Pair::new(&d, UD);
    let ah = d.ah(&d);
    let mem = [('a', p.ma.addr), ('b', p.mb.addr)];
    hca.take_log();
    p.b.recv(1, &mut [p.mb.sge(0, 1000)]);
    for qkey in [QKEY, QKEY + 1] {
        let mut sges = [p.ma.sge(0, 64)];
        let mut w = wr(IBV_WR_SEND, 2, &mut sges);
        w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: p.b.num, remote_qkey: qkey };
        p.a.send(w);
    }
    hca.step();
    drain(p.ca);
    drain(p.cb);
    check(
        &lines(hca, &mem),
        "
        ctx 1 page 1 +0x800: BlueFlame, QP 0x100 WQE 0 SEND
        ctx 1 page 1 +0x900: BlueFlame, QP 0x100 WQE 2 SEND
        QP 0x100 send record 4, next WQE 0
        QP 0x100 UD WQE 0 SEND to QP 0x101 at LID 1 Q_Key 0x11111111 [a+0 +64 key 0x24a] signaled
        QP 0x101 receive WQE 0 [b+0 +1000 key 0x36f]
        CQE on CQ 2: QP 0x101 WQE 0 received, 104 bytes
        CQE on CQ 1: QP 0x100 WQE 0 sent SEND
        QP 0x100 UD WQE 2 SEND to QP 0x101 at LID 1 Q_Key 0x11111112 [a+0 +64 key 0x24a] signaled
        datagram for QP 0x101 dropped
        CQE on CQ 1: QP 0x100 WQE 2 sent SEND",
    );
    free_ah(ah);
    p.close();
    let srq = d.srq(4);
    let (ca, cb) = (d.cq(15), d.cq(15));
    let (a, b) = (d.qp(RC, ca, ca), d.qp_with(RC, cb, cb, srq, 0, 4));
    a.up(b.num, &d, &d, Path::default());
    b.up(a.num, &d, &d, Path::default());
    let mut bytes = vec![0u8; 8192];
    let m = d.mr(&mut bytes, ALL | IBV_ACCESS_MW_BIND as i32);
    let mem = [('m', m.addr)];
    let mut limit = ibv_srq_attr { srq_limit: 1, ..ibv_srq_attr::default() };
    hca.take_log();
    // SAFETY: the queue is alive; the attributes are only read.
    assert_eq!(unsafe { ibv_modify_srq(srq, &mut limit, IBV_SRQ_LIMIT as _) }, 0);
    assert_eq!(srq_recv(srq, 1, &mut [m.sge(0, 50)]), 0);
    a.send(wr(IBV_WR_SEND, 2, &mut [m.sge(100, 20)]));
    hca.step();
    let mw = Window::new(&d, IBV_MW_TYPE_2);
    let key = next_key(mw.rkey());
    a.send(mw.bind(3, key, m.part(64, 128, IBV_ACCESS_REMOTE_WRITE)));
    a.send(invalidate(4, key));
    hca.step();
    while d.event() >= 0 {}
    drain(ca);
    drain(cb);
    check(
        &lines(hca, &mem),
        "
        ctx 1 modify_srq of SRQ 1
        ctx 1 page 1 +0x800: BlueFlame, QP 0x101 WQE 0 SEND
        QP 0x101 send record 1, next WQE 0
        QP 0x101 RC WQE 0 SEND [m+100 +20 key 0x36f] signaled
        QP 0x100 receive WQE 0 of SRQ 1 [m+0 +50 key 0x36f]
        event SrqLimitReached of SRQ 1
        CQE on CQ 1: QP 0x100 WQE 0 received, 20 bytes, data in the entry
        CQE on CQ 2: QP 0x101 WQE 0 sent SEND
        ctx 1 alloc_mw of PD 1 makes MW 0x24a
        ctx 1 page 1 +0x800: BlueFlame, QP 0x101 WQE 4 UMR
        ctx 1 page 1 +0x900: BlueFlame, QP 0x101 WQE 1 UMR
        QP 0x101 send record 6, next WQE 1
        QP 0x101 RC WQE 1 UMR bind m+64 +128 of key 0x36f, rights 0x20 signaled
        CQE on CQ 2: QP 0x101 WQE 1 sent UMR
        QP 0x101 RC WQE 4 UMR invalidate key 0x24b signaled
        CQE on CQ 2: QP 0x101 WQE 4 sent UMR",
    );
    mw.dealloc();
    a.destroy();
    b.destroy();
    free_srq(srq);
    m.dereg();
    free_cq(ca);
    free_cq(cb);
    d.close();
}
