//! The attributes of one ioctl command: reading what came in, writing what goes out.
//!
//! # Safety
//!
//! An [`Attrs`] is made from the pointer that the application's thread passed to `ioctl`, and used only during that
//! call. The header and the buffers that the attributes point to are the caller's, of the lengths they state, as
//! with the kernel (which would fail with EFAULT where this faults).
#![expect(unsafe_code, reason = "reads and writes the buffers of an ioctl")]

use super::abi::Plain;
use libc::c_void;
use std::ptr::with_exposed_provenance_mut;

#[derive(Clone, Copy)]
#[repr(C)]
struct Header {
    length: u16,
    object_id: u16,
    method_id: u16,
    num_attrs: u16,
    reserved1: u64,
    driver_id: u32,
    reserved2: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Attr {
    attr_id: u16,
    len: u16,
    flags: u16,
    elem: u16,
    data: u64,
}

const VALID_OUTPUT: u16 = 2;

/// The attributes of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attrs {
    at: *mut c_void,
}

impl Attrs {
    /// Wraps the argument of an ioctl.
    ///
    /// # Safety
    /// `arg` is the argument of a `RDMA_VERBS_IOCTL` call that is being served on this thread.
    pub(crate) unsafe fn new(arg: *mut c_void) -> Self {
        Self { at: arg }
    }

    fn header(&self) -> Header {
        // SAFETY: the ioctl's argument starts with a header (module comment).
        unsafe { self.at.cast::<Header>().read() }
    }

    /// Object and method.
    pub(crate) fn command(&self) -> (u16, u16) {
        let h = self.header();
        (h.object_id, h.method_id)
    }

    fn find(&self, id: u16) -> Option<*mut Attr> {
        let n = usize::from(self.header().num_attrs);
        // SAFETY: `num_attrs` attributes follow the header (module comment).
        let first = unsafe { self.at.cast::<Header>().add(1).cast::<Attr>() };
        // SAFETY: as above.
        (0..n).map(|i| unsafe { first.add(i) }).find(|a| unsafe { (**a).attr_id } == id)
    }

    fn get(&self, id: u16) -> Option<Attr> {
        // SAFETY: an attribute just found.
        self.find(id).map(|a| unsafe { a.read() })
    }

    /// Whether attribute `id` was given.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Where an input attribute's bytes are, and how many. Up to 8 bytes are inline.
    fn bytes(&self, id: u16) -> Option<(*const u8, usize)> {
        let a = self.find(id)?;
        // SAFETY: an attribute just found.
        let v = unsafe { a.read() };
        let len = usize::from(v.len);
        if len <= 8 {
            // SAFETY: as above; only the field's address is taken.
            return Some((unsafe { &raw const (*a).data }.cast(), len));
        }
        Some((with_exposed_provenance_mut(usize::try_from(v.data).ok()?), len))
    }

    /// An integer or handle; 0 if it was not given.
    pub(crate) fn number(&self, id: u16) -> u64 {
        let Some(a) = self.get(id) else { return 0 };
        match a.len {
            0 | 8 => a.data,
            1..8 => a.data & ((1u64 << (8 * a.len)) - 1),
            _ => 0,
        }
    }

    /// As [`Attrs::number`], of 32 bits.
    pub(crate) fn number32(&self, id: u16) -> u32 {
        u32::try_from(self.number(id) & 0xffff_ffff).unwrap_or(0)
    }

    /// A structure, zero where the caller's is shorter.
    pub(crate) fn read<T: Plain>(&self, id: u16) -> T {
        let mut v = T::zeroed();
        if let Some((p, len)) = self.bytes(id) {
            let n = len.min(size_of::<T>());
            // SAFETY: `len` bytes are readable at `p` (module comment); any bytes are a `T`.
            unsafe { p.copy_to_nonoverlapping((&raw mut v).cast::<u8>(), n) };
        }
        v
    }

    /// The length of attribute `id` in bytes.
    pub(crate) fn len(&self, id: u16) -> usize {
        self.get(id).map_or(0, |a| usize::from(a.len))
    }

    /// Writes a structure, cut to what the caller has room for.
    pub(crate) fn write<T: Plain>(&self, id: u16, value: &T) {
        self.write_raw(id, std::ptr::from_ref(value).cast(), size_of::<T>());
    }

    /// Writes an array of structures.
    pub(crate) fn write_all<T: Plain>(&self, id: u16, values: &[T]) {
        self.write_raw(id, values.as_ptr().cast(), size_of_val(values));
    }

    fn write_raw(&self, id: u16, from: *const u8, len: usize) {
        let Some(a) = self.find(id) else { return };
        // SAFETY: an attribute just found; an output attribute's `data` is a pointer to `len` writable bytes
        // (module comment), and `from` has `len` of this call.
        unsafe {
            let room = usize::from((*a).len);
            let to = with_exposed_provenance_mut::<u8>(usize::try_from((*a).data).unwrap_or(0));
            if to.is_null() {
                return;
            }
            to.write_bytes(0, room);
            from.copy_to_nonoverlapping(to, len.min(room));
            (*a).flags |= VALID_OUTPUT;
        }
    }

    /// Gives a new object's handle or descriptor back.
    pub(crate) fn set(&self, id: u16, value: u32) {
        if let Some(a) = self.find(id) {
            // SAFETY: an attribute just found.
            unsafe { (*a).data = u64::from(value) };
        }
    }
}
