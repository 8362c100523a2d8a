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
    /// All before it is free; of a receive queue, modulo 2¹⁶.
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

    /// Takes back what was pushed since `head` was read. Nothing of it may have reached the device.
    #[inline(always)]
    pub(super) fn roll_back(&mut self, head: u32) {
        self.head = head;
    }
}

impl Producer<SendSlot> {
    /// Looks up to where slots are free.
    #[inline(always)]
    pub(super) fn look_for_room(&mut self, lane: &Lane<SendSlot>) {
        // pairs with the Release of the consumer, who has read the slots that it frees
        self.limit = lane.tail.load(Ordering::Acquire).wrapping_add(self.len);
    }

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
    /// Whether `slots` more can be filled.
    #[inline(always)]
    pub(super) fn has_room(&mut self, slots: u32, lane: &Lane<RecvSlot>) -> bool {
        if self.knows_room(slots) {
            return true;
        }
        unlikely();
        // as for sends
        let tail = lane.tail.load(Ordering::Acquire);
        let used = self.head.wrapping_sub(tail) & 0xffff;
        // a device that completes what it was never given must not make room where there is no ring
        self.limit = self.head.wrapping_add(self.len.saturating_sub(used));
        self.knows_room(slots)
    }

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
        // pairs with the Acquire in `look_for_room`
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

    /// Whether entry `index` of the completion queue can be theirs, if it names their number.
    pub(super) fn covers(&self, index: u32) -> bool {
        // pairs with the Release in `retire`
        self.key.load(Ordering::Acquire) != RETIRED || is_before(index, self.until.load(Ordering::Relaxed))
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

    fn has_room(producer: &mut Producer<SendSlot>, lane: &Lane<SendSlot>, slots: u32) -> bool {
        if !producer.knows_room(slots) {
            producer.look_for_room(lane);
        }
        producer.knows_room(slots)
    }

    fn run(len: u32, start: u32, steps: impl IntoIterator<Item = (u32, bool, bool)>) -> u32 {
        let (mut producer, lane) = queue::<SendSlot>(len);
        (producer.head, producer.limit) = (start, start.wrapping_add(len));
        lane.tail.store(start, Ordering::Relaxed);
        let mut model = Model::new();
        for (id, (slots, signaled, complete)) in (1..).zip(steps) {
            let used: u32 = model.iter().map(|request| request.2).sum();
            let fits = used + slots <= len;
            assert_eq!(
                has_room(&mut producer, &lane, slots),
                fits,
                "{used} of {len} are used, {slots} wanted"
            );
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

    proptest! {
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
        assert!(!has_room(&mut producer, &lane, 1));
        assert_eq!(lane.complete(7).id, 0, "and a device that says otherwise does no harm");
        assert!(!has_room(&mut producer, &lane, 1));
        let (mut producer, lane) = queue::<RecvSlot>(0);
        for counter in [7, 0xffff, 0] {
            assert_eq!(lane.complete(counter), 0);
            assert!(!producer.has_room(1, &lane), "{counter}");
        }
    }

    #[test]
    fn taking_back_frees_the_slots() {
        let (mut producer, lane) = queue::<SendSlot>(4);
        assert!(has_room(&mut producer, &lane, 4));
        let head = producer.head();
        producer.push(head, 1, 3, 0);
        assert!(!has_room(&mut producer, &lane, 2));
        producer.roll_back(head);
        assert!(has_room(&mut producer, &lane, 4));
        producer.forget_room();
        assert!(!producer.knows_room(1));
    }
}
