//! A completion queue is never promised to more requests than it can hold; and the other limits of making things.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support_null;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibv::sys::{self, ibv_wc};
use ibv::{
    CompletionQueue, Context, Error, Extended, ExtendedCompletion, InitAttr, Pages, PollCq, Poller,
    ProtectionDomain, QueuePair, Rc, WorkCompletion, state,
};
use nullhca::hca;
use support_null::*;

type Made<'a> = Result<QueuePair<'a, Rc, state::Init>, Error>;

/// With queues that claim 2^n of each direction, and may have completed something.
fn make<'a>(
    pd: &'a ProtectionDomain<'a>,
    send: &'a CompletionQueue<'a>,
    recv: &'a CompletionQueue<'a>,
    entries: u32,
) -> Made<'a> {
    Ok(pd
        .create_qp::<Rc>(send, recv)
        .send_depth(entries - 1)
        .recv_depth(entries - 1)
        .build()?
        .init(InitAttr::new(1))?)
}

#[track_caller]
fn no_room<Q>(made: Result<Q, Error>, expected: (u32, u32, u32)) {
    match made.map(drop) {
        Err(Error::CqRoom { needed, free, capacity }) => assert_eq!((needed, free, capacity), expected),
        other => panic!("{other:?}"),
    }
}

fn poll(cq: &CompletionQueue<'_>, room: usize) -> usize {
    cq.poll(&mut vec![WorkCompletion::default(); room]).unwrap().len()
}

#[test]
fn room_comes_back_when_the_queue_was_seen_empty() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    assert_eq!(cq.capacity(), 64);
    let first = make(&pd, &cq, &cq, 16).unwrap();
    let second = make(&pd, &cq, &cq, 16).unwrap();
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
    hca().complete(cq.as_ptr(), ibv_wc::default());
    hca().complete(cq.as_ptr(), ibv_wc::default());
    drop(first);
    // its completions may still be there
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
    // a poll that filled its array saw no end
    assert_eq!(poll(&cq, 2), 2);
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
    assert_eq!(poll(&cq, 0), 0);
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
    // one that did not, did
    assert_eq!(poll(&cq, 1), 0);
    let third = make(&pd, &cq, &cq, 16).unwrap();
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
    drop(third);
    second.close().unwrap();
    poll(&cq, 1);
    make(&pd, &cq, &cq, 32).unwrap();
}

#[test]
fn a_queue_pair_that_never_left_reset_leaves_nothing_behind() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    for _ in 0..10 {
        pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31).build().unwrap();
    }
}

#[test]
fn a_failing_poll_frees_no_room() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    drop(make(&pd, &cq, &cq, 32).unwrap());
    hca().fail("ibv_poll_cq", 1);
    cq.poll(&mut [WorkCompletion::default(); 4]).unwrap_err();
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
}

#[test]
fn the_error_tells_the_need_and_so_can_be_asked() {
    let ctx = open();
    let (pd, small) = (ctx.alloc_pd().unwrap(), ctx.create_cq(20).unwrap());
    let [send, recv] = [15, 16].map(CompletionQueue::entries_for);
    assert_eq!((send, recv), (16, 32));
    let error = pd.create_qp::<Rc>(&small, &small).send_depth(15).recv_depth(16).build().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::CqRoom { needed: 48, free: 20, capacity: 20 }), "{text}");
    assert!(text.contains("overcommit"), "{text}");
    let cq = ctx.create_cq(send + recv).unwrap();
    pd.create_qp::<Rc>(&cq, &cq).send_depth(15).recv_depth(16).build().unwrap();
}

#[test]
fn directions_are_counted_on_their_own_queues() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let (send, recv) = (ctx.create_cq(16).unwrap(), ctx.create_cq(32).unwrap());
    let qp = pd.create_qp::<Rc>(&send, &recv).send_depth(15).recv_depth(31).build().unwrap();
    let qp = qp.init(InitAttr::new(1)).unwrap();
    no_room(pd.create_qp::<Rc>(&send, &recv).send_depth(1).recv_depth(0).build(), (2, 0, 16));
    no_room(pd.create_qp::<Rc>(&send, &recv).send_depth(0).recv_depth(1).build(), (2, 0, 32));
    // none of a direction needs no room
    pd.create_qp::<Rc>(&send, &recv).send_depth(0).recv_depth(0).build().unwrap();
    drop(qp);
    poll(&send, 1);
    pd.create_qp::<Rc>(&send, &recv).send_depth(15).recv_depth(0).build().unwrap();
    no_room(pd.create_qp::<Rc>(&send, &recv).send_depth(0).recv_depth(31).build(), (32, 0, 32));
}

#[test]
fn a_failing_creation_gives_its_room_back() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    for _ in 0..3 {
        hca().fail("ibv_create_qp", libc::ENOMEM);
        assert_eq!(make(&pd, &cq, &cq, 32).unwrap_err().errno(), Some(libc::ENOMEM));
        hca().fail("ibv_create_qp_ex", libc::EINVAL);
        let builder = trusted(pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31).extended());
        assert_eq!(builder.build().unwrap_err().errno(), Some(libc::EINVAL));
    }
    no_room(pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(63).build(), (96, 64, 64));
    // refused for the receives' sake: what was promised to the sends is free again
    let small = ctx.create_cq(16).unwrap();
    no_room(pd.create_qp::<Rc>(&cq, &small).send_depth(31).recv_depth(63).build(), (64, 16, 16));
    make(&pd, &cq, &cq, 32).unwrap();
}

#[test]
fn a_provider_that_grants_more_is_held_to_what_fits() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    hca().configure(|config| {
        config.grant_caps = |cap| {
            cap.max_send_wr *= 2;
            cap.max_inline_data = 188;
        };
    });
    // asked for 15, promised 16, got 30
    let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(15).recv_depth(15).build().unwrap();
    assert_eq!((qp.max_inline(), qp.query().unwrap().caps().send_depth), (188, 30));
    no_room(make(&pd, &cq, &cq, 16), (32, 18, 64));
    drop(qp);
    poll(&cq, 1);
    // does not fit in the end: destroyed, and nothing stays promised
    no_room(make(&pd, &cq, &cq, 32), (30, 0, 64));
    assert_eq!(hca().live().qps, 0);
    hca().configure(|config| config.grant_caps = |_| {});
    make(&pd, &cq, &cq, 32).unwrap();
}

#[test]
fn overcommitting_is_a_choice() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = CompletionQueue::builder(&ctx, 4).overcommit().build().unwrap();
    let qps: Vec<_> = (0..10).map(|_| make(&pd, &cq, &cq, 64).unwrap()).collect();
    drop(qps);
    poll(&cq, 1);
    make(&pd, &cq, &cq, 64).unwrap();
}

#[test]
fn a_queue_that_was_granted_more_holds_more() {
    hca().configure(|config| config.grant_cqe = |asked| asked.next_power_of_two_minus_one());
    let ctx = open();
    let cq = ctx.create_cq(100).unwrap();
    assert_eq!(cq.capacity(), 127);
}

/// What mlx5 grants.
trait Ring {
    fn next_power_of_two_minus_one(self) -> Self;
}

impl Ring for i32 {
    fn next_power_of_two_minus_one(self) -> Self {
        ((self + 1) as u32).next_power_of_two() as Self - 1
    }
}

#[test]
fn threads_share_room_without_losing_any() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    drop(make(&pd, &cq, &cq, 8));
                    poll(&cq, 1);
                }
            });
        }
    });
    poll(&cq, 1);
    let _all = make(&pd, &cq, &cq, 32).unwrap();
    no_room(make(&pd, &cq, &cq, 2), (4, 0, 64));
}

#[test]
fn what_the_device_cannot_have_is_refused_by_name() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(65536).unwrap());
    let builder = || pd.create_qp::<Rc>(&cq, &cq);
    let limit = |made: Result<(), Error>, expected: &str, asked: u64, limit: u64| match made {
        Err(Error::Limit { what, asked: a, limit: l }) => {
            assert!(what.contains(expected), "{what}");
            assert_eq!((a, l), (asked, limit));
        }
        other => panic!("{other:?}"),
    };
    limit(builder().send_depth(32769).build().map(drop), "sends", 32769, 32768);
    limit(builder().recv_depth(32769).build().map(drop), "receives", 32769, 32768);
    limit(builder().send_sges(31).build().map(drop), "elements of a send", 31, 30);
    limit(builder().recv_sges(31).build().map(drop), "elements of a receive", 31, 30);
    limit(ctx.create_cq(65537).map(drop), "entries", 65537, 65536);
    let vector = CompletionQueue::builder(&ctx, 1).comp_vector(2).build().map(drop);
    limit(vector, "vector", 2, 1);
    assert!(matches!(builder().send_sges(0).build(), Err(Error::Invalid { .. })));
    assert!(matches!(builder().recv_sges(0).build(), Err(Error::Invalid { .. })));
    assert!(matches!(ctx.create_cq(0), Err(Error::Invalid { .. })));
    assert!(matches!(Pages::new(0), Err(Error::Invalid { .. })));
    assert_eq!((hca().count("ibv_create_qp"), hca().count("ibv_create_cq")), (0, 1));
}

fn extended(ctx: &Context) -> CompletionQueue<'_, Extended> {
    CompletionQueue::builder(ctx, 64).build_extended::<()>().unwrap()
}

fn received(id: u64) -> ibv_wc {
    ibv_wc { wr_id: id, opcode: sys::IBV_WC_RECV, ..Default::default() }
}

#[test]
fn room_is_promised_and_comes_back_when_a_poll_found_nothing() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = extended(&ctx);
    let make = || {
        let builder = pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31);
        Ok::<_, Error>(builder.build()?.init(InitAttr::new(1))?)
    };
    let mut poller = Poller::<()>::new(&cq).unwrap();
    drop(make().unwrap());
    hca().complete(cq.as_ptr(), received(1));
    assert!(matches!(make(), Err(Error::CqRoom { needed: 64, free: 0, capacity: 64 })));
    assert!(poller.poll_one().unwrap().is_some());
    assert!(make().is_err());
    assert!(poller.poll_one().unwrap().is_none());
    drop(make().unwrap());
    assert!(make().is_err());
    assert_eq!(poller.poll(&mut [ExtendedCompletion::default(); 4]).unwrap().len(), 0);
    drop(make().unwrap());
    assert!(make().is_err());
    // of a poll that was full nobody knows whether it was the last
    let mut wcs = [WorkCompletion::default(); 2];
    for (id, is_last) in [(1, false), (2, true)] {
        (0..3).filter(|one| one % 2 == 0 || !is_last).for_each(|_| hca().complete(cq.as_ptr(), received(id)));
        assert_eq!(poller.poll_into(&mut wcs).unwrap().len(), 2);
        assert!(make().is_err());
    }
    // nor of one that was not: an error may come next
    assert_eq!(poller.poll_into(&mut wcs).unwrap().len(), 1);
    assert!(make().is_err());
    assert!(poller.poll_into(&mut []).unwrap().is_empty());
    assert!(make().is_err());
    assert!(poller.poll_into(&mut wcs).unwrap().is_empty());
    drop(make().unwrap());
    // what was left behind by another poller's time is seen by the next
    drop(poller);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    hca().complete(cq.as_ptr(), received(3));
    assert_eq!(poller.poll(&mut [ExtendedCompletion::default(); 4]).unwrap().len(), 1);
    make().unwrap();
}

/// What a queue pair leaves behind while a poll is under way is for one of the next.
#[test]
fn room_comes_back_however_threads_meet() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = extended(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wcs = [WorkCompletion::default(); 4];
            for turn in 0.. {
                match turn % 2 {
                    0 => assert!(poller.poll_one().unwrap().is_none()),
                    _ => assert!(poller.poll_into(&mut wcs).unwrap().is_empty()),
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // on a busy machine neither waits for the other's time slice
                if turn % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..10_000 {
            // takes all of it
            let builder = || pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31);
            let deadline = Instant::now() + Duration::from_secs(60);
            let qp = loop {
                match builder().build() {
                    Ok(qp) => break qp,
                    Err(Error::CqRoom { .. }) if Instant::now() < deadline => std::thread::yield_now(),
                    Err(error) => {
                        is_over.store(true, Ordering::Relaxed);
                        panic!("{error}");
                    }
                }
            };
            drop(qp.init(InitAttr::new(1)).unwrap());
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
