//! What the tests stand on: the device, and queue pairs of both kinds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibv::mlx5::Poller;
use ibv::{
    Backend, Bare, Basic, CompletionQueue, Connected, Connection, Context, Direct, Endpoint, InitAttr,
    LocalPort, MemoryRegion, ProtectionDomain, QueuePair, QueuePairBuilder, Remote, RemoteAccess,
    TransitionError, Transport, WorkCompletion, state,
};
use softhca::{Config, Device, Hca, Link, Mode};

static ONE: Mutex<()> = Mutex::new(());

/// The tests of one program share the device: one at a time, so that each is deterministic.
pub(crate) struct Rig {
    pub(crate) hca: Hca,
    pub(crate) ctx: Arc<Context>,
    pub(crate) pd: Arc<ProtectionDomain<'static>>,
    pub(crate) local: LocalPort,
    _one: MutexGuard<'static, ()>,
}

pub(crate) type Qp<T, B, S = state::Rts> = QueuePair<'static, T, S, B>;
/// Why a queue pair is still, or again, in RESET.
pub(crate) type Stayed<T, B> = TransitionError<Qp<T, B, state::Reset>>;
pub(crate) type Cq<K> = Arc<CompletionQueue<'static, K>>;

/// Sizes of a queue pair for which libmlx5 makes rings of the same size, whether it is made with all operations (and
/// room for a memory window's bind) or with ours: 128 blocks, 128 receives.
pub(crate) const BLOCKS: usize = 128;
pub(crate) const SGES: u32 = 4;
pub(crate) const INLINE: u32 = 180;

/// Whether the device checks each store to a doorbell: in the program that is called so, with the same tests.
pub(crate) const TRAPS: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), [.., b't', b'r', b'a', b'p']);

/// How often something random is done: `few` times where each store to a doorbell costs two signals, and less under
/// valgrind.
pub(crate) fn rounds(few: usize, many: usize) -> usize {
    match (std::env::var_os("SOFTHCA_UNDER_VALGRIND"), TRAPS) {
        (Some(_), _) => few / 10 + 1,
        (None, true) => few,
        (None, false) => many,
    }
}

/// Whether the link layer is Ethernet: in the program that is called so.
pub(crate) const ROCE: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), [.., b'r', b'o', b'c', b'e']);

impl Rig {
    pub(crate) fn new() -> Self {
        Self::on("mlx5_0")
    }

    /// On the device that has no atomics.
    pub(crate) fn without_atomics() -> Self {
        Self::on("mlx5_1")
    }

    fn on(device: &str) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mode = if TRAPS { Mode::Trap } else { Mode::Manual };
        let link = if ROCE { Link::RoCE } else { Link::InfiniBand };
        let devices = Config::new().mode(mode).devices(1, link).device(Device::new(link).without_atomics());
        let hca = Hca::start(devices).unwrap();
        hca.take_violations();
        let ctx = Arc::new(Context::open(device).unwrap());
        let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
        let local = ctx.local_port(1).unwrap();
        assert_eq!(local.lid == 0, ROCE, "addressed as that link layer does");
        Self { hca, ctx, pd, local, _one: one }
    }

    pub(crate) fn region(&self, len: usize) -> Arc<MemoryRegion<'static, Remote>> {
        let pages = ibv::Pages::new(len).unwrap();
        let all = RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC | RemoteAccess::MW_BIND;
        Arc::new(MemoryRegion::remote(&self.pd, pages, all).unwrap())
    }

    pub(crate) fn bare(&self, entries: u32) -> Cq<Bare> {
        Arc::new(CompletionQueue::new(&self.ctx, entries).unwrap())
    }

    pub(crate) fn direct(&self, entries: u32) -> Cq<Direct> {
        Arc::new(CompletionQueue::builder(&self.ctx, entries).build_direct().unwrap())
    }

    /// Of entries of 128 bytes.
    pub(crate) fn direct_wide(&self, entries: u32) -> Cq<Direct> {
        Arc::new(CompletionQueue::builder(&self.ctx, entries).wide().build_direct().unwrap())
    }

    pub(crate) fn basic_qp<T: Transport>(
        &self,
        send: &Cq<Bare>,
        recv: &Cq<Bare>,
    ) -> Qp<T, Basic, state::Reset> {
        let depth = if T::NAME == "UD" { 32 } else { 18 };
        QueuePairBuilder::new(&self.pd, send, recv)
            .send_depth(depth)
            .recv_depth(128)
            .send_sges(SGES)
            .recv_sges(SGES)
            .inline(INLINE)
            .build()
            .unwrap()
    }

    pub(crate) fn direct_qp<T: Transport>(
        &self,
        send: &Cq<Direct>,
        recv: &Cq<Direct>,
    ) -> Qp<T, Direct, state::Reset> {
        QueuePairBuilder::direct(&self.pd, send, recv)
            .send_depth(32)
            .recv_depth(128)
            .send_sges(SGES)
            .recv_sges(SGES)
            .inline(INLINE)
            .build()
            .unwrap()
    }

    /// To INIT, RTR, RTS, connected to itself.
    pub(crate) fn to_itself<T: Connected<Init = InitAttr>, B: Backend>(
        &self,
        qp: Qp<T, B, state::Reset>,
    ) -> Qp<T, B> {
        let number = qp.qp_num();
        self.up(qp, number)
    }

    /// The same, connected to that number of the same port.
    pub(crate) fn up<T: Connected<Init = InitAttr>, B: Backend>(
        &self,
        qp: Qp<T, B, state::Reset>,
        dest: u32,
    ) -> Qp<T, B> {
        self.try_up(qp, dest).unwrap()
    }

    pub(crate) fn try_up<T: Connected<Init = InitAttr>, B: Backend>(
        &self,
        qp: Qp<T, B, state::Reset>,
        dest: u32,
    ) -> Result<Qp<T, B>, Stayed<T, B>> {
        let all = RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC;
        let peer = Endpoint { lid: self.local.lid, qpn: dest, psn: 0, gid: self.local.gid };
        let connection = Connection::new(self.local, 0, peer).max_rd_atomic(4).max_dest_rd_atomic(4);
        qp.init(InitAttr::new(1).access(all))?.connect(&connection)
    }

    pub(crate) fn no_violations(&self) {
        let (count, texts) = self.hca.take_violations();
        assert_eq!(count, 0, "{texts:?}");
    }
}

/// All that there is.
pub(crate) fn drain(cq: &Cq<Bare>) -> Vec<WorkCompletion> {
    let mut all = Vec::new();
    loop {
        let mut wcs = [WorkCompletion::default(); 16];
        match cq.poll(&mut wcs).unwrap() {
            [] => return all,
            some => all.extend_from_slice(some),
        }
    }
}

/// All that there is.
pub(crate) fn drain_direct(poller: &mut Poller<'_>) -> Vec<WorkCompletion> {
    let mut all = Vec::new();
    while let Some(wc) = poller.poll() {
        all.push(wc.copy());
    }
    all
}

/// Numbers that look random, the same every time.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.word() & 1 == 0
    }
}
