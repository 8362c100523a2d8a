//! The doorbell and clock pages of a context: memory that the application maps as the device's registers.
//!
//! # Safety
//!
//! A [`Bar`] owns its own writable mapping of the pages for as long as it lives; the application has other mappings
//! of the same pages, so they are accessed only by atomic or volatile words, within the mapped length.
#![expect(unsafe_code, reason = "maps and accesses shared pages")]

use crate::bits;
use crate::interpose::{fds, real};
use crate::objects::context::PAGES;
use std::os::fd::RawFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The page of the free-running clock, and of the clock's parameters.
const CLOCK_PAGE: u32 = PAGES;
const CLOCK_INFO_PAGE: u32 = PAGES + 1;
const LEN: usize = (PAGES as usize + 2) * 4096;

/// What `mlx5_ib` encodes in an mmap offset: a command in bits 8… of the page number.
const MMAP_CORE_CLOCK: u64 = 5;
const MMAP_CLOCK_INFO: u64 = 7;

/// The pages.
#[derive(Debug)]
pub(crate) struct Bar {
    fd: RawFd,
    base: usize,
}

impl Bar {
    pub(crate) fn new() -> Result<Self, i32> {
        // SAFETY: a constant name; makes a new descriptor.
        let fd = fds::own(unsafe { libc::memfd_create(c"softhca-bar".as_ptr(), libc::MFD_CLOEXEC) })?;
        // SAFETY: sizes and maps the new descriptor; no address is asked for.
        let p = unsafe {
            if libc::ftruncate(fd, LEN as libc::off_t) != 0 {
                libc::MAP_FAILED
            } else {
                let prot = libc::PROT_READ | libc::PROT_WRITE;
                real::mmap(null_mut(), LEN, prot, libc::MAP_SHARED, fd, 0)
            }
        };
        if p == libc::MAP_FAILED {
            let e = real::errno();
            fds::disown(fd);
            return Err(e);
        }
        let bar = Self { fd, base: p.expose_provenance() };
        bar.write_clock_info();
        Ok(bar)
    }

    fn word64(&self, page: u32, at: usize) -> &AtomicU64 {
        let offset = (page as usize * 4096 + (at & 0xff8)).min(LEN - 8);
        // SAFETY: within the mapping, aligned, and only atomically accessed.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(self.base + offset)) }
    }

    fn word32(&self, page: u32, at: usize) -> &AtomicU32 {
        let offset = (page as usize * 4096 + (at & 0xffc)).min(LEN - 4);
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(self.base + offset)) }
    }

    /// Whether something was stored in the register at `at` of `page`.
    pub(crate) fn is_rung(&self, page: u32, at: usize) -> bool {
        self.word64(page, at).load(Ordering::Relaxed) != 0
    }

    /// Takes what was stored in the register at `at` of `page`; the bytes in memory order.
    pub(crate) fn take(&self, page: u32, at: usize) -> Option<[u8; 8]> {
        if !self.is_rung(page, at) {
            return None;
        }
        match self.word64(page, at).swap(0, Ordering::AcqRel) {
            0 => None,
            v => Some(v.to_ne_bytes()),
        }
    }

    /// Takes what stands behind the first 8 bytes of a register: whether anything does, that is whether the WQE was
    /// copied there (BlueFlame). Right if the store is over.
    pub(crate) fn take_copy(&self, page: u32, at: usize) -> bool {
        let behind = (8..bits::BF_OFFSET_STEP).step_by(8);
        behind.filter(|i| self.take(page, at + i).is_some()).count() > 0
    }

    /// Maps pages for the application; `offset` as it gave it. Gives the address (or `MAP_FAILED`) and the doorbell
    /// page that was mapped.
    pub(crate) fn map(
        &self,
        addr: *mut libc::c_void,
        len: usize,
        prot: libc::c_int,
        offset: i64,
    ) -> (*mut libc::c_void, Option<u32>) {
        let number = u64::try_from(offset).unwrap_or(u64::MAX) / 4096;
        let page = match number >> 8 {
            0 => u32::try_from(number).ok(),
            MMAP_CORE_CLOCK if prot & libc::PROT_WRITE == 0 => Some(CLOCK_PAGE),
            MMAP_CLOCK_INFO if prot & libc::PROT_WRITE == 0 => Some(CLOCK_INFO_PAGE),
            _ => None,
        };
        let Some(page) = page.filter(|_| len == 4096) else {
            real::set_errno(libc::EINVAL);
            return (libc::MAP_FAILED, None);
        };
        // SAFETY: a page of our descriptor; the address is the caller's wish, as with mmap itself.
        let p = unsafe { real::mmap(addr, len, prot, libc::MAP_SHARED, self.fd, i64::from(page) * 4096) };
        (p, Some(page).filter(|p| *p < PAGES))
    }

    /// Sets the free-running clock: two big-endian words, read high, low, high.
    pub(crate) fn set_clock(&self, ns: u64) {
        let [a, b, c, d, e, f, g, h] = ns.to_be_bytes();
        self.word32(CLOCK_PAGE, 0).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Release);
        self.word32(CLOCK_PAGE, 4).store(u32::from_ne_bytes([e, f, g, h]), Ordering::Release);
    }

    /// One cycle is one nanosecond, counted from the same origin.
    fn write_clock_info(&self) {
        const SHIFT: u32 = 21;
        let put = |at, v| self.word64(CLOCK_INFO_PAGE, at).store(v, Ordering::Release);
        put(8, 0); // nsec
        put(16, 0); // cycles
        put(24, 0); // frac
        self.word32(CLOCK_INFO_PAGE, 32).store(1 << SHIFT, Ordering::Release);
        self.word32(CLOCK_INFO_PAGE, 36).store(SHIFT, Ordering::Release);
        put(40, (1 << 41) - 1); // mask
        put(48, 1 << 40); // overflow period in ns
    }

    /// The registers that can be rung on a page.
    pub(crate) fn doorbells() -> [usize; 4] {
        bits::BF_OFFSETS
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made.
        unsafe { libc::munmap(with_exposed_provenance_mut(self.base), LEN) };
        fds::disown(self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_taken_once() {
        let b = Bar::new().unwrap();
        b.word64(3, 0x800).store(u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]), Ordering::Release);
        assert_eq!(b.take(2, 0x800), None);
        assert_eq!(b.take(3, 0x800), Some([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(b.take(3, 0x800), None);
    }
}
