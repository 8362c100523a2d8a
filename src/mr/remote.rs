//! What a peer told us of its memory.

use std::ops::RangeBounds;

use super::slice::{RangeError, check_range};
use crate::error::{Error, Result};

/// A peer's region: address, length and rkey, as it told us.
///
/// It is plain data, and may be wrong or forged: the peer's device checks every access against what the peer
/// registered, and answers a wrong one with an error completion.
///
/// # Examples
///
/// ```
/// use ibv::RemoteRegion;
///
/// let region = RemoteRegion { addr: 0x7f00_0000_0000, len: 4096, rkey: 0x1234 };
/// assert_eq!(RemoteRegion::from_wire(&region.to_wire())?, region);
/// let first_half = region.slice(..2048)?;
/// assert!(region.slice(4000..5000).is_err());
/// # Ok::<(), ibv::Error>(())
/// ```
///
/// Told by one side, used by the other:
///
/// ```no_run
/// # use ibv::{MemoryRegion, MrSlice, QueuePair, Remote, RemoteRegion, write};
/// # fn tell(mr: &MemoryRegion<'_, Remote>) -> [u8; 20] {
/// let wire = mr.remote_region().to_wire();
/// # wire
/// # }
/// # fn f<'a>(qp: &QueuePair<'a>, data: MrSlice<'a>, wire: [u8; 20]) -> Result<(), ibv::Error> {
/// let peer = RemoteRegion::from_wire(&wire)?;
/// qp.post(write(data, peer.slice(..data.len() as usize)?).signaled())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteRegion {
    /// Its address in the peer's process.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its key.
    pub rkey: u32,
}

impl RemoteRegion {
    /// Length of the wire form in bytes.
    pub const WIRE_LEN: usize = 20;

    /// The wire form: address, length and rkey, big-endian.
    pub fn to_wire(&self) -> [u8; Self::WIRE_LEN] {
        let mut wire = [0; Self::WIRE_LEN];
        let (addr, rest) = wire.split_at_mut(8);
        let (len, rkey) = rest.split_at_mut(8);
        addr.copy_from_slice(&self.addr.to_be_bytes());
        len.copy_from_slice(&self.len.to_be_bytes());
        rkey.copy_from_slice(&self.rkey.to_be_bytes());
        wire
    }

    /// Reads the wire form.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the region would go past the end of the address space.
    pub fn from_wire(wire: &[u8; Self::WIRE_LEN]) -> Result<Self> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |value: u64, &byte| value << 8 | u64::from(byte));
        let (addr, rest) = wire.split_at(8);
        let (len, rkey) = rest.split_at(8);
        let region = Self { addr: number(addr), len: number(len), rkey: number(rkey) as u32 };
        match region.addr.checked_add(region.len) {
            Some(_) => Ok(region),
            None => {
                Err(Error::invalid("a peer's region", format!("{region:x?}"), "within 64 bits of address"))
            }
        }
    }

    /// A part of it.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if the range goes past the region's end, or is 2³¹ bytes or longer.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice, RangeError> {
        let (at, len) = check_range(range, usize::try_from(self.len).unwrap_or(usize::MAX))?;
        Ok(RemoteSlice { addr: self.addr.wrapping_add(at as u64), len, rkey: self.rkey })
    }

    /// 8 bytes at offset `at`, for an atomic.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they are not aligned to 8 in the peer's memory, or go past the region's end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MrU64, QueuePair, RemoteRegion, cmp_swp};
    /// # fn f<'a>(qp: &QueuePair<'a>, into: MrU64<'a>, peer: RemoteRegion) -> Result<(), ibv::Error> {
    /// qp.post(cmp_swp(into, peer.u64_at(8)?, 0, 1).signaled())?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn u64_at(&self, at: usize) -> Result<RemoteU64, RangeError> {
        let RemoteSlice { addr, rkey, .. } = self.slice(at..at.saturating_add(8))?;
        if addr % 8 == 0 { Ok(RemoteU64 { addr, rkey }) } else { Err(RangeError::unaligned(at)) }
    }
}

/// A part of a peer's region: where a WRITE goes, or a READ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteSlice {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) rkey: u32,
}

impl RemoteSlice {
    /// Its length in bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// 8 aligned bytes of a peer's region: what an atomic works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteU64 {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomics_need_alignment_in_the_peers_memory() {
        let region = RemoteRegion { addr: 0x1004, len: 64, rkey: 1 };
        assert!(region.u64_at(0).is_err());
        assert_eq!(region.u64_at(4).unwrap().addr, 0x1008);
        assert!(region.u64_at(60).is_err());
        assert!(region.u64_at(usize::MAX - 3).is_err());
    }

    #[test]
    fn a_forged_length_does_not_wrap_around() {
        let region = RemoteRegion { addr: u64::MAX - 4, len: 100, rkey: 1 };
        assert!(RemoteRegion::from_wire(&region.to_wire()).is_err());
        // made by hand it does no harm here: the address is the peer's business
        assert!(region.slice(50..60).is_ok());
    }
}
