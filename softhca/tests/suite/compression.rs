//! Compressed completion queues. libmlx5 makes them and can't poll them: the sessions are expanded in place, as
//! direct users of the device do, and then the stock library polls what that gave. It must be what an ordinary queue
//! says of the same requests.
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use super::ring::{Ring, capabilities, create};
use crate::common::channel::{Channel, notify};
use crate::common::*;
use ibv_sys::*;
use std::ptr::null_mut;

const HASH: u8 = 1;
const CHECKSUM: u8 = 2;

/// What `ibv_poll_cq` says, but for the time and the number of the queue pair.
fn all(cq: *mut ibv_cq) -> Vec<(u64, u32, u32, u32, u32, u32)> {
    std::iter::from_fn(|| poll(cq))
        .map(|w| {
            let immediate = if w.wc_flags & IBV_WC_WITH_IMM as u32 != 0 { imm(&w) } else { 0 };
            (w.wr_id, w.status, w.opcode, w.byte_len, w.wc_flags as u32, immediate)
        })
        .collect()
}

/// Two connected queue pairs with a CQ each, of entries of `size` bytes.
struct Line {
    a: Qp,
    b: Qp,
    ca: *mut ibv_cq,
    cb: *mut ibv_cq,
}

impl Line {
    fn new(d: &Dev, kind: u32, size: u16, format: Option<u8>) -> Self {
        let (ca, cb) = (create(d, 63, size, format, null_mut()), create(d, 63, size, format, null_mut()));
        assert!(!ca.is_null() && !cb.is_null(), "errno {}", errno());
        let (a, b) = (d.qp_with(kind, ca, ca, null_mut(), 0, 64), d.qp_with(kind, cb, cb, null_mut(), 0, 64));
        a.up(b.num, d, d, Path::default());
        b.up(a.num, d, d, Path::default());
        Self { a, b, ca, cb }
    }

    fn close(self) {
        self.a.destroy();
        self.b.destroy();
        free_cq(self.ca);
        free_cq(self.cb);
    }
}

#[test]
fn the_capability_is_reported_and_other_forms_are_refused() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let c = capabilities(&d, MLX5DV_CONTEXT_MASK_CQE_COMPRESION as _);
    assert_eq!(c.comp_mask, MLX5DV_CONTEXT_MASK_CQE_COMPRESION as _);
    assert_eq!((c.cqe_comp_caps.max_num, c.cqe_comp_caps.supported_format), (64, u32::from(HASH | CHECKSUM)));
    assert_eq!(
        c.flags & MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP as u64,
        MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP as u64
    );
    // Stride indices are only for striding receive queues, and it can't be two forms at once.
    for (format, want) in [(4, libc::EINVAL), (0, libc::EINVAL), (HASH | CHECKSUM, libc::EOPNOTSUPP)] {
        assert!(create(&d, 15, 64, Some(format), null_mut()).is_null(), "{format}");
        assert_eq!(errno(), want, "{format}");
    }
    d.close();
}

#[test]
fn sessions_expand_to_what_an_ordinary_queue_says() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
    let m = d.mr(&mut mem, ALL);
    for (kind, size, format) in [(RC, 64, HASH), (RC, 128, CHECKSUM), (UC, 64, CHECKSUM), (UC, 128, HASH)] {
        let (plain, short) = (Line::new(&d, kind, size, None), Line::new(&d, kind, size, Some(format)));
        let mut rings = [Ring::of(short.ca), Ring::of(short.cb)];
        // Five and more times around the ring, at all places, with all numbers of arrays.
        for n in [1u32, 2, 7, 8, 9, 15, 16, 17, 24, 25, 40, 63, 3, 64, 5, 33] {
            for l in [&plain, &short] {
                for i in 0..n {
                    l.b.recv(1000 + u64::from(i), &mut [m.sge(4096, 4096)]);
                    // Of one length or another, but always too long to lie in the entry.
                    let mut w = wr(IBV_WR_SEND, u64::from(i), &mut []);
                    let mut sges = [m.sge(i as usize, 100 + i * n % 1000)];
                    w.sg_list = sges.as_mut_ptr();
                    w.num_sge = 1;
                    l.a.send(w);
                }
            }
            hca.step();
            let got: Vec<_> = rings.iter_mut().map(Ring::expand).collect();
            assert_eq!(got, [[n], [n]], "one session of all");
            assert_eq!(all(short.ca), all(plain.ca));
            let (s, p) = (all(short.cb), all(plain.cb));
            assert_eq!((s.len(), &s), (n as usize, &p));
        }
        plain.close();
        short.close();
    }
    m.dereg();
    d.close();
    assert_eq!(hca.take_violations().1, [""; 0]);
}

#[test]
fn only_what_is_alike_is_compressed() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem = vec![7u8; 8192];
    let m = d.mr(&mut mem, ALL);
    let (plain, short) = (Line::new(&d, RC, 64, None), Line::new(&d, RC, 64, Some(HASH)));
    let mut rings = [Ring::of(short.ca), Ring::of(short.cb)];
    let mut step = |want: [&[u32]; 2]| {
        hca.step();
        let got: Vec<_> = rings.iter_mut().map(Ring::expand).collect();
        assert_eq!(got, want);
        assert_eq!(all(short.ca), all(plain.ca));
        assert_eq!(all(short.cb), all(plain.cb));
    };
    let both = |f: &dyn Fn(&Line)| [&plain, &short].map(f);
    let send = |l: &Line, len: u32, immediate: Option<u32>, solicited: bool| {
        l.b.recv(1, &mut [m.sge(4096, 4096)]);
        let mut sges = [m.sge(0, len)];
        let mut w = wr(if immediate.is_some() { IBV_WR_SEND_WITH_IMM } else { IBV_WR_SEND }, 2, &mut sges);
        w.u1.imm_data = immediate.unwrap_or(0);
        w.send_flags |= if solicited { IBV_SEND_SOLICITED as u32 } else { 0 };
        l.a.send(w);
    };
    // A requester's opcodes are in the short form.
    both(&|l| {
        for op in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE] {
            l.a.send(rdma(op, 1, &mut [m.sge(0, 100)], m.addr + 4096, m.rkey()));
        }
        l.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &mut [m.sge(0, 8)], m.addr + 4096, m.rkey(), 1, 0));
    });
    step([&[4], &[]]);
    // Unsignaled ones leave gaps in the counters.
    both(&|l| {
        for i in 0..6 {
            let mut sges = [m.sge(0, 8)];
            let mut w = rdma(IBV_WR_RDMA_WRITE, i, &mut sges, m.addr, m.rkey());
            w.send_flags = if i % 3 == 2 { IBV_SEND_SIGNALED as u32 } else { 0 };
            l.a.send(w);
        }
    });
    step([&[2], &[]]);
    // Immediate data differs, or not; one is solicited.
    both(&|l| [5, 5, 6, 6, 6].iter().for_each(|v| send(l, 64, Some(*v), false)));
    step([&[5], &[2, 3]]);
    both(&|l| [false, true, true, false].iter().for_each(|s| send(l, 64, None, *s)));
    step([&[4], &[1, 2, 1]]);
    // Data that lies in the entry.
    both(&|l| [64, 64, 20, 64, 64].iter().for_each(|len| send(l, *len, None, false)));
    step([&[5], &[2, 1, 2]]);
    // Errors.
    both(&|l| {
        (0..2).for_each(|_| send(l, 64, None, false));
        for _ in 0..3 {
            l.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [m.sge(0, 8)], m.addr, m.rkey() ^ 1));
        }
    });
    step([&[2, 1, 1, 1], &[2]]);
    plain.close();
    short.close();
    m.dereg();
    d.close();
}

#[test]
fn queue_pairs_share_no_session() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem = vec![7u8; 4096];
    let m = d.mr(&mut mem, ALL);
    let cq = create(&d, 63, 64, Some(CHECKSUM), null_mut());
    let qps = [d.qp(RC, cq, cq), d.qp(RC, cq, cq)];
    qps[0].up(qps[1].num, &d, &d, Path::default());
    qps[1].up(qps[0].num, &d, &d, Path::default());
    for q in &qps {
        for i in 0..3 {
            q.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [m.sge(0, 100)], m.addr, m.rkey()));
        }
    }
    hca.step();
    assert_eq!(Ring::of(cq).expand(), [3, 3]);
    let got: Vec<_> = std::iter::from_fn(|| poll(cq)).map(|w| (w.qp_num, w.wr_id)).collect();
    assert_eq!(got, [0, 1].map(|k| [0, 1, 2].map(|i| (qps[k].num, i))).concat());
    qps.into_iter().for_each(Qp::destroy);
    m.dereg();
    free_cq(cq);
    d.close();
}

/// One event a session; a CQ that is full is overrun as any.
#[test]
fn a_session_makes_one_event_and_takes_a_place_for_each() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem = vec![7u8; 4096];
    let m = d.mr(&mut mem, ALL);
    let ch = Channel::new(&d);
    let cq = create(&d, 7, 64, Some(HASH), ch.0);
    let (x, y) = (d.qp(RC, cq, cq), d.qp(RC, cq, cq));
    x.up(y.num, &d, &d, Path::default());
    y.up(x.num, &d, &d, Path::default());
    let before = hca.stats();
    let mut ring = Ring::of(cq);
    let write = |n| {
        for i in 0..n {
            x.send(rdma(IBV_WR_RDMA_WRITE, i, &mut [m.sge(0, 100)], m.addr, m.rkey()));
        }
        hca.step();
    };
    notify(cq, false);
    write(5);
    assert_eq!(ring.expand(), [5]);
    assert_eq!(all(cq).len(), 5);
    assert_eq!(hca.stats().completion_events - before.completion_events, 1);
    assert_eq!(hca.stats().cqes - before.cqes, 5);
    // Eight have room, the ninth has not.
    write(9);
    assert_eq!(d.event(), IBV_EVENT_CQ_ERR as i32);
    assert_eq!(d.event(), IBV_EVENT_QP_FATAL as i32);
    assert_eq!(ring.expand(), [8]);
    assert_eq!(all(cq).len(), 8);
    x.destroy();
    y.destroy();
    assert_eq!(ch.take(), cq);
    free_cq(cq);
    assert_eq!(ch.destroy(), 0);
    m.dereg();
    d.close();
}
