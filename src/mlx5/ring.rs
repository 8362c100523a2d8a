//! Indices of queues: what is free, what is outstanding, which request a completion means. Pure: no pointers, and no
//! unsafe.
//!
//! A queue has two sides that may be on two threads. The [`Producer`] is the posting side's own; the [`Lane`] is the
//! polling side's, which tells the producer what became free through one word. Slots with what a completion gives back
//! are shared; each is written by the producer while it owns the slot, and read by the consumer after the device has
//! completed the request that was posted in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::chain::Back;
use super::masked::Masked;

/// What is remembered of a send in a slot.
#[derive(Debug, Default)]
pub(super) struct SendSlot {
    /// Its `wr_id`.
    id: AtomicU64,
    /// The index of the slot after it, in the low half; a note on what it was, in the high half.
    next: AtomicU64,
}

/// What a completion gives back of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) id: u64,
    /// Its note, in the high half.
    pub(super) noted: u64,
}

/// What is remembered of a receive: its `wr_id`.
pub(super) type RecvSlot = AtomicU64;

/// The polling side of a queue.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Lane<S> {
    slots: Masked<S>,
    /// All before it is free, modulo 2¹⁶; what a faulty device says may be anywhere.
    tail: AtomicU32,
}

/// The posting side of a queue.
#[derive(Debug)]
pub(super) struct Producer<S> {
    slots: Masked<S>,
    len: u32,
    /// The slot to fill next.
    head: u32,
    /// The first slot that must not be filled.
    limit: u32,
}

/// Both sides of a queue of `len` slots, which is a power of two, at most 2¹⁵, or 0.
pub(super) fn queue<S: Default>(len: u32) -> (Producer<S>, Lane<S>) {
    let slots = Masked::new(len);
    let lane = Lane { slots: slots.clone(), tail: AtomicU32::new(0) };
    (Producer { slots, len, head: 0, limit: len }, lane)
}

/// The polling side of a queue pair's queues between two resets: what completions that name it are looked up in.
///
/// A queue that completes elsewhere is empty here.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) send: Lane<SendSlot>,
    pub(super) recv: Lane<RecvSlot>,
    /// What its receives are taken from, if that is shared.
    pub(super) shared: Option<Arc<Back>>,
    /// The queue pair's number.
    pub(super) number: u32,
    /// The number as completions have it; none that they could have, once the queue pair was emptied or destroyed.
    key: AtomicU32,
    /// The same for receives that are in `recv`.
    recv_key: AtomicU32,
    /// See [`retire`](Self::retire).
    until: AtomicU32,
}

impl<S> Producer<S> {
    /// The slot to fill next; counts on for ever, modulo 2³².
    #[inline(always)]
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// How many slots it has.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Whether `slots` more can be filled, as far as is known here.
    #[inline(always)]
    pub(super) fn knows_room(&self, slots: u32) -> bool {
        self.limit.wrapping_sub(self.head) >= slots
    }

    /// Knows of no room until it is looked for.
    pub(super) fn forget_room(&mut self) {
        self.limit = self.head;
    }

    /// Whether `slots` more can be filled.
    #[inline(always)]
    pub(super) fn has_room(&mut self, slots: u32, lane: &Lane<S>) -> bool {
        if self.knows_room(slots) {
            return true;
        }
        unlikely();
        // pairs with the Release of the consumer, who has read the slots that it frees
        let tail = lane.tail.load(Ordering::Acquire);
        let oldest = self.limit.wrapping_sub(self.len);
        let done = tail.wrapping_sub(oldest) & 0xffff;
        // a device that completes what is not outstanding makes no room by that
        if done <= self.head.wrapping_sub(oldest) {
            self.limit = self.limit.wrapping_add(done);
        }
        self.knows_room(slots)
    }

    /// Takes back what was pushed since `head` was read. Nothing of it may have reached the device.
    #[inline(always)]
    pub(super) fn roll_back(&mut self, head: u32) {
        self.head = head;
        // a faulty device may have completed some of it
        if self.limit.wrapping_sub(head) > self.len {
            self.limit = head.wrapping_add(self.len);
        }
    }
}

impl Producer<SendSlot> {
    /// Fills `slots` slots with one request. There must be room. Gives the head after it.
    ///
    /// `head` is [what it is](Self::head): who writes a request has it at hand.
    #[inline(always)]
    pub(super) fn push(&mut self, head: u32, id: u64, slots: u32, note: u32) -> u32 {
        let next = head.wrapping_add(slots);
        let slot = self.slots.at(head);
        slot.id.store(id, Ordering::Relaxed);
        slot.next.store(u64::from(note) << 32 | u64::from(next), Ordering::Relaxed);
        self.head = next;
        next
    }
}

impl Producer<RecvSlot> {
    /// Fills a slot for each of `requests`: receives take one slot, and are done in order. `write` writes one, and
    /// gives its id; if it fails, nothing was filled. There must be room. Gives the head after them.
    #[inline(always)]
    pub(super) fn push_each<R, E>(
        &mut self,
        requests: &[R],
        mut write: impl FnMut(u32, &R) -> Result<u64, E>,
    ) -> Result<u32, E> {
        let (slots, mut at) = (self.slots.view(), self.head);
        for request in requests {
            slots.at(at).store(write(at, request)?, Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
        self.head = at;
        Ok(at)
    }
}

impl Lane<SendSlot> {
    /// The request in slot `counter` is done, with all before it.
    #[inline(always)]
    pub(super) fn complete(&self, counter: u32) -> Sent {
        let slot = self.slots.at(counter);
        let sent = Sent { id: slot.id.load(Ordering::Relaxed), noted: slot.next.load(Ordering::Relaxed) };
        // pairs with the Acquire in `has_room`
        self.tail.store(sent.noted as u32, Ordering::Release);
        sent
    }
}

impl Lane<RecvSlot> {
    /// The receive in slot `counter` is done, with all before it. Gives its id.
    #[inline(always)]
    pub(super) fn complete(&self, counter: u32) -> u64 {
        let id = self.slots.at(counter).load(Ordering::Relaxed);
        self.tail.store(counter.wrapping_add(1), Ordering::Release);
        id
    }
}

impl Lanes {
    /// `key` is the number as completions have it.
    pub(super) fn new(number: u32, key: u32, send: Lane<SendSlot>, recv: Lane<RecvSlot>) -> Self {
        let (key, recv_key) = (AtomicU32::new(key), AtomicU32::new(key));
        Self { number, send, recv, shared: None, key, recv_key, until: AtomicU32::new(0) }
    }

    /// The same with receives that are taken from `shared`.
    pub(super) fn with_shared(self, shared: Option<Arc<Back>>) -> Self {
        let recv_key = if shared.is_some() { AtomicU32::new(RETIRED) } else { self.recv_key };
        Self { shared, recv_key, ..self }
    }

    /// What a completion says that is theirs; [`RETIRED`] if none can be.
    #[inline(always)]
    pub(super) fn key(&self) -> u32 {
        self.key.load(Ordering::Relaxed)
    }

    /// What the completion of a receive says that is in `recv`; [`RETIRED`] if none can be.
    #[inline(always)]
    pub(super) fn recv_key(&self) -> u32 {
        self.recv_key.load(Ordering::Relaxed)
    }

    /// Nothing that the completion queue got from entry `until` on is of these queues any more: they are empty, and a
    /// queue pair of the same number may come after them.
    pub(super) fn retire(&self, until: u32) {
        self.until.store(until, Ordering::Relaxed);
        self.recv_key.store(RETIRED, Ordering::Relaxed);
        self.key.store(RETIRED, Ordering::Release);
    }

    /// Whether they were [retired](Self::retire).
    pub(super) fn is_retired(&self) -> bool {
        self.key() == RETIRED
    }

    /// Where they were retired, if they were.
    fn retired_until(&self) -> Option<u32> {
        // pairs with the Release in `retire`
        let retired = self.key.load(Ordering::Acquire) == RETIRED;
        retired.then(|| self.until.load(Ordering::Relaxed))
    }

    /// Whether entry `index` of the completion queue can be theirs, if it names their number.
    pub(super) fn covers(&self, index: u32) -> bool {
        self.retired_until().is_none_or(|until| is_before(index, until))
    }
}

/// The queues that came to a completion queue, until its poller knows them; the oldest first.
#[derive(Debug, Default)]
pub(super) struct Joined(Vec<Arc<Lanes>>);

impl Joined {
    /// One more came, when `consumed` entries were read. Nothing is kept of those that have come and gone, and of which
    /// no entry is left, or never was one.
    pub(super) fn add(&mut self, lanes: Arc<Lanes>, consumed: u32) {
        // the first entry that can be of the next one with the number
        let mut from = consumed;
        self.0.retain(|old| {
            if old.number != lanes.number {
                return old.covers(consumed);
            }
            let keep = old.covers(from);
            from = old.retired_until().filter(|_| keep).unwrap_or(from);
            keep
        });
        self.0.push(lanes);
    }

    pub(super) fn take(&mut self) -> Vec<Arc<Lanes>> {
        std::mem::take(&mut self.0)
    }
}

/// The key of nobody: the byte beside the number is not 0.
pub(super) const RETIRED: u32 = u32::MAX;

/// Where the compiler should not expect to come.
#[cold]
pub(super) fn unlikely() {}

/// Whether entry `index` of a completion queue comes before entry `of`; both count on for ever, modulo 2³².
#[inline(always)]
pub(super) fn is_before(index: u32, of: u32) -> bool {
    index.wrapping_sub(of) >= 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// What is in the ring, as (id, first slot, slots, signaled).
    type Model = VecDeque<(u64, u32, u32, bool)>;

    fn run(len: u32, start: u32, steps: impl IntoIterator<Item = (u32, bool, bool)>) -> u32 {
        let (mut producer, lane) = queue::<SendSlot>(len);
        (producer.head, producer.limit) = (start, start.wrapping_add(len));
        lane.tail.store(start, Ordering::Relaxed);
        let mut model = Model::new();
        for (id, (slots, signaled, complete)) in (1..).zip(steps) {
            let used: u32 = model.iter().map(|request| request.2).sum();
            let fits = used + slots <= len;
            assert_eq!(producer.has_room(slots, &lane), fits, "{used} of {len} are used, {slots} wanted");
            if fits {
                model.push_back((id, producer.head(), slots, signaled));
                producer.push(producer.head(), id, slots, id as u32);
            }
            let Some(done) = complete.then(|| model.iter().position(|request| request.3)).flatten() else {
                continue;
            };
            let gone: Vec<_> = model.drain(..=done).collect();
            let (id, at, ..) = gone[done];
            let sent = lane.complete(at & 0xffff);
            assert_eq!(sent.id, id, "the device tells the first slot, modulo 2^16");
            assert_eq!(sent.noted >> 32, id & 0xffff_ffff);
        }
        producer.head()
    }

    /// Whatever was completed since, slots are taken for free only in order, and only those that were filled.
    #[derive(Default)]
    struct Watch {
        /// Where the known room ended.
        limit: u32,
    }

    impl Watch {
        fn look<S>(&mut self, producer: &Producer<S>, rolled_back: bool) {
            let room = producer.limit.wrapping_sub(producer.head);
            assert!(room <= producer.len, "{room} of {} are free", producer.len);
            let back = is_before(producer.limit, self.limit);
            assert!(!back || rolled_back, "what was free is not any more");
            self.limit = producer.limit;
        }
    }

    proptest! {
        #[test]
        fn sends_that_are_not_outstanding_make_no_room(
            bits in 0u32..6,
            start: u32,
            steps in prop::collection::vec((1u32..=5, 0u32..4, any::<u16>()), 1..600),
        ) {
            let len = 1 << bits;
            let (mut producer, lane) = queue::<SendSlot>(len);
            (producer.head, producer.limit) = (start, start.wrapping_add(len));
            lane.tail.store(start, Ordering::Relaxed);
            let mut watch = Watch { limit: producer.limit };
            for (slots, what, counter) in steps {
                let first = producer.head();
                match what {
                    0 => drop(lane.complete(counter.into())),
                    1 => drop(lane.complete(first.wrapping_sub(u32::from(counter % 8)) & 0xffff)),
                    _ => while producer.has_room(slots, &lane) && producer.head().wrapping_sub(first) < 2 * len {
                        producer.push(producer.head(), 0, slots, 0);
                        // in the middle of a batch too
                        if counter % 3 == 0 {
                            lane.complete(producer.head().wrapping_sub(slots) & 0xffff);
                        }
                    },
                }
                watch.look(&producer, false);
                if what == 3 {
                    producer.roll_back(first);
                    watch.look(&producer, true);
                }
            }
        }

        #[test]
        fn receives_that_are_not_outstanding_make_no_room(
            bits in 0u32..6,
            steps in prop::collection::vec((0usize..5, any::<bool>(), any::<u16>()), 1..600),
        ) {
            let (mut producer, lane) = queue::<RecvSlot>(1 << bits);
            let mut watch = Watch { limit: producer.limit };
            for (count, anywhere, counter) in steps {
                if producer.has_room(count as u32, &lane) {
                    producer.push_each(&vec![(); count], |_, ()| Ok::<_, ()>(0)).unwrap();
                }
                watch.look(&producer, false);
                let near = producer.head().wrapping_add(4).wrapping_sub(u32::from(counter % 9));
                lane.complete(if anywhere { counter.into() } else { near & 0xffff });
            }
        }

        #[test]
        fn no_slot_is_filled_before_it_is_free(
            bits in 0u32..9,
            start: u32,
            steps in prop::collection::vec((1u32..=16, any::<bool>(), any::<bool>()), 1..2000),
        ) {
            run(1 << bits, start, steps);
        }

        #[test]
        fn order_of_entries_goes_round(at: u32, by in 1u32..1 << 31) {
            prop_assert!(is_before(at, at.wrapping_add(by)));
            prop_assert!(!is_before(at.wrapping_add(by), at));
            prop_assert!(!is_before(at, at));
        }
    }

    #[test]
    fn counters_go_round_many_times() {
        let end = run(64, 0, (0..300_000).map(|i| (1 + i % 4, i % 3 != 0, i % 2 == 0)));
        assert!(end > 4 << 16, "{end}");
        run(1 << 15, u32::MAX - 70_000, (0..200_000).map(|i| (1 + i % 4, i % 3 != 0, i % 5 != 0)));
    }

    #[test]
    fn receives_take_one_slot_each() {
        let (mut producer, lane) = queue::<RecvSlot>(8);
        let mut done = 0u32;
        for round in 0..70_000u32 {
            let many = vec![(); (round % 9) as usize];
            if producer.has_room(many.len() as u32, &lane) {
                producer.push_each(&many, |index, ()| Ok::<_, ()>(index.into())).unwrap();
            } else {
                assert!(producer.head().wrapping_sub(done) + many.len() as u32 > 8);
            }
            if round % 3 != 0 && done != producer.head() {
                assert_eq!(lane.complete(done & 0xffff), done.into());
                done += 1;
            }
        }
        assert!(done > 1 << 15 && producer.push_each(&[()], |_, ()| Err(())).is_err());
    }

    #[test]
    fn an_empty_queue_takes_nothing() {
        let (mut producer, lane) = queue::<SendSlot>(0);
        assert!(!producer.has_room(1, &lane));
        assert_eq!(lane.complete(7).id, 0, "and a device that says otherwise does no harm");
        assert!(!producer.has_room(1, &lane));
        let (mut producer, lane) = queue::<RecvSlot>(0);
        for counter in [7, 0xffff, 0] {
            assert_eq!(lane.complete(counter), 0);
            assert!(!producer.has_room(1, &lane), "{counter}");
        }
    }

    #[test]
    fn queues_that_completed_nothing_are_not_kept() {
        let lanes = |number| Arc::new(Lanes::new(number, number, queue(0).1, queue(0).1));
        for start in [0, u32::MAX - 5] {
            let at = |entry: u32| start.wrapping_add(entry);
            let mut joined = Joined::default();
            // entries up to 10 are written, and up to 3 are read
            for _ in 0..1000 {
                for number in [7, 8] {
                    let one = lanes(number);
                    joined.add(Arc::clone(&one), at(3));
                    one.retire(at(10));
                }
            }
            // the first of each may have completed what stands there
            assert_eq!(joined.0.len(), 4, "and the last is looked at when the next one comes");
            // one that may have completed entries 10 and 11, one that is there, and what was read meanwhile
            let two = lanes(7);
            joined.add(Arc::clone(&two), at(3));
            two.retire(at(12));
            joined.add(lanes(7), at(10));
            let left = joined.take();
            let covering =
                |number, index| left.iter().position(|lanes| lanes.number == number && lanes.covers(index));
            assert_eq!(left.len(), 2, "{left:?}");
            assert_eq!(
                (covering(7, at(10)), covering(7, at(11)), covering(7, at(12))),
                (Some(0), Some(0), Some(1))
            );
            assert_eq!(covering(8, at(10)), None);
            assert!(joined.take().is_empty());
        }
    }

    #[test]
    fn taking_back_frees_the_slots() {
        let (mut producer, lane) = queue::<SendSlot>(4);
        assert!(producer.has_room(4, &lane));
        let head = producer.head();
        producer.push(head, 1, 3, 0);
        assert!(!producer.has_room(2, &lane));
        producer.roll_back(head);
        assert!(producer.has_room(4, &lane));
        producer.forget_room();
        assert!(!producer.knows_room(1));
    }
}
