//! Accounting of a completion queue's entries, so that it cannot be overrun by queues that were promised room.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// The entries of a completion queue: how many there are, are promised, and are left behind.
///
/// A destroyed queue pair's completions may still stand in the queue. Its share is therefore only *left behind*, and
/// free again after a poll that began later has found the queue empty.
#[derive(Debug)]
pub(crate) struct Room {
    capacity: u32,
    overcommit: bool,
    promised: AtomicU32,
    left_behind: AtomicU32,
}

impl Room {
    pub(crate) fn new(capacity: u32, overcommit: bool) -> Self {
        Self { capacity, overcommit, promised: AtomicU32::new(0), left_behind: AtomicU32::new(0) }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// What a queue of `depth` requests can fill. Providers round rings up to a power of two, one entry of which some
    /// of them keep empty, and accept as many requests as fit.
    pub(crate) fn for_depth(depth: u32) -> u32 {
        if depth == 0 { 0 } else { depth.saturating_add(1).checked_next_power_of_two().unwrap_or(u32::MAX) }
    }

    /// Promises `needed` entries.
    pub(crate) fn promise(&self, needed: u32) -> Result<()> {
        self.promised
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |promised| {
                let total = promised.checked_add(needed)?;
                (self.overcommit || total <= self.capacity).then_some(total)
            })
            .map(|_| ())
            .map_err(|promised| Error::CqRoom {
                needed,
                free: self.capacity.saturating_sub(promised),
                capacity: self.capacity,
            })
    }

    /// Takes a promise back that nobody used.
    pub(crate) fn withdraw(&self, promise: u32) {
        self.promised.fetch_sub(promise, Ordering::AcqRel);
    }

    /// The queue that was promised so much is destroyed; what it completed may still be here.
    pub(crate) fn leave_behind(&self, promise: u32) {
        self.left_behind.fetch_add(promise, Ordering::Release);
    }

    /// How much is left behind. To be read before a poll.
    #[inline(always)]
    pub(crate) fn left_behind(&self) -> u32 {
        self.left_behind.load(Ordering::Acquire)
    }

    /// A poll found the queue empty, before which `left` was left behind.
    #[cold]
    pub(crate) fn seen_empty(&self, left: u32) {
        // two pollers may have read the same number: each unit is freed once
        let freed = self
            .left_behind
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(now.saturating_sub(left)))
            .map_or(0, |before| before.min(left));
        self.withdraw(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_only_after_the_queue_was_seen_empty() {
        let room = Room::new(64, false);
        room.promise(64).unwrap();
        assert!(matches!(room.promise(1), Err(Error::CqRoom { needed: 1, free: 0, capacity: 64 })));
        let before = room.left_behind();
        room.leave_behind(64);
        // that poll began before: what it saw says nothing
        if before != 0 {
            room.seen_empty(before);
        }
        assert!(room.promise(1).is_err());
        let left = room.left_behind();
        room.seen_empty(left);
        room.seen_empty(left);
        room.promise(64).unwrap();
        assert!(room.promise(1).is_err());
    }

    #[test]
    fn depths_count_as_the_rings_that_providers_make() {
        let of = [0, 1, 8, 15, 16, 500].map(Room::for_depth);
        assert_eq!(of, [0, 2, 16, 16, 32, 512]);
        assert_eq!(Room::for_depth(u32::MAX), u32::MAX);
    }

    #[test]
    fn overcommitting_is_a_choice() {
        let room = Room::new(4, true);
        room.promise(1000).unwrap();
        assert!(room.promise(u32::MAX).is_err(), "but not past what can be counted");
    }
}
