//! All at once: queue pairs with receives of their own and from shared queues on one completion queue of each kind,
//! made, reset and dropped while completions stand in the ring; and a device that writes whatever it likes.

use std::collections::HashSet;
use std::sync::Arc;

use super::memory::Entries;
use super::rig::{Qp, Random, Rig, rounds};
use ibv::mlx5::{Delivery, Poller, WorkCompletion};
use ibv::{
    AsyncEventKind, CompletionQueue, CompletionQueueBuilder, Connected, Direct, Empty, InitAttr,
    MemoryRegion, MrSlice, PostError, QueuePairBuilder, Rc, Remote, SharedReceiveQueue, WithSrq, recv, send,
};

type Kind<V> = fn(CompletionQueueBuilder<'static>) -> Result<CompletionQueue<'static, Direct<V>>, ibv::Error>;
type Srq<V> = SharedReceiveQueue<'static, Direct<V>>;

/// Ids of what is not received from a shared queue.
const SENT: u64 = u64::MAX;
const OWN: u64 = u64::MAX - 1;
/// Receives that the shared queues have room for.
const DEPTHS: [u32; 2] = [7, 15];

fn slice(mr: &MemoryRegion<'static, Remote>, at: usize, len: usize) -> MrSlice<'static> {
    mr.slice(at..at + len).unwrap().detach()
}

/// One that sends to itself, if there is room for its completions.
fn made<T: Connected<Init = InitAttr>, V: Delivery>(
    rig: &Rig,
    builder: QueuePairBuilder<'static, T, Direct<V>>,
) -> Option<Qp<T, Direct<V>>> {
    let qp = builder.send_depth(4).recv_depth(4).build().ok()?;
    let number = qp.qp_num();
    rig.try_up(qp, number).ok()
}

/// Drops one of them, or resets it and has it go on if there is room.
fn end_one<T: Connected<Init = InitAttr>, V: Delivery>(
    rig: &Rig,
    random: &mut Random,
    qps: &mut Vec<Qp<T, Direct<V>>>,
) {
    if qps.is_empty() {
        return;
    }
    let qp = qps.swap_remove(random.below(qps.len()));
    if random.coin() {
        let number = qp.qp_num();
        qps.extend(rig.try_up(qp.reset().unwrap(), number).ok());
    }
}

fn send_some<T: Connected, V: Delivery>(
    mr: &MemoryRegion<'static, Remote>,
    random: &mut Random,
    qps: &mut [Qp<T, Direct<V>>],
) {
    if qps.is_empty() {
        return;
    }
    let qp = &mut qps[random.below(qps.len())];
    for _ in 0..random.below(5) {
        let data = slice(mr, 0, random.below(100));
        if let Err(error) = qp.post(send(data).signaled().id(SENT)) {
            assert_eq!(error, PostError::QueueFull);
        }
    }
}

/// Receives until the queue is full; gives how many.
fn fill<V: Delivery>(srq: &mut Srq<V>, id: u64) -> u32 {
    let mut count = 0;
    while srq.post_recv(recv(Empty).id(id)).is_ok() {
        count += 1;
        assert!(count < 100);
    }
    count
}

fn poll_all<V: Delivery>(poller: &mut Poller<'_, V>, mut each: impl FnMut(u64)) {
    while let Some(wc) = poller.poll() {
        each(wc.id());
    }
}

fn everything<V: Delivery>(kind: Kind<V>) {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let events = rig.ctx.async_events().unwrap();
    let mut random = Random::new(23);
    for _ in 0..rounds(2, 12) {
        let cq = Arc::new(kind(CompletionQueue::builder(&rig.ctx, 128)).unwrap());
        let mut poller = Poller::new(&cq).unwrap();
        let mut srqs = DEPTHS.map(|depth| SharedReceiveQueue::direct(&rig.pd, &cq, depth, 2).unwrap());
        let (mut shared, mut own) = (Vec::<Qp<WithSrq<Rc>, _>>::new(), Vec::<Qp<Rc, _>>::new());
        let (mut next, mut outstanding) = (0, HashSet::new());
        let builder = || QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq);
        for _ in 0..rounds(400, 400) {
            let which = random.below(2);
            match random.below(11) {
                0 | 1 => {
                    for _ in 0..random.below(20) {
                        match srqs[which].post_recv(recv(slice(&mr, 4096, 128)).id(next)) {
                            Ok(()) => assert!(outstanding.insert(next)),
                            Err(error) => assert_eq!(error, PostError::QueueFull),
                        }
                        next += 1;
                    }
                }
                2 => shared.extend(made(&rig, builder().srq(&srqs[which]))),
                3 => own.extend(made(&rig, builder())),
                4 | 5 => send_some(&mr, &mut random, &mut shared),
                6 if !own.is_empty() => {
                    let at = random.below(own.len());
                    let posted = own[at].post_recv(recv(slice(&mr, 4096, 128)).id(OWN));
                    assert!(matches!(posted, Ok(()) | Err(PostError::QueueFull)));
                    send_some(&mr, &mut random, &mut own[at..=at]);
                }
                7 if random.below(3) == 0 => end_one(&rig, &mut random, &mut shared),
                8 if random.below(3) == 0 => end_one(&rig, &mut random, &mut own),
                9 => {
                    drop(poller);
                    poller = Poller::new(&cq).unwrap();
                }
                _ => {
                    for _ in 0..random.below(40) {
                        let Some(wc) = poller.poll() else { break };
                        assert!(wc.id() >= OWN || outstanding.remove(&wc.id()), "{} came twice", wc.id());
                    }
                }
            }
            if random.coin() {
                rig.hca.run_until_idle();
            }
            while let Some(event) = events.try_event().unwrap() {
                assert_ne!(event.kind(), AsyncEventKind::CQ_ERR);
            }
        }
        rig.hca.run_until_idle();
        poll_all(&mut poller, |id| assert!(id >= OWN || outstanding.remove(&id), "{id} came twice"));
        drop((shared, own));
        rig.hca.run_until_idle();
        poll_all(&mut poller, |id| panic!("{id} is nobody's"));
        // no slot was lost, and none is free twice
        for (srq, depth) in srqs.iter_mut().zip(DEPTHS) {
            let mut qp = made(&rig, builder().srq(srq)).unwrap();
            fill(srq, next);
            for _ in 0..2 {
                let mut received = 0;
                while received < depth {
                    qp.post(send(Empty).signaled().id(SENT)).unwrap();
                    rig.hca.run_until_idle();
                    poll_all(&mut poller, |id| received += u32::from(id < OWN));
                }
                assert_eq!(fill(srq, next), depth);
            }
        }
        rig.no_violations();
    }
}

#[test]
fn on_a_queue_of_short_and_of_wide_entries() {
    everything(CompletionQueueBuilder::build_direct);
    everything(|cq| cq.wide().build_direct());
}

#[test]
fn on_a_compressed_queue() {
    everything(|cq| cq.compressed().build_direct());
}

#[test]
fn on_queues_that_data_comes_in() {
    everything(CompletionQueueBuilder::build_direct_scattered);
    everything(|cq| cq.compressed().build_direct_scattered());
    everything(|cq| cq.compressed().wide().build_direct_scattered());
}

/// Bytes of the ring are changed, mostly in the last words, and entries made that name the queue pairs. Whatever it
/// says, the poller ends, and posting goes on.
fn nonsense<V: Delivery>(kind: Kind<V>, look: impl Fn(&WorkCompletion<'_, V>)) {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let mut random = Random::new(17);
    for _ in 0..rounds(20, 200) {
        let cq = Arc::new(kind(CompletionQueue::builder(&rig.ctx, 64)).unwrap());
        let ring = Entries::of(&cq);
        let (entries, size) = (ring.count(), ring.size());
        let put = |entry: usize, at: usize, byte: u8| ring.put(entry, at, [byte]);
        let mut poller = Poller::new(&cq).unwrap();
        let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 15, 1).unwrap();
        let builder = || QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq);
        let mut shared = Vec::from_iter(made(&rig, builder().srq(&srq)));
        let mut own = Vec::from_iter(made(&rig, builder()));
        for _ in 0..60 {
            match random.below(6) {
                0 => {
                    let posted = srq.post_recv(recv(slice(&mr, 4096, 128)).id(random.word()));
                    assert!(matches!(posted, Ok(()) | Err(PostError::QueueFull)));
                }
                1 => send_some(&mr, &mut random, &mut shared),
                2 => {
                    let posted = own.first_mut().map(|qp| qp.post_recv(recv(slice(&mr, 4096, 128))));
                    assert!(posted.is_none_or(|result| matches!(result, Ok(()) | Err(PostError::QueueFull))));
                    send_some(&mr, &mut random, &mut own);
                }
                3 => {
                    for _ in 0..random.below(5) {
                        let entry = random.below(entries);
                        for _ in 0..random.below(8) {
                            let at =
                                if random.coin() { size - 1 - random.below(8) } else { random.below(size) };
                            put(entry, at, random.word() as u8);
                        }
                        let numbers = shared.iter().map(Qp::qp_num).chain(own.iter().map(Qp::qp_num));
                        let Some(number) = numbers.last().filter(|_| random.coin()) else { continue };
                        let [_, number @ ..] = number.to_be_bytes();
                        (size - 7..).zip(number).for_each(|(at, byte)| put(entry, at, byte));
                        put(entry, size - 4, 0);
                        put(entry, size - 3, random.below(40) as u8);
                        let kind = [0, 1, 2, 3, 4, 13, 14, 15][random.below(8)];
                        put(entry, size - 1, kind << 4 | random.word() as u8 & 0xf);
                    }
                }
                4 => end_one(&rig, &mut random, &mut shared),
                _ => {
                    for _ in 0..random.below(100) {
                        poller.poll().iter().for_each(&look);
                    }
                }
            }
            rig.hca.run_until_idle();
        }
    }
    rig.hca.take_violations();
}

#[test]
fn whatever_a_device_writes() {
    let look = |wc: &WorkCompletion<'_>| {
        assert!(!format!("{wc:?} {:?}", wc.copy()).is_empty());
    };
    nonsense(CompletionQueueBuilder::build_direct, look);
    nonsense(|cq| cq.compressed().build_direct(), look);
    let look = |wc: &WorkCompletion<'_, ibv::mlx5::ToCqe>| {
        let data = wc.result().ok().and_then(|done| done.scattered());
        assert!(data.is_none_or(|data| data.len() <= 64));
    };
    nonsense(|cq| cq.compressed().build_direct_scattered(), look);
    nonsense(|cq| cq.wide().build_direct_scattered(), look);
}
