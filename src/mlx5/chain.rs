//! The chain of a shared receive queue: in which order its slots are used. Pure: no pointers, and no unsafe.
//!
//! Receives of a shared queue complete in any order, so that its slots are used in a chain and not round a ring: each WQE
//! names the slot after it, which is free as yet. The device goes along the chain as far as it was told that receives were
//! posted; a slot comes to the end of it when its receive is done. The last slot is not filled before there is one after
//! it, since a WQE is not changed any more once it was posted.
//!
//! Two sides may be on two threads: the [`Front`] is the posting side's own; the [`Back`] is the polling side's, which
//! appends to the chain. What it is told by a device need not make sense: a slot is appended only if a receive is
//! outstanding in it, so that none is in the chain twice.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::masked::Masked;
use super::ring::unlikely;

/// What is remembered of a receive.
#[derive(Debug, Default)]
struct Slot {
    /// Its `wr_id`.
    id: AtomicU64,
    is_posted: AtomicBool,
}

/// What both sides have.
#[derive(Debug, Clone)]
struct Table {
    slots: Masked<Slot>,
    /// The free slots, in the order of the chain: entries from the posting side's head to the tail.
    order: Masked<AtomicU16>,
}

/// The posting side.
#[derive(Debug)]
pub(super) struct Front {
    table: Table,
    /// Receives posted so far, modulo 2³²; the first free slot is that entry of the order.
    head: u32,
    /// The end of the chain, as far as is known here.
    end: u32,
}

/// The polling side.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Back {
    table: Table,
    len: u32,
    /// Slots that ever came into the chain, modulo 2³².
    tail: AtomicU32,
}

/// Both sides of a chain of `len` slots, a power of two from 2 to 2¹⁵, which begins with them in order.
pub(super) fn chain(len: u32) -> (Front, Back) {
    let table = Table { slots: Masked::new(len), order: Masked::new(len) };
    for slot in 0..len {
        table.order.at(slot).store(slot as u16, Ordering::Relaxed);
    }
    (Front { table: table.clone(), head: 0, end: len }, Back { table, len, tail: AtomicU32::new(len) })
}

impl Front {
    /// Whether `receives` more can be posted.
    #[inline(always)]
    pub(super) fn has_room(&mut self, receives: u32, back: &Back) -> bool {
        // one slot stays behind
        if self.end.wrapping_sub(self.head) > receives {
            return true;
        }
        unlikely();
        // pairs with the Release of the other side, which has read the slots that it appended
        self.end = back.tail.load(Ordering::Acquire);
        self.end.wrapping_sub(self.head) > receives
    }

    /// Fills a slot for each of `requests`. `write` is given the slot and the one after it, writes the receive, and gives
    /// its id; if it fails, nothing was filled. There must be room. Gives how many were posted so far, modulo 2³².
    #[inline(always)]
    pub(super) fn push_each<R, E>(
        &mut self,
        requests: &[R],
        mut write: impl FnMut(u32, u16, &R) -> Result<u64, E>,
    ) -> Result<u32, E> {
        let (slots, order) = (self.table.slots.view(), self.table.order.view());
        let mut at = self.head;
        let mut slot = order.at(at).load(Ordering::Relaxed);
        for request in requests {
            let next = order.at(at.wrapping_add(1)).load(Ordering::Relaxed);
            let id = match write(slot.into(), next, request) {
                Ok(id) => id,
                Err(error) => {
                    self.take_back(at);
                    return Err(error);
                }
            };
            let filled = slots.at(slot.into());
            filled.id.store(id, Ordering::Relaxed);
            filled.is_posted.store(true, Ordering::Relaxed);
            (slot, at) = (next, at.wrapping_add(1));
        }
        self.head = at;
        Ok(at)
    }

    /// What was filled up to `end` is not posted.
    #[cold]
    fn take_back(&self, end: u32) {
        let mut at = self.head;
        while at != end {
            let slot = self.table.order.at(at).load(Ordering::Relaxed);
            self.table.slots.at(slot.into()).is_posted.store(false, Ordering::Relaxed);
            at = at.wrapping_add(1);
        }
    }
}

impl Back {
    /// The receive in `slot` is done, and the slot comes to the end of the chain. Gives the receive's id; `None` if there
    /// is none outstanding.
    #[inline(always)]
    pub(super) fn complete(&self, slot: u32) -> Option<u64> {
        let done = self.table.slots.at(slot);
        if slot >= self.len || !done.is_posted.load(Ordering::Relaxed) {
            return None;
        }
        let id = done.id.load(Ordering::Relaxed);
        done.is_posted.store(false, Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        self.table.order.at(tail).store(slot as u16, Ordering::Relaxed);
        // pairs with the Acquire in `has_room`
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
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
        links: HashMap<u32, u16>,
        next: u32,
        taken: Vec<(u32, u64)>,
    }

    fn post(front: &mut Front, device: &mut Device, ids: &[u64]) -> u32 {
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
            start: u32,
            steps in prop::collection::vec((0u32..20, 0u32..20, any::<prop::sample::Index>()), 1..400),
        ) {
            let len = 1 << bits;
            let (mut front, back) = chain(len);
            // as after so many
            let start = start & !(len - 1);
            (front.head, front.end) = (start, start.wrapping_add(len));
            back.tail.store(start.wrapping_add(len), Ordering::Relaxed);
            let (mut device, mut waiting, mut id) = (Device::default(), VecDeque::new(), 0u64);
            let mut posted = start;
            for (posts, completions, which) in steps {
                let used = (waiting.len() + device.taken.len()) as u32;
                prop_assert_eq!(front.has_room(posts, &back), used + posts < len);
                if used + posts < len {
                    let ids: Vec<_> = (id..id + u64::from(posts)).collect();
                    let told = post(&mut front, &mut device, &ids);
                    posted = posted.wrapping_add(posts);
                    prop_assert_eq!(told, posted);
                    waiting.extend(&ids);
                    id += u64::from(posts);
                }
                for _ in 0..completions {
                    if let Some(id) = waiting.pop_front() {
                        let slot = device.next;
                        prop_assert!(device.taken.iter().all(|(taken, _)| *taken != slot));
                        device.taken.push((slot, id));
                        device.next = device.links[&slot].into();
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
                if posts && front.has_room(1, &back) {
                    front.push_each(&[()], |_, _, ()| Ok::<_, ()>(1)).unwrap();
                }
                let before = back.tail.load(Ordering::Relaxed);
                let known = back.complete(if slot % 3 == 0 { slot } else { slot % 16 }).is_some();
                prop_assert_eq!(back.tail.load(Ordering::Relaxed).wrapping_sub(before), u32::from(known));
                let free = back.tail.load(Ordering::Relaxed).wrapping_sub(front.head);
                let mut slots: Vec<_> =
                    (0..free).map(|at| back.table.order.at(front.head.wrapping_add(at)).load(Ordering::Relaxed)).collect();
                slots.sort_unstable();
                slots.dedup();
                prop_assert_eq!(slots.len() as u32, free);
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
