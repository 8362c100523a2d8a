//! The mlx5 direct path on the software HCA with a device thread: queue pairs and poller on threads of their own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ibv::mlx5::Poller;
use ibv::{
    CompletionQueue, Connected, Connection, Context, Direct, Empty, Endpoint, InitAttr, LocalPort,
    MemoryRegion, OwnedQp, Pages, PostError, ProtectionDomain, QueuePairBuilder, Rc, RemoteAccess,
    SharedReceiveQueue, recv, send, state, write,
};
use softhca::{Config, Hca, Mode};

#[path = "../softhca/tests/common/memcheck.rs"]
mod memcheck;

#[test]
fn memcheck_finds_nothing() {
    memcheck::finds_nothing(&[]);
}

const QUEUES: usize = 3;
const DEPTH: u64 = 256;

/// How long a test runs, and the part of what else it would get done that it must: less under valgrind, which runs one
/// thread at a time.
fn patience() -> (Duration, u64) {
    match std::env::var_os("SOFTHCA_UNDER_VALGRIND") {
        Some(_) => (Duration::from_secs(12), 20),
        None => (Duration::from_secs(4), 1),
    }
}

/// The tests of one program share the device.
static ONE: Mutex<()> = Mutex::new(());

fn connect<T: Connected<Init = InitAttr>>(
    qp: OwnedQp<T, state::Reset, Direct>,
    local: LocalPort,
) -> OwnedQp<T, state::Rts, Direct> {
    // to itself
    let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
    let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE)).unwrap();
    qp.connect(&Connection::new(local, 0, peer)).unwrap()
}

/// Each queue pair's thread posts in bursts, resets it now and then, and drops it for a new one; one thread polls. What
/// must come comes, in order, and nothing of a life before.
#[test]
fn queues_and_poller_run_on_their_own_threads() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hca = Hca::start(Config::new().mode(Mode::Thread)).unwrap();
    let ctx = Arc::new(Context::open("mlx5_0").unwrap());
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let local = ctx.local_port(1).unwrap();
    let pages = Pages::new(4096).unwrap();
    let mr = Arc::new(MemoryRegion::remote(&pd, pages, RemoteAccess::WRITE).unwrap());
    let cq = Arc::new(CompletionQueue::builder(&ctx, 1 << 16).build_direct().unwrap());
    let mut poller = Poller::new(&cq).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let done: Vec<_> = (0..QUEUES).map(|_| Arc::new(std::sync::atomic::AtomicU64::new(0))).collect();
    let (time, part) = patience();
    let end = Instant::now() + time;
    let threads: Vec<_> = (0..QUEUES as u64)
        .map(|queue| {
            let (pd, cq, mr, done) = (pd.clone(), cq.clone(), mr.clone(), done[queue as usize].clone());
            std::thread::spawn(move || {
                let make = || {
                    let builder = QueuePairBuilder::<Rc, Direct>::direct(&pd, &cq, &cq);
                    connect(builder.send_depth(DEPTH as u32).recv_depth(0).build().unwrap(), local)
                };
                let (data, to) =
                    (mr.slice(..64).unwrap().detach(), mr.remote_region().slice(2048..).unwrap());
                let mut qp = make();
                let mut lives = 0u64;
                while Instant::now() < end {
                    // id: queue, life, number of the request in it
                    let base = queue << 56 | lives << 24;
                    let mut posted = 0;
                    let wanted = 50 + lives % 7 * 100;
                    while posted < wanted && Instant::now() < end {
                        let mut batch = qp.batch();
                        let mut some = 0;
                        while some < 16
                            && batch.push(write(data, to).signaled().id(base | (posted + some))).is_ok()
                        {
                            some += 1;
                        }
                        batch.submit();
                        posted += some;
                        if some == 0 {
                            std::thread::yield_now();
                        }
                    }
                    // sometimes all of them are waited for, sometimes they are abandoned
                    if lives % 3 == 0 {
                        while done.load(Ordering::Acquire) != (base | (posted - 1)) && Instant::now() < end {
                            std::thread::yield_now();
                        }
                    }
                    lives += 1;
                    if lives % 5 == 0 {
                        drop(qp);
                        qp = make();
                    } else {
                        qp = connect(qp.reset().unwrap(), local);
                    }
                }
                lives
            })
        })
        .collect();
    let polling = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let (mut seen, mut last) = (0u64, [None::<u64>; QUEUES]);
            while !stop.load(Ordering::Relaxed) {
                let Some(wc) = poller.poll() else {
                    std::thread::yield_now();
                    continue;
                };
                wc.result().unwrap();
                let (queue, life, number) = (wc.id() >> 56, wc.id() >> 24 & 0xffff_ffff, wc.id() & 0xff_ffff);
                let queue = queue as usize;
                if let Some(before) = last[queue] {
                    let (life_before, number_before) = (before >> 24 & 0xffff_ffff, before & 0xff_ffff);
                    let next = life == life_before && number == number_before + 1;
                    assert!(next || life > life_before && number == 0, "{:x} after {before:x}", wc.id());
                }
                last[queue] = Some(wc.id());
                seen += 1;
                done[queue].store(wc.id(), Ordering::Release);
            }
            seen
        })
    };
    let lives: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    stop.store(true, Ordering::Relaxed);
    let seen = polling.join().unwrap();
    println!("{lives} lives, {seen} completions");
    assert!(lives > 20 / part && seen > 1000 / part, "{lives} lives, {seen} completions");
    assert_eq!(hca.take_violations().0, 0);
}

/// One thread posts receives on a shared queue, one polls, and others send by queue pairs that take from it, which are
/// reset or dropped while completions of theirs stand in the ring. Each receive is done once at most, and in the end
/// there is room for as many as in the beginning.
#[test]
fn a_shared_queue_is_posted_on_polled_and_used_on_different_threads() {
    const RECEIVES: u64 = 63;
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hca = Hca::start(Config::new().mode(Mode::Thread)).unwrap();
    let ctx = Arc::new(Context::open("mlx5_0").unwrap());
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let local = ctx.local_port(1).unwrap();
    let cq = Arc::new(CompletionQueue::builder(&ctx, 1 << 12).build_direct().unwrap());
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&pd, &cq, RECEIVES as u32, 1).unwrap();
    let make = |srq: &SharedReceiveQueue<'static, Direct>| {
        let builder = QueuePairBuilder::<Rc, Direct>::direct(&pd, &cq, &cq).send_depth(16).srq(srq);
        connect(builder.build().unwrap(), local)
    };
    let (time, part) = patience();
    let (sending, all) = (AtomicBool::new(true), AtomicBool::new(true));
    let (lives, next, seen) = std::thread::scope(|scope| {
        // they are made before the queue goes to its own thread
        let mut queues: Vec<_> =
            (0..QUEUES).map(|_| (0..40 / part).map(|_| make(&srq)).collect::<Vec<_>>()).collect();
        let end = Instant::now() + time;
        let senders: Vec<_> = queues
            .drain(..)
            .map(|mut queues| {
                scope.spawn(move || {
                    let mut lives = 0u64;
                    while Instant::now() < end {
                        let Some(mut qp) = queues.pop() else { break };
                        let wanted = 20 + lives % 7 * 30;
                        let mut posted = 0;
                        while posted < wanted && Instant::now() < end {
                            match qp.post(send(Empty).signaled().id(u64::MAX)) {
                                Ok(()) => posted += 1,
                                Err(_) => std::thread::yield_now(),
                            }
                        }
                        lives += 1;
                        if lives % 8 != 0 {
                            queues.push(connect(qp.reset().unwrap(), local));
                        }
                    }
                    lives
                })
            })
            .collect();
        let poster = scope.spawn(|| {
            let mut next = 0;
            while sending.load(Ordering::Relaxed) {
                match srq.post_recv(recv(Empty).id(next)) {
                    Ok(()) => next += 1,
                    Err(full) => {
                        assert_eq!(full, PostError::QueueFull);
                        std::thread::yield_now();
                    }
                }
            }
            next
        });
        let polling = scope.spawn(|| {
            let mut last = None;
            let mut seen = 0u64;
            while all.load(Ordering::Relaxed) {
                let Some(wc) = poller.poll() else {
                    std::thread::yield_now();
                    continue;
                };
                wc.result().unwrap();
                if wc.id() != u64::MAX {
                    // the device takes them in order; those that nobody is told of are left out
                    assert!(last.is_none_or(|last| last < wc.id()), "{} after {last:?}", wc.id());
                    last = Some(wc.id());
                    seen += 1;
                }
            }
            seen
        });
        let lives: u64 = senders.into_iter().map(|thread| thread.join().unwrap()).sum();
        sending.store(false, Ordering::Relaxed);
        let next = poster.join().unwrap();
        all.store(false, Ordering::Relaxed);
        (lives, next, polling.join().unwrap())
    });
    println!("{lives} lives, {next} receives posted, {seen} seen");
    assert!(lives > 20 / part && seen > 1000 / part && next > seen, "{lives} {next} {seen}");
    while poller.poll().is_some() {}
    let mut qp = make(&srq);
    for _ in 0..2 {
        while srq.post_recv(recv(Empty).id(0)) != Err(PostError::QueueFull) {}
        let (mut sent, mut received) = (0, 0);
        while received < RECEIVES {
            if sent < RECEIVES && qp.post(send(Empty).signaled().id(u64::MAX)).is_ok() {
                sent += 1;
            }
            while let Some(wc) = poller.poll() {
                wc.result().unwrap();
                received += u64::from(wc.id() != u64::MAX);
            }
        }
        let refill = vec![recv(Empty).id(0); RECEIVES as usize];
        srq.post_recv_list(&refill).unwrap();
    }
    assert_eq!(hca.take_violations().0, 0);
}
