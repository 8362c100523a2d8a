//! The chain of a shared receive queue: in which order its slots are used. Pure: no pointers, and no unsafe.
//!
//! Receives of a shared queue complete in any order, so that its slots are used in a chain and not round a ring: each
//! WQE names the slot after it, which is free as yet. The device goes along the chain as far as it was told that
//! receives were posted; a slot comes to the end of it when its receive is done. The last slot is not filled before
//! there is one after it, since a WQE is not changed any more once it was posted.
//!
//! Two sides may be on two threads: the [`Front`] is the posting side's own; the [`Back`] is the polling side's, which
//! appends to the chain. What it is told by a device need not make sense: a slot is appended only if a receive is
//! outstanding in it, so that none is in the chain twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::masked::Masked;
use super::ring::unlikely;

/// What both sides have.
#[derive(Debug, Clone)]
struct Table {
    /// The `wr_id` of the receive in each slot.
    ids: Masked<AtomicU64>,
    /// The slots in the order in which they come into the chain: those that are free are the ones from head to tail.
    order: Masked<AtomicU32>,
}

/// The posting side.
#[derive(Debug)]
pub(super) struct Front {
    table: Table,
    /// Receives posted so far: the place in the order of the slot to fill next.
    head: u64,
    /// The end of the chain, as far as is known here.
    end: u64,
    back: Arc<Back>,
}

/// The polling side.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Back {
    /// Slots that ever came into the chain: the end of the order.
    tail: AtomicU64,
    len: u32,
    table: Table,
    /// Where each slot stands in the order, or last stood.
    places: Masked<AtomicU64>,
    posted: Posted,
}

/// The head, as far as receives are posted: what the posting side tells the polling one.
#[derive(Debug)]
#[repr(align(64))]
struct Posted(AtomicU64);

/// Both sides of a chain of `len` slots, a power of two from 2 to 2¹⁵, which begins with them in order.
pub(super) fn chain(len: u32) -> (Front, Arc<Back>) {
    let table = Table { ids: Masked::new(len), order: Masked::new(len) };
    let places = Masked::<AtomicU64>::new(len);
    for slot in 0..len {
        table.order.at(slot).store(slot, Ordering::Relaxed);
        places.at(slot).store(slot.into(), Ordering::Relaxed);
    }
    let (tail, posted) = (AtomicU64::new(len.into()), Posted(AtomicU64::new(0)));
    let back = Arc::new(Back { tail, len, table: table.clone(), places, posted });
    (Front { table, head: 0, end: len.into(), back: Arc::clone(&back) }, back)
}

impl Front {
    /// Whether `receives` more can be posted.
    #[inline(always)]
    pub(super) fn has_room(&mut self, receives: usize) -> bool {
        // one slot stays behind
        if self.end - self.head > receives as u64 {
            return true;
        }
        unlikely();
        // pairs with the Release of the other side, which has read the slots that it appended
        self.end = self.back.tail.load(Ordering::Acquire);
        self.end - self.head > receives as u64
    }

    /// Fills a slot for each of `requests`. `write` is given the slot and the one after it, writes the receive, and
    /// gives its id; if it fails, nothing was filled. There must be room. Gives how many were posted so far.
    #[inline(always)]
    pub(super) fn push_each<R, E>(
        &mut self,
        requests: &[R],
        mut write: impl FnMut(u32, u32, &R) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let (ids, order) = (self.table.ids.view(), self.table.order.view());
        let mut at = self.head;
        let mut slot = order.at(at as u32).load(Ordering::Relaxed);
        for request in requests {
            at += 1;
            let next = order.at(at as u32).load(Ordering::Relaxed);
            ids.at(slot).store(write(slot, next, request)?, Ordering::Relaxed);
            slot = next;
        }
        self.head = at;
        // before the device is told, so also before it completes one of them
        self.back.posted.0.store(at, Ordering::Relaxed);
        Ok(at)
    }
}

impl Back {
    /// The receive in `slot` is done, and the slot comes to the end of the chain. Gives the receive's id; `None` if
    /// there is none outstanding.
    #[inline(always)]
    pub(super) fn complete(&self, slot: u32) -> Option<u64> {
        let place = self.places.at(slot);
        if slot >= self.len || place.load(Ordering::Relaxed) >= self.posted.0.load(Ordering::Relaxed) {
            return None;
        }
        let id = self.table.ids.at(slot).load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        self.table.order.at(tail as u32).store(slot, Ordering::Relaxed);
        place.store(tail, Ordering::Relaxed);
        // pairs with the Acquire in `has_room`
        self.tail.store(tail + 1, Ordering::Release);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};

    /// A device that goes along the chain by what the WQEs say, and completes in any order.
    #[derive(Default)]
    struct Device {
        links: HashMap<u32, u32>,
        next: u32,
        taken: Vec<(u32, u64)>,
    }

    fn post(front: &mut Front, device: &mut Device, ids: &[u64]) -> u64 {
        front
            .push_each(ids, |slot, link, id| {
                device.links.insert(slot, link);
                Ok::<_, ()>(*id)
            })
            .unwrap()
    }

    proptest! {
        #[test]
        fn each_receive_is_done_once_and_no_slot_is_filled_before_it_is_free(
            bits in 1u32..8,
            start in 0u64..1 << 40,
            steps in prop::collection::vec((0usize..20, 0u32..20, any::<prop::sample::Index>()), 1..400),
        ) {
            let len = 1u64 << bits;
            let (mut front, back) = chain(len as u32);
            // as after so many
            let start = start & !(len - 1);
            (front.head, front.end) = (start, start + len);
            back.tail.store(start + len, Ordering::Relaxed);
            back.posted.0.store(start, Ordering::Relaxed);
            (0..len as u32).for_each(|slot| back.places.at(slot).store(start + u64::from(slot), Ordering::Relaxed));
            let (mut device, mut waiting, mut id) = (Device::default(), VecDeque::new(), 0u64);
            let mut posted = start;
            for (posts, completions, which) in steps {
                let used = waiting.len() + device.taken.len();
                prop_assert_eq!(front.has_room(posts), used + posts < len as usize);
                if used + posts < len as usize {
                    let ids: Vec<_> = (id..id + posts as u64).collect();
                    let told = post(&mut front, &mut device, &ids);
                    posted += posts as u64;
                    prop_assert_eq!(told, posted);
                    waiting.extend(&ids);
                    id += posts as u64;
                }
                for _ in 0..completions {
                    if let Some(id) = waiting.pop_front() {
                        let slot = device.next;
                        prop_assert!(device.taken.iter().all(|(taken, _)| *taken != slot));
                        device.taken.push((slot, id));
                        device.next = device.links[&slot];
                    }
                    if device.taken.len() > 3 || waiting.is_empty() && !device.taken.is_empty() {
                        let (slot, id) = device.taken.swap_remove(which.index(device.taken.len()));
                        prop_assert_eq!(back.complete(slot), Some(id));
                        prop_assert_eq!(back.complete(slot), None, "only once");
                    }
                }
            }
        }

        /// Whatever a device says, a slot is in the chain at most once.
        #[test]
        fn a_device_that_is_wrong_loses_nothing(
            said in prop::collection::vec((0u32..70_000, any::<bool>()), 1..300)
        ) {
            let (mut front, back) = chain(16);
            for (slot, posts) in said {
                if posts && front.has_room(1) {
                    front.push_each(&[()], |_, _, ()| Ok::<_, ()>(1)).unwrap();
                }
                let before = back.tail.load(Ordering::Relaxed);
                let known = back.complete(if slot % 3 == 0 { slot } else { slot % 16 }).is_some();
                prop_assert_eq!(back.tail.load(Ordering::Relaxed) - before, u64::from(known));
                let free = back.tail.load(Ordering::Relaxed) - front.head;
                let mut slots: Vec<_> =
                    (0..free).map(|at| back.table.order.at((front.head + at) as u32).load(Ordering::Relaxed)).collect();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len() as u64, free);
                prop_assert!(slots.iter().all(|slot| *slot < 16));
            }
        }
    }

    #[test]
    fn what_was_not_posted_is_not_outstanding() {
        let (mut front, back) = chain(8);
        let mut count = 0;
        let refused = front.push_each(&[1, 2, 3], |_, _, id| {
            count += 1;
            if count == 3 { Err("no") } else { Ok(*id) }
        });
        assert_eq!(refused, Err("no"));
        assert!((0..8).all(|slot| back.complete(slot).is_none()));
        assert_eq!(
            front.push_each(&[7], |slot, link, id| Ok::<_, ()>(*id + u64::from(slot) + u64::from(link))),
            Ok(1)
        );
        assert_eq!(back.complete(0), Some(8));
    }
}
