//! Accounting of a completion queue's entries, so that it cannot be overrun by queues that were promised room.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::front::Front;
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
    left: AtomicU64,
    /// What an extended queue is polled by: closed when something is left behind, so that its polls need not look. (Of
    /// other queues nobody looks at it.)
    front: Front,
}

/// What was left behind: all in all so far, in the high half, which wraps around; and of that what is not free yet, in
/// the low half. The difference is what was freed, so a poll that began at some total can free up to there, and not
/// what came after.
#[derive(Clone, Copy)]
pub(crate) struct Left(u64);

impl Left {
    /// Whether nothing is to be freed.
    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.entries() == 0
    }

    /// How much is to be freed.
    #[inline(always)]
    pub(crate) fn entries(self) -> u32 {
        self.0 as u32
    }

    fn total(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// With all freed up to the `total` of a poll's beginning; and how much that is.
    fn freed_up_to(self, total: u32) -> Option<(Self, u32)> {
        let freed = self.total().wrapping_sub(self.0 as u32);
        let more = total.wrapping_sub(freed);
        // another poller that began later may have freed more
        (more as i32 > 0).then(|| (Self(self.0 - u64::from(more)), more))
    }
}

impl Room {
    pub(crate) fn new(capacity: u32, overcommit: bool) -> Self {
        Self {
            capacity,
            overcommit,
            promised: AtomicU32::new(0),
            left: AtomicU64::new(0),
            front: Front::none(),
        }
    }

    pub(super) fn front(&self) -> &Front {
        &self.front
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

    /// Takes back a promise that nobody used.
    pub(crate) fn withdraw(&self, promise: u32) {
        self.promised.fetch_sub(promise, Ordering::AcqRel);
    }

    /// The queue that was promised so much is destroyed; what it completed may still be here.
    pub(crate) fn leave_behind(&self, promise: u32) {
        // the low half holds at most what is promised, 32 bits; the high half may wrap around
        self.left.fetch_add(u64::from(promise) << 32 | u64::from(promise), Ordering::Release);
        self.front.close();
    }

    /// What is left behind. To be read before a poll.
    #[inline(always)]
    pub(crate) fn left_behind(&self) -> Left {
        Left(self.left.load(Ordering::Acquire))
    }

    /// A poll found the queue empty, before which `left` was left behind.
    #[cold]
    pub(crate) fn seen_empty(&self, left: Left) {
        let free = |now| Left(now).freed_up_to(left.total());
        let update = |now| free(now).map(|(left, _)| left.0);
        if let Some((_, freed)) =
            self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).ok().and_then(free)
        {
            self.withdraw(freed);
        }
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
        room.seen_empty(before);
        assert!(room.promise(1).is_err());
        let left = room.left_behind();
        room.seen_empty(left);
        room.seen_empty(left);
        room.promise(64).unwrap();
        assert!(room.promise(1).is_err());
    }

    #[test]
    fn a_poll_frees_nothing_that_was_left_after_it_began() {
        let room = Room::new(64, false);
        room.promise(64).unwrap();
        room.leave_behind(64);
        let (one, other) = (room.left_behind(), room.left_behind());
        room.seen_empty(one);
        room.promise(64).unwrap();
        room.leave_behind(64);
        room.seen_empty(other); // it began before the second queue was there
        assert!(room.promise(1).is_err());
        room.seen_empty(room.left_behind());
        room.promise(64).unwrap();
    }

    #[test]
    fn counting_survives_the_wrap_around() {
        let room = Room::new(u32::MAX, false);
        for _ in 0..5 {
            room.promise(u32::MAX / 2).unwrap();
            room.leave_behind(u32::MAX / 2);
            room.seen_empty(room.left_behind());
        }
        room.promise(u32::MAX).unwrap();
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
