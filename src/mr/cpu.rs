//! What the CPU reads and writes of a region.
//!
//! # Safety
//!
//! A region's memory is there as long as the region is, and nobody has a reference into it; it is read and written
//! through [`dma`](crate::dma) alone.

#![expect(unsafe_code, reason = "the Safety section above")]

use super::{Buffer, MemoryRegion, RangeError, RegionKind};
use crate::dma;

impl<K: RegionKind, M: Buffer> MemoryRegion<'_, K, M> {
    /// Copies `to.len()` bytes from offset `at` out of the region.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they go past the region's end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(mr: &ibv::MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// let mut header = [0; 16];
    /// mr.read(0, &mut header)?; // after polling the completion of what filled it
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<(), RangeError> {
        let from = self.bytes(at, to.len())?;
        // SAFETY: `bytes` says that the memory is there; `to` is exclusive and disjoint, since nobody has a reference
        // into a region.
        unsafe { dma::copy_out(to.as_mut_ptr(), from, to.len()) };
        Ok(())
    }

    /// Copies `from` into the region at offset `at`.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if it goes past the region's end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(mr: &ibv::MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// mr.write(0, b"hello")?;
    /// mr.write(5, &7u32.to_be_bytes())?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn write(&self, at: usize, from: &[u8]) -> Result<(), RangeError> {
        let to = self.bytes(at, from.len())?;
        // SAFETY: as in `read`.
        unsafe { dma::copy_in(to, from.as_ptr(), from.len()) };
        Ok(())
    }

    /// Loads 8 bytes at offset `at` in one piece, in the machine's byte order (which is what atomics leave).
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they are not aligned to 8, or go past the region's end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(mr: &ibv::MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// while mr.load_u64(8)? == 0 {
    ///     std::hint::spin_loop(); // until a peer writes it
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn load_u64(&self, at: usize) -> Result<u64, RangeError> {
        let at = self.word(at)?;
        // SAFETY: `word` says that the memory is there and aligned.
        Ok(unsafe { dma::load_u64(at) })
    }

    /// Stores 8 bytes at offset `at` in one piece, in the machine's byte order.
    ///
    /// # Errors
    ///
    /// As [`load_u64`](Self::load_u64).
    #[inline]
    pub fn store_u64(&self, at: usize, value: u64) -> Result<(), RangeError> {
        let at = self.word(at)?;
        // SAFETY: as in `load_u64`.
        unsafe { dma::store_u64(at, value) };
        Ok(())
    }

    /// Adds to 8 bytes at offset `at` and returns what they were. This is atomic towards other CPUs; towards the
    /// device's atomics only if it says [`AtomicCap::GLOB`](crate::AtomicCap::GLOB).
    ///
    /// # Errors
    ///
    /// As [`load_u64`](Self::load_u64).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(mr: &ibv::MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// let ticket = mr.fetch_add_u64(0, 1)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn fetch_add_u64(&self, at: usize, value: u64) -> Result<u64, RangeError> {
        let at = self.word(at)?;
        // SAFETY: as in `load_u64`.
        Ok(unsafe { dma::fetch_add_u64(at, value) })
    }

    #[inline]
    fn bytes(&self, at: usize, len: usize) -> Result<*mut u8, RangeError> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.memory.start().wrapping_add(at)),
            _ => Err(RangeError::outside(at, len, self.len())),
        }
    }

    #[inline]
    pub(super) fn word(&self, at: usize) -> Result<*mut u8, RangeError> {
        let start = self.bytes(at, 8)?;
        if start as usize % 8 == 0 { Ok(start) } else { Err(RangeError::unaligned(at)) }
    }
}
