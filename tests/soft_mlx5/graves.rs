//! Queue pairs that were dropped while completions of theirs stand in a ring: they are destroyed when the poller has
//! passed those, or with a completion queue of theirs, and keep nothing from going that the program drops meanwhile.

use std::sync::Arc;

use super::rig::{Cq, Qp, Random, Rig, drain_direct, rounds};
use ibv::mlx5::Poller;
use ibv::{Direct, Error, MemoryRegion, ProtectionDomain, QueuePairBuilder, Rc, Remote, recv, write};

/// Connected to itself, with room for 8 blocks and no or 8 receives.
fn qp(
    rig: &Rig,
    pd: &Arc<ProtectionDomain<'static>>,
    send: &Cq<Direct>,
    recv: &Cq<Direct>,
) -> Qp<Rc, Direct> {
    let qp = QueuePairBuilder::direct(pd, send, recv).send_depth(8).recv_depth(8).build().unwrap();
    rig.to_itself(qp)
}

/// Posts so many requests without data, with ids from `id` on, and has them completed.
fn complete(
    rig: &Rig,
    mr: &MemoryRegion<'static, Remote>,
    qp: &mut Qp<Rc, Direct>,
    ids: std::ops::Range<u64>,
) {
    let to = mr.remote_region().slice(..).unwrap();
    for id in ids {
        qp.post(write(ibv::Empty, to).signaled().id(id)).unwrap();
    }
    rig.hca.run_until_idle();
}

#[test]
fn a_number_is_taken_until_the_poller_has_passed() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(1024));
    let mut poller = Poller::new(&cq).unwrap();
    for polled_before in 0..4u64 {
        let before = rig.hca.objects().qps;
        let mut first = qp(&rig, &rig.pd, &cq, &cq);
        let number = first.qp_num();
        complete(&rig, &mr, &mut first, 0..3);
        for id in 0..polled_before.min(3) {
            assert_eq!(poller.poll().unwrap().id(), id);
        }
        drop(first);
        let kept = polled_before < 3;
        assert_eq!(rig.hca.objects().qps - before, usize::from(kept));
        let mut second = qp(&rig, &rig.pd, &cq, &cq);
        assert_eq!(second.qp_num() != number, kept, "{polled_before} were polled");
        complete(&rig, &mr, &mut second, 100..102);
        assert_eq!(
            drain_direct(&mut poller).iter().map(ibv::WorkCompletion::id).collect::<Vec<_>>(),
            [100, 101]
        );
        assert_eq!(rig.hca.objects().qps - before, 1, "the poller has passed");
    }
    rig.no_violations();
}

#[test]
fn one_that_has_completed_nothing_goes_at_once() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(1024));
    let mut other = qp(&rig, &rig.pd, &cq, &cq);
    complete(&rig, &mr, &mut other, 0..2);
    let before = rig.hca.objects().qps;
    // never out of RESET
    drop(QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).build().unwrap());
    // without queues on the completion queue where something stands
    let elsewhere = rig.direct(64);
    let idle = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &elsewhere, &cq).recv_depth(0).build().unwrap();
    drop(rig.to_itself(idle));
    assert_eq!(rig.hca.objects().qps, before);
}

#[test]
fn what_is_kept_keeps_no_domain_and_no_completion_queue() {
    for polled in [false, true] {
        let rig = Rig::new();
        let before = rig.hca.objects();
        let (mr, cq) = (rig.region(4096), rig.direct(1024));
        let pd = Arc::new(ProtectionDomain::new(&rig.ctx).unwrap());
        let region =
            MemoryRegion::remote(&pd, ibv::Pages::new(4096).unwrap(), ibv::RemoteAccess::WRITE).unwrap();
        let mut poller = Poller::new(&cq).unwrap();
        for _ in 0..3 {
            let mut gone = qp(&rig, &pd, &cq, &cq);
            complete(&rig, &mr, &mut gone, 0..1);
        }
        drop(region);
        let pd = match Arc::into_inner(pd).unwrap().close() {
            Ok(()) => panic!("three queue pairs are in it"),
            Err(refused) => {
                assert!(refused.to_string().contains("polled"), "{refused}");
                refused.into_object().unwrap()
            }
        };
        if polled {
            assert!(poller.poll().is_none());
            pd.close().unwrap();
        } else {
            drop(pd);
        }
        drop((poller, mr, cq));
        assert_eq!(rig.hca.objects(), before);
    }
}

#[test]
fn two_completion_queues_both_have_to_be_passed_or_one_to_go() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Then {
        PollSends,
        PollReceives,
        DropSends,
        DropReceives,
    }
    use Then::{DropReceives, DropSends, PollReceives, PollSends};
    let orders = [
        [PollSends, PollReceives],
        [PollReceives, PollSends],
        [PollSends, DropReceives],
        [PollReceives, DropSends],
        [DropSends, PollReceives],
        [DropReceives, PollSends],
        [DropSends, DropReceives],
        [DropReceives, DropSends],
    ];
    for order in orders {
        let rig = Rig::new();
        let mr = rig.region(4096);
        let before = rig.hca.objects();
        let (mut sends, mut receives) = (Some(rig.direct(64)), Some(rig.direct(64)));
        let mut gone = qp(&rig, &rig.pd, sends.as_ref().unwrap(), receives.as_ref().unwrap());
        let number = gone.qp_num();
        gone.post_recv(recv(ibv::Empty)).unwrap();
        gone.post(ibv::send(ibv::Empty).signaled()).unwrap();
        rig.hca.run_until_idle();
        drop(gone);
        for (step, then) in order.into_iter().enumerate() {
            assert_eq!(rig.hca.objects().qps, usize::from(step == 0 || !dropped(order[0])), "{order:?}");
            match then {
                PollSends => assert!(Poller::new(sends.as_ref().unwrap()).unwrap().poll().is_none()),
                PollReceives => assert!(Poller::new(receives.as_ref().unwrap()).unwrap().poll().is_none()),
                DropSends => sends = None,
                DropReceives => receives = None,
            }
        }
        assert_eq!(rig.hca.objects().qps, 0, "{order:?}");
        // what the destroyed one left in the ring that is still there is not taken for its successor's
        if let Some(cq) = sends.as_ref().or(receives.as_ref()) {
            let mut poller = Poller::new(cq).unwrap();
            let mut next = qp(&rig, &rig.pd, cq, cq);
            assert_eq!(next.qp_num(), number);
            complete(&rig, &mr, &mut next, 5..6);
            assert_eq!(poller.poll().unwrap().id(), 5);
            assert!(poller.poll().is_none());
        }
        drop((sends, receives));
        assert_eq!(rig.hca.objects(), before, "{order:?}");
    }

    fn dropped(then: Then) -> bool {
        matches!(then, Then::DropSends | Then::DropReceives)
    }
}

#[test]
fn a_completion_queue_goes_while_the_poller_of_the_other_passes() {
    let rig = Rig::new();
    let before = rig.hca.objects();
    for round in 0..super::rig::rounds(50, 1000) {
        let (sends, receives) = (rig.direct(64), rig.direct(64));
        let mut gone = qp(&rig, &rig.pd, &sends, &receives);
        gone.post_recv(recv(ibv::Empty)).unwrap();
        gone.post(ibv::send(ibv::Empty).signaled()).unwrap();
        rig.hca.run_until_idle();
        drop(gone);
        let start = std::sync::Barrier::new(2);
        // one of them has been passed already, or neither
        if round % 2 == 0 {
            assert!(Poller::new(&sends).unwrap().poll().is_none());
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                assert!(Poller::new(&receives).unwrap().poll().is_none());
            });
            scope.spawn(|| {
                start.wait();
                Arc::into_inner(sends).unwrap().close().unwrap();
            });
        });
        drop(receives);
        assert_eq!(rig.hca.objects(), before);
    }
}

#[test]
fn without_a_poller_there_are_no_more_than_the_queue_has_room_for() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(256));
    let before = rig.hca.objects().qps;
    let mut made = 0;
    loop {
        match QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(8).recv_depth(8).build() {
            Ok(new) => {
                complete(&rig, &mr, &mut rig.to_itself(new), 0..1);
                made += 1;
            }
            Err(Error::CqRoom { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(made, cq.capacity() as usize / 16);
    assert_eq!(rig.hca.objects().qps - before, made);
    // borrowed, or the queue would be held for ever
    std::mem::forget(Poller::new(&*cq).unwrap());
    assert!(Poller::new(&cq).is_err());
    drop(cq);
    assert_eq!(rig.hca.objects().qps, before);
}

#[test]
fn one_that_cannot_be_destroyed_is_leaked_and_so_is_what_it_is_in() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(64));
    let pd = Arc::new(ProtectionDomain::new(&rig.ctx).unwrap());
    let before = rig.hca.objects();
    let mut gone = qp(&rig, &pd, &cq, &cq);
    complete(&rig, &mr, &mut gone, 0..1);
    drop(gone);
    drop(pd);
    rig.hca.fail_verb(1, libc::EIO);
    assert!(Poller::new(&cq).unwrap().poll().is_none());
    let after = rig.hca.objects();
    assert_eq!((after.qps, after.pds), (before.qps + 1, before.pds));
    // and the completion queue that it is attached to
    assert!(Arc::into_inner(cq).unwrap().close().is_err());
}

#[test]
fn thousands_come_and_go_on_one_queue() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(1024));
    let before = rig.hca.objects().qps;
    let mut poller = Poller::new(&cq).unwrap();
    let mut random = Random::new(11);
    let mut living: Vec<(Qp<Rc, Direct>, u64, u64)> = Vec::new();
    let (mut made, mut next_id, mut seen) = (0, 0u64, 0);
    let rounds = super::rig::rounds(300, 6000) as u64;
    while made < rounds {
        match random.below(4) {
            0 | 1 => {
                match QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(8).recv_depth(8).build()
                {
                    Ok(new) => {
                        let number = new.qp_num();
                        assert!(living.iter().all(|(qp, ..)| qp.qp_num() != number));
                        let mut new = rig.up(new, number);
                        let count = random.below(9) as u64;
                        complete(&rig, &mr, &mut new, next_id..next_id + count);
                        living.push((new, next_id, next_id + count));
                        next_id += count;
                        made += 1;
                    }
                    Err(Error::CqRoom { .. }) => drain(&mut poller, &mut living, &mut seen, usize::MAX),
                    Err(error) => panic!("{error}"),
                }
            }
            2 if !living.is_empty() => {
                let (gone, ..) = living.swap_remove(random.below(living.len()));
                if random.coin() {
                    drop(gone);
                } else {
                    let number = gone.qp_num();
                    let again = rig.try_up(gone.reset().unwrap(), number).unwrap_or_else(|refused| {
                        assert!(matches!(refused.error(), Error::CqRoom { .. }));
                        drain(&mut poller, &mut living, &mut seen, usize::MAX);
                        rig.up(refused.into_object().unwrap(), number)
                    });
                    living.push((again, next_id, next_id));
                }
            }
            _ => drain(&mut poller, &mut living, &mut seen, random.below(30)),
        }
    }
    drain(&mut poller, &mut living, &mut seen, usize::MAX);
    assert!(seen > made, "{seen}");
    assert_eq!(rig.hca.objects().qps - before, living.len(), "nothing is kept when all was read");
    println!("{made} queue pairs, {seen} completions of {next_id}");
    rig.no_violations();

    /// Polls; each completion is the next of a living queue pair.
    fn drain(
        poller: &mut Poller<'_>,
        living: &mut [(Qp<Rc, Direct>, u64, u64)],
        seen: &mut u64,
        most: usize,
    ) {
        for _ in 0..most {
            let Some(wc) = poller.poll() else { return };
            let id = wc.id();
            let owner = living
                .iter_mut()
                .find(|(qp, next, end)| *next == id && id < *end && qp.qp_num() == wc.qp_num());
            owner.expect("it is the next of a living queue pair").1 += 1;
            *seen += 1;
        }
    }
}

/// Pages that the process has in memory.
fn resident() -> usize {
    let counts = std::fs::read_to_string("/proc/self/statm").unwrap();
    counts.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Nobody polls, so that what stands there may be of each of these queues, as far as its number goes; but it is there
/// since before the second of them came.
#[test]
fn resets_that_leave_nothing_take_no_memory() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(4096), rig.direct(1024));
    let mut other = qp(&rig, &rig.pd, &cq, &cq);
    complete(&rig, &mr, &mut other, 0..3);
    let mut qp = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(256).build().unwrap();
    let before = resident();
    for _ in 0..rounds(4000, 4000) {
        qp = qp.reset().unwrap(); // each has a table of more than 4 KiB
    }
    assert!(resident() < before + 1000, "{before} pages, and then {}", resident());
    let mut poller = Poller::new(&cq).unwrap();
    assert_eq!(drain_direct(&mut poller).len(), 3);
}
