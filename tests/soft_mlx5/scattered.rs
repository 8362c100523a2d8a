//! Data in completions: what of it is there, what is in memory, and that `ibv_poll_cq` finds the same in the same ring.

use std::sync::Arc;

use super::cqes::stock;
use super::memory::Entries;
use super::rig::{Cq, Qp, Random, Rig};
use ibv::mlx5::{Poller, ToCqe};
use ibv::qp::{Connected, OwnReceives};
use ibv::sys;
use ibv::{
    AddressHandle, AddressVector, Buffer, CompletionQueue, Direct, Empty, Endpoint, GRH_LEN, InitAttr,
    MemoryRegion, QueuePairBuilder, Rc, RegionKind, SharedReceiveQueue, Transport, Uc, Ud, UdInitAttr,
    WcOpcode, WcStatus, fetch_add, read, recv, send, send_imm, state, write, write_imm,
};

type Queue = Cq<Direct<ToCqe>>;
type Pair<T, S = state::Rts> = Qp<T, Direct<ToCqe>, S>;

/// The most data in an entry.
const fn room(wide: bool) -> usize {
    if wide { 64 } else { 32 }
}

fn queue(rig: &Rig, wide: bool, entries: u32) -> Queue {
    let builder = CompletionQueue::builder(&rig.ctx, entries);
    let made = if wide { builder.wide() } else { builder }.build_direct_scattered();
    Arc::new(made.unwrap())
}

fn builder<T: Transport>(rig: &Rig, cq: &Queue) -> QueuePairBuilder<'static, T, Direct<ToCqe>> {
    QueuePairBuilder::direct(&rig.pd, cq, cq)
        .send_depth(16)
        .recv_depth(16)
        .send_sges(4)
        .recv_sges(4)
        .inline(64)
}

fn made<T: Transport>(rig: &Rig, cq: &Queue) -> Pair<T, state::Reset> {
    builder(rig, cq).build().unwrap()
}

/// Two that are connected with each other.
fn connected<T: Connected + Transport<Init = InitAttr>>(
    rig: &Rig,
    [a, b]: [Pair<T, state::Reset>; 2],
) -> [Pair<T>; 2] {
    let (a_number, b_number) = (a.qp_num(), b.qp_num());
    [rig.up(a, b_number), rig.up(b, a_number)]
}

/// What is kept of a completion.
#[derive(Debug)]
struct Got {
    id: u64,
    opcode: WcOpcode,
    len: Option<u32>,
    imm: Option<u32>,
    data: Option<Vec<u8>>,
}

fn next(poller: &mut Poller<'_, ToCqe>) -> Option<Result<Got, (u64, WcStatus)>> {
    let wc = poller.poll()?;
    assert_eq!(wc.status() == WcStatus::SUCCESS, wc.result().is_ok());
    Some(match wc.result() {
        Ok(done) => Ok(Got {
            id: wc.id(),
            opcode: done.opcode(),
            len: done.byte_len(),
            imm: done.imm(),
            data: done.scattered().map(|data| data.to_vec()),
        }),
        Err(error) => Err((error.id, error.status)),
    })
}

/// All that there is, which was a success.
fn all(poller: &mut Poller<'_, ToCqe>) -> Vec<Got> {
    std::iter::from_fn(|| next(poller)).collect::<Result<_, _>>().unwrap()
}

fn bytes_at<K: RegionKind, M: Buffer>(mr: &MemoryRegion<'_, K, M>, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read(at, &mut bytes).unwrap();
    bytes
}

fn numbered(rig: &Rig, len: usize) -> Arc<MemoryRegion<'static, ibv::Remote>> {
    let mr = rig.region(len);
    let bytes: Vec<u8> = (0..len).map(|at| (at % 241) as u8).collect();
    mr.write(0, &bytes).unwrap();
    mr
}

const LENGTHS: [usize; 11] = [0, 1, 7, 8, 31, 32, 33, 63, 64, 65, 500];

fn messages<T>(wide: bool)
where
    T: Connected + OwnReceives + ibv::qp::RdmaWrite + Transport<Init = InitAttr>,
{
    let rig = Rig::new();
    let cq = queue(&rig, wide, 256);
    let mut poller = Poller::new(&cq).unwrap();
    let [mut a, mut b] = connected(&rig, [made::<T>(&rig, &cq), made(&rig, &cq)]);
    let (from, to) = (numbered(&rig, 1024), rig.region(4096));
    let slice = |at: usize, len: usize| to.slice(at..at + len).unwrap().detach();
    for round in 0..30 {
        for len in LENGTHS {
            for kind in 0..3 {
                to.write(0, &[0xee; 2048]).unwrap();
                // two elements, of which the second is far away
                b.post_recv(recv([slice(0, 7), slice(1000, 600)]).id(1)).unwrap();
                let data = from.slice(len..2 * len).unwrap().detach();
                let there = to.remote_region().slice(3000..3000 + len).unwrap();
                match kind {
                    0 => a.post(send(data).signaled().id(2)),
                    1 => a.post(send_imm(data, 99).signaled().id(2)),
                    _ => a.post(write_imm(data, there, 99).signaled().id(2)),
                }
                .unwrap();
                rig.hca.run_until_idle();
                let mut got = all(&mut poller);
                got.sort_by_key(|got| got.id);
                let [received, sent] = got.try_into().unwrap();
                assert_eq!((sent.id, sent.len, &sent.data), (2, None, &None), "{sent:?}");
                let opcode = if kind == 2 { WcOpcode::RECV_RDMA_WITH_IMM } else { WcOpcode::RECV };
                let said = (received.id, received.opcode, received.len, received.imm);
                assert_eq!(said, (1, opcode, Some(len as u32), (kind > 0).then_some(99)));
                let here =
                    [bytes_at(&to, 0, len.min(7)), bytes_at(&to, 1000, len.saturating_sub(7))].concat();
                let want = bytes_at(&from, len, len);
                if kind < 2 && (1..=room(wide)).contains(&len) {
                    assert_eq!(received.data, Some(want.clone()), "{wide} {len} in round {round}");
                    assert_eq!(here, vec![0xee; len], "and not in memory");
                } else {
                    assert_eq!(received.data, None);
                    let at = if kind == 2 { bytes_at(&to, 3000, len) } else { here };
                    assert_eq!(at, want);
                }
                // libmlx5, which copies, makes the same of it
                let said = stock(&cq);
                let said = said.iter().find(|wc| wc.opcode & sys::IBV_WC_RECV != 0).unwrap();
                assert_eq!((said.status, said.byte_len), (sys::IBV_WC_SUCCESS, len as u32));
                if let Some(data) = received.data {
                    let copied = [bytes_at(&to, 0, len.min(7)), bytes_at(&to, 1000, len.saturating_sub(7))];
                    assert_eq!(copied.concat(), data);
                }
            }
        }
    }
    rig.no_violations();
}

#[test]
fn messages_of_up_to_32_bytes() {
    messages::<Rc>(false);
    messages::<Uc>(false);
}

#[test]
fn messages_of_up_to_64_bytes() {
    messages::<Rc>(true);
    messages::<Uc>(true);
}

#[test]
fn messages_on_a_shared_receive_queue() {
    for wide in [false, true] {
        let rig = Rig::new();
        let cq = queue(&rig, wide, 256);
        let mut poller = Poller::new(&cq).unwrap();
        let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 2).unwrap();
        let pairs = [(); 2].map(|()| {
            let (a, b) = (made::<Rc>(&rig, &cq), builder::<Rc>(&rig, &cq).srq(&srq).build().unwrap());
            let numbers = [a.qp_num(), b.qp_num()];
            (rig.up(a, numbers[1]), rig.up(b, numbers[0]))
        });
        let [(mut first, _b), (mut second, _d)] = pairs;
        let (from, to) = (numbered(&rig, 1024), rig.region(1024));
        for round in 0..100 {
            for len in LENGTHS {
                to.write(0, &[0xee; 1024]).unwrap();
                srq.post_recv(recv(to.slice(..600).unwrap().detach()).id(1)).unwrap();
                let a = if (round + len) % 3 == 0 { &mut first } else { &mut second };
                a.post(send(from.slice(len..2 * len).unwrap().detach()).id(2)).unwrap();
                rig.hca.run_until_idle();
                let [got] = all(&mut poller).try_into().unwrap();
                assert_eq!((got.id, got.opcode, got.len), (1, WcOpcode::RECV, Some(len as u32)));
                let want = bytes_at(&from, len, len);
                let inside = (1..=room(wide)).contains(&len);
                assert_eq!(got.data, inside.then(|| want.clone()));
                assert_eq!(bytes_at(&to, 0, len), if inside { vec![0xee; len] } else { want });
            }
            // unsignaled sends free their place with the next signaled one
            for a in [&mut first, &mut second] {
                a.post(send_imm(from.slice(..1).unwrap().detach(), 0).signaled().id(3)).unwrap();
                srq.post_recv(recv(to.slice(..600).unwrap().detach()).id(1)).unwrap();
            }
            rig.hca.run_until_idle();
            assert_eq!(all(&mut poller).len(), 4);
        }
        rig.no_violations();
    }
}

/// Of a READ or an atomic: in the completion, if it has one.
#[test]
fn answers() {
    for (wide, signal_all) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new();
        let cq = queue(&rig, wide, 256);
        let mut poller = Poller::new(&cq).unwrap();
        let ends = [(); 2].map(|()| builder::<Rc>(&rig, &cq).signal_all(signal_all).build().unwrap());
        let [mut a, _b] = connected(&rig, ends);
        let (from, to) = (numbered(&rig, 2048), rig.region(2048));
        let slice = |at: usize, len: usize| to.slice(at..at + len).unwrap().detach();
        // libmlx5 44 takes 64 bytes from one byte before the entry (mended in later versions): not of the first one,
        // before which there is nothing
        a.post(write(Empty, from.remote_region().slice(..).unwrap()).signaled().id(2)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!((all(&mut poller).len(), stock(&cq).len()), (1, 1));
        for len in LENGTHS.into_iter().skip(1) {
            to.write(0, &[0xee; 2048]).unwrap();
            let there = from.remote_region().slice(len..2 * len).unwrap();
            let first = len.min(3);
            let into = [slice(0, first), slice(1000, len - first)];
            a.post(read(into, there).signaled().id(3)).unwrap();
            rig.hca.run_until_idle();
            let [got] = all(&mut poller).try_into().unwrap();
            assert_eq!((got.id, got.opcode, got.len), (3, WcOpcode::RDMA_READ, Some(len as u32)));
            let here = || [bytes_at(&to, 0, first), bytes_at(&to, 1000, len - first)].concat();
            let want = bytes_at(&from, len, len);
            let inside = len <= room(wide);
            assert_eq!(got.data, inside.then(|| want.clone()), "{wide} {len}");
            assert_eq!(here(), if inside { vec![0xee; len] } else { want.clone() });
            assert_eq!(stock(&cq).len(), 1);
            if !inside || !wide {
                assert_eq!(here(), want);
            }
        }
        let (word, into) = (from.remote_region().u64_at(64).unwrap(), to.u64_at(8).unwrap().detach());
        from.store_u64(64, 41).unwrap();
        to.store_u64(8, 7).unwrap();
        a.post(fetch_add(into, word, 1).signaled().id(4)).unwrap();
        rig.hca.run_until_idle();
        let [got] = all(&mut poller).try_into().unwrap();
        assert_eq!((got.id, got.opcode, got.len), (4, WcOpcode::FETCH_ADD, Some(8)));
        assert_eq!(got.data, Some(41u64.to_ne_bytes().to_vec()));
        assert_eq!((from.load_u64(64).unwrap(), to.load_u64(8).unwrap()), (42, 7));
        if !signal_all {
            // without a completion it comes to memory
            a.post(fetch_add(into, word, 1).id(5)).unwrap();
            a.post(read(slice(100, 8), from.remote_region().slice(..8).unwrap()).id(6)).unwrap();
            rig.hca.run_until_idle();
            assert!(all(&mut poller).is_empty());
            assert_eq!((to.load_u64(8).unwrap(), bytes_at(&to, 100, 8)), (42, bytes_at(&from, 0, 8)));
        }
        rig.no_violations();
    }
}

/// Several queue pairs, round the ring many times, in full and in short form.
#[test]
fn many_of_all_kinds() {
    for (wide, compressed) in [(false, false), (true, false), (false, true), (true, true)] {
        let rig = Rig::new();
        let cq = {
            let builder = CompletionQueue::builder(&rig.ctx, 256);
            let builder = if compressed { builder.compressed() } else { builder };
            let made = if wide { builder.wide() } else { builder }.build_direct_scattered();
            Arc::new(made.unwrap())
        };
        let mut poller = Poller::new(&cq).unwrap();
        let mut pairs: Vec<_> =
            (0..2).map(|_| connected(&rig, [made::<Rc>(&rig, &cq), made(&rig, &cq)])).collect();
        let (from, to) = (numbered(&rig, 1024), rig.region(64 * 128));
        let mut random = Random::new(77);
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..super::rig::rounds(300, 1500) {
            // by id: where its data is to come, what it is, and whether it may come in the completion
            let mut expected = std::collections::HashMap::new();
            for _ in 0..1 + random.below(16) {
                let [a, b] = &mut pairs[random.below(2)];
                let (len, at) = (random.below(70), random.below(900));
                let id = expected.len() as u64;
                let place = id as usize * 128;
                to.write(place, &[0; 128]).unwrap();
                let into = to.slice(place..place + len).unwrap().detach();
                match random.below(3) {
                    0 => a.post(
                        read(into, from.remote_region().slice(at..at + len).unwrap()).signaled().id(id),
                    ),
                    _ => {
                        b.post_recv(recv(into).id(id)).unwrap();
                        a.post(send(from.slice(at..at + len).unwrap().detach()).signaled().id(1 << 32))
                    }
                }
                .unwrap();
                expected.insert(id, (place, at, len));
            }
            rig.hca.run_until_idle();
            for got in all(&mut poller) {
                let Some((place, at, len)) = expected.remove(&got.id) else {
                    assert_eq!((got.id, got.len, got.data), (1 << 32, None, None));
                    continue;
                };
                assert_eq!(got.len, Some(len as u32));
                let want = bytes_at(&from, at, len);
                match got.data {
                    Some(data) => {
                        inside += 1;
                        assert_eq!((data, bytes_at(&to, place, 128)), (want, vec![0; 128]));
                    }
                    None => {
                        outside += 1;
                        assert!(len == 0 || len > room(wide), "{len}");
                        assert_eq!(bytes_at(&to, place, len), want);
                    }
                }
            }
            assert!(expected.is_empty(), "{expected:?}");
        }
        assert!(inside > 100 && outside > 10, "{inside} {outside}");
        rig.no_violations();
    }
}

#[test]
fn errors_bring_no_data() {
    let rig = Rig::new();
    let cq = queue(&rig, false, 256);
    let mut poller = Poller::new(&cq).unwrap();
    let [mut a, mut b] = connected(&rig, [made::<Rc>(&rig, &cq), made(&rig, &cq)]);
    let (from, to) = (numbered(&rig, 64), rig.region(64));
    b.post_recv(recv(to.slice(..31).unwrap().detach()).id(1)).unwrap();
    b.post_recv(recv(to.slice(..).unwrap().detach()).id(2)).unwrap();
    a.post(send(from.slice(..32).unwrap().detach()).id(3)).unwrap();
    a.post(read(from.slice(..8).unwrap().detach(), to.remote_region().slice(..8).unwrap()).id(4)).unwrap();
    rig.hca.run_until_idle();
    let mut got: Vec<_> = std::iter::from_fn(|| next(&mut poller)).map(Result::unwrap_err).collect();
    got.sort_by_key(|(id, _)| *id);
    let status = [
        (1, WcStatus::LOC_LEN_ERR),
        (2, WcStatus::WR_FLUSH_ERR),
        (3, WcStatus::REM_INV_REQ_ERR),
        (4, WcStatus::WR_FLUSH_ERR),
    ];
    assert_eq!(got, status);
    rig.no_violations();
}

#[test]
fn the_region_may_be_gone() {
    for wide in [false, true] {
        let rig = Rig::new();
        let cq = queue(&rig, wide, 256);
        let mut poller = Poller::new(&cq).unwrap();
        let [mut a, mut b] = connected(&rig, [made::<Rc>(&rig, &cq), made(&rig, &cq)]);
        let from = numbered(&rig, 64);
        let to = MemoryRegion::local(&rig.pd, vec![0; 64]).unwrap();
        b.post_recv(recv(to.slice(..).unwrap().detach()).id(1)).unwrap();
        a.post(send(from.slice(..32).unwrap().detach()).id(2)).unwrap();
        let into = to.slice(..8).unwrap().detach();
        a.post(read(into, from.remote_region().slice(..8).unwrap()).signaled().id(3)).unwrap();
        rig.hca.run_until_idle();
        let mut buffer = to.into_buffer().unwrap();
        buffer.fill(0xee);
        let [one, other] = all(&mut poller).try_into().unwrap();
        let (message, answer) = if one.id == 1 { (one, other) } else { (other, one) };
        assert_eq!(message.data, Some(bytes_at(&from, 0, 32)));
        assert_eq!(answer.data, Some(bytes_at(&from, 0, 8)));
        assert_eq!(buffer, [0xee; 64]);
    }
}

#[test]
fn datagrams_go_to_memory() {
    let rig = Rig::new();
    let cq = queue(&rig, true, 256);
    let mut poller = Poller::new(&cq).unwrap();
    let mut a = made::<Ud>(&rig, &cq).init(UdInitAttr::new(1, 0x11)).unwrap().activate(0).unwrap();
    let address = Endpoint { lid: rig.local.lid, qpn: a.qp_num(), psn: 0, gid: rig.local.gid };
    let to_itself = AddressVector::to_peer(&rig.local, &address).unwrap();
    let to_itself: &'static AddressHandle<'static> =
        Box::leak(Box::new(AddressHandle::new(&rig.pd, &to_itself).unwrap()));
    let (from, to) = (numbered(&rig, 64), rig.region(128));
    a.post_recv(recv(to.slice(..).unwrap().detach()).id(1)).unwrap();
    let number = a.qp_num();
    a.post(send(from.slice(..8).unwrap().detach()).to(to_itself, number, 0x11).id(2)).unwrap();
    rig.hca.run_until_idle();
    let [got] = all(&mut poller).try_into().unwrap();
    assert_eq!((got.id, got.len, got.data), (1, Some(8 + GRH_LEN as u32), None));
    assert_eq!(bytes_at(&to, GRH_LEN, 8), bytes_at(&from, 0, 8));
    rig.no_violations();
}

#[test]
fn a_device_that_claims_data_where_there_can_be_none() {
    let rig = Rig::new();
    let cq = queue(&rig, false, 256);
    let mut poller = Poller::new(&cq).unwrap();
    let [mut a, mut b] = connected(&rig, [made::<Rc>(&rig, &cq), made(&rig, &cq)]);
    let (from, to) = (numbered(&rig, 64), rig.region(64));
    let ring = Entries::of(&cq);
    for id in 0..3u64 {
        b.post_recv(recv(to.slice(..).unwrap().detach()).id(id)).unwrap();
        a.post(send(from.slice(..8).unwrap().detach()).id(9)).unwrap();
        rig.hca.run_until_idle();
        // the first and the last say that it stands in 64 bytes before them: before the ring, too
        let [was] = ring.get(id as usize, 63);
        assert_eq!(was & 0xc, 4, "{id}");
        if id != 1 {
            ring.put(id as usize, 63, [was ^ 0xc]);
        }
    }
    let [got] = all(&mut poller).try_into().unwrap();
    assert_eq!((got.id, got.data), (1, Some(bytes_at(&from, 0, 8))));
    // more than an entry holds
    b.post_recv(recv(to.slice(..).unwrap().detach()).id(5)).unwrap();
    a.post(send(from.slice(..8).unwrap().detach()).id(9)).unwrap();
    rig.hca.run_until_idle();
    ring.put(3, 44, 1000u32.to_be_bytes());
    let [got] = all(&mut poller).try_into().unwrap();
    assert_eq!((got.id, got.len, got.data.map(|data| data.len())), (5, Some(1000), Some(32)));
}
