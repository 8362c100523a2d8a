//! Tables that signal handlers read while they grow: places stay where they are, and are never given back.

use std::sync::OnceLock;

/// Places, `N` at a time.
#[derive(Debug)]
pub(super) struct Slots<T, const N: usize>(OnceLock<Box<Chunk<T, N>>>);

#[derive(Debug)]
struct Chunk<T, const N: usize> {
    slots: [T; N],
    next: Slots<T, N>,
}

impl<T, const N: usize> Slots<T, N> {
    pub(super) const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn chunks(&self) -> impl Iterator<Item = &Chunk<T, N>> {
        std::iter::successors(self.0.get(), |chunk| chunk.next.0.get()).map(Box::as_ref)
    }

    /// All places. (A handler may do this: there is no lock.)
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks().flat_map(|chunk| &chunk.slots)
    }

    /// Place `i`. (A handler may do this, too.)
    pub(super) fn get(&self, i: usize) -> Option<&T> {
        self.chunks().nth(i / N)?.slots.get(i % N)
    }
}

impl<T: Default, const N: usize> Slots<T, N> {
    /// The first place that is free, or a new one. (Not for handlers: it may allocate.)
    pub(super) fn claim(&self, is_free: impl Fn(&T) -> bool) -> &T {
        let mut at = self;
        loop {
            let chunk = at.first();
            if let Some(slot) = chunk.slots.iter().find(|slot| is_free(slot)) {
                return slot;
            }
            at = &chunk.next;
        }
    }

    /// Sees to it that there are `count` places. (Not for handlers.)
    pub(super) fn reserve(&self, count: usize) {
        let mut at = self;
        for _ in 0..count.div_ceil(N) {
            at = &at.first().next;
        }
    }

    fn first(&self) -> &Chunk<T, N> {
        self.0.get_or_init(|| {
            Box::new(Chunk { slots: std::array::from_fn(|_| T::default()), next: Self::new() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn there_is_always_one_more() {
        let slots = Slots::<AtomicU32, 4>::new();
        assert_eq!((slots.iter().count(), slots.get(0).is_some()), (0, false));
        for i in 1..=9 {
            slots.claim(|slot| slot.load(Ordering::Relaxed) == 0).store(i, Ordering::Relaxed);
        }
        let all: Vec<_> = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
        assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]);
        assert_eq!(slots.get(8).map(|slot| slot.load(Ordering::Relaxed)), Some(9));
        slots.iter().nth(5).unwrap().store(0, Ordering::Relaxed);
        slots.claim(|slot| slot.load(Ordering::Relaxed) == 0).store(10, Ordering::Relaxed);
        assert_eq!(slots.get(5).map(|slot| slot.load(Ordering::Relaxed)), Some(10));
        slots.reserve(13);
        assert_eq!(slots.iter().count(), 16);
        slots.reserve(3);
        assert_eq!(slots.iter().count(), 16);
    }
}
