//! Shared receive queues in trap mode: what was posted when the doorbell record said so is what the device finds. Used
//! by signal handlers: atomics in places that stay only.
//!
//! Receives carry nothing that says whose or which they are, as WQEs of a send queue do. So each is summed up when the
//! record counts it, and again when the device takes it: the two differ if it was written later, or again.

use super::slots::Slots;
use super::watch::{FOUND, Kind, record, word};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A sum is there.
const IS: u64 = 1 << 63;

#[derive(Debug)]
struct Queue {
    /// Number + 1; 0 if free.
    number: AtomicU32,
    db: AtomicU64,
    buf: AtomicU64,
    shift: AtomicU32,
    /// How many WQEs there are.
    slots: AtomicU32,
    /// The receive that is counted next, and the slot that it is in.
    next: AtomicU32,
    slot: AtomicU32,
    /// Of what is in each slot: number of the receive << 32 | sum, with [`IS`]. There may be more than slots, of a
    /// queue that was here before.
    sums: Slots<AtomicU64, 1024>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            number: AtomicU32::new(0),
            db: AtomicU64::new(0),
            buf: AtomicU64::new(0),
            shift: AtomicU32::new(0),
            slots: AtomicU32::new(0),
            next: AtomicU32::new(0),
            slot: AtomicU32::new(0),
            sums: Slots::new(),
        }
    }
}

static ALL: Slots<Queue, 16> = Slots::new();

impl Queue {
    fn get(number: u32) -> Option<&'static Self> {
        ALL.iter().find(|q| q.number.load(Ordering::Acquire) == number)
    }

    fn sum_of(&self, slot: u32) -> Option<&AtomicU64> {
        if slot < self.slots.load(Ordering::Relaxed) { self.sums.get(slot as usize) } else { None }
    }

    fn at(&self, slot: u32) -> u64 {
        self.buf.load(Ordering::Relaxed) + (u64::from(slot) << self.shift.load(Ordering::Relaxed))
    }

    /// The sum of what is in a slot.
    fn sum(&self, slot: u32) -> u32 {
        let (at, len) = (self.at(slot), 1u64 << self.shift.load(Ordering::Relaxed));
        (at..at + len)
            .step_by(8)
            .flat_map(word)
            .fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }

    fn link(&self, slot: u32) -> u32 {
        let [_, _, high, low, ..] = word(self.at(slot));
        u16::from_be_bytes([high, low]).into()
    }
}

/// A queue with an empty record. (Called under the model's lock.)
pub(super) fn add(number: u32, db: u64, buf: u64, shift: u32, slots: u32) {
    let q = ALL.claim(|q| q.number.load(Ordering::Acquire) == 0);
    q.db.store(db, Ordering::Relaxed);
    q.buf.store(buf, Ordering::Relaxed);
    q.shift.store(shift, Ordering::Relaxed);
    q.next.store(0, Ordering::Relaxed);
    q.slot.store(0, Ordering::Relaxed);
    q.slots.store(slots, Ordering::Relaxed);
    q.sums.reserve(slots as usize);
    q.sums.iter().for_each(|sum| sum.store(0, Ordering::Relaxed));
    q.number.store(number + 1, Ordering::Release);
}

pub(super) fn remove(number: u32) {
    if let Some(q) = Queue::get(number + 1) {
        q.number.store(0, Ordering::Release);
    }
}

/// A store to a page of doorbell records was executed: sums up what is counted since.
pub(super) fn counted(addr: usize) {
    let here =
        |q: &&Queue| q.number.load(Ordering::Acquire) != 0 && q.db.load(Ordering::Relaxed) == addr as u64;
    let Some(q) = ALL.iter().find(here) else { return };
    let to = record(addr as u64) & 0xffff;
    let (mut next, mut slot) = (q.next.load(Ordering::Relaxed), q.slot.load(Ordering::Relaxed));
    while next != to {
        let Some(sum) = q.sum_of(slot) else {
            // What comes behind it is not known.
            q.next.store(to, Ordering::Relaxed);
            let number = q.number.load(Ordering::Relaxed).wrapping_sub(1);
            return FOUND.add(Kind::NoSlot, number.into(), next.into(), slot.into());
        };
        sum.store(IS | u64::from(next) << 32 | u64::from(q.sum(slot)), Ordering::Relaxed);
        (next, slot) = ((next + 1) & 0xffff, q.link(slot));
        q.next.store(next, Ordering::Relaxed);
        q.slot.store(slot, Ordering::Relaxed);
    }
}

/// Whether receive `number`, which the device takes from `slot`, is what it was when it was counted; as far as that was
/// seen (while one thread executes its store, those of others pass unseen).
pub(super) fn is_as_counted(queue: u32, number: u16, slot: u16) -> bool {
    let Some(q) = Queue::get(queue + 1) else { return true };
    let Some(sum) = q.sum_of(slot.into()) else { return true };
    let was = sum.load(Ordering::Relaxed);
    was >> 32 != IS >> 32 | u64::from(number) || was as u32 == q.sum(slot.into())
}
