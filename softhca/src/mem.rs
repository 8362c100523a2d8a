//! The device's access to the application's memory: the only module that touches it.
//!
//! # Safety
//!
//! A device reads and writes memory behind the back of the language. Here too: no reference to application
//! memory is ever made; single words go through volatile or atomic accesses of raw pointers, blocks through one
//! copy routine that the compiler can't see into (x86-64: `rep movsb`) or through volatile bytes. Addresses come
//! from registered regions (checked against the key table) or from the queues that the application registered with
//! the device; that they are mapped is the application's duty, as it is with hardware.
#![expect(unsafe_code, reason = "the device reads and writes memory by address")]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// A stretch of memory of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// Whose memory a [`Span`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Own,
    Process(i32),
}

fn ptr<T>(addr: u64) -> *mut T {
    // Addresses arrive as integers from the application, as they do at a device.
    std::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

/// Copies `len` bytes within the own process. The stretches may overlap only if they are equal.
fn copy_raw(dst: u64, src: u64, len: u64) {
    let n = usize::try_from(len).unwrap_or(0);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both stretches are `len` mapped bytes (module comment); the instruction touches nothing else, and
    // the direction flag is clear by the ABI.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") n => _, inout("rdi") ptr::<u8>(dst) => _, inout("rsi") ptr::<u8>(src) => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for i in 0..n {
        // SAFETY: byte `i` of two stretches of `len` mapped bytes (module comment).
        unsafe {
            let b = ptr::<u8>(src).add(i).read_volatile();
            ptr::<u8>(dst).add(i).write_volatile(b);
        }
    }
}

/// Reads `out.len()` bytes at `addr`.
pub(crate) fn read(addr: u64, out: &mut [u8]) {
    copy_raw(out.as_mut_ptr().expose_provenance() as u64, addr, out.len() as u64);
}

/// Writes `bytes` at `addr`.
pub(crate) fn write(addr: u64, bytes: &[u8]) {
    copy_raw(addr, bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64);
}

/// Loads the big-endian word at `addr` (4-byte aligned), with acquire order: what was written before it is seen.
pub(crate) fn load_be32(addr: u64) -> u32 {
    // SAFETY: a doorbell record of a live queue: 4 aligned bytes that the application keeps mapped.
    let v = unsafe { ptr::<u32>(addr).read_volatile() };
    fence(Ordering::Acquire);
    u32::from_be(v)
}

/// Stores the last byte of a CQE with release order: the 63 bytes before it are visible first.
pub(crate) fn store_u8_release(addr: u64, v: u8) {
    // SAFETY: a byte of a CQ buffer that the application keeps mapped; only atomically accessed here.
    unsafe { AtomicU8::from_ptr(ptr(addr)) }.store(v, Ordering::Release);
}

/// The atomic of a compare-and-swap or fetch-and-add request; gives the old value (host byte order).
pub(crate) fn atomic(addr: u64, op: AtomicOp) -> u64 {
    // SAFETY: 8 bytes, aligned (checked by the responder), within a registered region.
    let a = unsafe { AtomicU64::from_ptr(ptr(addr)) };
    match op {
        AtomicOp::FetchAdd(v) => a.fetch_add(v, Ordering::AcqRel),
        AtomicOp::CompareSwap { compare, swap } => {
            a.compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|old| old)
        }
    }
}

/// An atomic operation on remote memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtomicOp {
    FetchAdd(u64),
    CompareSwap { compare: u64, swap: u64 },
}

/// The total length.
pub(crate) fn total(spans: &[Span]) -> u64 {
    spans.iter().map(|s| s.len).sum()
}

/// Copies spans to spans, as far as the shorter side goes. Returns whether it could be done.
pub(crate) fn transfer(dst_space: Space, dst: &[Span], src_space: Space, src: &[Span]) -> bool {
    match (dst_space, src_space) {
        (Space::Own, Space::Own) => pair(dst, src, |d, s, n| {
            copy_raw(d, s, n);
            true
        }),
        (Space::Own, Space::Process(pid)) => pair(dst, src, |d, s, n| vm(pid, d, s, n, false)),
        (Space::Process(pid), Space::Own) => pair(dst, src, |d, s, n| vm(pid, s, d, n, true)),
        (Space::Process(_), Space::Process(_)) => false,
    }
}

fn pair(dst: &[Span], src: &[Span], mut copy: impl FnMut(u64, u64, u64) -> bool) -> bool {
    let (mut d, mut s) = (dst.iter().copied(), src.iter().copied());
    let (mut a, mut b) = (d.next(), s.next());
    while let (Some(x), Some(y)) = (&mut a, &mut b) {
        let n = x.len.min(y.len);
        if n > 0 && !copy(x.addr, y.addr, n) {
            return false;
        }
        x.addr += n;
        x.len -= n;
        y.addr += n;
        y.len -= n;
        let (x_done, y_done) = (x.len == 0, y.len == 0);
        if x_done {
            a = d.next();
        }
        if y_done {
            b = s.next();
        }
    }
    true
}

/// Copies between this process (`own`) and process `pid` (`far`).
fn vm(pid: i32, own: u64, far: u64, len: u64, out: bool) -> bool {
    let mut done = 0u64;
    while done < len {
        let n = usize::try_from((len - done).min(1 << 30)).unwrap_or(0);
        let l = libc::iovec { iov_base: ptr(own + done), iov_len: n };
        let r = libc::iovec { iov_base: ptr(far + done), iov_len: n };
        // SAFETY: the kernel checks both address ranges itself and fails with EFAULT; the own range is registered
        // memory (module comment).
        let k = unsafe {
            if out {
                libc::process_vm_writev(pid, &raw const l, 1, &raw const r, 1, 0)
            } else {
                libc::process_vm_readv(pid, &raw const l, 1, &raw const r, 1, 0)
            }
        };
        if k <= 0 {
            return false;
        }
        done += u64::try_from(k).unwrap_or(0);
    }
    true
}

/// Collects `spans` of `space` into bytes (`None` if the memory can't be read).
pub(crate) fn gather(space: Space, spans: &[Span], most: u64) -> Option<Vec<u8>> {
    let n = usize::try_from(total(spans).min(most)).unwrap_or(0);
    let mut v = vec![0u8; n];
    let to = [Span { addr: v.as_mut_ptr().expose_provenance() as u64, len: n as u64 }];
    transfer(Space::Own, &to, space, spans).then_some(v)
}

/// Scatters `bytes` over `spans` of `space`.
pub(crate) fn scatter(space: Space, spans: &[Span], bytes: &[u8]) -> bool {
    let from = [Span { addr: bytes.as_ptr().expose_provenance() as u64, len: bytes.len() as u64 }];
    transfer(space, spans, Space::Own, &from)
}

/// Whether every page of a stretch is mapped.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    const STEP: u64 = 1 << 30;
    let Some(end) = addr.checked_add(len).and_then(|e| e.checked_add(4095)) else { return false };
    let end = end & !4095;
    let mut at = addr & !4095;
    let pages = usize::try_from(STEP / 4096).unwrap_or(0);
    let mut vec = vec![0u8; pages.min(usize::try_from((end - at) / 4096).unwrap_or(0)).max(1)];
    while at < end {
        let n = (end - at).min(STEP);
        // SAFETY: mincore only looks at the mapping; `vec` has one byte per page asked about.
        let rc = unsafe { libc::mincore(ptr(at), usize::try_from(n).unwrap_or(0), vec.as_mut_ptr()) };
        if rc != 0 {
            return false;
        }
        at += n;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(v: &mut [u8]) -> Span {
        Span { addr: v.as_mut_ptr().expose_provenance() as u64, len: v.len() as u64 }
    }

    #[test]
    fn transfer_crosses_span_borders() {
        let (mut a, mut b) = ([1u8, 2, 3], [4u8, 5]);
        let (mut x, mut y) = ([0u8; 1], [0u8; 4]);
        let (src, dst) = ([span(&mut a), span(&mut b)], [span(&mut x), span(&mut y)]);
        assert!(transfer(Space::Own, &dst, Space::Own, &src));
        let got = gather(Space::Own, &dst, 99).unwrap_or_default();
        assert_eq!(got, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn empty_spans_are_skipped() {
        let mut a = [7u8, 8];
        let mut x = [0u8; 2];
        let src = [Span { addr: 0, len: 0 }, span(&mut a)];
        let dst = [Span { addr: 0, len: 0 }, span(&mut x), Span { addr: 0, len: 0 }];
        assert!(transfer(Space::Own, &dst, Space::Own, &src));
        assert_eq!(gather(Space::Own, &dst, 2), Some(vec![7, 8]));
    }

    #[test]
    fn an_unmapped_page_is_seen() {
        let v = [0u8; 8];
        assert!(is_mapped(v.as_ptr().addr() as u64, 8));
        assert!(!is_mapped(4096, 1));
        assert!(!is_mapped(u64::MAX - 10, 100));
    }
}
