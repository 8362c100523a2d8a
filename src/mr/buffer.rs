//! Memory that can be registered.
//!
//! # Safety
//!
//! [`Buffer`] states what a registration relies on; the implementations here argue why they keep to it.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_ulong;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};

use crate::error::{Error, Result};
use crate::raw::last_error;

/// A buffer taken apart: its memory, and what else is needed to put it together again.
#[derive(Debug)]
pub struct RawBuffer<Meta> {
    /// The memory.
    pub start: NonNull<u8>,
    /// Its length in bytes.
    pub len: usize,
    /// The rest.
    pub meta: Meta,
}

/// An owned buffer that can be registered.
///
/// # Safety
///
/// From `into_raw` until `from_raw`, the `len` bytes at `start` stay where they are, initialised, readable and
/// writable, and no reference to them exists. They may be written by anybody in that time: any bytes are valid for
/// what `from_raw` makes of them.
pub unsafe trait Buffer: 'static + Sized {
    /// What else is needed to put the buffer together again.
    type Meta;

    /// Takes it apart.
    fn into_raw(self) -> RawBuffer<Self::Meta>;

    /// Puts it together again.
    ///
    /// # Safety
    ///
    /// `raw` came from `into_raw`, this is the only call for it, and no device or reference uses the memory any more.
    unsafe fn from_raw(raw: RawBuffer<Self::Meta>) -> Self;
}

// SAFETY: a `Vec`'s elements stay put while it is taken apart; `u8` has no invalid values.
unsafe impl Buffer for Vec<u8> {
    /// The capacity.
    type Meta = usize;

    fn into_raw(self) -> RawBuffer<usize> {
        let mut this = ManuallyDrop::new(self);
        let capacity = this.capacity();
        // SAFETY: a `Vec`'s pointer is never null.
        let start = unsafe { NonNull::new_unchecked(this.as_mut_ptr()) };
        RawBuffer { start, len: this.len(), meta: capacity }
    }

    unsafe fn from_raw(raw: RawBuffer<usize>) -> Self {
        // SAFETY: the parts came from a `Vec`, by the caller's promise.
        unsafe { Self::from_raw_parts(raw.start.as_ptr(), raw.len, raw.meta) }
    }
}

// SAFETY: a box's content stays put; `u8` has no invalid values.
unsafe impl Buffer for Box<[u8]> {
    type Meta = ();

    fn into_raw(self) -> RawBuffer<()> {
        let len = self.len();
        // SAFETY: a box's pointer is never null.
        let start = unsafe { NonNull::new_unchecked(Self::into_raw(self).cast()) };
        RawBuffer { start, len, meta: () }
    }

    unsafe fn from_raw(raw: RawBuffer<()>) -> Self {
        // SAFETY: pointer and length came from a box, by the caller's promise.
        unsafe { Self::from_raw(std::ptr::slice_from_raw_parts_mut(raw.start.as_ptr(), raw.len)) }
    }
}

/// Memory of somebody else: another language's, a driver's, a mapping of one's own.
#[derive(Debug)]
pub struct RawMemory {
    start: NonNull<u8>,
    len: usize,
}

impl RawMemory {
    /// `len` bytes at `start`, which are not freed.
    ///
    /// # Safety
    ///
    /// Until the region made from it is closed with success, the memory stays where it is, initialised, readable and
    /// writable, and whoever accesses it reckons with the device's writes (which a Rust reference cannot).
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }
}

// SAFETY: promised by the caller of `new`.
unsafe impl Buffer for RawMemory {
    type Meta = ();

    fn into_raw(self) -> RawBuffer<()> {
        RawBuffer { start: self.start, len: self.len, meta: () }
    }

    unsafe fn from_raw(raw: RawBuffer<()>) -> Self {
        Self { start: raw.start, len: raw.len }
    }
}

/// Whole pages of zeroed memory of their own (`mmap`): what most regions should be made of.
///
/// Nothing else shares its pages, so a `fork` or a neighbour on the heap cannot get in the device's way; huge pages
/// save the device translations.
pub struct Pages {
    start: NonNull<u8>,
    /// As asked for.
    len: usize,
    /// As mapped.
    mapped: usize,
}

// SAFETY: an owned mapping, tied to no thread.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` gives no access to the memory but reading.
unsafe impl Sync for Pages {}

/// The size of a mapping's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// The system's own.
    #[default]
    No,
    /// 2 MiB, out of the reserved ones.
    Size2M,
    /// 1 GiB, out of the reserved ones.
    Size1G,
}

/// How to map [`Pages`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PagesBuilder {
    huge: HugePages,
    numa_node: Option<u32>,
}

impl PagesBuilder {
    /// Out of huge pages.
    pub fn huge(mut self, huge: HugePages) -> Self {
        self.huge = huge;
        self
    }

    /// On that NUMA node and no other (`mbind`): best the one that the device hangs on.
    pub fn numa_node(mut self, node: u32) -> Self {
        self.numa_node = Some(node);
        self
    }

    /// Maps `len` bytes, rounded up to whole pages underneath.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] (`mmap`) with ENOMEM, also if there are not enough huge pages reserved; (`mbind`) with EINVAL
    /// if there is no such node; [`Error::Invalid`] if `len` is 0 or close to the size of the address space.
    pub fn map(self, len: usize) -> Result<Pages> {
        let (flags, page) = match self.huge {
            HugePages::No => (0, 4096),
            HugePages::Size2M => (libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, 2 << 20),
            HugePages::Size1G => (libc::MAP_HUGETLB | libc::MAP_HUGE_1GB, 1 << 30),
        };
        let mapped = match len.checked_next_multiple_of(page) {
            Some(mapped) if len != 0 && isize::try_from(mapped).is_ok() => mapped,
            _ => {
                return Err(Error::invalid(
                    "the length",
                    len,
                    "at least 1 byte, and within the address space",
                ));
            }
        };
        // SAFETY: a new private mapping touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        let start = match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => start.cast(),
            _ => return Err(last_error("mmap", || format!("{mapped} bytes, {:?}", self.huge))),
        };
        let pages = Pages { start, len, mapped };
        if let Some(node) = self.numa_node {
            pages.bind(node)?;
        }
        Ok(pages)
    }
}

impl Pages {
    /// `len` zeroed bytes on ordinary pages, wherever the kernel takes them from.
    ///
    /// # Errors
    ///
    /// Those of [`PagesBuilder::map`].
    pub fn new(len: usize) -> Result<Self> {
        PagesBuilder::default().map(len)
    }

    /// For huge pages, or a NUMA node.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{HugePages, MemoryRegion, Pages, ProtectionDomain};
    /// # fn f(pd: &ProtectionDomain<'_>) -> Result<(), ibv::Error> {
    /// let pages = Pages::builder().huge(HugePages::Size2M).numa_node(0).map(64 << 20)?;
    /// let mr = MemoryRegion::local(pd, pages)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> PagesBuilder {
        PagesBuilder::default()
    }

    fn bind(&self, node: u32) -> Result<()> {
        const BITS: u32 = c_ulong::BITS;
        let mut mask = [0 as c_ulong; 16];
        match mask.get_mut((node / BITS) as usize) {
            Some(word) => *word = 1 << (node % BITS),
            None => return Err(Error::invalid("the NUMA node", node, "below 1024")),
        }
        // SAFETY: the range is our own mapping; the mask has as many bits as is said.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr(),
                self.mapped,
                libc::MPOL_BIND,
                mask.as_ptr(),
                mask.len() * BITS as usize + 1,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(last_error("mbind", || format!("NUMA node {node}"))) }
    }
}

impl std::ops::Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: our own initialised mapping, which no device knows while it is a `Pages`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and the last use of it.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
        if result != 0 {
            // a hole in a merged mapping makes two of one, which may be one too many (vm.max_map_count)
            let error = last_error("munmap", || format!("{} bytes", self.mapped));
            tracing::error!(%error, "pages are leaked");
        }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("start", &self.start).field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: the mapping stays put and is no part of anything else; `u8` has no invalid values.
unsafe impl Buffer for Pages {
    /// The bytes mapped.
    type Meta = usize;

    fn into_raw(self) -> RawBuffer<usize> {
        let this = ManuallyDrop::new(self);
        RawBuffer { start: this.start, len: this.len, meta: this.mapped }
    }

    unsafe fn from_raw(raw: RawBuffer<usize>) -> Self {
        Self { start: raw.start, len: raw.len, mapped: raw.meta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_survive_being_taken_apart() {
        fn round_trip<B: Buffer>(buffer: B) -> B {
            let raw = buffer.into_raw();
            // SAFETY: from `into_raw`, once.
            unsafe { B::from_raw(raw) }
        }
        let mut vec = Vec::with_capacity(100);
        vec.extend_from_slice(b"abc");
        let vec = round_trip(vec);
        assert_eq!((vec.as_slice(), vec.capacity()), (&b"abc"[..], 100));
        assert_eq!(&*round_trip(b"abc".to_vec().into_boxed_slice()), b"abc");
        let mut pages = Pages::new(5000).unwrap();
        pages[4999] = 7;
        let pages = round_trip(pages);
        assert_eq!((pages.len(), pages.mapped, pages[4999], pages[0]), (5000, 8192, 7, 0));
    }

    #[test]
    fn lengths_that_cannot_be_mapped_are_refused() {
        assert!(matches!(Pages::new(0), Err(Error::Invalid { .. })));
        assert!(matches!(Pages::new(usize::MAX), Err(Error::Invalid { .. })));
        assert_eq!(Pages::new(1 << 60).unwrap_err().errno(), Some(libc::ENOMEM));
    }

    #[test]
    fn a_numa_node_can_be_asked_for() {
        // a kernel without NUMA says ENOSYS; node 0 exists on every other
        match Pages::builder().numa_node(0).map(4096) {
            Ok(pages) => assert_eq!(pages.len(), 4096),
            Err(error) => assert_eq!(error.errno(), Some(libc::ENOSYS)),
        }
        assert!(matches!(Pages::builder().numa_node(5000).map(4096), Err(Error::Invalid { .. })));
    }
}
