//! A ring of completions: what the device writes, and the poller reads.
//!
//! # Safety
//!
//! A ring is made from the address that libmlx5 gave for a completion queue; whoever makes one says that the queue
//! outlives it. Indices are masked, so that none leaves the ring. Both sides may be at an entry at the same time, so
//! all accesses are atomic.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::bits::cqe;

/// A completion in a ring: 64 bytes that the device writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct CqeAt(NonNull<u8>);

impl CqeAt {
    /// The last 8 bytes, as they are. What is read of the completion afterwards is at least as new.
    #[inline(always)]
    pub(super) fn last_word(self) -> u64 {
        // SAFETY: 8 bytes of a CQE, aligned to 8, only accessed atomically.
        let word = unsafe { self.0.add(cqe::LAST_WORD).cast::<AtomicU64>().as_ref() }.load(Ordering::Acquire);
        super::barrier::cqe_after_owner();
        word
    }

    /// 4 bytes, big-endian.
    #[inline(always)]
    pub(super) fn u32_at<const AT: usize>(self) -> u32 {
        const { assert!(AT % 4 == 0 && AT < 64) };
        // SAFETY: 4 aligned bytes of a CQE, only accessed atomically.
        u32::from_be(unsafe { self.0.add(AT).cast::<AtomicU32>().as_ref() }.load(Ordering::Relaxed))
    }

    /// 8 bytes, big-endian.
    #[inline(always)]
    pub(super) fn u64_at<const AT: usize>(self) -> u64 {
        const { assert!(AT % 8 == 0 && AT < 64) };
        // SAFETY: 8 aligned bytes of a CQE, only accessed atomically.
        u64::from_be(unsafe { self.0.add(AT).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed))
    }

    /// All 64 bytes, as words that stand in memory like that.
    pub(super) fn words(self) -> [u64; 8] {
        self.first_words()
    }

    /// So many from the first one on.
    #[inline(always)]
    pub(super) fn first_words<const N: usize>(self) -> [u64; N] {
        const { assert!(N <= 8) };
        std::array::from_fn(|at| {
            // SAFETY: 8 bytes of a CQE, aligned to 8, only accessed atomically.
            unsafe { self.0.add(at * 8).cast::<AtomicU64>().as_ref() }.load(Ordering::Relaxed)
        })
    }

    /// The 64 bytes before it.
    ///
    /// # Safety
    ///
    /// Entries of its ring have 128.
    #[inline(always)]
    pub(super) unsafe fn words_before(self) -> [u64; 8] {
        // SAFETY: the first half of the same entry, by the caller's promise.
        Self(unsafe { self.0.sub(64) }).first_words()
    }

    /// Writes the entry as the device would, the last word last.
    ///
    /// # Safety
    ///
    /// The device does not write it meanwhile.
    pub(super) unsafe fn fill(self, words: [u64; 8]) {
        let [first @ .., last] = words;
        let word = |at: usize| {
            // SAFETY: of the eight words of an entry, which is there as long as its ring.
            unsafe { self.0.add(at * 8).cast::<AtomicU64>().as_ref() }
        };
        first.into_iter().enumerate().for_each(|(at, value)| word(at).store(value, Ordering::Relaxed));
        word(7).store(last, Ordering::Release);
    }

    /// One byte.
    #[inline(always)]
    pub(super) fn u8_at<const AT: usize>(self) -> u8 {
        const { assert!(AT < 64) };
        // SAFETY: a byte of a CQE, only accessed atomically.
        unsafe { self.0.add(AT).cast::<AtomicU8>().as_ref() }.load(Ordering::Relaxed)
    }

    /// Marks an entry that the device has not written yet as its own, whatever the library left there: the owner bit
    /// is that of the lap before the first.
    ///
    /// # Safety
    ///
    /// The device has not written it, and will not before this returns.
    unsafe fn clear(self) {
        // SAFETY: the last byte of a CQE.
        unsafe { self.0.add(cqe::OP_OWN).cast::<AtomicU8>().as_ref() }
            .store(0xf0 | cqe::OWNER, Ordering::Relaxed);
    }
}

/// A ring of completions.
#[derive(Clone, Copy, Debug)]
pub(super) struct CqeRing {
    /// The completion of the first entry: its last 64 bytes.
    first: NonNull<u8>,
    stride: usize,
    entries: u32,
}

impl CqeRing {
    /// Takes a ring over that the device has not written to yet.
    ///
    /// # Safety
    ///
    /// `base` leads to `entries` of `stride` bytes that outlive it, which nobody else writes but the device, and that
    /// not before this returns.
    pub(super) unsafe fn new(base: NonNull<u8>, entries: u32, stride: u32) -> Option<Self> {
        let known = matches!(stride, 64 | 128) && entries.is_power_of_two() && entries >= 2;
        if !known || base.addr().get() % 64 != 0 {
            return None;
        }
        // SAFETY: within the first entry.
        let first = unsafe { base.add(stride as usize - 64) };
        let ring = Self { first, stride: stride as usize, entries };
        for index in 0..entries {
            // SAFETY: by the caller's promise.
            unsafe { ring.at(index).clear() };
        }
        Some(ring)
    }

    /// Whether entries have 128 bytes.
    pub(super) fn is_wide(self) -> bool {
        self.stride == 128
    }

    /// How many entries it has.
    pub(super) fn entries(self) -> u32 {
        self.entries
    }

    /// Entry `index`, which goes round.
    #[inline(always)]
    pub(super) fn at(self, index: u32) -> CqeAt {
        let index = index & (self.entries - 1);
        // SAFETY: below the number of entries.
        CqeAt(unsafe { self.first.add(index as usize * self.stride) })
    }

    /// The entry after `cqe`, which is not the last of the ring.
    ///
    /// # Safety
    ///
    /// So it is.
    #[inline(always)]
    pub(super) unsafe fn after(self, cqe: CqeAt) -> CqeAt {
        // SAFETY: by the caller's promise.
        CqeAt(unsafe { cqe.0.add(self.stride) })
    }
}
