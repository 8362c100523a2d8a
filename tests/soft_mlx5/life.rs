//! What becomes of queues: full, reset, dropped, failed, wrapped around.

use super::rig::{Cq, Qp, Rig, drain, drain_direct};
use ibv::mlx5::Poller;
use ibv::{
    Bare, Basic, CompletionQueue, Direct, Error, InitAttr, MemoryRegion, MrSlice, PollCq, PostError,
    PostRecv, PostSend, QueuePairBuilder, Rc, Remote, WcOpcode, WcStatus, WorkCompletion, fetch_add, read,
    recv, send, send_imm, state, write, write_imm,
};
use std::sync::Arc;

/// A direct queue pair with a stock peer.
struct Link {
    ours: Qp<Rc, Direct>,
    peer: Qp<Rc, Basic>,
    our_cq: Cq<Direct>,
    peer_cq: Cq<Bare>,
}

impl Link {
    fn new(rig: &Rig) -> Self {
        Self::on(rig, rig.direct(1024))
    }

    fn on(rig: &Rig, our_cq: Cq<Direct>) -> Self {
        let peer_cq = rig.bare(1024);
        let ours = rig.direct_qp::<Rc>(&our_cq, &our_cq);
        let peer = rig.basic_qp::<Rc>(&peer_cq, &peer_cq);
        let (a, b) = (ours.qp_num(), peer.qp_num());
        Self { ours: rig.up(ours, b), peer: rig.up(peer, a), our_cq, peer_cq }
    }
}

impl Link {
    /// Resets both sides, and connects them again.
    fn reconnect(self, rig: &Rig) -> Self {
        let Self { ours, peer, our_cq, peer_cq } = self;
        let (ours, peer) = (ours.reset().unwrap(), peer.reset().unwrap());
        let (a, b) = (ours.qp_num(), peer.qp_num());
        Self { ours: rig.up(ours, b), peer: rig.up(peer, a), our_cq, peer_cq }
    }
}

fn slice(mr: &MemoryRegion<'static, Remote>, at: usize, len: usize) -> MrSlice<'static> {
    mr.slice(at..at + len).unwrap().detach()
}

fn ids(wcs: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    wcs.iter().map(|wc| (wc.id(), wc.status())).collect()
}

#[test]
fn data_arrives_by_every_operation() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let remote = mr.remote_region();
    mr.write(0, b"by write").unwrap();
    mr.store_u64(4096, 41).unwrap();
    link.ours.post(write(slice(&mr, 0, 8), remote.slice(1000..).unwrap()).signaled().id(1)).unwrap();
    link.ours.post(read(slice(&mr, 2000, 8), remote.slice(0..8).unwrap()).signaled().id(2)).unwrap();
    let into = mr.u64_at(3000 / 8 * 8).unwrap().detach();
    link.ours.post(fetch_add(into, remote.u64_at(4096).unwrap(), 1).signaled().id(3)).unwrap();
    link.peer.post_recv(recv(slice(&mr, 5000, 100)).id(4)).unwrap();
    link.ours.post(send_imm(slice(&mr, 0, 8), 77).signaled().id(5)).unwrap();
    link.ours.post_recv(recv(slice(&mr, 6000, 100)).id(6)).unwrap();
    link.peer.post(write_imm(slice(&mr, 0, 8), remote.slice(7000..).unwrap(), 88).signaled()).unwrap();
    rig.hca.run_until_idle();
    // stock copies what came in a completion when that is polled
    let theirs = drain(&link.peer_cq);
    let mut bytes = [0; 8];
    for at in [1000, 2000, 5000, 7000] {
        mr.read(at, &mut bytes).unwrap();
        assert_eq!(&bytes, b"by write", "at {at}");
    }
    assert_eq!((mr.load_u64(4096).unwrap(), mr.load_u64(3000).unwrap()), (42, 41));
    let got = drain_direct(&mut poller);
    let said: Vec<_> = got.iter().map(|wc| (wc.id(), wc.result().unwrap().opcode())).collect();
    assert!(
        said.contains(&(1, WcOpcode::RDMA_WRITE)) && said.contains(&(2, WcOpcode::RDMA_READ)),
        "{said:?}"
    );
    assert!(said.contains(&(3, WcOpcode::FETCH_ADD)) && said.contains(&(5, WcOpcode::SEND)), "{said:?}");
    let received = got.iter().find(|wc| wc.id() == 6).unwrap().result().unwrap();
    assert_eq!((received.opcode(), received.imm()), (WcOpcode::RECV_RDMA_WITH_IMM, Some(88)));
    assert!(theirs.iter().any(|wc| wc.id() == 4 && wc.result().unwrap().imm() == Some(77)));
    rig.no_violations();
}

#[test]
fn a_full_queue_says_so_and_indices_go_round_past_two_to_the_sixteen() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let to = mr.remote_region().slice(4096..).unwrap();
    let empty = write(ibv::Empty, to);
    for round in 0..super::rig::rounds(600, 600) as u64 {
        let mut batch = link.ours.batch();
        for id in 0..127 {
            batch.push(empty.id(id)).unwrap();
        }
        batch.push(empty.signaled().id(round)).unwrap();
        assert_eq!(batch.push(empty), Err(PostError::QueueFull));
        batch.submit();
        assert_eq!(link.ours.post(empty), Err(PostError::QueueFull));
        assert!(PostError::QueueFull.is_queue_full());
        rig.hca.run_until_idle();
        assert_eq!(link.ours.post(empty), Err(PostError::QueueFull), "nothing is free before it was polled");
        assert_eq!(ids(&drain_direct(&mut poller)), [(round, WcStatus::SUCCESS)]);
    }
    rig.no_violations();
}

#[test]
fn a_batch_that_is_dropped_posts_nothing() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    for _ in 0..100 {
        let mut batch = link.ours.batch();
        batch.push(request.id(1)).unwrap();
        batch.push(request.id(2)).unwrap();
        drop(batch);
        let too_long = write(slice(&mr, 0, 9), mr.remote_region().slice(4096..4104).unwrap());
        assert_eq!(link.ours.post_list(&[request.id(4), too_long, request]), Err(PostError::RemoteTooShort));
    }
    link.ours.post(request.id(3)).unwrap();
    rig.hca.run_until_idle();
    assert_eq!(ids(&drain_direct(&mut poller)), [(3, WcStatus::SUCCESS)]);
    rig.no_violations();
}

#[test]
fn completions_of_before_a_reset_are_nobodys() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    for round in 0..super::rig::rounds(200, 200) as u64 {
        for id in 0..10 {
            link.ours.post(request.id(1000 + id)).unwrap();
            link.ours.post_recv(recv(slice(&mr, 0, 8)).id(2000 + id)).unwrap();
        }
        rig.hca.run_until_idle();
        let polled = (round % 11) as usize;
        for _ in 0..polled.min(10) {
            assert!(poller.poll().unwrap().id() >= 1000);
        }
        link = link.reconnect(&rig);
        // the ring is empty again, whatever stands in the completion queue
        for id in 0..128 {
            link.ours.post(request.id(id)).unwrap();
        }
        assert!(link.ours.post(request).is_err());
        rig.hca.run_until_idle();
        let got: Vec<_> = drain_direct(&mut poller).iter().map(WorkCompletion::id).collect();
        assert_eq!(got, (0..128).collect::<Vec<_>>(), "round {round}");
    }
    rig.no_violations();
}

/// The device would stop the queue, and the completions of others would be lost.
#[test]
fn resets_do_not_overrun_a_queue_that_nobody_polls() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (cq, peer_cq) = (rig.direct(64), rig.bare(1024));
    let mut poller = Poller::new(&cq).unwrap();
    let events = rig.ctx.async_events().unwrap();
    let connected = || {
        let builder = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(8).recv_depth(8);
        let (ours, peer) = (builder.build().unwrap(), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
        let (a, b) = (ours.qp_num(), peer.qp_num());
        (rig.up(ours, b), rig.up(peer, a))
    };
    let ((mut other, _its_peer), (mut ours, mut peer)) = (connected(), connected());
    let request = write(ibv::Empty, mr.remote_region().slice(4096..).unwrap()).signaled();
    let mut refusals = 0;
    for round in 0..200 {
        other.post(request.id(round)).unwrap();
        for id in 0..8 {
            ours.post(request.id(1000 + id)).unwrap();
        }
        rig.hca.run_until_idle();
        // with and without what came last
        let read = if round % 8 == 0 { ids(&drain_direct(&mut poller)).len() } else { 0 };
        let (reset, its) = (ours.reset().unwrap(), peer.reset().unwrap());
        let (a, b) = (reset.qp_num(), its.qp_num());
        ours = rig.try_up(reset, b).unwrap_or_else(|refused| {
            assert!(read == 0 && matches!(refused.error(), Error::CqRoom { free: ..8, .. }), "{refused}");
            refusals += 1;
            let got = drain_direct(&mut poller);
            assert!(got.iter().all(|wc| wc.qp_num() == other.qp_num()), "of before a reset");
            rig.up(refused.into_object().unwrap(), b)
        });
        peer = rig.up(its, a);
        assert_eq!(events.try_event().unwrap(), None, "round {round}");
    }
    assert!(refusals > 10, "{refusals}");
    drain_direct(&mut poller);
    // all that was left behind came back
    drop((other, ours));
    drain_direct(&mut poller);
    drop([connected(), connected()]);
    rig.no_violations();
}

#[test]
fn a_number_that_is_used_again_is_another_queue_pair() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = rig.direct(1 << 16);
    let mut poller = Poller::new(&cq).unwrap();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    let mut numbers = Vec::new();
    for round in 0..super::rig::rounds(200, 200) as u64 {
        // three completions of the one before stand in the ring, so its number is still its own
        let Link { mut ours, peer, .. } = Link::on(&rig, Arc::clone(&cq));
        numbers.push(ours.qp_num());
        for id in 0..5 {
            ours.post(request.id(round * 10 + id)).unwrap();
        }
        rig.hca.run_until_idle();
        let expected = round * 10;
        // those of the queue pairs before are passed over
        assert_eq!(poller.poll().unwrap().id(), expected);
        assert_eq!(poller.poll().unwrap().id(), expected + 1);
        drop(peer);
        drop(ours);
    }
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() < 20, "the device gives numbers out again at once: {numbers:?}");
    assert!(poller.poll().is_none());
    rig.no_violations();
}

#[test]
fn an_error_flushes_and_a_reset_recovers() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let good = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap());
    let mut forged = mr.remote_region();
    forged.rkey ^= 0x55_00;
    let bad = write(slice(&mr, 0, 8), forged.slice(..8).unwrap());
    for _ in 0..20 {
        link.ours.post_recv(recv(slice(&mr, 0, 8)).id(50)).unwrap();
        link.ours.post(good.signaled().id(1)).unwrap();
        link.ours.post(bad.id(2)).unwrap();
        link.ours.post(good.id(3)).unwrap();
        link.ours.post(good.signaled().id(4)).unwrap();
        rig.hca.run_until_idle();
        let got = drain_direct(&mut poller);
        let mut said = ids(&got);
        said.sort_by_key(|(id, _)| *id);
        let flushed = WcStatus::WR_FLUSH_ERR;
        assert_eq!(
            said,
            [
                (1, WcStatus::SUCCESS),
                (2, WcStatus::REM_ACCESS_ERR),
                (3, flushed),
                (4, flushed),
                (50, flushed)
            ]
        );
        let error = got[1].result().unwrap_err();
        assert_eq!((error.id, error.qp_num, error.vendor_err), (2, link.ours.qp_num(), 0x93));
        // posts go on, and are flushed
        link.ours.post(good.id(5)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(ids(&drain_direct(&mut poller)), [(5, flushed)]);
        link = link.reconnect(&rig);
        link.ours.post(good.signaled().id(6)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(ids(&drain_direct(&mut poller)), [(6, WcStatus::SUCCESS)]);
    }
    rig.no_violations();
}

#[test]
fn many_queue_pairs_complete_to_one_queue() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = rig.direct(8192);
    let mut poller = Poller::new(&cq).unwrap();
    let mut links: Vec<_> = (0..12).map(|_| Link::on(&rig, Arc::clone(&cq))).collect();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    let mut random = super::rig::Random::new(3);
    let mut next = vec![(0u64, 0u64, 0u64); links.len()];
    for _ in 0..super::rig::rounds(3000, 3000) {
        let which = random.below(links.len());
        let link = &mut links[which];
        let count = &mut next[which];
        if random.coin() {
            if link.ours.post(request.id((which as u64) << 32 | count.0)).is_ok() {
                count.0 += 1;
            }
        } else if count.2 < 100 {
            link.ours.post_recv(recv(slice(&mr, 0, 8)).id((which as u64) << 32 | 1 << 31 | count.2)).unwrap();
            count.2 += 1;
            link.peer.post(send(slice(&mr, 0, 8)).signaled()).unwrap_or_default();
        }
        if random.below(20) == 0 {
            rig.hca.run_until_idle();
            for wc in drain_direct(&mut poller) {
                assert_eq!(wc.status(), WcStatus::SUCCESS);
                let which = (wc.id() >> 32) as usize;
                assert_eq!(wc.qp_num(), links[which].ours.qp_num());
                if !wc.result().unwrap().is_recv() {
                    assert_eq!(wc.id() as u32 as u64, next[which].1, "in order");
                    next[which].1 += 1;
                }
            }
            links.iter().for_each(|link| drop(drain(&link.peer_cq)));
        }
    }
    rig.no_violations();
}

#[test]
fn two_completion_queues_of_one_queue_pair() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (send_cq, recv_cq, peer_cq) = (rig.direct(256), rig.direct(256), rig.bare(1024));
    let (mut sent, mut received) = (Poller::new(&send_cq).unwrap(), Poller::new(&recv_cq).unwrap());
    let (ours, peer) = (rig.direct_qp::<Rc>(&send_cq, &recv_cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
    let (a, b) = (ours.qp_num(), peer.qp_num());
    let (mut ours, mut peer) = (rig.up(ours, b), rig.up(peer, a));
    for round in 0..30 {
        for id in 0..4 {
            ours.post_recv(recv([slice(&mr, 0, 8), slice(&mr, 0, 0), slice(&mr, 8, 8)]).id(id)).unwrap();
            peer.post(send(slice(&mr, 4096, 16)).signaled()).unwrap();
            ours.post(write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled().id(id))
                .unwrap();
        }
        rig.hca.run_until_idle();
        drain(&peer_cq);
        if round % 3 != 0 {
            assert_eq!(drain_direct(&mut sent).len(), 4);
            let got = drain_direct(&mut received);
            assert_eq!(got.iter().map(WorkCompletion::id).collect::<Vec<_>>(), [0, 1, 2, 3]);
            assert!(got.iter().all(|wc| wc.result().unwrap().byte_len() == Some(16)));
        }
        let (in_reset, peer_in_reset) = (ours.reset().unwrap(), peer.reset().unwrap());
        (ours, peer) = (rig.up(in_reset, b), rig.up(peer_in_reset, a));
    }
    rig.no_violations();
}

#[test]
fn there_is_one_poller_and_it_goes_on_where_the_last_one_stopped() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    for round in 0..super::rig::rounds(2000, 2000) as u64 {
        let mut poller = Poller::new(&link.our_cq).unwrap();
        assert!(matches!(Poller::new(&link.our_cq), Err(Error::Invalid { .. })));
        link.ours.post(request.id(round)).unwrap();
        link.ours.post(request.id(round)).unwrap();
        rig.hca.run_until_idle();
        let got = poller.poll().unwrap().id();
        assert_eq!(got, round - u64::from(round > 0 && got != round));
        if round % 2 == 1 {
            drain_direct(&mut poller);
        }
    }
    std::mem::forget(Poller::new(&link.our_cq).unwrap());
    assert!(Poller::new(&link.our_cq).is_err());
}

#[test]
fn room_comes_back_when_the_poller_has_passed() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = rig.direct(256);
    let mut poller = Poller::new(&cq).unwrap();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    for _ in 0..5 {
        let mut link = Link::on(&rig, Arc::clone(&cq));
        let builder = QueuePairBuilder::<Rc, Direct>::direct(&rig.pd, &cq, &cq).recv_depth(0);
        assert!(matches!(builder.build(), Err(Error::CqRoom { .. })), "128 + 128 are taken");
        link.ours.post(request).unwrap();
        rig.hca.run_until_idle();
        drop(link);
        let builder = QueuePairBuilder::<Rc, Direct>::direct(&rig.pd, &cq, &cq).recv_depth(0);
        assert!(matches!(builder.build(), Err(Error::CqRoom { .. })), "it may still be there");
        assert!(poller.poll().is_none());
    }
}

#[test]
fn forgetting_is_harmless() {
    let rig = Rig::new();
    let cq = rig.direct(1024);
    let mut poller = Poller::new(&cq).unwrap();
    {
        let mr = rig.region(8192);
        let mut link = Link::on(&rig, Arc::clone(&cq));
        for _ in 0..3 {
            link.ours
                .post(read(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled().id(7))
                .unwrap();
        }
        link.ours.post_recv(recv(slice(&mr, 0, 8)).id(8)).unwrap();
        std::mem::forget(link);
    }
    // the region is gone; the device finds its key dead, and nobody writes to where it was
    rig.hca.run_until_idle();
    let got = drain_direct(&mut poller);
    assert!(got.iter().all(|wc| wc.status() != WcStatus::SUCCESS), "{got:?}");
}

#[test]
fn generic_code_runs_on_either() {
    fn echo<'a>(
        queue: &mut (impl PostSend<'a, Transport = Rc> + PostRecv<'a>),
        cq: &mut impl PollCq,
        what: MrSlice<'a>,
        step: impl Fn(),
    ) -> usize {
        queue.post_recv(recv(what).id(1)).unwrap();
        queue.post(send(what).signaled().id(2)).unwrap();
        step();
        let mut wcs = [WorkCompletion::default(); 8];
        cq.poll_into(&mut wcs).unwrap().iter().filter(|wc| wc.result().is_ok()).count()
    }
    let rig = Rig::new();
    let mr = rig.region(8192);
    let step = || {
        rig.hca.run_until_idle();
    };
    let (bare, direct) = (rig.bare(512), rig.direct(512));
    let mut poller = Poller::new(&direct).unwrap();
    let (a, b) = (rig.basic_qp::<Rc>(&bare, &bare), rig.direct_qp::<Rc>(&direct, &direct));
    let (numbers, what) = ((a.qp_num(), b.qp_num()), slice(&mr, 0, 8));
    // connected to themselves
    let (mut a, mut b) = (rig.up(a, numbers.0), rig.up(b, numbers.1));
    assert_eq!(echo(&mut a, &mut &*bare, what, step), 2);
    assert_eq!(echo(&mut b, &mut poller, what, step), 2);
    let mut dynamic = ibv::DynQueuePair::from(b);
    dynamic.post(write(what, mr.remote_region().slice(..).unwrap()).signaled()).unwrap();
    dynamic.reset().unwrap();
    assert!(dynamic.post_recv(recv(what)).is_err());
}

#[test]
fn what_it_does_not_do_is_refused() {
    let rig = Rig::new();
    let overcommitted = CompletionQueue::builder(&rig.ctx, 64).overcommit().build_direct();
    assert!(matches!(overcommitted, Err(Error::Invalid { .. })));
    assert!(matches!(CompletionQueue::builder(&rig.ctx, 0).build_direct(), Err(Error::Invalid { .. })));
    let too_many = CompletionQueue::builder(&rig.ctx, rig.ctx.device_attr().max_cqe()).build_direct();
    assert!(matches!(too_many, Err(Error::Limit { .. })));
    let other = Arc::new(ibv::Context::open("mlx5_0").unwrap());
    let cq = Arc::new(CompletionQueue::builder(&other, 64).build_direct().unwrap());
    let mixed = QueuePairBuilder::<Rc, Direct>::direct(&rig.pd, &cq, &cq).build();
    assert!(matches!(mixed, Err(Error::OtherContext { .. })));
    let qp =
        QueuePairBuilder::<Rc, Direct>::direct(&rig.pd, rig.direct(64), rig.direct(64)).send_depth(0).build();
    let mut qp = qp.unwrap().init(InitAttr::new(1)).unwrap();
    let mr = rig.region(4096);
    assert!(qp.post_recv(recv(slice(&mr, 0, 8))).is_ok());
    let _: Qp<Rc, Direct, state::Init> = qp;
}

#[test]
fn events_wake_once_for_each_arming() {
    use ibv::{Arm, CompletionChannel};
    let rig = Rig::new();
    let mr = rig.region(8192);
    let channel = Arc::new(CompletionChannel::new(&rig.ctx).unwrap());
    let cq = Arc::new(CompletionQueue::builder(&rig.ctx, 1024).channel(&channel).build_direct().unwrap());
    let mut link = Link::on(&rig, Arc::clone(&cq));
    let mut poller = Poller::new(&cq).unwrap();
    let request = write(slice(&mr, 0, 8), mr.remote_region().slice(4096..).unwrap()).signaled();
    for round in 0..20 {
        assert!(channel.try_event().unwrap().is_none(), "round {round}");
        poller.arm(Arm::Any).unwrap();
        rig.hca.run_until_idle();
        assert!(poller.poll().is_none() && channel.try_event().unwrap().is_none());
        link.ours.post(request.id(1)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(channel.try_event().unwrap(), Some(cq.id()));
        link.ours.post(request.id(2)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(channel.try_event().unwrap(), None, "not armed again");
        // what is there when it is armed counts
        poller.arm(Arm::Any).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(channel.try_event().unwrap(), Some(cq.id()));
        assert_eq!(drain_direct(&mut poller).len(), 2);
        // of these, only the solicited one
        link.ours.post_recv(recv(slice(&mr, 0, 8))).unwrap();
        link.ours.post_recv(recv(slice(&mr, 0, 8))).unwrap();
        poller.arm(Arm::Solicited).unwrap();
        link.peer.post(send(slice(&mr, 0, 8)).signaled()).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(channel.try_event().unwrap(), None);
        link.peer.post(send(slice(&mr, 0, 8)).solicited().signaled()).unwrap();
        drain(&link.peer_cq);
        rig.hca.run_until_idle();
        assert_eq!(channel.try_event().unwrap(), Some(cq.id()));
        assert_eq!(drain_direct(&mut poller).len(), 2);
    }
    let without = rig.direct(64);
    assert!(Poller::new(&without).unwrap().arm(Arm::Any).is_err());
    rig.no_violations();
}

/// It would take minutes without optimisation, with which `cargo xtask test` runs this program too.
#[cfg(not(debug_assertions))]
#[test]
fn completions_go_round_past_two_to_the_twenty_four() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut link = Link::new(&rig);
    let mut poller = Poller::new(&link.our_cq).unwrap();
    let request = write(ibv::Empty, mr.remote_region().slice(4096..).unwrap()).signaled();
    let rounds = (1u64 << 24) / 128 + 100;
    for round in 0..rounds {
        let mut batch = link.ours.batch();
        for id in 0..128 {
            batch.push(request.id(round << 7 | id)).unwrap();
        }
        batch.submit();
        rig.hca.run_until_idle();
        for id in 0..128 {
            assert_eq!(poller.poll().unwrap().id(), round << 7 | id);
        }
        assert!(poller.poll().is_none());
    }
    rig.no_violations();
}
