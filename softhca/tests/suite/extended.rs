//! The extended interface: requests by `ibv_wr_*`, completions by `ibv_start_poll`, clocks.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![expect(unsafe_code, reason = "C calls")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use crate::common::window::{Window, next_key};
use crate::common::*;
use ibv_sys::*;
use softhca::Hca;
use std::ptr::null_mut;
use std::time::Duration;

const FIELDS: u64 = (IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) as u64;

fn extended_cq(d: &Dev) -> *mut ibv_cq_ex {
    let mut a = ibv_cq_init_attr_ex::default();
    (a.cqe, a.wc_flags) = (31, FIELDS);
    // SAFETY: the context is open, and the attributes are of this function.
    let cq = unsafe { ibv_create_cq_ex(d.ctx, &mut a) };
    assert!(!cq.is_null(), "errno {}", errno());
    cq
}

fn qp_attributes(d: &Dev, kind: u32, cq: *mut ibv_cq_ex, ops: u64) -> ibv_qp_init_attr_ex {
    let mut a = ibv_qp_init_attr_ex::default();
    (a.qp_type, a.send_cq, a.recv_cq, a.pd) = (kind, cq.cast(), cq.cast(), d.pd);
    a.cap = ibv_qp_cap {
        max_send_wr: 32,
        max_recv_wr: 32,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    };
    a.comp_mask = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) as u32;
    a.send_ops_flags = ops;
    a
}

fn extended_qp(d: &Dev, kind: u32, cq: *mut ibv_cq_ex, ops: u64) -> Qp {
    let mut a = qp_attributes(d, kind, cq, ops);
    // SAFETY: domain and queue are the test's, and the attributes of this function.
    unsafe {
        let qp = ibv_create_qp_ex(d.ctx, &mut a);
        assert!(!qp.is_null(), "errno {}", errno());
        Qp { qp, num: (*qp).qp_num }
    }
}

/// What a completion says.
#[derive(Debug, PartialEq)]
struct Said {
    id: u64,
    status: u32,
    opcode: u32,
    len: u32,
    qp: u32,
    imm: Option<u32>,
    invalidated: Option<u32>,
    source: (u32, u32),
    time: u64,
}

fn poll_all(cq: *mut ibv_cq_ex) -> Vec<Said> {
    let mut v = Vec::new();
    let mut a = ibv_poll_cq_attr::default();
    // SAFETY: the queue is the test's, made with `FIELDS`: each reader that is called is there. They are called at a
    // completion, between a start or a next that gave 0 and the end.
    unsafe {
        let mut rc = ibv_start_poll(cq, &mut a);
        let any = rc == 0;
        while rc == 0 {
            let flags = ibv_wc_read_wc_flags(cq);
            let with = |f: u32| flags as u32 & f as u32 != 0;
            v.push(Said {
                id: (*cq).wr_id,
                status: (*cq).status,
                opcode: ibv_wc_read_opcode(cq),
                len: ibv_wc_read_byte_len(cq),
                qp: ibv_wc_read_qp_num(cq),
                imm: with(IBV_WC_WITH_IMM as _).then(|| u32::from_be(ibv_wc_read_imm_data(cq))),
                invalidated: with(IBV_WC_WITH_INV as _).then(|| ibv_wc_read_invalidated_rkey(cq)),
                source: (ibv_wc_read_src_qp(cq), ibv_wc_read_slid(cq)),
                time: ibv_wc_read_completion_ts(cq),
            });
            rc = ibv_next_poll(cq);
        }
        assert_eq!(rc, libc::ENOENT);
        if any {
            ibv_end_poll(cq);
        }
    }
    v
}

/// Posts one request by `build`, runs the device, and gives the completions of both sides.
struct Line<'a> {
    hca: &'a Hca,
    a: Qp,
    b: Qp,
    ca: *mut ibv_cq_ex,
    cb: *mut ibv_cq_ex,
}

impl<'a> Line<'a> {
    fn new(hca: &'a Hca, d: &Dev, kind: u32, ops: u64) -> Self {
        let (ca, cb) = (extended_cq(d), extended_cq(d));
        let (a, b) = (extended_qp(d, kind, ca, ops), extended_qp(d, kind, cb, ops));
        a.up(b.num, d, d, Path::default());
        b.up(a.num, d, d, Path::default());
        Self { hca, a, b, ca, cb }
    }

    fn post(&self, id: u64, build: impl Fn(*mut ibv_qp_ex)) -> (Vec<Said>, Vec<Said>) {
        // SAFETY: the queue pair was made by `ibv_create_qp_ex`, for the requests that `build` makes.
        unsafe {
            let q = ibv_qp_to_qp_ex(self.a.qp);
            assert!(!q.is_null());
            ibv_wr_start(q);
            (*q).wr_id = id;
            (*q).wr_flags = IBV_SEND_SIGNALED as _;
            build(q);
            assert_eq!(ibv_wr_complete(q), 0);
        }
        self.hca.run_until_idle();
        (poll_all(self.ca), poll_all(self.cb))
    }

    fn close(self) {
        self.a.destroy();
        self.b.destroy();
        free_cq(self.ca.cast());
        free_cq(self.cb.cast());
    }
}

const ALL_OPS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV) as u64;

#[test]
fn every_request_of_the_extended_interface() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let l = Line::new(&hca, &d, RC, ALL_OPS);
    let mut mem: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
    let m = d.mr(&mut mem, ALL | IBV_ACCESS_MW_BIND as i32);
    let (lkey, rkey) = (m.sge(0, 0).lkey, m.rkey());
    let to = |at: u64| m.addr + at;
    let mut id = 0;
    // (request, its completion's opcode and length, what the receiver says)
    let mut run = |build: &dyn Fn(*mut ibv_qp_ex), op: u32, receiver: Option<(u32, u32)>| {
        id += 1;
        let (a, b) = l.post(id, build);
        let [a] = &a[..] else { panic!("{a:?}") };
        assert_eq!((a.id, a.status, a.opcode, a.qp), (id, 0, op, l.a.num));
        let b = b.into_iter().next();
        assert_eq!(b.as_ref().map(|b| (b.opcode, b.len)), receiver);
        if let Some(b) = &b {
            assert_eq!((b.id, b.status, b.qp), (id, 0, l.b.num));
        }
        b
    };
    // SAFETY: `run` has them called between the start and the completion of a request on a queue pair that was made
    // with `ALL_OPS`. Lists are read, and inline data copied, before the call that has them returns.
    unsafe {
        let sge = |q, at: u64, len| ibv_wr_set_sge(q, lkey, to(at), len);
        l.b.recv(1, &mut [m.sge(4096, 1000)]);
        run(
            &|q| {
                ibv_wr_send(q);
                sge(q, 0, 100);
            },
            IBV_WC_SEND,
            Some((IBV_WC_RECV, 100)),
        );
        assert_eq!(bytes(&mem, 4096, 100), bytes(&mem, 0, 100));
        l.b.recv(2, &mut [m.sge(4096, 1000)]);
        let list = |q| {
            let parts = [m.sge(10, 7), m.sge(100, 0), m.sge(200, 40)];
            ibv_wr_set_sge_list(q, 3, parts.as_ptr());
        };
        let b = run(
            &|q| {
                ibv_wr_send_imm(q, 77u32.to_be());
                list(q);
            },
            IBV_WC_SEND,
            Some((IBV_WC_RECV, 47)),
        );
        assert_eq!(b.unwrap().imm, Some(77));
        assert_eq!(bytes(&mem, 4096, 47), [bytes(&mem, 10, 7), bytes(&mem, 200, 40)].concat());
        // Inline, in one piece and in several.
        let text = *b"inline data, which the device takes from the ring";
        let inline = |q| ibv_wr_set_inline_data(q, text.as_ptr().cast_mut().cast(), text.len());
        run(
            &|q| {
                ibv_wr_rdma_write(q, rkey, to(5000));
                inline(q);
            },
            IBV_WC_RDMA_WRITE,
            None,
        );
        assert_eq!(bytes(&mem, 5000, text.len()), text);
        l.b.recv(4, &mut []);
        let pieces = |q| {
            let list = [(0, 3), (3, 0), (3, 30)]
                .map(|(at, length)| ibv_data_buf { addr: text.as_ptr().add(at).cast_mut().cast(), length });
            ibv_wr_set_inline_data_list(q, 3, list.as_ptr());
        };
        let write_imm = |q| {
            ibv_wr_rdma_write_imm(q, rkey, to(6000), 5u32.to_be());
            pieces(q);
        };
        let b = run(&write_imm, IBV_WC_RDMA_WRITE, Some((IBV_WC_RECV_RDMA_WITH_IMM, 33)));
        assert_eq!(b.unwrap().imm, Some(5));
        assert_eq!(bytes(&mem, 6000, 33), text[..33]);
        run(
            &|q| {
                ibv_wr_rdma_read(q, rkey, to(6000));
                sge(q, 7000, 33);
            },
            IBV_WC_RDMA_READ,
            None,
        );
        assert_eq!(bytes(&mem, 7000, 33), text[..33]);
        let word = (m.addr + 2048).next_multiple_of(8);
        let old = bytes(&mem, (word - m.addr) as usize, 8);
        run(
            &|q| {
                ibv_wr_atomic_fetch_add(q, rkey, word, 1);
                sge(q, 3000, 8);
            },
            IBV_WC_FETCH_ADD,
            None,
        );
        assert_eq!(bytes(&mem, 3000, 8), old);
        let now = u64::from_ne_bytes(old.try_into().unwrap()) + 1;
        let swap = |q| {
            ibv_wr_atomic_cmp_swp(q, rkey, word, now, 3);
            sge(q, 3000, 8);
        };
        run(&swap, IBV_WC_COMP_SWAP, None);
        assert_eq!(bytes(&mem, (word - m.addr) as usize, 8), 3u64.to_ne_bytes());
        // A window: bound, invalidated here, bound again, invalidated by the peer.
        let mw = Window::new(&d, IBV_MW_TYPE_2);
        let part = m.part(64, 64, IBV_ACCESS_REMOTE_WRITE);
        let key = next_key(mw.rkey());
        run(&|q| ibv_wr_bind_mw(q, mw.0, key, &part), IBV_WC_BIND_MW, None);
        run(&|q| ibv_wr_local_inv(q, key), IBV_WC_LOCAL_INV, None);
        // The receiver binds, and lets the sender invalidate.
        let key = next_key(key);
        l.b.send(mw.bind(99, key, part));
        hca.step();
        assert_eq!(poll_all(l.cb).len(), 1);
        l.b.recv(10, &mut [m.sge(4096, 100)]);
        let b = run(
            &|q| {
                ibv_wr_send_inv(q, key);
                sge(q, 0, 40);
            },
            IBV_WC_SEND,
            Some((IBV_WC_RECV, 40)),
        );
        assert_eq!(b.unwrap().invalidated, Some(key));
        mw.dealloc();
    }
    l.close();
    m.dereg();
    d.close();
    assert_eq!(hca.take_violations().1, [""; 0]);
}

/// A write of nothing, for `Line::post`.
fn empty(q: *mut ibv_qp_ex) {
    // SAFETY: a request is begun on a queue pair that was made for writes; no list of no elements is read.
    unsafe {
        ibv_wr_rdma_write(q, 1, 0);
        ibv_wr_set_sge_list(q, 0, null_mut());
    }
}

#[test]
fn a_request_list_that_is_given_up_is_never_sent() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let l = Line::new(&hca, &d, RC, ALL_OPS);
    // SAFETY: the queue pair was made by `ibv_create_qp_ex` for such requests; no list of no elements is read.
    unsafe {
        let q = ibv_qp_to_qp_ex(l.a.qp);
        ibv_wr_start(q);
        (*q).wr_id = 1;
        (*q).wr_flags = IBV_SEND_SIGNALED as _;
        ibv_wr_rdma_write(q, 1, 0);
        ibv_wr_set_sge_list(q, 0, null_mut());
        ibv_wr_abort(q);
    }
    hca.run_until_idle();
    assert_eq!(poll_all(l.ca), []);
    let (a, _) = l.post(2, empty);
    assert_eq!(a.iter().map(|s| (s.id, s.status)).collect::<Vec<_>>(), [(2, 0)]);
    // Operations that weren't asked for have no function; those that don't exist make no queue pair.
    let cq = extended_cq(&d);
    let few = extended_qp(&d, RC, cq, IBV_QP_EX_WITH_SEND as _);
    let mut a = qp_attributes(&d, UD, cq, IBV_QP_EX_WITH_RDMA_READ as _);
    // SAFETY: domain and queue are there, and the attributes of this function.
    assert!(unsafe { ibv_create_qp_ex(d.ctx, &mut a) }.is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP);
    few.destroy();
    free_cq(cq.cast());
    l.close();
    d.close();
}

#[test]
fn datagrams_name_their_sender() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let ops = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM) as u64;
    let l = Line::new(&hca, &d, UD, ops);
    let ah = d.ah(&d);
    let mut mem = vec![9u8; 1024];
    let m = d.mr(&mut mem, ALL);
    for imm in [None, Some(8)] {
        l.b.recv(1, &mut [m.sge(512, 512)]);
        let (a, b) = l.post(3, |q| {
            // SAFETY: a request is begun on a queue pair that was made for sends; the address is there.
            unsafe {
                match imm {
                    None => ibv_wr_send(q),
                    Some(v) => ibv_wr_send_imm(q, u32::to_be(v)),
                }
                ibv_wr_set_ud_addr(q, ah, l.b.num, QKEY);
                ibv_wr_set_sge(q, m.sge(0, 0).lkey, m.addr, 100);
            }
        });
        assert_eq!((a.len(), a[0].status), (1, 0));
        assert_eq!((b[0].len, b[0].imm, b[0].source), (140, imm, (l.a.num, u32::from(d.port.lid))));
    }
    free_ah(ah);
    l.close();
    m.dereg();
    d.close();
}

/// One cycle is a nanosecond of the device's time, in completions and in the clock page alike.
#[test]
fn clocks_agree() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let l = Line::new(&hca, &d, RC, ALL_OPS);
    hca.advance(Duration::from_secs(5));
    let (a, _) = l.post(1, empty);
    assert_eq!(u128::from(a[0].time), hca.now().as_nanos());
    // SAFETY: the context is open, and is asked for what these structs have room for.
    unsafe {
        let mut info = mlx5dv_clock_info::default();
        assert_eq!(mlx5dv_get_clock_info(d.ctx, &mut info), 0);
        assert_eq!(u128::from(mlx5dv_ts_to_ns(&mut info, a[0].time)), hca.now().as_nanos());
        let mut v = ibv_values_ex::default();
        v.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        hca.advance(Duration::from_micros(7));
        hca.step();
        assert_eq!(ibv_query_rt_values_ex(d.ctx, &mut v), 0);
        let raw = v.raw_clock.tv_sec as u64 * 1_000_000_000 + v.raw_clock.tv_nsec as u64;
        assert_eq!(raw, a[0].time + 7000);
    }
    // In kHz.
    let x = d.attributes();
    assert_eq!((x.hca_core_clock, x.completion_timestamp_mask), (1_000_000, u64::MAX >> 1));
    l.close();
    d.close();
}

#[test]
fn moderation_is_accepted_within_its_limits() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let cq = d.cq(15);
    let x = d.attributes();
    let most = (x.cq_mod_caps.max_cq_count, x.cq_mod_caps.max_cq_period);
    assert_eq!(most, (65535, 4095));
    for (count, period, rc) in [(16, 10, 0), (65535, 4095, 0), (0, 0, 0), (1, 4096, libc::EINVAL)] {
        let mut a = ibv_modify_cq_attr::default();
        a.attr_mask = IBV_CQ_ATTR_MODERATE as _;
        a.moderate = ibv_moderate_cq { cq_count: count, cq_period: period };
        // SAFETY: the queue is there, and the attributes are of this function.
        assert_eq!(unsafe { ibv_modify_cq(cq, &mut a) }, rc, "{count} {period}");
    }
    free_cq(cq);
    d.close();
}
