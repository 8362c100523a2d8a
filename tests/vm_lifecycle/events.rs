//! Completion events: none is lost, none keeps a queue from being destroyed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ibv::{
    Arm, CompletionChannel, CompletionQueue, Empty, Error, QueuePair, Rc, WorkCompletion, random_psn, recv,
    send,
};

use crate::rig::{Parts, Rig, connect_with, open_init, quiet, roomy, scenario, success};

/// Longer than an event ever takes.
const LONG: Duration = Duration::from_secs(10);
/// How long to wait for an event that must not come.
const SHORT: Duration = Duration::from_millis(150);

/// A sender, and a receiver whose completions raise events.
fn pair<'p>(parts: &'p Parts<'p>, cq: &'p CompletionQueue<'p>) -> (QueuePair<'p, Rc>, QueuePair<'p, Rc>) {
    let init = |builder: ibv::QueuePairBuilder<'p, Rc>| {
        builder.build().unwrap().init(open_init(&parts.local)).unwrap()
    };
    let (a, b) = (init(parts.a_builder()), init(roomy(parts.pd.create_qp(&parts.b_cq, cq))));
    connect_with(&parts.local, a, b, |connection| connection)
}

fn queue_on<'c>(rig: &'c Rig, channel: &'c CompletionChannel<'c>) -> CompletionQueue<'c> {
    CompletionQueue::builder(&rig.ctx, 64).channel(channel).build().unwrap()
}

#[test]
fn one_event_for_each_time_it_is_armed() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let cq = queue_on(rig, &channel);
        let (a, b) = pair(&parts, &cq);
        let message = |id| {
            b.post_recv(recv(Empty).id(id)).unwrap();
            a.post(send(Empty).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
        };
        message(1);
        assert_eq!(channel.wait_timeout(SHORT).unwrap(), None, "not armed");
        cq.arm(Arm::Any).unwrap();
        message(2);
        message(3);
        assert_eq!(channel.wait_timeout(LONG).unwrap(), Some(cq.id()));
        assert_eq!(channel.wait_timeout(SHORT).unwrap(), None, "armed once");
        for id in 1..=3 {
            success(&cq, id);
        }
    });
}

#[test]
fn only_solicited_ones_if_asked() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let cq = queue_on(rig, &channel);
        let (a, b) = pair(&parts, &cq);
        for id in 0..2 {
            b.post_recv(recv(Empty).id(id)).unwrap();
        }
        cq.arm(Arm::Solicited).unwrap();
        a.post(send(Empty)).unwrap();
        success(&cq, 0);
        assert_eq!(channel.wait_timeout(SHORT).unwrap(), None);
        a.post(send(Empty).solicited()).unwrap();
        assert_eq!(channel.wait_timeout(LONG).unwrap(), Some(cq.id()));
        success(&cq, 1);
    });
}

#[test]
fn queues_on_one_channel_are_told_apart() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let (first, second) = (queue_on(rig, &channel), queue_on(rig, &channel));
        assert_ne!(first.id(), second.id());
        let ((a, b), (c, d)) = (pair(&parts, &first), pair(&parts, &second));
        first.arm(Arm::Any).unwrap();
        second.arm(Arm::Any).unwrap();
        d.post_recv(recv(Empty).id(1)).unwrap();
        c.post(send(Empty)).unwrap();
        assert_eq!(channel.wait().unwrap(), second.id());
        b.post_recv(recv(Empty).id(2)).unwrap();
        a.post(send(Empty)).unwrap();
        assert_eq!(channel.wait().unwrap(), first.id());
        success(&second, 1);
        success(&first, 2);
    });
}

#[test]
fn no_message_is_lost_by_the_documented_order() {
    const MESSAGES: usize = 150;
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let cq = queue_on(rig, &channel);
        let (a, b) = pair(&parts, &cq);
        for _ in 0..16 {
            b.post_recv(recv(Empty)).unwrap();
        }
        let (a, parts) = (&a, &parts);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut random = u64::from(random_psn()) | 1;
                for id in 0..MESSAGES as u64 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    match random % 4 {
                        0 => thread::sleep(Duration::from_micros(random >> 8 & 0x1fff)),
                        1 => thread::yield_now(),
                        _ => {}
                    }
                    a.post(send(Empty).signaled().id(id)).unwrap();
                    success(&parts.a_cq, id);
                }
            });
            let (mut got, mut waited) = (0, 0);
            loop {
                cq.arm(Arm::Any).unwrap();
                loop {
                    let mut wcs = [WorkCompletion::default(); 4];
                    let found = cq.poll(&mut wcs).unwrap();
                    if found.is_empty() {
                        break;
                    }
                    for wc in found {
                        wc.result().unwrap();
                        b.post_recv(recv(Empty)).unwrap();
                        got += 1;
                    }
                }
                if got == MESSAGES {
                    break;
                }
                assert_eq!(channel.wait_timeout(LONG).unwrap(), Some(cq.id()), "{got} of {MESSAGES} came");
                waited += 1;
            }
            assert!(waited > 0);
        });
    });
}

#[test]
fn a_waiting_thread_is_woken() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let cq = queue_on(rig, &channel);
        let (a, b) = pair(&parts, &cq);
        b.post_recv(recv(Empty).id(1)).unwrap();
        cq.arm(Arm::Any).unwrap();
        let waiting = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                waiting.store(true, Ordering::Release);
                channel.wait().unwrap()
            });
            while !waiting.load(Ordering::Acquire) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished());
            a.post(send(Empty)).unwrap();
            assert_eq!(waiter.join().unwrap(), cq.id());
        });
        success(&cq, 1);
    });
}

#[test]
fn waiting_ends_after_its_time() {
    scenario(|rig| {
        let channel = rig.ctx.create_comp_channel().unwrap();
        assert_eq!(channel.try_event().unwrap(), None);
        let start = Instant::now();
        assert_eq!(channel.wait_timeout(Duration::ZERO).unwrap(), None);
        assert_eq!(channel.wait_timeout(Duration::from_micros(300)).unwrap(), None);
        assert_eq!(channel.wait_timeout(Duration::from_millis(70)).unwrap(), None);
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(70) && took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn a_queue_with_unread_events_is_destroyed_at_once() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = rig.ctx.create_comp_channel().unwrap();
        let old = {
            let cq = queue_on(rig, &channel);
            let (a, b) = pair(&parts, &cq);
            for id in 0..2 {
                b.post_recv(recv(Empty).id(id)).unwrap();
            }
            // one event that is read, one that nobody reads
            cq.arm(Arm::Any).unwrap();
            a.post(send(Empty)).unwrap();
            assert_eq!(channel.wait_timeout(LONG).unwrap(), Some(cq.id()));
            cq.arm(Arm::Any).unwrap();
            a.post(send(Empty).signaled()).unwrap();
            success(&parts.a_cq, 0);
            success(&cq, 0);
            success(&cq, 1);
            cq.id()
        };
        quiet(&parts.b_cq);
        // a queue that is gone sends no events, and its id does not come back
        assert_eq!(channel.try_event().unwrap(), None);
        assert_ne!(queue_on(rig, &channel).id(), old);
    });
}

#[test]
fn events_need_a_channel() {
    scenario(|rig| {
        let cq = rig.ctx.create_cq(16).unwrap();
        assert!(cq.channel().is_none());
        assert!(matches!(cq.arm(Arm::Any), Err(Error::Invalid { .. })));
        let last = rig.ctx.comp_vectors() - 1;
        CompletionQueue::builder(&rig.ctx, 16).comp_vector(last).build().unwrap();
        let beyond = CompletionQueue::builder(&rig.ctx, 16).comp_vector(last + 1).build();
        assert!(matches!(beyond, Err(Error::Limit { .. })));
    });
}
