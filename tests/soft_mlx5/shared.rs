//! Shared receive queues: several queue pairs take from one, slots come back in the order in which completions are
//! read, and whatever becomes of a queue pair, none is lost and none is free twice.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cqes::agree;
use super::memory::{Entries, SharedMemory};
use super::rig::{Cq, Qp, Random, Rig, drain, drain_direct, rounds};
use ibv::mlx5::Poller;
use ibv::{
    AddressHandle, AddressVector, AsyncEventKind, AsyncSubject, Bare, Basic, CompletionQueue, Direct, Empty,
    Endpoint, Error, GRH_LEN, MemoryRegion, MrSlice, PostError, PostRecv, ProtectionDomain, QueuePairBuilder,
    Rc, RecvStorage, Remote, SharedReceiveQueue, Ud, UdInitAttr, WcOpcode, WcStatus, WithSrq, WorkCompletion,
    recv, send, send_imm, write, write_imm,
};

type Srq = SharedReceiveQueue<'static, Direct>;

/// A direct queue pair that receives from a shared queue, with a stock peer.
struct Link {
    ours: Qp<WithSrq<Rc>, Direct>,
    peer: Qp<Rc, Basic>,
    peer_cq: Cq<Bare>,
}

impl Link {
    fn new(rig: &Rig, cq: &Cq<Direct>, srq: &Srq) -> Self {
        let peer_cq = rig.bare(256);
        let builder = QueuePairBuilder::<Rc, _>::direct(&rig.pd, cq, cq).send_depth(8).srq(srq);
        let (ours, peer) = (builder.build().unwrap(), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
        let (a, b) = (ours.qp_num(), peer.qp_num());
        Self { ours: rig.up(ours, b), peer: rig.up(peer, a), peer_cq }
    }

    fn reconnect(self, rig: &Rig) -> Self {
        let Self { ours, peer, peer_cq } = self;
        let (ours, peer) = (ours.reset().unwrap(), peer.reset().unwrap());
        let (a, b) = (ours.qp_num(), peer.qp_num());
        Self { ours: rig.up(ours, b), peer: rig.up(peer, a), peer_cq }
    }
}

fn slice(mr: &MemoryRegion<'static, Remote>, at: usize, len: usize) -> MrSlice<'static> {
    mr.slice(at..at + len).unwrap().detach()
}

fn ids(wcs: &[WorkCompletion]) -> Vec<u64> {
    wcs.iter().map(WorkCompletion::id).collect()
}

/// Posts as many as fit, with ids from `next` on; gives how many.
fn fill(srq: &mut Srq, mr: &MemoryRegion<'static, Remote>, next: &mut u64) -> usize {
    let mut count = 0;
    while srq.post_recv(recv(slice(mr, 4096, 64)).id(*next)) != Err(PostError::QueueFull) {
        (count, *next) = (count + 1, *next + 1);
        assert!(count < 1 << 16);
    }
    count
}

/// Which WQE an entry says that it is of.
pub(super) fn wqe(ring: &Entries, index: usize) -> u16 {
    u16::from_be_bytes(ring.get(index, 60))
}

pub(super) fn set_wqe(ring: &Entries, index: usize, wqe: u16) {
    ring.put(index, 60, wqe.to_be_bytes());
}

#[test]
fn several_queue_pairs_take_from_one_in_the_order_of_the_messages() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(512));
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 31, 2).unwrap();
    let mut links: Vec<_> = (0..5).map(|_| Link::new(&rig, &cq, &srq)).collect();
    let mut random = Random::new(5);
    let (mut next, mut expected) = (0, VecDeque::new());
    // each has a place of its own
    let place = |id: u64| 4096 + (id % 64) as usize * 64;
    let most = rounds(300, 3000);
    for round in 0..most {
        for _ in 0..random.below(4) {
            let ids = next..next + random.below(20) as u64;
            let make = |id| recv([slice(&mr, place(id), 0), slice(&mr, place(id), 64)]).id(id);
            let many: Vec<_> = ids.clone().map(make).collect();
            let used = expected.len();
            let result = match &many[..] {
                [one] => PostRecv::post_recv(&mut srq, *one),
                many => srq.post_recv_list(many),
            };
            assert_eq!(result.is_ok(), used + many.len() <= 31, "{used} and {}", many.len());
            if result.is_ok() {
                next = ids.end;
                expected.extend(ids);
            } else {
                assert_eq!(result, Err(PostError::QueueFull));
            }
        }
        for _ in 0..random.below(expected.len() + 1) {
            let id = expected.pop_front().unwrap();
            let link = &mut links[random.below(5)];
            mr.write(0, &id.to_ne_bytes()).unwrap();
            let data = slice(&mr, 0, 8);
            let kind = random.below(3);
            match kind {
                0 => link.peer.post(send(data).signaled()).unwrap(),
                1 => link.peer.post(send_imm(data, id as u32).signaled()).unwrap(),
                _ => {
                    let to = mr.remote_region().slice(place(id)..).unwrap();
                    link.peer.post(write_imm(data, to, id as u32).signaled()).unwrap();
                }
            }
            // sends of its own in between
            let to = mr.remote_region().slice(1024..).unwrap();
            link.ours.post(write(data, to).signaled().id(u64::MAX)).unwrap();
            rig.hca.run_until_idle();
            let got = drain_direct(&mut poller);
            agree(&got, &cq);
            let (sent, received): (Vec<&WorkCompletion>, Vec<_>) =
                got.iter().partition(|wc| wc.id() == u64::MAX);
            assert_eq!((sent.len(), received.len()), (1, 1), "round {round}");
            let wc = received[0];
            assert_eq!((wc.id(), wc.qp_num()), (id, link.ours.qp_num()), "round {round}");
            let done = wc.result().unwrap();
            assert_eq!(done.byte_len(), Some(8));
            assert_eq!(done.imm(), (kind != 0).then_some(id as u32));
            let by_write = done.opcode() == WcOpcode::RECV_RDMA_WITH_IMM;
            assert!(done.is_recv() && by_write == (kind == 2));
            assert_eq!(mr.load_u64(place(id)).unwrap(), id);
            drain(&link.peer_cq);
        }
    }
    assert!(next > most as u64, "{next}");
    rig.no_violations();
}

/// What stock makes of the same posts and the same completions, in whatever order they are.
#[test]
fn its_memory_is_what_libmlx5_makes_it() {
    const DEPTH: u32 = 31;
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut bytes = 0;
    for sges in [1, 2, 3, 5] {
        let (stock_cq, our_cq) = (rig.bare(512), rig.direct(512));
        let theirs = SharedReceiveQueue::new(&rig.pd, DEPTH, sges).unwrap();
        let mut ours = SharedReceiveQueue::direct(&rig.pd, &our_cq, DEPTH, sges).unwrap();
        let mut poller = Poller::new(&our_cq).unwrap();
        let peer_cq = rig.bare(1024);
        let qp = Link::new(&rig, &our_cq, &ours);
        let stock_qp =
            QueuePairBuilder::<Rc>::new(&rig.pd, &stock_cq, &stock_cq).srq(&theirs).build().unwrap();
        let peer = rig.basic_qp::<Rc>(&peer_cq, &peer_cq);
        let (a, b) = (stock_qp.qp_num(), peer.qp_num());
        let (_stock_qp, peer) = (rig.up(stock_qp, b), rig.up(peer, a));
        let memory = [SharedMemory::of(theirs.as_ptr()), SharedMemory::of(ours.as_ptr())];
        let entries = [Entries::of(&stock_cq), Entries::of(&our_cq)];
        assert_eq!(memory[0].slots, DEPTH + 1);
        let mut random = Random::new(sges.into());
        // the chain's free slots, and the ids in those that are posted
        let mut free: VecDeque<_> = (0..=DEPTH as u16).collect();
        let (mut posted, mut polled, mut in_slot) = (VecDeque::new(), 0, [0; DEPTH as usize + 1]);
        for round in 0..rounds(60, 1500) {
            let mut batch = Vec::new();
            for _ in 0..random.below(free.len()).min(20) {
                // stock takes an empty element for one of 2 GiB here
                let one = |random: &mut Random| slice(&mr, 4096 + random.below(2000), 8 + random.below(80));
                let list: Vec<_> = (0..random.below(sges as usize + 1)).map(|_| one(&mut random)).collect();
                batch.push((list, random.word()));
            }
            let requests: Vec<_> = batch.iter().map(|(list, id)| recv(list.as_slice()).id(*id)).collect();
            if random.coin() {
                ours.post_recv_list(&requests).unwrap();
            } else {
                requests.iter().for_each(|request| ours.post_recv(*request).unwrap());
            }
            requests.iter().for_each(|request| theirs.post_recv(*request).unwrap());
            for (_, id) in &batch {
                let slot = free.pop_front().unwrap();
                in_slot[usize::from(slot)] = *id;
                posted.push_back(slot);
            }
            for at in 0..memory[0].len() {
                let slot = (at / memory[0].stride) as u16;
                let is_link = (2..4).contains(&(at % memory[0].stride));
                if is_link && free.contains(&slot) {
                    continue; // ours is written when it is filled
                }
                let [stock, ours] = memory.map(|memory| memory.byte(at));
                assert_eq!(stock, ours, "byte {at} with {sges} elements in round {round}");
                bytes += 1;
            }
            assert_eq!(memory[0].record(), memory[1].record());
            let count = random.below(posted.len() + 1).min(18);
            for _ in 0..count {
                peer.post(send(Empty).signaled()).unwrap();
                qp.peer.post(send(Empty).signaled()).unwrap();
            }
            rig.hca.run_until_idle();
            // the device completes them in order, as one that takes its time over long messages need not
            let mut slots: Vec<_> = posted.drain(..count).collect();
            for at in (1..count).rev() {
                slots.swap(at, random.below(at + 1));
            }
            for (at, slot) in slots.iter().enumerate() {
                entries.iter().for_each(|ring| set_wqe(ring, polled + at, *slot));
            }
            polled += count;
            let (got, said) = (drain_direct(&mut poller), drain(&stock_cq));
            let expected: Vec<_> = slots.iter().map(|slot| in_slot[usize::from(*slot)]).collect();
            assert_eq!((ids(&got), ids(&said)), (expected.clone(), expected));
            free.extend(slots);
            drain(&peer_cq);
            drain(&qp.peer_cq);
        }
    }
    println!("{bytes} bytes equal");
    rig.no_violations();
}

/// Its completions stand in the ring when a queue pair is reset or dropped: they are nobody's any more, but what they
/// took is free, once.
#[test]
fn what_a_queue_pair_took_is_free_whatever_became_of_it() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(512));
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 1).unwrap();
    let mut links: Vec<_> = (0..3).map(|_| Link::new(&rig, &cq, &srq)).collect();
    let mut random = Random::new(9);
    let mut next = 0;
    assert_eq!(fill(&mut srq, &mr, &mut next), 15);
    for round in 0..rounds(100, 3000) {
        let mut taken: Vec<(usize, u64)> = Vec::new();
        for _ in 0..random.below(16) {
            let which = random.below(links.len());
            links[which].peer.post(send(Empty).signaled()).unwrap();
            rig.hca.run_until_idle();
            taken.push((which, next - 15 + taken.len() as u64));
        }
        // some are read before, some are not
        let count = taken.len();
        for (which, id) in taken.drain(..random.below(count + 1)) {
            let wc = poller.poll().unwrap();
            assert_eq!((wc.id(), wc.qp_num()), (id, links[which].ours.qp_num()));
        }
        let gone = random.below(links.len());
        let link = links.remove(gone);
        links.insert(
            gone,
            if random.coin() {
                drop(link);
                Link::new(&rig, &cq, &srq)
            } else {
                link.reconnect(&rig)
            },
        );
        let expected: Vec<_> = taken.iter().filter(|(which, _)| *which != gone).map(|(_, id)| *id).collect();
        assert_eq!(ids(&drain_direct(&mut poller)), expected, "round {round}");
        assert_eq!(fill(&mut srq, &mr, &mut next), count, "all that was taken is free again, once");
        links.iter().for_each(|link| drop(drain(&link.peer_cq)));
    }
    rig.no_violations();
}

#[test]
fn completions_of_receives_that_are_not_outstanding_are_refused() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(256));
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 1).unwrap();
    let mut link = Link::new(&rig, &cq, &srq);
    let entries = Entries::of(&cq);
    let mut next = 0;
    let mut polled = 0;
    for wrong in [1u16, 15, 16, 17, 0x8000, u16::MAX] {
        srq.post_recv(recv(slice(&mr, 4096, 64)).id(next)).unwrap();
        link.peer.post(send(Empty).signaled()).unwrap();
        rig.hca.run_until_idle();
        let right = wqe(&entries, polled);
        set_wqe(&entries, polled, if wrong == right { wrong - 1 } else { wrong });
        polled += 1;
        assert!(poller.poll().is_none(), "{wrong}");
        next += 1;
    }
    // what was taken so is lost, but nothing else
    assert_eq!(fill(&mut srq, &mr, &mut next), 15 - 6);
    for _ in 0..9 {
        link.peer.post(send(Empty).signaled()).unwrap();
    }
    rig.hca.run_until_idle();
    assert_eq!(drain_direct(&mut poller).len(), 9);
    assert_eq!(fill(&mut srq, &mr, &mut next), 9);
    // the same one twice
    for _ in 0..2 {
        link.peer.post(send(Empty).signaled()).unwrap();
    }
    rig.hca.run_until_idle();
    polled += 9;
    set_wqe(&entries, polled + 1, wqe(&entries, polled));
    assert_eq!(drain_direct(&mut poller).len(), 1);
    assert_eq!(fill(&mut srq, &mr, &mut next), 1);
    link = link.reconnect(&rig);
    drop(link);
}

#[test]
fn an_error_of_one_is_none_of_the_others_and_comes_with_its_id() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(256));
    let mut poller = Poller::new(&cq).unwrap();
    let events = rig.ctx.async_events().unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 1).unwrap();
    let (mut failing, mut other) = (Link::new(&rig, &cq, &srq), Link::new(&rig, &cq, &srq));
    let mut next = 0;
    assert_eq!(fill(&mut srq, &mr, &mut next), 15);
    for round in 0..20 {
        // too long for its receive: that one completes as failed, and the others stay
        failing.peer.post(send(slice(&mr, 0, 100)).signaled()).unwrap();
        rig.hca.run_until_idle();
        let got = drain_direct(&mut poller);
        agree(&got, &cq);
        let error = got[0].result().unwrap_err();
        assert_eq!(
            (got.len(), error.status, error.id),
            (1, WcStatus::LOC_LEN_ERR, next - 15),
            "round {round}"
        );
        let event = events.try_event().unwrap().unwrap();
        assert_eq!(event.kind(), AsyncEventKind::QP_LAST_WQE_REACHED);
        assert_eq!(event.subject(), AsyncSubject::Qp(failing.ours.id()));
        other.peer.post(send(slice(&mr, 0, 10)).signaled()).unwrap();
        rig.hca.run_until_idle();
        let got = drain_direct(&mut poller);
        assert_eq!((ids(&got), got[0].status()), (vec![next - 14], WcStatus::SUCCESS));
        agree(&got, &cq);
        assert_eq!(fill(&mut srq, &mr, &mut next), 2);
        failing = failing.reconnect(&rig);
        drain(&failing.peer_cq);
        drain(&other.peer_cq);
    }
    // other events of direct objects
    rig.hca.fail_qp(other.ours.qp_num());
    let kinds = [AsyncEventKind::QP_LAST_WQE_REACHED, AsyncEventKind::QP_FATAL];
    for _ in kinds {
        let event = events.try_event().unwrap().unwrap();
        assert!(kinds.contains(&event.kind()), "{event:?}");
        assert_eq!(event.subject(), AsyncSubject::Qp(other.ours.id()));
    }
    other = other.reconnect(&rig);
    srq.set_limit(14).unwrap();
    assert_eq!(srq.query().unwrap().limit, 14);
    for _ in 0..2 {
        assert_eq!(events.try_event().unwrap(), None);
        other.peer.post(send(Empty).signaled()).unwrap();
        rig.hca.run_until_idle();
    }
    let event = events.try_event().unwrap().unwrap();
    assert_eq!(event.kind(), AsyncEventKind::SRQ_LIMIT_REACHED);
    assert_eq!(event.subject(), AsyncSubject::Srq(srq.id()));
    assert_eq!(srq.query().unwrap().limit, 0);
    rig.no_violations();
}

#[test]
fn it_goes_after_its_queue_pairs_be_they_dropped_or_buried() {
    let rig = Rig::new();
    let mr = rig.region(4096 * 2);
    let before = rig.hca.objects();
    for (polls, srq_first, cq_goes) in (0..8).map(|bits| (bits & 1 == 0, bits & 2 == 0, bits & 4 == 0)) {
        let cq = rig.direct(256);
        let pd = Arc::new(ProtectionDomain::new(&rig.ctx).unwrap());
        let mut srq = SharedReceiveQueue::direct(&pd, &cq, 15, 1).unwrap();
        let link = Link::new(&rig, &cq, &srq);
        srq.post_recv(recv(Empty)).unwrap();
        link.peer.post(send(Empty).signaled()).unwrap();
        rig.hca.run_until_idle();
        let refused = srq.close().unwrap_err();
        assert_eq!(refused.error().errno(), Some(libc::EBUSY));
        let mut kept = refused.into_object();
        // it holds the domain that it was made in, and the completion queue
        drop(pd);
        if srq_first {
            drop(kept.take());
        }
        drop(link);
        let there = || {
            let now = rig.hca.objects();
            (now.qps - before.qps, now.srqs - before.srqs)
        };
        assert_eq!(there(), (1, 1), "its completion stands in the ring");
        if let Some(srq) = kept.take() {
            // no queue pair of the program's is there, but one that waits
            let refused = srq.close().unwrap_err();
            assert_eq!(refused.error().errno(), Some(libc::EBUSY));
            assert!(refused.to_string().contains("polled"), "{refused}");
            kept = refused.into_object();
        }
        if polls {
            assert!(Poller::new(&cq).unwrap().poll().is_none());
            assert_eq!(there(), (0, usize::from(kept.is_some())));
        }
        if cq_goes {
            drop(kept.take());
            drop(cq);
        } else {
            drop(cq);
            drop(kept.take());
        }
        assert_eq!(rig.hca.objects(), before, "{polls} {srq_first} {cq_goes}");
    }
    drop(mr);
}

#[test]
fn datagrams_and_two_completion_queues() {
    const QKEY: u32 = 0x77;
    let rig = Rig::new();
    let (mr, sends, receives) = (rig.region(8192), rig.direct(256), rig.direct(256));
    let (mut sent, mut received) = (Poller::new(&sends).unwrap(), Poller::new(&receives).unwrap());
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &receives, 15, 1).unwrap();
    let make = || {
        let builder = QueuePairBuilder::<Ud, _>::direct(&rig.pd, &sends, &receives).srq(&srq);
        builder.build().unwrap().init(UdInitAttr::new(1, QKEY)).unwrap().activate(0).unwrap()
    };
    let mut qps = [make(), make(), make()];
    let address = Endpoint { lid: rig.local.lid, qpn: 0, psn: 0, gid: rig.local.gid };
    let address = AddressVector::to_peer(&rig.local, &address).unwrap();
    let handle: &'static AddressHandle<'static> =
        Box::leak(Box::new(AddressHandle::new(&rig.pd, &address).unwrap()));
    let mut next = 0;
    fill(&mut srq, &mr, &mut next);
    for round in 0..500u64 {
        let to = qps[(round % 3) as usize].qp_num();
        let data = slice(&mr, 0, (round % 20) as usize);
        qps[(round / 3 % 3) as usize].post(send(data).to(handle, to, QKEY).signaled().id(round)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(ids(&drain_direct(&mut sent)), [round]);
        let got = drain_direct(&mut received);
        agree(&got, &receives);
        assert_eq!((got[0].id(), got[0].qp_num()), (round, to));
        let len = got[0].result().unwrap().byte_len();
        assert_eq!(len, Some(GRH_LEN as u32 + (round % 20) as u32));
        assert_eq!(fill(&mut srq, &mr, &mut next), 1);
    }
    rig.no_violations();
}

#[test]
fn compressed_completions_are_of_it_too() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = CompletionQueue::builder(&rig.ctx, 512).compressed().build_direct().unwrap();
    let cq: Cq<Direct> = Arc::new(cq);
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 63, 1).unwrap();
    let mut links = [Link::new(&rig, &cq, &srq), Link::new(&rig, &cq, &srq)];
    let (mut next, mut done) = (0, 0);
    fill(&mut srq, &mr, &mut next);
    for round in 0..600 {
        let count = 1 + round % 17;
        for at in 0..count {
            // runs of one queue pair, and single ones of both
            links[if round % 3 == 0 { at % 2 } else { round % 2 }].peer.post(send(Empty).signaled()).unwrap();
        }
        rig.hca.run_until_idle();
        let first = if round % 50 == 49 {
            // those of one are nobody's any more
            links = links.map(|link| link.reconnect(&rig));
            assert_eq!(ids(&drain_direct(&mut poller)), []);
            done + count as u64
        } else {
            done
        };
        let expected: Vec<_> = (first..done + count as u64).collect();
        let mut got = ids(&drain_direct(&mut poller));
        got.sort_unstable();
        assert_eq!(got, expected, "round {round}");
        done += count as u64;
        assert_eq!(fill(&mut srq, &mr, &mut next), count);
        links.iter().for_each(|link| drop(drain(&link.peer_cq)));
    }
    rig.no_violations();
}

#[test]
fn what_does_not_go_together_is_refused() {
    let rig = Rig::new();
    let (cq, elsewhere) = (rig.direct(64), rig.direct(64));
    let srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 1).unwrap();
    let other_poller = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &elsewhere).srq(&srq).build();
    let error = other_poller.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("one poller"), "{error}");
    drop(QueuePairBuilder::<Rc, _>::direct(&rig.pd, &elsewhere, &cq).srq(&srq).build().unwrap());
    let zero = SharedReceiveQueue::direct(&rig.pd, &cq, 0, 1);
    assert!(matches!(zero, Err(Error::Invalid { .. })));
    let other = Arc::new(ibv::Context::open("mlx5_0").unwrap());
    let other_pd = Arc::new(ProtectionDomain::new(&other).unwrap());
    assert!(matches!(SharedReceiveQueue::direct(&other_pd, &cq, 15, 1), Err(Error::OtherContext { .. })));
    // room for its receives is promised once
    let large = SharedReceiveQueue::direct(&rig.pd, &cq, 63, 1).unwrap();
    assert_eq!(SharedReceiveQueue::cq_entries(63), 64);
    let builder = || QueuePairBuilder::<Rc, _>::direct(&rig.pd, &elsewhere, &cq).send_depth(0).srq(&large);
    let (first, second) = (builder().build().unwrap(), builder().build().unwrap());
    let small = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &elsewhere, &cq).srq(&srq).build();
    assert!(matches!(small, Err(Error::CqRoom { .. })));
    drop((first, second));
    drop(QueuePairBuilder::<Rc, _>::direct(&rig.pd, &elsewhere, &cq).srq(&srq).build().unwrap());
    assert_eq!(large.query().unwrap().limit, 0);
}

/// To the device, 0 is 2³¹, and libmlx5 leaves such elements out on queue pairs alone.
#[test]
fn elements_without_bytes_take_none() {
    let rig = Rig::new();
    // so long that all of that would be there
    let (mr, cq) = (rig.region(1 << 31 | 4096), rig.bare(256));
    let srq = SharedReceiveQueue::new(&rig.pd, 16, 3).unwrap();
    let sender = rig.to_itself(QueuePairBuilder::<Rc>::new(&rig.pd, &cq, &cq).srq(&srq).build().unwrap());
    let slice = |at, len| mr.slice(at..at + len).unwrap().detach();
    mr.write(2048, &[7; 48]).unwrap();
    let (nothing, parts) = (slice(0, 0), [slice(128, 0), slice(256, 16), slice(512, 32)]);
    let mut storage = RecvStorage::<2, 3>::new();
    let mut batch = srq.recv_batch(&mut storage);
    batch.push(recv(parts)).unwrap();
    batch.push(recv([nothing; 3])).unwrap();
    srq.post_recv(recv(parts)).unwrap();
    batch.submit().unwrap();
    srq.post_recv(recv(nothing)).unwrap();
    for _ in 0..2 {
        sender.post(send(slice(2048, 48)).signaled()).unwrap();
        rig.hca.run_until_idle();
        assert!(drain(&cq).iter().all(|wc| wc.status() == WcStatus::SUCCESS));
        for (at, len) in [(0, 0), (128, 0), (256, 16), (512, 32)] {
            let mut bytes = [0; 128];
            mr.read(at, &mut bytes).unwrap();
            assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), len, "{at}");
        }
        mr.write(256, &[0; 300]).unwrap();
    }
    sender.post(send(slice(2048, 0)).signaled()).unwrap();
    sender.post(send(slice(2048, 1)).signaled()).unwrap();
    rig.hca.run_until_idle();
    let received: Vec<_> = drain(&cq).iter().filter(|wc| wc.id() == 0).map(|wc| wc.status()).collect();
    assert!(received.contains(&WcStatus::LOC_LEN_ERR), "{received:?}");
    assert_eq!(mr.load_u64(0).unwrap(), 0);
}
