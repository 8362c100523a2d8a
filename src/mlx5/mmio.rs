//! Memory that the device reads or writes on its own: registers, doorbell records, rings of requests. The only volatile
//! stores.
//!
//! # Safety
//!
//! The types here are made from the addresses that libmlx5 gave for an object, and hold them; whoever makes one says
//! that the object outlives it. Offsets are masked, so that no index leaves a ring. Accesses to what the device may
//! write are atomic, those to registers volatile; a ring's slots are written while they are the CPU's, which the
//! producer's accounting says, so plain stores suffice there, and a fence follows.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::bits::{SEGMENT, WQE_BB, srq};
use super::ring::unlikely;
use super::wqe::Segment;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128i, _mm_load_si128};

/// A doorbell record: two big-endian words in memory, which the device reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record(NonNull<AtomicU32>);

impl Record {
    /// # Safety
    ///
    /// `at` leads to two words that outlive the record, and that nobody else writes but the library in a reset.
    pub(super) unsafe fn new(at: NonNull<u32>) -> Self {
        Self(at.cast())
    }

    /// Writes word `WORD`, 0 or 1.
    #[inline(always)]
    pub(super) fn store<const WORD: usize>(self, value: u32) {
        const { assert!(WORD < 2) };
        // SAFETY: one of the two words, which are only accessed atomically here.
        unsafe { self.0.add(WORD).as_ref() }.store(value.to_be(), Ordering::Relaxed);
    }
}

/// A ring of WQEs, a power of two of bytes long, 64 at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct WqeRing {
    base: NonNull<u8>,
    mask: usize,
}

impl WqeRing {
    /// The ring of a queue that never has room: nothing is written to it.
    pub(super) const NONE: Self = Self { base: NonNull::dangling(), mask: 0 };

    /// # Safety
    ///
    /// `base` leads to `len` bytes that outlive the ring, aligned to 64, and that nobody else writes.
    pub(super) unsafe fn new(base: NonNull<u8>, len: usize) -> Option<Self> {
        let aligned = base.addr().get() % WQE_BB == 0;
        (aligned && len >= WQE_BB && len.is_power_of_two()).then(|| Self { base, mask: len - 1 })
    }

    /// Its bytes from `offset` on, which goes round; and how many there are before the end.
    #[inline(always)]
    fn at(self, offset: usize) -> (NonNull<u8>, usize) {
        let offset = offset & self.mask;
        // SAFETY: below the length.
        (unsafe { self.base.add(offset) }, self.mask + 1 - offset)
    }

    /// Writes the segment at `offset`, which goes round.
    ///
    /// # Safety
    ///
    /// The slot is the CPU's, and `offset` a multiple of 16.
    #[inline(always)]
    pub(super) unsafe fn put(self, offset: usize, segment: Segment) {
        // SAFETY: 16 bytes in the ring, aligned to 16, and the CPU's.
        unsafe { put(self.at(offset).0, segment) };
    }

    /// Block `index`, which goes round.
    #[inline(always)]
    pub(super) fn block(self, index: u32) -> Block {
        Block(self.at(index as usize * WQE_BB).0)
    }

    /// The slot of a shared receive at `offset`, which goes round.
    #[inline(always)]
    pub(super) fn shared_slot(self, offset: usize) -> SharedSlot {
        SharedSlot(self.at(offset).0)
    }

    /// Writes inline data at `offset`, 4 bytes into a segment: goes round at the end.
    ///
    /// # Safety
    ///
    /// The slots are the CPU's.
    #[inline(always)]
    pub(super) unsafe fn put_inline(self, offset: usize, header: u32, bytes: &[u8]) {
        let (at, room) = self.at(offset);
        let room = room - size_of::<u32>();
        // SAFETY: `offset` is that of a segment, so there are 16 bytes at least; `room` are left after the header; the
        // rest, if there is any, is no longer than the ring, which has room for the whole WQE.
        unsafe {
            at.cast::<u32>().write(header);
            let at = at.add(size_of::<u32>());
            if bytes.len() <= room {
                copy(bytes.as_ptr(), at, bytes.len());
            } else {
                copy(bytes.as_ptr(), at, room);
                copy(bytes.as_ptr().add(room), self.base, bytes.len() - room);
            }
        }
    }
}

/// A block of a ring of WQEs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block(NonNull<u8>);

impl Block {
    /// Writes segment `unit`, below 4.
    ///
    /// # Safety
    ///
    /// The block is the CPU's, and so it is.
    #[inline(always)]
    pub(super) unsafe fn put(self, unit: usize, segment: Segment) {
        // SAFETY: 16 bytes in the block, aligned to 16, and the CPU's.
        unsafe { put(self.0.add(unit * SEGMENT), segment) };
    }

    /// Writes inline data into it, from segment `unit` on.
    ///
    /// # Safety
    ///
    /// The block is the CPU's, and has room for the header and `bytes` from there on.
    #[inline(always)]
    pub(super) unsafe fn put_inline(self, unit: usize, header: u32, bytes: &[u8]) {
        // SAFETY: by the caller's promise.
        unsafe {
            let at = self.0.add(unit * SEGMENT);
            at.cast::<u32>().write(header);
            copy(bytes.as_ptr(), at.add(size_of::<u32>()), bytes.len());
        }
    }

    /// The same for 8 to 16 bytes.
    ///
    /// # Safety
    ///
    /// So many they are; and as there.
    #[inline(always)]
    pub(super) unsafe fn put_inline_8_to_16(self, unit: usize, header: u32, bytes: &[u8]) {
        // SAFETY: by the caller's promise; the two may overlap, and write the same.
        unsafe {
            let (from, last) = (bytes.as_ptr(), bytes.len() - 8);
            let (first, second) =
                (from.cast::<u64>().read_unaligned(), from.add(last).cast::<u64>().read_unaligned());
            let at = self.0.add(unit * SEGMENT);
            at.cast::<u32>().write(header);
            let at = at.add(size_of::<u32>());
            at.cast::<u64>().write_unaligned(first);
            at.add(last).cast::<u64>().write_unaligned(second);
        }
    }

    /// Its first 8 bytes, as they are: what a doorbell is rung with.
    ///
    /// # Safety
    ///
    /// They were written.
    #[inline(always)]
    pub(super) unsafe fn first_word(self) -> u64 {
        // SAFETY: 8 bytes of the block, aligned to 64.
        unsafe { self.0.cast().read() }
    }
}

/// The slot of a shared receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedSlot(NonNull<u8>);

impl SharedSlot {
    /// Names the slot after it. The rest of that segment stays as the library has made it, 0.
    ///
    /// # Safety
    ///
    /// The slot is the CPU's.
    #[inline(always)]
    pub(super) unsafe fn link(self, after: u16) {
        // SAFETY: 2 bytes in the first segment, aligned to 2, and the CPU's.
        unsafe { self.0.add(srq::NEXT).cast::<u16>().write(after.to_be()) };
    }

    /// Writes the segment at `at` of what follows the first.
    ///
    /// # Safety
    ///
    /// The slot is the CPU's, and is so long; `at` is a multiple of 16.
    #[inline(always)]
    pub(super) unsafe fn put(self, at: usize, segment: Segment) {
        // SAFETY: by the caller's promise.
        unsafe { put(self.0.add(SEGMENT + at), segment) };
    }
}

/// # Safety
///
/// `at` leads to 16 bytes, aligned to 16, that are the caller's.
#[inline(always)]
unsafe fn put(at: NonNull<u8>, Segment(words): Segment) {
    // SAFETY: by the caller's promise.
    unsafe { at.cast().write(words) };
}

/// Copies as `memcpy` does, without a call for the lengths that are common.
///
/// # Safety
///
/// As for `ptr::copy_nonoverlapping`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: NonNull<u8>, len: usize) {
    type Unit = [u64; 2];
    let to = to.as_ptr();
    /// Copies the first and the last of a type's bytes.
    macro_rules! ends {
        ($type:ty) => {{
            let first = from.cast::<$type>().read_unaligned();
            let last = from.add(len - size_of::<$type>()).cast::<$type>().read_unaligned();
            to.cast::<$type>().write_unaligned(first);
            to.add(len - size_of::<$type>()).cast::<$type>().write_unaligned(last);
        }};
    }
    // SAFETY: each access is within `len` bytes of both; where two overlap, they write the same.
    unsafe {
        match len {
            8..=16 => ends!(u64),
            4..8 => {
                unlikely();
                ends!(u32);
            }
            2..4 => {
                unlikely();
                ends!(u16);
            }
            1 => {
                unlikely();
                to.write(from.read());
            }
            0 => unlikely(),
            _ => {
                unlikely();
                let mut at = 0;
                while at + 16 < len {
                    to.add(at).cast::<Unit>().write_unaligned(from.add(at).cast::<Unit>().read_unaligned());
                    at += 16;
                    // nothing; or this loop would become a call of `memcpy`, for which all callers save registers
                    std::arch::asm!("/* {0} */", inout(reg) at, options(nomem, nostack, preserves_flags));
                }
                let at = len - 16;
                to.add(at).cast::<Unit>().write_unaligned(from.add(at).cast::<Unit>().read_unaligned());
            }
        }
    }
}

/// A BlueFlame register: two halves of `size` bytes that are used in turn. Nobody else uses it.
#[derive(Debug)]
pub(super) struct BlueFlame {
    /// The half to use next.
    at: NonNull<u8>,
    size: usize,
}

impl BlueFlame {
    /// # Safety
    ///
    /// `base` leads to two halves of `size` bytes (or 8, if that is 0) that outlive it, and that nobody else writes.
    pub(super) unsafe fn new(base: NonNull<u8>, size: u32) -> Option<Self> {
        let size = size as usize;
        let known =
            size == 0 || size.is_power_of_two() && size >= WQE_BB && base.addr().get() % (2 * size) == 0;
        known.then_some(Self { at: base, size })
    }

    /// Whether a WQE of so many blocks fits.
    #[inline(always)]
    pub(super) fn takes(&self, blocks: u32) -> bool {
        blocks as usize * WQE_BB <= self.size
    }

    #[inline(always)]
    fn next_half(&mut self) -> NonNull<u8> {
        let at = self.at;
        // the halves differ in one bit of their address
        let other = at.as_ptr().map_addr(|address| address ^ self.size);
        // SAFETY: the other half, which is no more null than this one.
        self.at = unsafe { NonNull::new_unchecked(other) };
        at
    }

    /// Rings by 8 bytes.
    #[inline(always)]
    pub(super) fn ring(&mut self, word: u64) {
        let at = self.next_half();
        // SAFETY: 8 bytes at the start of a half, aligned to 64; no reference to them exists.
        unsafe { at.cast::<u64>().as_ptr().write_volatile(word) };
    }

    /// Rings by copying a WQE of one block: a whole line of 64 bytes, by stores of 16 (why not 64: ARCHITECTURE.md).
    ///
    /// # Safety
    ///
    /// The block is written.
    #[inline(always)]
    pub(super) unsafe fn copy_block(&mut self, block: Block) {
        let to = self.next_half();
        // SAFETY: by the caller's promise; a half has room for a block.
        unsafe { copy_line(block, to) };
    }

    /// Rings by copying the WQE of several blocks that starts in block `index`.
    ///
    /// # Safety
    ///
    /// The WQE is written, and [fits](Self::takes).
    #[inline]
    pub(super) unsafe fn copy(&mut self, ring: WqeRing, index: u32, blocks: u32) {
        let to = self.next_half();
        let mut block = 0;
        // there is a first one: who looks at the machine code finds no way that told the device of nothing
        loop {
            // SAFETY: by the caller's promise.
            unsafe { copy_line(ring.block(index.wrapping_add(block)), to.add(block as usize * WQE_BB)) };
            block += 1;
            if block >= blocks {
                break;
            }
        }
    }
}

/// # Safety
///
/// The block is written; `to` leads to 64 bytes of a register, aligned to 64.
#[inline(always)]
unsafe fn copy_line(block: Block, to: NonNull<u8>) {
    for at in (0..WQE_BB).step_by(SEGMENT) {
        // SAFETY: within the block and the line.
        unsafe { copy_unit(block.0.add(at), to.add(at)) };
    }
}

/// # Safety
///
/// 16 bytes that can be read, and 16 of a register, both aligned to 16.
#[inline(always)]
unsafe fn copy_unit(from: NonNull<u8>, to: NonNull<u8>) {
    // SAFETY: by the caller's promise; the volatile store is one of 16 bytes: the type is a vector.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        let unit: __m128i = _mm_load_si128(from.as_ptr().cast());
        to.cast::<__m128i>().as_ptr().write_volatile(unit);
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        use std::arch::aarch64::{uint8x16_t, vld1q_u8};
        let unit: uint8x16_t = vld1q_u8(from.as_ptr());
        to.cast::<uint8x16_t>().as_ptr().write_volatile(unit);
    }
}

/// The register by which completion queues are armed; all queues of a context share it, and each store is whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmRegister(NonNull<u64>);

impl ArmRegister {
    /// # Safety
    ///
    /// `at` leads to 8 bytes of a register, aligned to 8, that outlive it.
    pub(super) unsafe fn new(at: NonNull<u64>) -> Self {
        Self(at)
    }

    /// Rings with this number, big-endian.
    #[inline(always)]
    pub(super) fn ring(self, value: u64) {
        // SAFETY: a register; no reference to it exists.
        unsafe { self.0.as_ptr().write_volatile(value.to_be()) };
    }
}
