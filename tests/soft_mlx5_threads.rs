//! The mlx5 direct path on the software HCA with a device thread: queue pairs and poller on threads of their own.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ibv::mlx5::Poller;
use ibv::{
    CompletionQueue, Connection, Context, Direct, Endpoint, InitAttr, LocalPort, MemoryRegion, OwnedQp,
    Pages, ProtectionDomain, QueuePairBuilder, Rc, RemoteAccess, state, write,
};
use softhca::{Config, Hca, Mode};

const QUEUES: usize = 3;
const DEPTH: u64 = 256;

fn connect(qp: OwnedQp<Rc, state::Reset, Direct>, local: LocalPort) -> OwnedQp<Rc, state::Rts, Direct> {
    // to itself
    let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
    let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE)).unwrap();
    qp.connect(&Connection::new(local, 0, peer)).unwrap()
}

/// Each queue pair's thread posts in bursts, resets it now and then, and drops it for a new one; one thread polls. What
/// must come comes, in order, and nothing of a life before.
#[test]
fn queues_and_poller_run_on_their_own_threads() {
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
    let end = Instant::now() + Duration::from_secs(4);
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
    assert!(lives > 20 && seen > 1000, "{lives} lives, {seen} completions");
    assert_eq!(hca.take_violations().0, 0);
}
