//! The device's access to the application's memory: the only module that touches it.
//!
//! # Safety
//!
//! A device reads and writes memory behind the back of the language. Here too: no reference to application memory is
//! ever made; all accesses are those of [`guard`], which the compiler can't see into. Addresses come from registered
//! regions (checked against the key table) or from the queues that the application registered with the device. That
//! nothing is mapped there any more is an error that each access reports.
#![expect(unsafe_code, reason = "the device reads and writes memory by address")]

mod guard;

pub(crate) use guard::Missing;
use std::sync::atomic::{Ordering, fence};

/// Prepares the process for accesses that fail.
pub(crate) fn prepare() {
    guard::install();
}

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

/// Which side of a transfer isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

fn ptr<T>(addr: u64) -> *mut T {
    // Addresses arrive as integers from the application, as they do at a device.
    std::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
}

fn exposed<T>(p: *const T) -> u64 {
    p.expose_provenance() as u64
}

/// Reads `out.len()` bytes at `addr`.
pub(crate) fn read(addr: u64, out: &mut [u8]) -> Result<(), Missing> {
    guard::copy(exposed(out.as_mut_ptr()), addr, out.len() as u64)
}

/// Writes `bytes` at `addr`.
pub(crate) fn write(addr: u64, bytes: &[u8]) -> Result<(), Missing> {
    guard::copy(addr, exposed(bytes.as_ptr()), bytes.len() as u64)
}

/// Loads the big-endian word at `addr` (4-byte aligned), with acquire order: what was written before it is seen.
pub(crate) fn load_be32(addr: u64) -> Result<u32, Missing> {
    let v = guard::load(addr)?;
    fence(Ordering::Acquire);
    Ok(u32::from_be(v))
}

/// Stores the last byte of a CQE with release order: the 63 bytes before it are visible first.
pub(crate) fn store_u8_release(addr: u64, v: u8) -> Result<(), Missing> {
    fence(Ordering::Release);
    guard::store(addr, v)
}

/// The atomic of a compare-and-swap or fetch-and-add request on 8 aligned bytes; gives the old value (host byte
/// order).
pub(crate) fn atomic(addr: u64, op: AtomicOp) -> Result<u64, Missing> {
    match op {
        AtomicOp::FetchAdd(v) => guard::add(addr, v),
        AtomicOp::CompareSwap { compare, swap } => guard::swap(addr, compare, swap),
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

/// Copies spans to spans, as far as the shorter side goes. A side that isn't there ends it, wherever it is.
pub(crate) fn transfer(dst_space: Space, dst: &[Span], src_space: Space, src: &[Span]) -> Result<(), Side> {
    let done = match (dst_space, src_space) {
        (Space::Own, Space::Own) => pair(dst, src, |d, s, n| guard::copy(d, s, n).is_ok()),
        (Space::Own, Space::Process(pid)) => pair(dst, src, |d, s, n| vm(pid, d, s, n, false)),
        (Space::Process(pid), Space::Own) => pair(dst, src, |d, s, n| vm(pid, s, d, n, true)),
        (Space::Process(_), Space::Process(_)) => false,
    };
    if done {
        return Ok(());
    }
    let missing = if src_space == Space::Own { !is_readable(src) } else { is_writable(dst) };
    Err(if missing { Side::Source } else { Side::Destination })
}

/// Looks at one byte of each page of `spans`.
fn each_page(spans: &[Span], mut look: impl FnMut(u64) -> bool) -> bool {
    spans.iter().filter(|s| s.len > 0).all(|s| {
        let last = s.addr.saturating_add(s.len - 1);
        look(s.addr) && (s.addr | 4095..last).step_by(4096).all(|end| look(end + 1))
    })
}

/// Whether all of `spans` of the own process can be read.
pub(crate) fn is_readable(spans: &[Span]) -> bool {
    each_page(spans, |at| read(at, &mut [0]).is_ok())
}

/// Whether all of it can be written, as far as one can tell without changing it: adding nothing to a word does.
fn is_writable(spans: &[Span]) -> bool {
    each_page(spans, |at| guard::add(at & !7, 0).is_ok())
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
        // memory (module comment), or a buffer of the caller's.
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
    let to = [Span { addr: exposed(v.as_mut_ptr()), len: n as u64 }];
    transfer(Space::Own, &to, space, spans).ok().map(|()| v)
}

/// Scatters `bytes` over `spans` of the own process.
pub(crate) fn scatter(spans: &[Span], bytes: &[u8]) -> Result<(), Side> {
    let from = [Span { addr: exposed(bytes.as_ptr()), len: bytes.len() as u64 }];
    transfer(Space::Own, spans, Space::Own, &from)
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
        Span { addr: exposed(v.as_mut_ptr()), len: v.len() as u64 }
    }

    #[test]
    fn transfer_crosses_span_borders() {
        let (mut a, mut b) = ([1u8, 2, 3], [4u8, 5]);
        let (mut x, mut y) = ([0u8; 1], [0u8; 4]);
        let (src, dst) = ([span(&mut a), span(&mut b)], [span(&mut x), span(&mut y)]);
        assert_eq!(transfer(Space::Own, &dst, Space::Own, &src), Ok(()));
        let got = gather(Space::Own, &dst, 99).unwrap_or_default();
        assert_eq!(got, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn empty_spans_are_skipped() {
        let mut a = [7u8, 8];
        let mut x = [0u8; 2];
        let src = [Span { addr: 0, len: 0 }, span(&mut a)];
        let dst = [Span { addr: 0, len: 0 }, span(&mut x), Span { addr: 0, len: 0 }];
        assert_eq!(transfer(Space::Own, &dst, Space::Own, &src), Ok(()));
        assert_eq!(gather(Space::Own, &dst, 2), Some(vec![7, 8]));
    }

    /// Three pages, of which the middle one is taken away or protected.
    fn with_hole(protection: Option<libc::c_int>) -> u64 {
        // SAFETY: a new mapping, of which a page is given back or protected.
        unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let p = libc::mmap(std::ptr::null_mut(), 3 * 4096, prot, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            match protection {
                None => libc::munmap(p.byte_add(4096), 4096),
                Some(prot) => libc::mprotect(p.byte_add(4096), 4096, prot),
            };
            exposed(p)
        }
    }

    #[test]
    fn accesses_of_missing_memory_fail_and_say_which_side() {
        prepare();
        let hole = with_hole(None);
        let mut v = [7u8; 8];
        for at in [hole + 4090, hole + 4096, hole + 8190] {
            assert_eq!(read(at, &mut v), Err(Missing));
            assert_eq!(write(at, &v), Err(Missing));
        }
        assert_eq!(load_be32(hole + 4096), Err(Missing));
        assert_eq!(store_u8_release(hole + 8191, 1), Err(Missing));
        for op in [AtomicOp::FetchAdd(1), AtomicOp::CompareSwap { compare: 0, swap: 1 }] {
            assert_eq!(atomic(hole + 4096, op), Err(Missing));
        }
        // Nothing happened to what is there.
        assert_eq!((read(hole + 8192, &mut v), v), (Ok(()), [0; 8]));
        let (there, gone) = ([Span { addr: hole, len: 3000 }], [Span { addr: hole + 100, len: 8000 }]);
        let copy = |to, from| transfer(Space::Own, to, Space::Own, from);
        assert_eq!(copy(&there, &gone), Ok(()), "as far as the shorter side goes");
        let long = [Span { addr: hole + 8192, len: 4096 }, there[0]];
        assert_eq!(copy(&long, &gone), Err(Side::Source));
        assert_eq!(copy(&gone, &long), Err(Side::Destination));
        let sealed = with_hole(Some(libc::PROT_READ));
        let part = [Span { addr: sealed, len: 5000 }];
        assert!(is_readable(&part) && !is_writable(&part));
        assert_eq!(copy(&part, &long), Err(Side::Destination));
        assert_eq!(copy(&long, &part), Ok(()));
        assert_eq!(gather(Space::Own, &gone, 8000), None);
    }

    #[test]
    fn atomics_on_memory_that_is_there() {
        let v = std::sync::atomic::AtomicU64::new(5);
        let at = exposed(v.as_ptr());
        assert_eq!(atomic(at, AtomicOp::FetchAdd(3)), Ok(5));
        assert_eq!(atomic(at, AtomicOp::CompareSwap { compare: 1, swap: 2 }), Ok(8));
        assert_eq!(atomic(at, AtomicOp::CompareSwap { compare: 8, swap: 2 }), Ok(8));
        assert_eq!(v.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_unmapped_page_is_seen() {
        let v = [0u8; 8];
        assert!(is_mapped(v.as_ptr().addr() as u64, 8));
        assert!(!is_mapped(4096, 1));
        assert!(!is_mapped(u64::MAX - 10, 100));
    }
}
