//! Plain verbs for the tests: C calls, and panics where something fails.
//!
//! # Safety
//!
//! Every call passes objects that the test made and still holds. Memory stays where it is while it is registered.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::field_reassign_with_default, reason = "C structs are filled field by field")]
#![allow(dead_code, reason = "each test uses its part")]
#![expect(unsafe_code, reason = "C calls")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

pub(crate) mod channel;
pub(crate) mod memcheck;
pub(crate) mod window;

use ibv_sys::*;
use softhca::{Config, Hca};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard};

pub(crate) use ibv_sys::{IBV_QPT_RC as RC, IBV_QPT_UC as UC, IBV_QPT_UD as UD};

static ONE: Mutex<()> = Mutex::new(());

/// The tests of one executable share the device: one at a time, so that each is deterministic.
pub(crate) fn start() -> (MutexGuard<'static, ()>, Hca) {
    start_with(Config::new().mode(crate::MODE))
}

pub(crate) fn start_with(config: Config) -> (MutexGuard<'static, ()>, Hca) {
    let g = ONE.lock().unwrap_or_else(|p| p.into_inner());
    let hca = Hca::start(config).unwrap();
    hca.take_violations();
    (g, hca)
}

pub(crate) const LOCAL_WRITE: i32 = 1;
pub(crate) const ALL: i32 = 0xf;

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An open device with a PD.
pub(crate) struct Dev {
    pub(crate) ctx: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) port: ibv_port_attr,
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u8,
}

impl Dev {
    pub(crate) fn open(n: usize) -> Self {
        // SAFETY: objects that the test holds (see the module).
        unsafe {
            let mut count = 0;
            let list = ibv_get_device_list(&mut count);
            assert!(!list.is_null() && usize::try_from(count).unwrap() > n, "{count} devices");
            let ctx = ibv_open_device(*list.add(n));
            assert!(!ctx.is_null(), "open: errno {}", errno());
            ibv_free_device_list(list);
            let pd = ibv_alloc_pd(ctx);
            assert!(!pd.is_null());
            let mut port = ibv_port_attr::default();
            assert_eq!(ibv_query_port(ctx, 1, &mut port), 0);
            let gid_index = if port.link_layer == 2 { 1 } else { 0 };
            let mut gid = ibv_gid::default();
            assert_eq!(ibv_query_gid(ctx, 1, gid_index.into(), &mut gid), 0);
            Self { ctx, pd, port, gid, gid_index }
        }
    }

    pub(crate) fn cq(&self, n: i32) -> *mut ibv_cq {
        self.cq_with(n, null_mut())
    }

    pub(crate) fn cq_with(&self, n: i32, ch: *mut ibv_comp_channel) -> *mut ibv_cq {
        // SAFETY: objects that the test holds (see the module).
        let cq = unsafe { ibv_create_cq(self.ctx, n, null_mut(), ch, 0) };
        assert!(!cq.is_null(), "create_cq: errno {}", errno());
        cq
    }

    /// What the extended query says.
    pub(crate) fn attributes(&self) -> ibv_device_attr_ex {
        let mut a = ibv_device_attr_ex::default();
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_query_device_ex(self.ctx, null_mut(), &mut a) }, 0);
        a
    }

    /// Whether the port is up.
    pub(crate) fn port_state(&self) -> u32 {
        let mut a = ibv_port_attr::default();
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_query_port(self.ctx, 1, &mut a) }, 0);
        a.state
    }

    pub(crate) fn mr(&self, mem: &mut [u8], access: i32) -> Mr {
        self.mr_at(mem.as_mut_ptr(), mem.len(), access)
    }

    pub(crate) fn mr_at(&self, addr: *mut u8, len: usize, access: i32) -> Mr {
        // SAFETY: objects that the test holds (see the module).
        let mr = unsafe { ibv_reg_mr(self.pd, addr.cast(), len, access as _) };
        assert!(!mr.is_null(), "reg_mr: errno {}", errno());
        Mr { mr, addr: addr.expose_provenance() as u64 }
    }

    pub(crate) fn qp(&self, kind: u32, scq: *mut ibv_cq, rcq: *mut ibv_cq) -> Qp {
        self.qp_with(kind, scq, rcq, null_mut(), 0, 16)
    }

    pub(crate) fn qp_with(
        &self,
        kind: u32,
        scq: *mut ibv_cq,
        rcq: *mut ibv_cq,
        srq: *mut ibv_srq,
        sig_all: i32,
        depth: u32,
    ) -> Qp {
        let mut a = ibv_qp_init_attr::default();
        a.send_cq = scq;
        a.recv_cq = rcq;
        a.srq = srq;
        a.qp_type = kind;
        a.sq_sig_all = sig_all;
        a.cap = ibv_qp_cap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        // SAFETY: objects that the test holds (see the module).
        let qp = unsafe { ibv_create_qp(self.pd, &mut a) };
        assert!(!qp.is_null(), "create_qp: errno {}", errno());
        // SAFETY: objects that the test holds (see the module).
        Qp { qp, num: unsafe { (*qp).qp_num } }
    }

    pub(crate) fn srq(&self, max_wr: u32) -> *mut ibv_srq {
        let mut a = ibv_srq_init_attr::default();
        a.attr.max_wr = max_wr;
        a.attr.max_sge = 2;
        // SAFETY: objects that the test holds (see the module).
        let srq = unsafe { ibv_create_srq(self.pd, &mut a) };
        assert!(!srq.is_null(), "create_srq: errno {}", errno());
        srq
    }

    /// The next asynchronous event's type, acknowledged; -1 if there is none.
    pub(crate) fn event(&self) -> i32 {
        // SAFETY: objects that the test holds (see the module).
        unsafe {
            let mut p = libc::pollfd { fd: (*self.ctx).async_fd, events: libc::POLLIN, revents: 0 };
            if libc::poll(&mut p, 1, 0) != 1 {
                return -1;
            }
            let mut e = ibv_async_event::default();
            assert_eq!(ibv_get_async_event(self.ctx, &mut e), 0);
            ibv_ack_async_event(&mut e);
            e.event_type as i32
        }
    }

    pub(crate) fn ah(&self, to: &Self) -> *mut ibv_ah {
        let mut a = address(to, self.gid_index);
        // SAFETY: objects that the test holds (see the module).
        let ah = unsafe { ibv_create_ah(self.pd, &mut a) };
        assert!(!ah.is_null(), "create_ah: errno {}", errno());
        ah
    }

    /// Frees PD and context; all else must be gone.
    pub(crate) fn close(self) {
        // SAFETY: objects that the test holds (see the module).
        unsafe {
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
            assert_eq!(ibv_close_device(self.ctx), 0);
        }
    }
}

fn address(to: &Dev, sgid_index: u8) -> ibv_ah_attr {
    let mut a = ibv_ah_attr::default();
    a.port_num = 1;
    a.dlid = to.port.lid;
    if to.port.link_layer == 2 {
        a.is_global = 1;
        a.grh.dgid = to.gid;
        a.grh.sgid_index = sgid_index;
        a.grh.hop_limit = 64;
    }
    a
}

/// Pages of their own, which can be taken away.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) at: *mut u8,
}

impl Pages {
    pub(crate) fn new(n: usize) -> Self {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new map, where the kernel likes.
        let p = unsafe { libc::mmap(null_mut(), n * 4096, prot, flags, -1, 0) };
        assert_ne!(p, libc::MAP_FAILED);
        Self { at: p.cast() }
    }

    pub(crate) fn unmap(&self, first: usize, n: usize) {
        // SAFETY: a range of the map that this owns.
        assert_eq!(unsafe { libc::munmap(self.at.add(first * 4096).cast(), n * 4096) }, 0);
    }

    pub(crate) fn protect(&self, first: usize, n: usize, prot: i32) {
        // SAFETY: a range of the map that this owns.
        assert_eq!(unsafe { libc::mprotect(self.at.add(first * 4096).cast(), n * 4096, prot) }, 0);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Mr {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
}

impl Mr {
    pub(crate) fn sge(&self, at: usize, len: u32) -> ibv_sge {
        // SAFETY: objects that the test holds (see the module).
        ibv_sge { addr: self.addr + at as u64, length: len, lkey: unsafe { (*self.mr).lkey } }
    }

    /// What a window is bound to.
    pub(crate) fn part(&self, at: u64, length: u64, access: u32) -> ibv_mw_bind_info {
        ibv_mw_bind_info { mr: self.mr, addr: self.addr + at, length, mw_access_flags: access as _ }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: objects that the test holds (see the module).
        unsafe { (*self.mr).rkey }
    }

    pub(crate) fn dereg(self) {
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Qp {
    pub(crate) qp: *mut ibv_qp,
    pub(crate) num: u32,
}

/// What a connection uses unless a test says otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) access: u32,
    pub(crate) timeout: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) sq_psn: u32,
    pub(crate) rq_psn: u32,
}

impl Default for Path {
    fn default() -> Self {
        Self { access: 0xf, timeout: 14, retry: 3, rnr_retry: 7, sq_psn: 7, rq_psn: 7 }
    }
}

pub(crate) const QKEY: u32 = 0x1111_1111;

impl Qp {
    pub(crate) fn modify(&self, a: &mut ibv_qp_attr, mask: u32) -> i32 {
        // SAFETY: objects that the test holds (see the module).
        unsafe { ibv_modify_qp(self.qp, a, mask as _) }
    }

    pub(crate) fn kind(&self) -> u32 {
        // SAFETY: objects that the test holds (see the module).
        unsafe { (*self.qp).qp_type }
    }

    pub(crate) fn init(&self, access: u32) {
        let mut a = ibv_qp_attr::default();
        a.qp_state = IBV_QPS_INIT;
        a.port_num = 1;
        let mut mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        if self.kind() == UD {
            a.qkey = QKEY;
            mask |= IBV_QP_QKEY;
        } else {
            a.qp_access_flags = access as _;
            mask |= IBV_QP_ACCESS_FLAGS;
        }
        assert_eq!(self.modify(&mut a, mask), 0);
    }

    pub(crate) fn rtr(&self, dest: u32, dev: &Dev, to: &Dev, path: Path) {
        let mut a = ibv_qp_attr::default();
        a.qp_state = IBV_QPS_RTR;
        let mut mask = IBV_QP_STATE;
        if self.kind() != UD {
            a.path_mtu = IBV_MTU_1024;
            a.dest_qp_num = dest;
            a.rq_psn = path.rq_psn;
            a.ah_attr = address(to, dev.gid_index);
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        }
        if !matches!(self.kind(), UD | UC) {
            a.max_dest_rd_atomic = 4;
            a.min_rnr_timer = 12;
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        assert_eq!(self.modify(&mut a, mask), 0, "to RTR");
    }

    pub(crate) fn rts(&self, path: Path) {
        let mut a = ibv_qp_attr::default();
        a.qp_state = IBV_QPS_RTS;
        a.sq_psn = path.sq_psn;
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if !matches!(self.kind(), UD | UC) {
            a.timeout = path.timeout;
            a.retry_cnt = path.retry;
            a.rnr_retry = path.rnr_retry;
            a.max_rd_atomic = 4;
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        assert_eq!(self.modify(&mut a, mask), 0, "to RTS");
    }

    pub(crate) fn to(&self, state: u32) -> i32 {
        let mut a = ibv_qp_attr::default();
        a.qp_state = state;
        self.modify(&mut a, IBV_QP_STATE)
    }

    pub(crate) fn up(&self, dest: u32, dev: &Dev, to: &Dev, path: Path) {
        self.init(path.access);
        self.rtr(dest, dev, to, path);
        self.rts(path);
    }

    pub(crate) fn query(&self) -> ibv_qp_attr {
        let (mut a, mut i) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_query_qp(self.qp, &mut a, 0x1ff_ffff, &mut i) }, 0);
        a
    }

    pub(crate) fn recv(&self, id: u64, sges: &mut [ibv_sge]) {
        let mut w = ibv_recv_wr::default();
        w.wr_id = id;
        w.sg_list = sges.as_mut_ptr();
        w.num_sge = sges.len() as i32;
        let mut bad = null_mut();
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_post_recv(self.qp, &mut w, &mut bad) }, 0);
    }

    pub(crate) fn send(&self, mut w: ibv_send_wr) {
        let mut bad = null_mut();
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_post_send(self.qp, &mut w, &mut bad) }, 0);
    }

    pub(crate) fn destroy(self) {
        // SAFETY: objects that the test holds (see the module).
        assert_eq!(unsafe { ibv_destroy_qp(self.qp) }, 0);
    }
}

pub(crate) fn srq_recv(srq: *mut ibv_srq, id: u64, sges: &mut [ibv_sge]) -> i32 {
    let mut w = ibv_recv_wr::default();
    w.wr_id = id;
    w.sg_list = sges.as_mut_ptr();
    w.num_sge = sges.len() as i32;
    let mut bad = null_mut();
    // SAFETY: objects that the test holds (see the module).
    unsafe { ibv_post_srq_recv(srq, &mut w, &mut bad) }
}

/// A signaled send request. The list must live until it is posted.
pub(crate) fn wr(op: u32, id: u64, sges: &mut [ibv_sge]) -> ibv_send_wr {
    let mut w = ibv_send_wr::default();
    w.wr_id = id;
    w.opcode = op;
    w.sg_list = sges.as_mut_ptr();
    w.num_sge = sges.len() as i32;
    w.send_flags = IBV_SEND_SIGNALED as _;
    w
}

/// A request with remote address and key.
pub(crate) fn rdma(op: u32, id: u64, sges: &mut [ibv_sge], raddr: u64, rkey: u32) -> ibv_send_wr {
    let mut w = wr(op, id, sges);
    w.wr.rdma.remote_addr = raddr;
    w.wr.rdma.rkey = rkey;
    w
}

pub(crate) fn atomic(
    op: u32,
    id: u64,
    sges: &mut [ibv_sge],
    raddr: u64,
    rkey: u32,
    add: u64,
    swap: u64,
) -> ibv_send_wr {
    let mut w = wr(op, id, sges);
    w.wr.atomic.remote_addr = raddr;
    w.wr.atomic.rkey = rkey;
    w.wr.atomic.compare_add = add;
    w.wr.atomic.swap = swap;
    w
}

pub(crate) fn poll(cq: *mut ibv_cq) -> Option<ibv_wc> {
    let mut w = ibv_wc::default();
    // SAFETY: objects that the test holds (see the module).
    match unsafe { ibv_poll_cq(cq, 1, &mut w) } {
        0 => None,
        1 => Some(w),
        n => panic!("poll_cq: {n}"),
    }
}

/// All completions, as (id, status).
pub(crate) fn drain(cq: *mut ibv_cq) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| poll(cq)).map(|w| (w.wr_id, w.status)).collect()
}

/// Exactly one successful completion.
pub(crate) fn one(cq: *mut ibv_cq) -> ibv_wc {
    let w = poll(cq).expect("no completion");
    assert_eq!(w.status, IBV_WC_SUCCESS, "status");
    w
}

pub(crate) fn free_cq(cq: *mut ibv_cq) {
    // SAFETY: objects that the test holds (see the module).
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
}

pub(crate) fn free_srq(srq: *mut ibv_srq) {
    // SAFETY: objects that the test holds (see the module).
    assert_eq!(unsafe { ibv_destroy_srq(srq) }, 0);
}

pub(crate) fn free_ah(ah: *mut ibv_ah) {
    // SAFETY: objects that the test holds (see the module).
    assert_eq!(unsafe { ibv_destroy_ah(ah) }, 0);
}

/// The immediate data of a completion, as it came.
pub(crate) fn imm(w: &ibv_wc) -> u32 {
    // SAFETY: both members of the union are 32-bit integers.
    unsafe { w.u1.imm_data }
}

/// The key that a completion says is invalid now.
pub(crate) fn invalidated(w: &ibv_wc) -> u32 {
    // SAFETY: as above.
    unsafe { w.u1.invalidated_rkey }
}

/// Bytes of memory that the device may have written.
pub(crate) fn bytes(mem: &[u8], at: usize, len: usize) -> Vec<u8> {
    assert!(at + len <= mem.len());
    // SAFETY: in bounds.
    (at..at + len).map(|i| unsafe { mem.as_ptr().add(i).read_volatile() }).collect()
}

/// Two connected QPs of one device, with a CQ each and registered memory.
pub(crate) struct Pair {
    pub(crate) a: Qp,
    pub(crate) b: Qp,
    pub(crate) ca: *mut ibv_cq,
    pub(crate) cb: *mut ibv_cq,
    pub(crate) ma: Mr,
    pub(crate) mb: Mr,
    pub(crate) mem_a: Vec<u8>,
    pub(crate) mem_b: Vec<u8>,
}

impl Pair {
    pub(crate) fn new(d: &Dev, kind: u32) -> Self {
        Self::with(d, kind, Path::default(), ALL)
    }

    pub(crate) fn with(d: &Dev, kind: u32, path: Path, access: i32) -> Self {
        let (ca, cb) = (d.cq(64), d.cq(64));
        let (a, b) = (d.qp(kind, ca, ca), d.qp(kind, cb, cb));
        a.up(b.num, d, d, path);
        b.up(a.num, d, d, path);
        let mut mem_a: Vec<u8> = (0..8192u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut mem_b = vec![0u8; 8192];
        let (ma, mb) = (d.mr(&mut mem_a, access), d.mr(&mut mem_b, access));
        Self { a, b, ca, cb, ma, mb, mem_a, mem_b }
    }

    /// What the device wrote.
    pub(crate) fn b_bytes(&self, at: usize, len: usize) -> Vec<u8> {
        bytes(&self.mem_b, at, len)
    }

    pub(crate) fn a_bytes(&self, at: usize, len: usize) -> Vec<u8> {
        bytes(&self.mem_a, at, len)
    }

    pub(crate) fn close(self) {
        self.a.destroy();
        self.b.destroy();
        free_cq(self.ca);
        free_cq(self.cb);
        self.ma.dereg();
        self.mb.dereg();
    }
}
