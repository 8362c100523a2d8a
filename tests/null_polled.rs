//! Extended completion queues: what is read of completions, by whom, and what is called for it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support_null;

use std::collections::VecDeque;
use std::sync::Arc;

use ibv::fields::{
    ByteLen, DlidPathBits, HasGrh, Imm, InvalidatedRkey, QpNum, Sl, Slid, SrcQp, Timestamp, WallClock,
};
use ibv::sys::{self, ibv_wc, ibv_wc_u1};
use ibv::{
    Arm, CompletionChannel, CompletionQueue, Context, Error, Extended, ExtendedCompletion, InitAttr, PollCq,
    Poller, ProtectionDomain, Rc, WcFields, WcOpcode, WcStatus, WorkCompletion,
};
use nullhca::{Hca, hca};
use proptest::prelude::*;
use support_null::*;

fn queue<F: WcFields>(ctx: &Context) -> CompletionQueue<'_, Extended> {
    CompletionQueue::builder(ctx, 64).build_extended::<F>().unwrap()
}

/// A receive of a message with all that it can have.
fn message(id: u64) -> ibv_wc {
    ibv_wc {
        wr_id: id,
        opcode: sys::IBV_WC_RECV,
        byte_len: 100,
        qp_num: 0x11,
        src_qp: 0x22,
        wc_flags: sys::IBV_WC_GRH | sys::IBV_WC_WITH_IMM,
        u1: ibv_wc_u1 { imm_data: 0x0102_0304_u32.to_be() },
        slid: 0x33,
        sl: 4,
        dlid_path_bits: 5,
        ..Default::default()
    }
}

fn failed(id: u64) -> ibv_wc {
    let (status, vendor_err) = (sys::IBV_WC_REM_ACCESS_ERR, 0x88);
    ibv_wc { status, vendor_err, opcode: sys::IBV_WC_RECV, ..message(id) }
}

fn runs(hca: Hca) -> usize {
    hca.count("ibv_end_poll")
}

#[test]
fn what_is_named_is_read() {
    type All = (
        (WcOpcode, ByteLen, Imm, InvalidatedRkey, QpNum, SrcQp),
        (HasGrh, Slid, Sl, DlidPathBits),
        Timestamp,
        WallClock,
    );
    let ctx = open();
    let cq = queue::<All>(&ctx);
    let mut poller = Poller::<All>::new(&cq).unwrap();
    hca().complete_at(cq.as_ptr(), message(7), 123);
    let wc = poller.poll_one().unwrap().unwrap();
    assert_eq!((wc.id(), wc.status()), (7, WcStatus::SUCCESS));
    let of_all = (
        WcOpcode::RECV,
        ByteLen(Some(100)),
        Imm(Some(0x0102_0304)),
        InvalidatedRkey(None),
        QpNum(0x11),
        SrcQp(Some(0x22)),
    );
    let of_datagrams = (HasGrh(true), Slid(Some(0x33)), Sl(Some(4)), DlidPathBits(Some(5)));
    assert_eq!(wc.result().unwrap(), (of_all, of_datagrams, Timestamp(123), WallClock(123_000)));
    assert!(poller.poll_one().unwrap().is_none());
}

#[test]
fn what_a_completion_does_not_have_is_not_given() {
    type Fields = (ByteLen, Imm, InvalidatedRkey, SrcQp, Slid);
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<Fields>::new(&cq).unwrap();
    // Soft-RoCE says on the sender's side that there is immediate data
    hca().complete(cq.as_ptr(), ibv_wc { opcode: sys::IBV_WC_SEND, ..message(1) });
    hca().complete(cq.as_ptr(), ibv_wc { opcode: sys::IBV_WC_RDMA_READ, wc_flags: 0, ..message(2) });
    let invalidated = ibv_wc_u1 { invalidated_rkey: 0x99 };
    hca().complete(cq.as_ptr(), ibv_wc { wc_flags: sys::IBV_WC_WITH_INV, u1: invalidated, ..message(3) });
    let mut wcs = [ExtendedCompletion::default(); 4];
    let done: Vec<_> = poller.poll(&mut wcs).unwrap().iter().map(|wc| wc.result().unwrap()).collect();
    let nothing = (ByteLen(None), Imm(None), InvalidatedRkey(None), SrcQp(None), Slid(None));
    assert_eq!(done[0], nothing);
    assert_eq!(done[1], (ByteLen(Some(100)), nothing.1, nothing.2, nothing.3, nothing.4));
    assert_eq!(done[2].2, InvalidatedRkey(Some(0x99)));
    assert_eq!(done[2].1, Imm(None));
}

#[test]
fn a_failure_has_nothing_but_its_reason() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<(WcOpcode, ByteLen)>::new(&cq).unwrap();
    hca().complete(cq.as_ptr(), failed(9));
    hca().complete(cq.as_ptr(), message(10));
    hca().complete(cq.as_ptr(), failed(11));
    let mut wcs = [ExtendedCompletion::default(); 2];
    let [bad, good] = poller.poll(&mut wcs).unwrap() else { panic!("two") };
    let error = bad.result().unwrap_err();
    assert_eq!((error.id, error.status), (9, WcStatus::REM_ACCESS_ERR));
    assert_eq!((error.qp_num, error.vendor_err), (0x11, 0x88));
    assert_eq!(good.result().unwrap(), (WcOpcode::RECV, ByteLen(Some(100))));
    // over what was there before
    let [bad] = poller.poll(&mut wcs).unwrap() else { panic!("one") };
    assert_eq!(bad.result().unwrap_err().id, 11);
    // and before there was anything
    let fresh = ExtendedCompletion::<(WcOpcode, ByteLen)>::default();
    assert_eq!(fresh.result().unwrap_err().status, WcStatus::GENERAL_ERR);
}

#[test]
fn a_run_goes_on_behind_failures_however_many() {
    const COUNT: u64 = 50_000;
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<QpNum>::new(&cq).unwrap();
    let is_good = |id| id % 1000 == 7;
    for id in 0..COUNT {
        hca().complete(cq.as_ptr(), if is_good(id) { message(id) } else { failed(id) });
    }
    let mut wcs = vec![ExtendedCompletion::default(); COUNT as usize + 1];
    let done = poller.poll(&mut wcs).unwrap();
    assert!(done.iter().map(ExtendedCompletion::id).eq(0..COUNT));
    assert!(done.iter().all(|wc| wc.result().is_ok_and(|qp| qp == QpNum(0x11)) == is_good(wc.id())));
    assert!(done.iter().filter_map(|wc| wc.result().err()).all(|error| error.vendor_err == 0x88));
    assert_eq!(runs(hca()), 1);
}

#[test]
fn a_run_takes_as_many_as_there_is_room_for() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    (0..5).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
    let mut wcs = [ExtendedCompletion::default(); 3];
    let ids = |done: &[ExtendedCompletion<()>]| done.iter().map(ExtendedCompletion::id).collect::<Vec<_>>();
    assert_eq!(ids(poller.poll(&mut []).unwrap()), []);
    assert_eq!(runs(hca()), 0);
    assert_eq!(ids(poller.poll(&mut wcs).unwrap()), [0, 1, 2]);
    assert_eq!(ids(poller.poll(&mut wcs).unwrap()), [3, 4]);
    assert_eq!(ids(poller.poll(&mut wcs).unwrap()), []);
    // an empty queue was none
    assert_eq!(runs(hca()), 2);
}

/// Its rdma-core 44 finds 31 completions that never were, and frees its lock twice, if a run comes to the queue's end.
#[test]
fn runs_on_soft_roce_do_not_come_to_the_end() {
    hca().configure(|config| config.device.vendor_id = 0x00ff_ffff);
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    (0..5).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
    let mut wcs = [ExtendedCompletion::default(); 3];
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 3);
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2);
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 0);
    assert_eq!(runs(hca()), 5);
    (0..2).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
    // what was found before it failed is not lost
    hca().script("ibv_start_poll", &[0, 0, libc::EIO]);
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2);
    assert_eq!(poller.poll(&mut wcs).unwrap_err().code(), libc::EIO);
    assert_eq!(poller.poll_one().unwrap_err().code(), libc::EIO);
}

#[test]
fn a_poll_that_fails_loses_nothing_that_it_found() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    (0..4).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
    hca().fail("ibv_start_poll", libc::EINVAL);
    let mut wcs = [ExtendedCompletion::default(); 4];
    let error = poller.poll(&mut wcs).unwrap_err();
    assert_eq!((error.code(), runs(hca())), (libc::EINVAL, 0));
    hca().script("ibv_next_poll", &[0, libc::EIO]);
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2);
    assert_eq!(runs(hca()), 1);
    assert_eq!(poller.poll(&mut wcs).unwrap_err().code(), libc::EIO);
    assert_eq!(poller.poll_into(&mut [WorkCompletion::default(); 4]).unwrap_err().code(), libc::EIO);
    assert_eq!(poller.poll_one().unwrap_err().code(), libc::EIO);
    assert_eq!(runs(hca()), 1);
    drop(poller);
    let error = Poller::<()>::new(&cq).unwrap().poll_one().unwrap_err();
    assert_eq!(error.code(), libc::EIO, "whoever polls");
    assert!(error.to_string().contains("no more use"), "{error}");
}

/// libmlx5 returns it while the kernel is changing the clock's data, if wall clock times are read.
#[test]
fn a_poll_waits_for_the_clock() {
    let ctx = open();
    let cq = queue::<WallClock>(&ctx);
    let mut poller = Poller::<WallClock>::new(&cq).unwrap();
    for first in 0..2 {
        (0..2).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
        hca().script("ibv_start_poll", &[libc::EBUSY, libc::EBUSY]);
        let mut wcs = [ExtendedCompletion::default(); 4];
        match first {
            0 => assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2),
            _ => assert_eq!(poller.poll_one().unwrap().unwrap().id(), 0),
        }
    }
}

#[test]
fn a_clock_that_never_settles_ends_a_poll_and_no_more() {
    hca().configure(|config| config.device.vendor_id = 0x00ff_ffff);
    let ctx = open();
    let cq = queue::<WallClock>(&ctx);
    let mut poller = Poller::<WallClock>::new(&cq).unwrap();
    (0..3).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
    let busy = vec![libc::EBUSY; 1 << 16];
    hca().script("ibv_start_poll", &[&[0, 0], &busy[..]].concat());
    let mut wcs = [ExtendedCompletion::default(); 4];
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2);
    hca().script("ibv_start_poll", &busy);
    let error = poller.poll(&mut wcs).unwrap_err();
    assert_eq!(error.code(), libc::EBUSY);
    assert!(error.to_string().contains("poll again"), "{error}");
    assert_eq!(poller.poll(&mut wcs).unwrap().len(), 1);
}

/// libionic looks at the clock in each step.
#[test]
fn a_run_that_the_clock_ends_is_followed_by_another() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = queue::<WallClock>(&ctx);
    let make = || {
        let builder = pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31);
        Ok::<_, Error>(builder.build()?.init(InitAttr::new(1))?)
    };
    let mut poller = Poller::<WallClock>::new(&cq).unwrap();
    let mut wcs = [ExtendedCompletion::default(); 4];
    for turn in 0..2 {
        (0..3).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
        if turn == 1 {
            drop(make().unwrap());
        }
        hca().script("ibv_next_poll", &[libc::EBUSY]);
        assert_eq!(poller.poll(&mut wcs).unwrap().len(), 1);
        if turn == 1 {
            assert!(make().is_err(), "that was not all");
        }
        assert_eq!(poller.poll(&mut wcs).unwrap().len(), 2);
        assert!(poller.poll(&mut wcs).unwrap().is_empty());
        drop(make().unwrap());
        assert!(poller.poll(&mut wcs).unwrap().is_empty());
    }
}

fn ids(done: &[WorkCompletion]) -> Vec<u64> {
    done.iter().map(WorkCompletion::id).collect()
}

#[test]
fn all_of_the_standard_is_read_by_one_call() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    let mut wcs = [WorkCompletion::default(); 3];
    assert_eq!(ids(poller.poll_into(&mut wcs).unwrap()), []);
    (0..5).for_each(|id| hca().complete(cq.as_ptr(), if id == 1 { failed(id) } else { message(id) }));
    assert_eq!(ids(poller.poll_into(&mut []).unwrap()), []);
    let done = poller.poll_into(&mut wcs).unwrap();
    assert_eq!(ids(done), [0, 1, 2]);
    assert_eq!(done[1].result().unwrap_err().vendor_err, 0x88);
    // and both ways take turns
    assert_eq!(poller.poll_one().unwrap().unwrap().id(), 3);
    assert_eq!(ids(poller.poll_into(&mut wcs).unwrap()), [4]);
    assert_eq!(ids(poller.poll_into(&mut wcs).unwrap()), []);
    assert_eq!(runs(hca()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever polls are called in whatever order, by pollers that come and go, with runs of any length, and whether
    /// queue pairs leave their room meanwhile or not.
    #[test]
    fn each_completion_comes_once_and_in_order(
        steps in prop::collection::vec((0..8, 0..5usize), 1..200),
        is_soft_roce: bool,
    ) {
        hca().configure(|config| config.device.vendor_id = if is_soft_roce { 0x00ff_ffff } else { 0x0002_c9ff });
        let ctx = open();
        let (pd, cq) = (ctx.alloc_pd().unwrap(), queue::<()>(&ctx));
        let mut poller = Poller::<()>::new(&cq).unwrap();
        let (mut next, mut waiting) = (0.., VecDeque::new());
        let mut full = [ExtendedCompletion::default(); 4];
        let mut bare = [WorkCompletion::default(); 4];
        let of = |wc: &ExtendedCompletion<()>| (wc.id(), wc.result().is_ok());
        // at the end, all that is left
        for (what, room) in steps.into_iter().chain([(3, 4); 200]) {
            let found: Vec<_> = match what {
                0..3 => {
                    let (id, is_good) = (next.next().unwrap(), what < 2);
                    hca().complete(cq.as_ptr(), if is_good { message(id) } else { failed(id) });
                    waiting.push_back((id, is_good));
                    continue;
                }
                3 => poller.poll(&mut full[..room]).unwrap().iter().map(of).collect(),
                4 => poller.poll_one().unwrap().iter().map(of).collect(),
                5 => {
                    let done = poller.poll_into(&mut bare[..room]).unwrap();
                    done.iter().map(|wc| (wc.id(), wc.result().is_ok())).collect()
                }
                6 => {
                    drop(poller);
                    poller = Poller::new(&cq).unwrap();
                    continue;
                }
                _ => {
                    if let Ok(qp) = pd.create_qp::<Rc>(&cq, &cq).build() {
                        drop(qp);
                    }
                    continue;
                }
            };
            let room = if what == 4 { 1 } else { room };
            prop_assert_eq!(found.len(), room.min(waiting.len()));
            prop_assert!(waiting.drain(..found.len()).eq(found));
        }
        prop_assert!(waiting.is_empty());
    }
}

#[test]
fn a_call_that_fails_takes_nothing() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    let mut wcs = [WorkCompletion::default(); 3];
    hca().complete(cq.as_ptr(), message(1));
    // of a queue that was polled before, and of one that was not
    for _ in 0..2 {
        hca().fail("ibv_poll_cq", libc::EINVAL);
        assert_eq!(poller.poll_into(&mut wcs).unwrap_err().code(), -libc::EINVAL);
    }
    assert_eq!(ids(poller.poll_into(&mut wcs).unwrap()), [1]);
}

/// Where runs are short, that call has all the same as many as there are.
#[test]
fn one_call_is_no_run() {
    hca().configure(|config| config.device.vendor_id = 0x00ff_ffff);
    let ctx = open();
    let cq = queue::<()>(&ctx);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    let mut wcs = [WorkCompletion::default(); 3];
    for _ in 0..2 {
        (0..4).for_each(|id| hca().complete(cq.as_ptr(), message(id)));
        assert_eq!(ids(poller.poll_into(&mut wcs).unwrap()), [0, 1, 2]);
        assert_eq!(poller.poll_one().unwrap().unwrap().id(), 3);
        assert!(poller.poll_one().unwrap().is_none());
    }
}

#[test]
fn each_reader_is_looked_for_when_the_queue_is_made() {
    let ctx = open();
    let omit: [fn(&mut sys::ibv_cq_ex); 15] = [
        |cq| cq.start_poll = None,
        |cq| cq.next_poll = None,
        |cq| cq.end_poll = None,
        |cq| cq.read_vendor_err = None,
        |cq| cq.read_opcode = None,
        |cq| cq.read_wc_flags = None,
        |cq| cq.read_byte_len = None,
        |cq| cq.read_imm_data = None,
        |cq| cq.read_qp_num = None,
        |cq| cq.read_src_qp = None,
        |cq| cq.read_slid = None,
        |cq| cq.read_sl = None,
        |cq| cq.read_dlid_path_bits = None,
        |cq| cq.read_completion_ts = None,
        |cq| cq.read_completion_wallclock_ns = None,
    ];
    for edit in omit {
        hca().configure(|config| config.edit_cq = edit);
        let builder = CompletionQueue::builder(&ctx, 64);
        let error = builder.build_extended::<(Timestamp, WallClock)>().unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
    }
    assert_eq!(hca().live().cqs, 0);
}

#[test]
fn there_is_one_poller_at_a_time() {
    let ctx = open();
    let cq = queue::<Timestamp>(&ctx);
    let first = Poller::<()>::new(&cq).unwrap();
    assert!(matches!(Poller::<()>::new(&cq), Err(Error::Invalid { .. })));
    drop(first);
    let second = Poller::<Timestamp>::new(&cq).unwrap();
    std::mem::forget(second);
    assert!(matches!(Poller::<()>::new(&cq), Err(Error::Invalid { .. })));
}

#[test]
fn what_a_queue_was_not_made_for_is_not_read() {
    let ctx = open();
    let cq = queue::<()>(&ctx);
    for error in
        [Poller::<Timestamp>::new(&cq).unwrap_err(), Poller::<(ByteLen, WallClock)>::new(&cq).unwrap_err()]
    {
        assert!(error.to_string().contains("build_extended::<F>()"), "{error}");
    }
    // all queues have these, and the refused pollers left it free
    Poller::<(Slid, Sl, DlidPathBits, SrcQp, QpNum)>::new(&cq).unwrap();
}

#[test]
fn devices_without_it_say_so() {
    hca().configure(|config| config.wc_flags &= u64::from(sys::IBV_WC_STANDARD_FLAGS));
    let ctx = open();
    let build = |ctx: &Context| {
        let builder = CompletionQueue::builder(ctx, 64);
        builder.build_extended::<Timestamp>().unwrap_err()
    };
    let error = build(&ctx);
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
    assert!(error.to_string().contains("ibv_create_cq_ex"), "{error}");
    queue::<()>(&ctx);
    // a provider that takes the flag, and has no reader
    hca().configure(|config| {
        config.wc_flags |= u64::from(sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
        config.edit_cq = |cq| cq.read_completion_ts = None;
    });
    assert_eq!(build(&ctx).errno(), Some(libc::EOPNOTSUPP));
    hca().configure(|config| config.edit_cq = |cq| cq.next_poll = None);
    assert_eq!(build(&ctx).errno(), Some(libc::EOPNOTSUPP));
    hca().configure(|config| config.wc_flags = 0);
    let ctx = open();
    assert_eq!(build(&ctx).errno(), Some(libc::EOPNOTSUPP));
    assert_eq!(hca().live().cqs, 0);
}

#[test]
fn limits_are_those_of_other_queues() {
    let ctx = open();
    let build = |entries| CompletionQueue::builder(&ctx, entries).build_extended::<()>().unwrap_err();
    assert!(matches!(build(0), Error::Invalid { .. }));
    assert!(matches!(build(1 << 20), Error::Limit { .. }));
    let (other, builder) = (open_other(), CompletionQueue::builder(&ctx, 4));
    let channel = other.create_comp_channel().unwrap();
    let error = builder.channel(&channel).build_extended::<()>().unwrap_err();
    assert!(matches!(error, Error::OtherContext { .. }), "{error}");
}

fn take(cq: &mut impl PollCq) -> Vec<(u64, Option<u32>, Option<u32>)> {
    let mut wcs = [WorkCompletion::default(); 8];
    let done = cq.poll_into(&mut wcs).unwrap();
    let what = |wc: &WorkCompletion| {
        let done = wc.result().unwrap();
        (wc.id(), done.byte_len(), done.src_qp())
    };
    done.iter().map(what).collect()
}

#[test]
fn code_for_every_kind_reads_all_of_the_standard() {
    let ctx = open();
    let (bare, extended) = (ctx.create_cq(8).unwrap(), queue::<()>(&ctx));
    let mut poller = Poller::<()>::new(&extended).unwrap();
    for cq in [bare.as_ptr(), extended.as_ptr()] {
        hca().complete(cq, message(3));
    }
    assert_eq!(take(&mut poller), [(3, Some(100), Some(0x22))]);
    assert_eq!(take(&mut &bare), [(3, Some(100), Some(0x22))]);
    hca().complete(extended.as_ptr(), failed(4));
    let mut wcs = [WorkCompletion::default(); 1];
    let error = poller.poll_into(&mut wcs).unwrap()[0].result().unwrap_err();
    assert_eq!((error.id, error.qp_num, error.vendor_err), (4, 0x11, 0x88));
}

#[test]
fn queue_pairs_of_both_backends_complete_to_them() {
    let ctx = Arc::new(open());
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let builder = CompletionQueue::builder(Arc::clone(&ctx), 256);
    let extended = Arc::new(builder.build_extended::<()>().unwrap());
    let bare = Arc::new(CompletionQueue::new(&ctx, 64).unwrap());
    let builder = |receives| ibv::QueuePairBuilder::<Rc, _>::new(&pd, &extended, receives);
    let one = builder(&extended).build().unwrap();
    let other = builder(&extended).extended().build().unwrap();
    let mixed = ibv::QueuePairBuilder::<Rc, _>::new(&pd, &bare, Arc::clone(&extended)).build().unwrap();
    let (id, raw) = (hca().id(extended.as_ptr()).unwrap(), extended.as_ptr());
    drop(extended);
    assert_eq!(hca().id(raw), Some(id), "they hold it");
    drop((one, other));
    assert_eq!(hca().id(raw), Some(id));
    drop(mixed);
    assert_eq!(hca().id(raw), None);
}

#[test]
fn the_poller_arms() {
    let ctx = open();
    let channel = CompletionChannel::new(&ctx).unwrap();
    let builder = CompletionQueue::builder(&ctx, 8).channel(&channel);
    let cq = builder.build_extended::<()>().unwrap();
    let mut poller = Poller::<()>::new(&cq).unwrap();
    poller.arm(Arm::Any).unwrap();
    hca().complete(cq.as_ptr(), message(1));
    assert_eq!(channel.wait().unwrap(), cq.id());
    assert_eq!(poller.cq().id(), cq.id());
    let without = queue::<()>(&ctx);
    let error = Poller::<()>::new(&without).unwrap().arm(Arm::Any).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }));
}

#[test]
fn a_poller_moves_to_another_thread_with_its_queue() {
    let ctx = Arc::new(open());
    let cq = CompletionQueue::builder(ctx, 8).build_extended::<()>().unwrap();
    let cq = Arc::new(cq);
    let mut poller = Poller::<()>::new(&cq).unwrap();
    hca().complete(cq.as_ptr(), message(1));
    drop(cq);
    let id = std::thread::spawn(move || poller.poll_one().unwrap().unwrap().id()).join().unwrap();
    assert_eq!(id, 1);
}
