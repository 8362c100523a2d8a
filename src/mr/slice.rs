//! Parts of a region, as requests name them.
//!
//! # Safety
//!
//! [`MrSlice`] is an `ibv_sge` whose address and key belong together; only this module makes one. Its lifetime spares
//! the user requests that fail; it is not what keeps memory safe. That is the region: its key is dead before its
//! memory is anything else, and a key that is handed out again leads to memory that is registered as well, which no
//! Rust reference points to (see [`Posting`](crate::pd) for the one kind that is kept apart).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use ibv_sys as sys;

/// The longest slice, one byte short of the longest message: in an element's length field, Mellanox devices take the
/// bit 2³¹ for a mark of inline data (mlx5) or of length 0 (mlx4).
const MAX_LEN: usize = (1 << 31) - 1;

/// `ibv_sge`—A part of a memory region: what a request gathers from, or scatters to.
///
/// It is checked when it is made, by [`MemoryRegion::slice`](crate::MemoryRegion::slice), and borrows the region.
#[doc(alias = "ibv_sge")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct MrSlice<'m> {
    sge: sys::ibv_sge,
    _region: PhantomData<&'m [u8]>,
}

impl<'m> MrSlice<'m> {
    #[inline(always)]
    pub(super) fn new(addr: u64, len: u32, lkey: u32) -> Self {
        Self { sge: sys::ibv_sge { addr, length: len, lkey }, _region: PhantomData }
    }

    /// Its length in bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        // in one piece with the key beside it, as the two are copied: else the compiler takes the copy apart
        // SAFETY: both are plain integers, which stand together at a multiple of 8 bytes.
        let words = unsafe { (&raw const self.sge).cast::<[u64; 2]>().read() };
        if cfg!(target_endian = "little") { words[1] as u32 } else { (words[1] >> 32) as u32 }
    }

    /// Whether it has no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// A part of it.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if the range goes past its end.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, RangeError> {
        let (at, len) = check_range(range, self.sge.length as usize)?;
        Ok(Self::new(self.sge.addr + at as u64, len, self.sge.lkey))
    }

    /// The same part, tied to no lifetime: for an [`OwnedQp`](crate::OwnedQp) that is stored together with its
    /// regions.
    ///
    /// Keeping the region until the requests are done is then the program's part. If it does not, nothing is harmed:
    /// the key dies with the region, before its memory is freed, and such a request fails with
    /// [`WcStatus::LOC_PROT_ERR`](crate::WcStatus::LOC_PROT_ERR) or the like.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use ibv::{MemoryRegion, OwnedQp, Pages, ProtectionDomain, send};
    ///
    /// struct Peer {
    ///     qp: OwnedQp,
    ///     mr: Arc<MemoryRegion<'static>>, // of all peers: it is there as long as one of them is
    /// }
    ///
    /// fn shared(pd: &Arc<ProtectionDomain<'static>>) -> Result<Arc<MemoryRegion<'static>>, ibv::Error> {
    ///     Ok(Arc::new(MemoryRegion::local(pd, Pages::new(4096)?)?))
    /// }
    ///
    /// impl Peer {
    ///     fn greet(&self) -> Result<(), ibv::Error> {
    ///         self.mr.write(0, b"hello")?;
    ///         self.qp.post(send(self.mr.slice(..5)?.detach()).signaled())?;
    ///         Ok(())
    ///     }
    /// }
    /// ```
    #[inline(always)]
    pub fn detach(self) -> MrSlice<'static> {
        MrSlice { sge: self.sge, _region: PhantomData }
    }

    #[inline(always)]
    pub(crate) fn as_sge(&self) -> &sys::ibv_sge {
        &self.sge
    }

    #[inline(always)]
    pub(crate) fn as_sges(slices: &[Self]) -> &[sys::ibv_sge] {
        // SAFETY: `repr(transparent)`: both have the same layout.
        unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
    }
}

impl fmt::Debug for MrSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sys::ibv_sge { addr, length, lkey } = self.sge;
        write!(f, "MrSlice({addr:#x}, {length} bytes, lkey {lkey:#x})")
    }
}

/// 8 aligned bytes of a region, where an atomic returns what it found.
#[derive(Clone, Copy, Debug)]
pub struct MrU64<'m>(pub(super) MrSlice<'m>);

impl<'m> MrU64<'m> {
    /// As [`MrSlice::detach`].
    #[inline(always)]
    pub fn detach(self) -> MrU64<'static> {
        MrU64(self.0.detach())
    }

    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &MrSlice<'m> {
        &self.0
    }
}

/// A range that is not in a region, or not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeError(Wrong);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Outside { at: u64, len: u64, room: u64 },
    Backwards { start: u64, end: u64 },
    TooLong { len: u64 },
    Unaligned { at: u64 },
}

impl RangeError {
    #[cold]
    pub(super) fn outside(at: usize, len: usize, room: usize) -> Self {
        Self(Wrong::Outside { at: at as u64, len: len as u64, room: room as u64 })
    }

    #[cold]
    pub(super) fn unaligned(at: usize) -> Self {
        Self(Wrong::Unaligned { at: at as u64 })
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Wrong::Outside { at, len, room } => {
                write!(f, "{len} bytes at offset {at} go past the end of {room} bytes")
            }
            Wrong::Backwards { start, end } => write!(f, "the range {start}..{end} ends before it starts"),
            Wrong::TooLong { len } => {
                write!(f, "{len} bytes are more than one element can name, which is 2^31 - 1")
            }
            Wrong::Unaligned { at } => write!(f, "offset {at} is not at a multiple of 8 bytes in memory"),
        }
    }
}

impl std::error::Error for RangeError {}

/// Start and end of `range` in something of `room` bytes.
#[inline]
pub(super) fn ends(range: impl RangeBounds<usize>, room: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => room,
    };
    (start, end)
}

/// Offset and length of `range` in something of `room` bytes.
#[inline]
pub(super) fn check_range(range: impl RangeBounds<usize>, room: usize) -> Result<(usize, u32), RangeError> {
    let (start, end) = ends(range, room);
    if start <= end && end <= room && end - start <= MAX_LEN {
        Ok((start, (end - start) as u32))
    } else {
        Err(wrong_range(start, end, room))
    }
}

#[cold]
pub(super) fn wrong_range(start: usize, end: usize, room: usize) -> RangeError {
    match end.checked_sub(start) {
        None => RangeError(Wrong::Backwards { start: start as u64, end: end as u64 }),
        Some(len) if end > room => RangeError::outside(start, len, room),
        Some(len) => RangeError(Wrong::TooLong { len: len as u64 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_at_their_edges() {
        assert_eq!(check_range(.., 10), Ok((0, 10)));
        assert_eq!(check_range(0..0, 10), Ok((0, 0)));
        assert_eq!(check_range(10.., 10), Ok((10, 0)));
        assert_eq!(check_range(3..=9, 10), Ok((3, 7)));
        assert!(check_range(3..=10, 10).is_err());
        assert!(check_range(11.., 10).is_err());
        assert!(check_range(0..=usize::MAX, 10).is_err());
        assert!(check_range((Bound::Excluded(usize::MAX), Bound::Unbounded), 10).is_err());
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let backwards = check_range(5..4, 10);
        assert!(backwards.unwrap_err().to_string().contains("ends before"));
    }

    #[test]
    fn the_longest_slice_is_below_the_bit_that_means_something_else() {
        assert_eq!(check_range(.., (1 << 31) - 1), Ok((0, (1 << 31) - 1)));
        assert!(check_range(.., 1 << 31).unwrap_err().to_string().contains("2^31"));
        assert_eq!(check_range(1 << 33.., (1 << 33) + 5), Ok((1 << 33, 5)));
    }

    #[test]
    fn slices_have_the_layout_of_sges() {
        assert_eq!(size_of::<MrSlice<'_>>(), size_of::<sys::ibv_sge>());
        let slices = [MrSlice::new(1, 2, 3), MrSlice::new(4, 5, 6)];
        let sges = MrSlice::as_sges(&slices);
        assert_eq!((sges[1].addr, sges[1].length, sges[1].lkey), (4, 5, 6));
        assert_eq!(slices[1].slice(1..3).unwrap().sge.addr, 5);
    }
}
