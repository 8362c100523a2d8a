//! What the mlx5 direct path costs, in instructions, beside Debian's libmlx5 on the same kind of queues.
//!
//! `cargo bench --features mlx5 --bench mlx5_counts` runs itself under callgrind, on the software HCA, which is stepped
//! outside of what is counted. Each row is one function, `stock_*` or `ours_*`: never inlined, all its arguments opaque.
//! Stock is given requests that were built before; ours are built in the function.
#![expect(unsafe_code, reason = "calls the C functions, and has names that callgrind finds")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark"
)]

use std::hint::black_box;
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Arc;

use ibv::mlx5::Poller;
use ibv::sys;
use ibv::{
    Backend, Basic, CompletionQueue, Connection, Context, Direct, Endpoint, InitAttr, Inline, MemoryRegion,
    MrSlice, ProtectionDomain, QueuePair, QueuePairBuilder, Rc, Recv, RemoteAccess, RemoteSlice,
    WorkCompletion, recv, state, write,
};
use softhca::{Config, Hca};

const ROUNDS: u64 = 200;
const LIST: usize = 16;

/// Row, how many requests or completions a call has, and the most that ours may cost of stock's.
const ROWS: [(&str, u64, f64); 8] = [
    ("post", 1, 0.25),
    ("post_inline", 1, 0.22),
    ("post_list", LIST as u64, 0.30),
    ("poll", LIST as u64, 0.35),
    ("poll_one", 1, 0.35),
    ("poll_empty", 1, 0.20),
    ("post_recv", 1, 0.40),
    ("post_recv_list", LIST as u64, 0.40),
];

type Ours = QueuePair<'static, Rc, state::Rts, Direct>;

macro_rules! shells {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        #[inline(never)]
        // SAFETY: no other function of this program has that name.
        #[unsafe(no_mangle)]
        fn $name($($arg: $type),*) -> $result {
            // SAFETY: a comment, so that functions which do the same are not made one.
            unsafe { std::arch::asm!(concat!("# ", stringify!($name)), options(nomem, nostack, preserves_flags)) };
            $body
        }
    )*};
}

/// Posts what was built before.
#[inline(always)]
fn post_send(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_send_wr) -> i32 {
    let mut bad = null_mut();
    // SAFETY: a living queue pair, and requests that were built for it.
    unsafe { sys::ibv_post_send(qp, wr, &raw mut bad) }
}

#[inline(always)]
fn post_recv(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_recv_wr) -> i32 {
    let mut bad = null_mut();
    // SAFETY: as above.
    unsafe { sys::ibv_post_recv(qp, wr, &raw mut bad) }
}

#[inline(always)]
fn poll_cq(cq: *mut sys::ibv_cq, wcs: *mut sys::ibv_wc) -> i32 {
    // SAFETY: a living queue, and room for so many.
    unsafe { sys::ibv_poll_cq(cq, LIST as i32, wcs) }
}

shells! {
    fn stock_post(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_send_wr) -> i32 { post_send(qp, wr) }
    fn stock_post_inline(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_send_wr) -> i32 { post_send(qp, wr) }
    fn stock_post_list(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_send_wr) -> i32 { post_send(qp, wr) }
    fn stock_post_recv(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_recv_wr) -> i32 { post_recv(qp, wr) }
    fn stock_post_recv_list(qp: *mut sys::ibv_qp, wr: *mut sys::ibv_recv_wr) -> i32 { post_recv(qp, wr) }
    fn stock_poll(cq: *mut sys::ibv_cq, wcs: *mut sys::ibv_wc) -> i32 { poll_cq(cq, wcs) }
    fn stock_poll_one(cq: *mut sys::ibv_cq, wcs: *mut sys::ibv_wc) -> i32 { poll_cq(cq, wcs) }
    fn stock_poll_empty(cq: *mut sys::ibv_cq, wcs: *mut sys::ibv_wc) -> i32 { poll_cq(cq, wcs) }

    fn ours_post(qp: &mut Ours, from: MrSlice<'static>, to: RemoteSlice, id: u64) -> bool {
        qp.post(write(from, to).signaled().id(id)).is_ok()
    }
    fn ours_post_inline(qp: &mut Ours, from: &[u8], to: RemoteSlice, id: u64) -> bool {
        qp.post(write(Inline(from), to).signaled().id(id)).is_ok()
    }
    fn ours_post_list(qp: &mut Ours, from: &[MrSlice<'static>], to: RemoteSlice, id: u64) -> bool {
        let mut batch = qp.batch();
        for (from, id) in from.iter().zip(id..) {
            if batch.push(write(*from, to).signaled().id(id)).is_err() {
                return false;
            }
        }
        batch.submit();
        true
    }
    fn ours_post_recv(qp: &mut Ours, into: MrSlice<'static>, id: u64) -> bool {
        qp.post_recv(recv(into).id(id)).is_ok()
    }
    fn ours_post_recv_list(qp: &mut Ours, requests: &[Recv<MrSlice<'static>>]) -> bool {
        qp.post_recv_list(requests).is_ok()
    }
    fn ours_poll(poller: &mut Poller<'static>, ids: &mut [u64]) -> usize {
        let mut found = 0;
        for id in ids {
            let Some(wc) = poller.poll() else { break };
            if wc.result().is_err() {
                break;
            }
            *id = wc.id();
            found += 1;
        }
        found
    }
    fn ours_poll_one(poller: &mut Poller<'static>, id: &mut u64) -> bool {
        let Some(wc) = poller.poll() else { return false };
        *id = wc.id();
        wc.result().is_ok()
    }
    fn ours_poll_empty(poller: &mut Poller<'static>) -> bool {
        poller.poll().is_none()
    }
}

struct Rig {
    hca: Hca,
    mr: Arc<MemoryRegion<'static, ibv::Remote>>,
    pd: Arc<ProtectionDomain<'static>>,
    ctx: Arc<Context>,
}

fn sized<B: Backend>(builder: QueuePairBuilder<'static, Rc, B>) -> QueuePairBuilder<'static, Rc, B> {
    builder.send_depth(64).recv_depth(64).inline(64)
}

impl Rig {
    fn new() -> Self {
        let hca = Hca::start(Config::new()).unwrap();
        let ctx = Arc::new(Context::open("mlx5_0").unwrap());
        let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
        let pages = ibv::Pages::new(8192).unwrap();
        let mr = Arc::new(MemoryRegion::remote(&pd, pages, RemoteAccess::WRITE).unwrap());
        Self { hca, mr, pd, ctx }
    }

    /// Connected to itself.
    fn up<B: Backend>(
        &self,
        qp: QueuePair<'static, Rc, state::Reset, B>,
    ) -> QueuePair<'static, Rc, state::Rts, B> {
        let local = self.ctx.local_port(1).unwrap();
        let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
        let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE)).unwrap();
        qp.connect(&Connection::new(local, 0, peer)).unwrap()
    }

    fn step(&self) {
        self.hca.run_until_idle();
    }
}

fn run_stock(rig: &Rig) {
    let cq = Arc::new(CompletionQueue::new(&rig.ctx, 1024).unwrap());
    let qp: QueuePair<'static, Rc, state::Rts, Basic> =
        rig.up(sized(QueuePairBuilder::new(&rig.pd, &cq, &cq)).build().unwrap());
    let to = rig.mr.remote_region();
    let mut sge = sys::ibv_sge { addr: to.addr, length: 64, lkey: rig.mr.lkey() };
    let bytes = 7u64;
    let mut inline_sge = sys::ibv_sge { addr: (&raw const bytes).addr() as u64, length: 8, lkey: 0 };
    let wr = |sge: *mut sys::ibv_sge, flags: u32| {
        let mut wr = sys::ibv_send_wr {
            sg_list: sge,
            num_sge: 1,
            opcode: sys::IBV_WR_RDMA_WRITE,
            send_flags: sys::IBV_SEND_SIGNALED | flags,
            ..Default::default()
        };
        wr.wr.rdma.remote_addr = to.addr + 4096;
        wr.wr.rdma.rkey = to.rkey;
        wr
    };
    let mut one = wr(&raw mut sge, 0);
    let mut inline = wr(&raw mut inline_sge, sys::IBV_SEND_INLINE);
    let mut list = [one; LIST];
    let first = list.as_mut_ptr();
    (1..LIST).for_each(|i| list[i - 1].next = first.wrapping_add(i));
    let mut receive = sys::ibv_recv_wr { sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
    let mut receives = [receive; LIST];
    let first = receives.as_mut_ptr();
    (1..LIST).for_each(|i| receives[i - 1].next = first.wrapping_add(i));
    let mut wcs = [WorkCompletion::default(); LIST];
    let (qp_ptr, cq_ptr, wcs_ptr) = (qp.as_ptr(), cq.as_ptr(), wcs.as_mut_ptr().cast());
    for round in 0..ROUNDS {
        assert_eq!(stock_post(black_box(qp_ptr), black_box(&raw mut one)), 0);
        rig.step();
        assert_eq!(stock_poll_one(black_box(cq_ptr), black_box(wcs_ptr)), 1);
        assert_eq!(stock_post_inline(black_box(qp_ptr), black_box(&raw mut inline)), 0);
        rig.step();
        assert_eq!(stock_poll_one(black_box(cq_ptr), black_box(wcs_ptr)), 1);
        assert_eq!(stock_post_list(black_box(qp_ptr), black_box(list.as_mut_ptr())), 0);
        rig.step();
        assert_eq!(stock_poll(black_box(cq_ptr), black_box(wcs_ptr)), LIST as i32);
        assert_eq!(stock_poll_empty(black_box(cq_ptr), black_box(wcs_ptr)), 0);
        if round < 2 {
            assert_eq!(stock_post_recv(black_box(qp_ptr), black_box(&raw mut receive)), 0);
            assert_eq!(stock_post_recv_list(black_box(qp_ptr), black_box(receives.as_mut_ptr())), 0);
        }
    }
}

fn run_ours(rig: &Rig) {
    let cq = Arc::new(CompletionQueue::builder(&rig.ctx, 1024).build_direct().unwrap());
    let mut qp: Ours = rig.up(sized(QueuePairBuilder::direct(&rig.pd, &cq, &cq)).build().unwrap());
    let mut poller = Poller::new(&cq).unwrap();
    let to = rig.mr.remote_region().slice(4096..4160).unwrap();
    let from = rig.mr.slice(..64).unwrap().detach();
    let (bytes, list) = ([7u8; 8], [from; LIST]);
    let receives: [_; LIST] = std::array::from_fn(|i| recv(from).id(i as u64));
    let (mut id, mut ids) = (0, [0; LIST]);
    for round in 0..ROUNDS {
        assert!(ours_post(black_box(&mut qp), black_box(from), black_box(to), black_box(round)));
        rig.step();
        assert!(ours_poll_one(black_box(&mut poller), black_box(&mut id)) && id == round);
        assert!(ours_post_inline(black_box(&mut qp), black_box(&bytes), black_box(to), black_box(round)));
        rig.step();
        assert!(ours_poll_one(black_box(&mut poller), black_box(&mut id)));
        assert!(ours_post_list(black_box(&mut qp), black_box(&list), black_box(to), black_box(round)));
        rig.step();
        assert_eq!(ours_poll(black_box(&mut poller), black_box(&mut ids)), LIST);
        assert_eq!(ids[LIST - 1], round + LIST as u64 - 1);
        assert!(ours_poll_empty(black_box(&mut poller)));
        if round < 2 {
            assert!(ours_post_recv(black_box(&mut qp), black_box(from), black_box(round)));
            assert!(ours_post_recv_list(black_box(&mut qp), black_box(&receives)));
        }
    }
}

/// Inclusive instructions and calls of a function, of a file in callgrind's format with names in full.
fn cost(file: &str, function: &str) -> (u64, u64) {
    let (mut instructions, mut calls) = (0, 0);
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        if line.strip_prefix("cfn=") != Some(function) {
            continue;
        }
        let count = lines.next().and_then(|line| line.strip_prefix("calls=")).expect("calls follow");
        calls += count.split(' ').next().unwrap().parse::<u64>().unwrap();
        let inclusive = lines.next().unwrap().split(' ').next_back().unwrap();
        instructions += inclusive.parse::<u64>().unwrap();
    }
    (instructions, calls)
}

fn main() {
    if std::env::args().any(|arg| arg == "--counted") {
        let rig = Rig::new();
        run_stock(&rig);
        run_ours(&rig);
        return;
    }
    let out = std::env::temp_dir().join(format!("ibv-callgrind-{}", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().unwrap())
        .arg("--counted")
        .status()
        .expect("valgrind is installed");
    assert!(status.success(), "{status}");
    let file = std::fs::read_to_string(&out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let mut failed = false;
    for (row, per_call, bar) in ROWS {
        let per = |side: &str| {
            let (instructions, calls) = cost(&file, &format!("{side}_{row}"));
            assert!(calls > 0, "{side}_{row} was called");
            instructions as f64 / (calls * per_call) as f64
        };
        let (ours, theirs) = (per("ours"), per("stock"));
        let ratio = ours / theirs;
        let verdict = if ratio <= bar { "ok" } else { "TOO MUCH" };
        failed |= ratio > bar;
        println!("mlx5_{row} ours={ours:.1} theirs={theirs:.1} ratio={ratio:.3} bar={bar:.2} {verdict}");
    }
    if failed {
        std::process::exit(1);
    }
}
