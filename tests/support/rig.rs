//! A device to test on, connected pairs of queue pairs, and completions with a time limit.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::mem;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ibv::qp::Connected;
use ibv::state::{Init, Rts};
use ibv::{
    Backend, Basic, Buffer, CompletionQueue, Connection, Context, Extended, InitAttr, Local, LocalPort,
    MemoryRegion, PollCq, ProtectionDomain, QueuePair, QueuePairBuilder, RegionKind, Remote, RemoteAccess,
    Transport, Ud, UdInitAttr, WcStatus, WorkCompletion, random_psn,
};

use crate::leaks::{Counts, skip};

/// No wait for something that must come takes longer, times [`patience`].
const LIMIT: Duration = Duration::from_secs(20);
/// No scenario takes longer, not even one that hangs in a destroy verb; times [`patience`].
const SCENARIO_LIMIT: Duration = Duration::from_secs(60);
/// How long to look for what must not come.
const QUIET: Duration = Duration::from_millis(150);

pub(crate) const QKEY: u32 = 0x1111_1111;

/// The device under test.
pub(crate) struct Rig {
    pub(crate) ctx: Context,
    pub(crate) local: LocalPort,
}

/// A device that the test program has made itself.
pub(crate) struct Made {
    pub(crate) name: &'static str,
    pub(crate) gid_index: Option<u32>,
    /// Does all that was asked of it, and lets time go by until nothing is left. None if it works by itself.
    pub(crate) work: Option<fn()>,
    /// Whether extended queue pairs shall trust its `ibv_wr_*`.
    pub(crate) trusts_wr: bool,
    /// Its objects, in the words of `rdma resource show`.
    pub(crate) objects: fn() -> String,
    /// Makes a program see it.
    pub(crate) show_to: fn(&mut Command),
}

/// The device under test, if it is not one of the machine's.
pub(crate) static MADE: OnceLock<Made> = OnceLock::new();

/// The name of the device under test.
pub(crate) fn device_name() -> Option<String> {
    match MADE.get() {
        Some(made) => Some(made.name.to_owned()),
        None => std::env::var("IBV_TEST_DEVICE").ok().filter(|name| !name.is_empty()),
    }
}

/// A program of the system, which sees the device under test.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    if let Some(made) = MADE.get() {
        (made.show_to)(&mut command);
    }
    command
}

fn gid_index() -> Option<u32> {
    match MADE.get() {
        Some(made) => made.gid_index,
        None => std::env::var("IBV_TEST_GID_INDEX").ok().map(|index| index.parse().unwrap()),
    }
}

/// Makes the device work, if it doesn't by itself. Whether it did.
fn work() -> bool {
    let work = MADE.get().and_then(|made| made.work);
    work.inspect(|work| work()).is_some()
}

impl Rig {
    /// Another opening of the device.
    pub(crate) fn open() -> Self {
        let ctx = Context::open(&device_name().unwrap()).unwrap();
        let local = match gid_index() {
            Some(index) => ctx.local_port_with_gid(1, index).unwrap(),
            None => ctx.local_port(1).unwrap(),
        };
        Self { ctx, local }
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let pd = self.ctx.alloc_pd().unwrap();
        let (a_cq, b_cq) = (self.ctx.create_cq(256).unwrap(), self.ctx.create_cq(256).unwrap());
        Parts { local: self.local, pd, a_cq, b_cq }
    }
}

/// Runs a scenario on the device under test, one at a time, and checks that it leaves nothing behind: neither open
/// files nor objects of the device, although that is still open.
pub(crate) fn scenario(run: impl FnOnce(&Rig)) {
    guarded(|known| {
        let rig = Rig::open();
        let before = known.open.get_or_insert_with(Counts::now);
        run(&rig);
        before.expect_again();
    });
}

/// As [`scenario`], for one that opens the device itself, and may leave to its closing what it has leaked.
pub(crate) fn checked(run: impl FnOnce()) {
    guarded(|known| {
        let before = known.closed.get_or_insert_with(Counts::now);
        run();
        before.expect_again();
    });
}

/// What there is between scenarios: counting takes longer than most of them.
#[derive(Default)]
struct Known {
    open: Option<Counts>,
    closed: Option<Counts>,
}

fn guarded(run: impl FnOnce(&mut Known)) {
    static ONE_AT_A_TIME: Mutex<Known> = Mutex::new(Known { open: None, closed: None });
    if device_name().is_none() {
        return skip("no device: run `cargo xtask test`, or set IBV_TEST_DEVICE and IBV_TEST_GID_INDEX");
    }
    let mut kept = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // not kept if it fails: what it leaves is its fault, not the next one's
    let mut known = mem::take(&mut *kept);
    let _alive = watchdog();
    run(&mut known);
    *kept = known;
}

/// Ends the process if what it returns is not dropped in time.
fn watchdog() -> Sender<()> {
    let (alive, watch) = channel();
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = watch.recv_timeout(SCENARIO_LIMIT * patience()) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    alive
}

/// Valgrind lets one thread run at a time, and not the one that others wait for.
fn patience() -> u32 {
    if std::env::var_os("SOFTHCA_UNDER_VALGRIND").is_some() { 20 } else { 1 }
}

/// What a connection is made from: one protection domain, and a completion queue for each side.
pub(crate) struct Parts<'c> {
    pub(crate) local: LocalPort,
    pub(crate) pd: ProtectionDomain<'c>,
    pub(crate) a_cq: CompletionQueue<'c>,
    pub(crate) b_cq: CompletionQueue<'c>,
}

/// A builder with room for what most tests do.
pub(crate) fn roomy<'p, T: Transport, B: Backend>(
    builder: QueuePairBuilder<'p, T, B>,
) -> QueuePairBuilder<'p, T, B> {
    builder.send_depth(16).recv_depth(16).send_sges(4).recv_sges(4).inline(64)
}

/// The same, of the extended backend.
#[expect(unsafe_code, reason = "trusting the provider is")]
pub(crate) fn roomy_extended<T: Transport>(
    builder: QueuePairBuilder<'_, T>,
) -> QueuePairBuilder<'_, T, Extended> {
    let builder = roomy(builder.extended());
    if MADE.get().is_some_and(|made| made.trusts_wr) {
        // SAFETY: the device is libmlx5's, and no test that makes queue pairs by this has more than 16 requests in
        // flight.
        unsafe { builder.trust_wr() }
    } else {
        builder
    }
}

impl Parts<'_> {
    /// Takes all completions off the queues: only then do dropped queue pairs give their room back.
    pub(crate) fn sweep(&self) {
        for cq in [&self.a_cq, &self.b_cq] {
            let mut wcs = [WorkCompletion::default(); 64];
            while !cq.poll(&mut wcs).unwrap().is_empty() {}
        }
    }

    /// A region of zeros.
    pub(crate) fn zeros(&self, len: usize) -> MemoryRegion<'_, Local> {
        self.pd.alloc_local(len).unwrap()
    }

    /// A region of [`pattern`].
    pub(crate) fn filled(&self, len: usize, seed: u8) -> MemoryRegion<'_, Local> {
        let mr = self.zeros(len);
        mr.write(0, &pattern(len, seed)).unwrap();
        mr
    }

    /// A region that peers may read, write and update.
    pub(crate) fn open(&self, len: usize) -> MemoryRegion<'_, Remote> {
        self.pd.alloc_remote(len, all_access()).unwrap()
    }

    pub(crate) fn a_builder<T: Transport>(&self) -> QueuePairBuilder<'_, T> {
        roomy(self.pd.create_qp::<T>(&self.a_cq, &self.a_cq))
    }

    pub(crate) fn b_builder<T: Transport>(&self) -> QueuePairBuilder<'_, T> {
        roomy(self.pd.create_qp::<T>(&self.b_cq, &self.b_cq))
    }

    /// Two queue pairs that are about to be connected.
    pub(crate) fn inits<T: Transport<Init = InitAttr>>(&self) -> [QueuePair<'_, T, Init>; 2] {
        [self.a_builder(), self.b_builder()]
            .map(|builder| builder.build().unwrap().init(open_init(&self.local)).unwrap())
    }

    /// Two queue pairs that are connected with each other.
    pub(crate) fn pair<T: Connected + Transport<Init = InitAttr>>(&self) -> [QueuePair<'_, T>; 2] {
        connect(&self.local, self.inits())
    }

    /// A datagram queue pair of each side.
    pub(crate) fn datagrams(&self) -> [QueuePair<'_, Ud>; 2] {
        [self.a_builder(), self.b_builder()].map(|builder| {
            let qp = builder.build().unwrap().init(UdInitAttr::new(self.local.port, QKEY)).unwrap();
            qp.activate(random_psn()).unwrap()
        })
    }
}

pub(crate) fn all_access() -> RemoteAccess {
    RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC
}

pub(crate) fn open_init(local: &LocalPort) -> InitAttr {
    InitAttr::new(local.port).access(all_access())
}

/// Connects two queue pairs with each other.
pub(crate) fn connect<'p, T: Connected, B: Backend>(
    local: &LocalPort,
    [a, b]: [QueuePair<'p, T, Init, B>; 2],
) -> [QueuePair<'p, T, Rts, B>; 2] {
    connect_with(local, a, b, |connection| connection).into()
}

/// Connects two queue pairs, which may borrow different things, by connections that `change` has changed.
pub(crate) fn connect_with<'a, 'b, T: Connected, U: Connected, B: Backend>(
    local: &LocalPort,
    a: QueuePair<'a, T, Init, B>,
    b: QueuePair<'b, U, Init, B>,
    change: impl Fn(Connection) -> Connection,
) -> (QueuePair<'a, T, Rts, B>, QueuePair<'b, U, Rts, B>) {
    let (a_psn, b_psn) = (random_psn(), random_psn());
    let (a_end, b_end) = (a.endpoint(local, a_psn), b.endpoint(local, b_psn));
    // patient enough for a busy machine
    let connection = |psn, peer| {
        change(Connection::new(*local, psn, peer).max_rd_atomic(4).max_dest_rd_atomic(4).timeout(18))
    };
    (a.connect(&connection(a_psn, b_end)).unwrap(), b.connect(&connection(b_psn, a_end)).unwrap())
}

/// Connects with quick retries: a peer that is not there is given up within a tenth of a second.
pub(crate) fn connect_impatiently<'p, T: Connected>(
    local: &LocalPort,
    [a, b]: [QueuePair<'p, T, Init, Basic>; 2],
) -> [QueuePair<'p, T>; 2] {
    connect_with(local, a, b, |connection| connection.timeout(12).retry_cnt(1).rnr_retry(0)).into()
}

/// Bytes that differ from place to place and from seed to seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(7).wrapping_add((at >> 8) as u8).wrapping_add(seed)).collect()
}

pub(crate) fn contents<K: RegionKind, M: Buffer>(mr: &MemoryRegion<'_, K, M>) -> Vec<u8> {
    let mut bytes = vec![0; mr.len()];
    mr.read(0, &mut bytes).unwrap();
    bytes
}

/// The next completions, so many, of polls that have room for what is left, up to 16.
pub(crate) fn gather<W: std::fmt::Debug>(count: usize, mut poll: impl FnMut(usize) -> Vec<W>) -> Vec<W> {
    let start = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        let new = poll((count - found.len()).min(16));
        if new.is_empty() {
            work();
        }
        found.extend(new);
        assert!(
            start.elapsed() < LIMIT * patience(),
            "{} of {count} completions came: {found:?}",
            found.len()
        );
        thread::yield_now();
    }
    found
}

/// The next completions, so many.
pub(crate) fn next_of(mut cq: &CompletionQueue<'_>, count: usize) -> Vec<WorkCompletion> {
    next_from(&mut cq, count)
}

/// The same, of any kind of completion queue.
pub(crate) fn next_from(cq: &mut impl PollCq, count: usize) -> Vec<WorkCompletion> {
    let mut wcs = [WorkCompletion::default(); 16];
    gather(count, |room| cq.poll_into(&mut wcs[..room]).unwrap().to_vec())
}

/// The next completion.
pub(crate) fn next(cq: &CompletionQueue<'_>) -> WorkCompletion {
    next_of(cq, 1)[0]
}

/// The next completion, which must be that of request `id`, is a success.
pub(crate) fn success(cq: &CompletionQueue<'_>, id: u64) {
    let _ = completed(cq, id);
}

/// The next completion, which must be that of request `id`, and a success.
pub(crate) fn completed(cq: &CompletionQueue<'_>, id: u64) -> WorkCompletion {
    let wc = next(cq);
    assert_eq!((wc.id(), wc.status()), (id, WcStatus::SUCCESS), "{wc:?}");
    wc
}

/// The status of the next completion, which must be that of request `id`, and an error.
pub(crate) fn failure(cq: &CompletionQueue<'_>, id: u64) -> WcStatus {
    let wc = next(cq);
    assert_eq!(wc.id(), id, "{wc:?}");
    let error = wc.result().expect_err("a request that must fail");
    assert_eq!((error.id, error.status), (wc.id(), wc.status()));
    wc.status()
}

/// No completion is there, nor comes for a while.
pub(crate) fn quiet(cq: &CompletionQueue<'_>) {
    if !work() {
        thread::sleep(QUIET);
    }
    let mut wcs = [WorkCompletion::default(); 4];
    let found = cq.poll(&mut wcs).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
