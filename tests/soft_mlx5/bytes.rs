//! Byte equality: for the same requests, what we write into the send queue, the doorbell record and the register is
//! what stock libmlx5 writes.
//!
//! Left out are the queue pair's number, and bytes that stock leaves as they were: the compare field of a `FETCH_ADD`,
//! fields of a key's context that its update does not mean, what follows inline data up to the next 16, and what
//! follows a WQE up to the next 64.

use super::memory::Memory;
use super::rig::{BLOCKS, INLINE, Qp, Random, Rig, SGES, drain, drain_direct};
use ibv::mlx5::Poller;
use ibv::{
    AddressHandle, AddressVector, Basic, BatchStorage, Direct, Empty, Endpoint, Inline, MemoryRegion,
    MrSlice, PostError, Rc, Remote, SendRequest, Transport, Uc, Ud, UdInitAttr, cmp_swp, fetch_add, read,
    recv, send, send_imm, write, write_imm,
};

/// Requests compared, in all; fewer where each store to a doorbell costs two signals, or addresses alone are new.
fn requests() -> usize {
    super::rig::rounds(20_000, if super::rig::ROCE { 20_000 } else { 330_000 })
}
const QKEY: u32 = 0x1234;

/// What a request was, as far as comparing and completing it goes.
#[derive(Clone, Copy, Default)]
pub(super) struct Posted {
    /// How many of it.
    pub(super) count: usize,
    /// It consumes a receive.
    pub(super) needs_recv: bool,
    /// It is a `FETCH_ADD`.
    pub(super) adds: bool,
    /// It names a key, of which each side has its own.
    pub(super) names_key: bool,
    /// It updates a key.
    pub(super) update: Option<Update>,
    /// Its inline data.
    pub(super) inline: Option<usize>,
}

/// An update of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Update {
    Bind,
    Invalidate,
}

impl Update {
    /// Whether byte `i` of the WQE is left out: in the key's context, stock leaves what is not meant as it was; and a
    /// bind has the queue pair's number and the key's last byte there.
    fn leaves(self, i: usize) -> bool {
        (64..128).contains(&i)
            && !matches!((self, i), (_, 64) | (Self::Bind, 66 | 80..96) | (Self::Invalidate, 68..72))
    }
}

struct Pair<T: Transport> {
    stock: Qp<T, Basic>,
    ours: Qp<T, Direct>,
}

impl<T: Transport> Pair<T> {
    /// Posts on both, once or as a list.
    fn post<R: SendRequest<'static, T> + Copy>(&mut self, request: R, count: usize) -> Result<(), PostError> {
        if count == 1 {
            self.stock.post(request)?;
            return self.ours.post(request);
        }
        let mut storage = BatchStorage::<4, { SGES as usize }>::new();
        let mut batch = self.stock.batch(&mut storage);
        for _ in 0..count {
            batch.push(request)?;
        }
        batch.submit()?;
        self.ours.post_list(&[request; 4][..count])
    }
}

struct Data {
    one: MrSlice<'static>,
    several: Vec<MrSlice<'static>>,
    bytes: Vec<u8>,
}

impl Data {
    fn random(random: &mut Random, mr: &MemoryRegion<'static, Remote>) -> Self {
        let mut slice = || {
            let at = random.below(4000);
            let len = if random.below(8) == 0 { 0 } else { random.below(60) };
            mr.slice(at..at + len).unwrap().detach()
        };
        let one = slice();
        let several = (0..SGES).map(|_| slice()).collect::<Vec<_>>();
        let several = several[..random.below(SGES as usize + 1)].to_vec();
        let len = if random.coin() { random.below(20) } else { random.below(INLINE as usize + 1) };
        Self { one, several, bytes: (0..len).map(|_| random.word() as u8).collect() }
    }
}

/// Posts some request that every connected transport can carry, but those with a receive if there is none.
macro_rules! connected {
    ($random:expr, $pair:expr, $mr:expr, $data:expr, $posted:expr, $kind:expr) => {{
        let to = $mr.remote_region().slice($random.below(4000)..).unwrap();
        let imm = $random.word() as u32;
        let flags = ($random.coin(), $random.coin(), $random.word());
        macro_rules! post {
                                        (|$d:ident| $make:expr) => {
                                            match $random.below(4) {
                                                0 => post!(@ $data.one, $d, $make),
                                                1 => post!(@ Empty, $d, $make),
                                                2 => {
                                                    $posted.inline = Some($data.bytes.len());
                                                    post!(@ Inline(&$data.bytes), $d, $make)
                                                }
                                                _ => post!(@ $data.several.as_slice(), $d, $make),
                                            }
                                        };
                                        (@ $value:expr, $d:ident, $make:expr) => {{
                                            let $d = $value;
                                            let request = $make.signaled().id(flags.2);
                                            let request = if flags.0 { request.fence() } else { request };
                                            let request = if flags.1 { request.solicited() } else { request };
                                            $pair.post(request, $posted.count)
                                        }};
                                    }
        match $kind {
            0 => {
                $posted.needs_recv = true;
                post!(|d| send(d))
            }
            1 => {
                $posted.needs_recv = true;
                post!(|d| send_imm(d, imm))
            }
            2 => post!(|d| write(d, to)),
            _ => {
                $posted.needs_recv = true;
                post!(|d| write_imm(d, to, imm))
            }
        }
    }};
}

/// Compares the WQEs in blocks `from..` of both rings, and what rang for them. Gives the block after them and how many
/// bytes, or what differs.
pub(super) fn compare(
    posted: Posted,
    header: usize,
    from: usize,
    (stock, ours): (&Memory, &Memory),
    half: usize,
) -> Result<(usize, usize), String> {
    let (mut at, mut bytes) = (from, 0);
    let byte = |memory: &Memory, block: usize, i: usize| memory.send_byte(block * 64 + i);
    for _ in 0..posted.count {
        let units = usize::from(byte(ours, at, 7) & 0x3f);
        let len = posted.inline.map_or(units * 16, |len| if len == 0 { header } else { header + 4 + len });
        if units == 0 || len > units * 16 || len + 16 <= units * 16 {
            return Err(format!("{units} units for {len} bytes"));
        }
        let skipped = |i: usize| {
            (4..7).contains(&i)
                || posted.adds && (40..48).contains(&i)
                || posted.names_key && (12..16).contains(&i)
                || posted.update.is_some_and(|update| update.leaves(i))
        };
        for i in (0..len).filter(|i| !skipped(*i)) {
            let (a, b) = (byte(stock, at, i), byte(ours, at, i));
            if a != b {
                return Err(format!("byte {i} of {len} in block {at}: stock {a:#x}, ours {b:#x}"));
            }
            bytes += 1;
        }
        if posted.count == 1 {
            // the register: the whole WQE, or its first 8 bytes
            let rang = if units > 1 && units * 16 <= ours.register_size { len } else { 8 };
            for i in (0..rang).filter(|i| !skipped(*i)) {
                let rang = ours.register_byte(half, i);
                if stock.register_byte(half, i) != rang || byte(ours, at, i) != rang {
                    return Err(format!("byte {i} of {rang} in the register"));
                }
                bytes += 1;
            }
        } else if [0, 1, 2, 3, 7]
            .iter()
            .any(|i| ours.register_byte(half, *i) != stock.register_byte(half, *i))
        {
            return Err("the register after a list".to_owned());
        }
        at += units.div_ceil(4);
    }
    if stock.record() != ours.record() {
        return Err(format!("doorbell records: stock {:?}, ours {:?}", stock.record(), ours.record()));
    }
    Ok((at, bytes))
}

#[expect(clippy::too_many_arguments, reason = "two queue pairs, and what is done with them")]
/// Runs requests on both until all are compared, or one differs. `spoil` may change our ring before.
fn run<T: Transport>(
    rig: &Rig,
    mut pair: Pair<T>,
    (stock_cq, mut poller): (&super::rig::Cq<ibv::Bare>, Poller<'_>),
    header: impl Fn(usize) -> usize,
    requests: usize,
    mut post: impl FnMut(&mut Pair<T>, &mut Random, &mut Posted) -> (usize, Result<(), PostError>),
    mut receive: impl FnMut(),
    mut spoil: impl FnMut(&Memory, usize),
) -> Result<usize, String> {
    let (stock, ours) = (Memory::of(&pair.stock), Memory::of(&pair.ours));
    assert_eq!((stock.blocks, ours.blocks), (BLOCKS, BLOCKS), "the rings are equally long");
    stock.clear();
    ours.clear();
    let mut random = Random::new(1);
    let (mut at, mut bytes, mut half) = (0, 0, 0);
    for number in 0..requests {
        let mut posted =
            Posted { count: if random.below(8) == 0 { 1 + random.below(4) } else { 1 }, ..Posted::default() };
        let (kind, result) = post(&mut pair, &mut random, &mut posted);
        result.map_err(|error| format!("request {number}: {error}"))?;
        if posted.needs_recv {
            (0..posted.count).for_each(|_| receive());
        }
        spoil(&ours, at);
        let (next, compared) = compare(posted, header(kind), at, (&stock, &ours), half)
            .map_err(|error| format!("request {number}, kind {kind}: {error}"))?;
        (at, bytes, half) = (next % BLOCKS, bytes + compared, half ^ 1);
        rig.hca.run_until_idle();
        let (a, b) = (drain(stock_cq), drain_direct(&mut poller));
        let ids =
            |wcs: &[ibv::WorkCompletion]| wcs.iter().map(|wc| (wc.id(), wc.status())).collect::<Vec<_>>();
        if a.len() != posted.count || ids(&a) != ids(&b) || a.iter().any(|wc| wc.result().is_err()) {
            return Err(format!("request {number}, kind {kind}: completions {a:?} and {b:?}"));
        }
    }
    Ok(bytes)
}

const RC_HEADERS: [usize; 7] = [16, 16, 32, 32, 32, 48, 48];

fn rc(requests: usize, spoil: impl FnMut(&Memory, usize)) -> Result<usize, String> {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (stock_cq, our_cq, peer_cq) = (rig.bare(512), rig.direct(512), rig.bare(2048));
    let stock = rig.basic_qp::<Rc>(&stock_cq, &stock_cq);
    let ours = rig.direct_qp::<Rc>(&our_cq, &our_cq);
    let peers = [rig.basic_qp::<Rc>(&peer_cq, &peer_cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq)];
    let [to_stock, to_ours] = peers;
    let (stock_number, our_number) = (stock.qp_num(), ours.qp_num());
    let pair = Pair { stock: rig.up(stock, to_stock.qp_num()), ours: rig.up(ours, to_ours.qp_num()) };
    let peers = [rig.up(to_stock, stock_number), rig.up(to_ours, our_number)];
    let poller = Poller::new(&our_cq).unwrap();
    let memory = mr.clone();
    let post = move |pair: &mut Pair<Rc>, random: &mut Random, posted: &mut Posted| {
        let mr = &memory;
        let data = Data::random(random, mr);
        let kind = random.below(7);
        let at = mr.remote_region().u64_at(8 * random.below(500)).unwrap();
        let into = mr.u64_at(8 * random.below(500)).unwrap().detach();
        let result = match kind {
            4 => {
                let from = mr.remote_region().slice(random.below(4000)..).unwrap();
                let (one, several) = (random.below(3), random.coin());
                let id = random.word();
                match one {
                    0 if several => pair.post(read(Empty, from).signaled().id(id).fence(), posted.count),
                    0 | 1 => pair.post(read(data.one, from).signaled().id(id), posted.count),
                    _ => pair.post(read(data.several.as_slice(), from).signaled().id(id), posted.count),
                }
            }
            5 => {
                let request = cmp_swp(into, at, random.word(), random.word()).signaled().id(random.word());
                pair.post(if random.coin() { request.fence() } else { request }, posted.count)
            }
            6 => {
                posted.adds = true;
                let request = fetch_add(into, at, random.word()).signaled().id(random.word());
                pair.post(if random.coin() { request.fence() } else { request }, posted.count)
            }
            kind => connected!(random, pair, mr, data, posted, kind),
        };
        (kind, result)
    };
    let receive = || {
        drain(&peer_cq);
        peers.iter().for_each(|peer| peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap());
    };
    let result =
        run(&rig, pair, (&stock_cq, poller), |kind| RC_HEADERS[kind], requests, post, receive, spoil);
    rig.no_violations();
    result
}

#[test]
fn rc_writes_what_libmlx5_writes() {
    let bytes = rc(requests() / 2, |_, _| {}).unwrap();
    println!("RC: {} requests, {bytes} bytes equal", requests() / 2);
}

#[test]
fn one_wrong_bit_is_found() {
    for bit in [0, 3 * 8, 11 * 8 + 7, 12 * 8, 16 * 8 + 5] {
        let found = rc(2000, |memory, at| memory.spoil_send_bit(at * 512 + bit));
        assert!(found.unwrap_err().starts_with("request 0"), "bit {bit}");
    }
}

#[test]
fn uc_writes_what_libmlx5_writes() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (stock_cq, our_cq, peer_cq) = (rig.bare(512), rig.direct(512), rig.bare(2048));
    let (stock, ours) = (rig.basic_qp::<Uc>(&stock_cq, &stock_cq), rig.direct_qp::<Uc>(&our_cq, &our_cq));
    let (to_stock, to_ours) =
        (rig.basic_qp::<Uc>(&peer_cq, &peer_cq), rig.basic_qp::<Uc>(&peer_cq, &peer_cq));
    let (stock_number, our_number) = (stock.qp_num(), ours.qp_num());
    let pair = Pair { stock: rig.up(stock, to_stock.qp_num()), ours: rig.up(ours, to_ours.qp_num()) };
    let peers = [rig.up(to_stock, stock_number), rig.up(to_ours, our_number)];
    let poller = Poller::new(&our_cq).unwrap();
    let memory = mr.clone();
    let post = move |pair: &mut Pair<Uc>, random: &mut Random, posted: &mut Posted| {
        let mr = &memory;
        let data = Data::random(random, mr);
        let kind = random.below(4);
        (kind, connected!(random, pair, mr, data, posted, kind))
    };
    let receive = || {
        drain(&peer_cq);
        peers.iter().for_each(|peer| peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap());
    };
    let bytes = run(
        &rig,
        pair,
        (&stock_cq, poller),
        |kind| RC_HEADERS[kind],
        requests() / 4,
        post,
        receive,
        |_, _| {},
    );
    println!("UC: {} requests, {} bytes equal", requests() / 4, bytes.unwrap());
    rig.no_violations();
}

#[test]
fn ud_writes_what_libmlx5_writes() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (stock_cq, our_cq, peer_cq) = (rig.bare(512), rig.direct(512), rig.bare(2048));
    let (stock, ours) = (rig.basic_qp::<Ud>(&stock_cq, &stock_cq), rig.direct_qp::<Ud>(&our_cq, &our_cq));
    let peer = rig.basic_qp::<Ud>(&peer_cq, &peer_cq);
    let attr = UdInitAttr::new(1, QKEY);
    let pair = Pair {
        stock: stock.init(attr).unwrap().activate(0).unwrap(),
        ours: ours.init(attr).unwrap().activate(0).unwrap(),
    };
    let peer = peer.init(attr).unwrap().activate(0).unwrap();
    let poller = Poller::new(&our_cq).unwrap();
    let number = peer.qp_num();
    let to = Endpoint { lid: rig.local.lid, qpn: number, psn: 0, gid: rig.local.gid };
    let handles: Vec<&'static AddressHandle<'static>> = (0..4)
        .map(|sl| {
            let address = AddressVector::to_peer(&rig.local, &to).unwrap().sl(sl);
            &*Box::leak(Box::new(AddressHandle::new(&rig.pd, &address).unwrap()))
        })
        .collect();
    let memory = mr.clone();
    let post = move |pair: &mut Pair<Ud>, random: &mut Random, posted: &mut Posted| {
        let data = Data::random(random, &memory);
        let kind = random.below(2);
        posted.needs_recv = true;
        let (imm, id, solicited) = (random.word() as u32, random.word(), random.coin());
        let (ah, which) = (handles[random.below(4)], random.below(4));
        macro_rules! post {
            ($data:expr) => {{
                let request = send_imm($data, (kind != 0).then_some(imm));
                let request = request.to(ah, number, QKEY).signaled().id(id);
                pair.post(if solicited { request.solicited() } else { request }, posted.count)
            }};
        }
        let result = match which {
            0 => post!(data.one),
            1 => post!(Empty),
            2 => {
                posted.inline = Some(data.bytes.len());
                post!(Inline(&data.bytes))
            }
            _ => post!(data.several.as_slice()),
        };
        (kind, result)
    };
    let receive = || {
        drain(&peer_cq);
        (0..2).for_each(|_| peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap());
    };
    let bytes = run(&rig, pair, (&stock_cq, poller), |_| 64, requests() / 4, post, receive, |_, _| {});
    println!("UD: {} requests, {} bytes equal", requests() / 4, bytes.unwrap());
    rig.no_violations();
}

#[test]
fn receives_are_what_libmlx5_writes() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (stock_cq, our_cq) = (rig.bare(512), rig.direct(512));
    let mut stock = rig.basic_qp::<Rc>(&stock_cq, &stock_cq).init(ibv::InitAttr::new(1)).unwrap();
    let mut ours = rig.direct_qp::<Rc>(&our_cq, &our_cq).init(ibv::InitAttr::new(1)).unwrap();
    let (stock_memory, our_memory) = (Memory::of(&stock), Memory::of(&ours));
    let mut random = Random::new(9);
    for _ in 0..300 {
        stock_memory.clear();
        our_memory.clear();
        loop {
            let data = Data::random(&mut random, &mr);
            let several = data.several.as_slice();
            let (a, b) = match random.below(3) {
                0 => (stock.post_recv(recv(data.one)), ours.post_recv(recv(data.one))),
                1 => (stock.post_recv(recv(Empty)), ours.post_recv(recv(Empty))),
                _ => (stock.post_recv(recv(several)), ours.post_recv(recv(several))),
            };
            assert_eq!(a.is_ok(), b.is_ok());
            assert!(b.is_ok() || b == Err(PostError::QueueFull));
            if a.is_err() {
                break;
            }
            assert_eq!(stock_memory.record(), our_memory.record());
        }
        assert_eq!(stock_memory.recv_ring(), our_memory.recv_ring());
        stock = stock.reset().unwrap().init(ibv::InitAttr::new(1)).unwrap();
        ours = ours.reset().unwrap().init(ibv::InitAttr::new(1)).unwrap();
    }
    rig.no_violations();
}
