//! The C library's own functions behind the ones that this crate defines under the same names.
//!
//! # Safety
//!
//! `dlsym(RTLD_NEXT, name)` gives the next definition of `name`, which by its name has the C signature that the
//! function types below state. A variadic function is called through a fixed signature with as many arguments as
//! it may read: on the supported machines (x86-64, aarch64 Linux) both are passed in the same registers.
#![expect(unsafe_code, reason = "calls C functions through pointers from dlsym")]

use libc::{DIR, c_char, c_int, c_uint, c_ulong, c_void, mode_t, off_t, size_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Finds the next definition of `name`, once.
pub(super) fn next(cell: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let p = cell.load(Ordering::Relaxed);
    if !p.is_null() {
        return p;
    }
    // SAFETY: a name with its terminator; RTLD_NEXT is a documented handle.
    let p = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    cell.store(p, Ordering::Relaxed);
    p
}

macro_rules! real {
    ($(#[$m:meta])* $name:ident = $sym:literal ( $($a:ident : $t:ty),* ) -> $r:ty, else $fallback:expr) => {
        $(#[$m])*
        pub(crate) unsafe fn $name($($a: $t),*) -> $r {
            static CELL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let p = next(&CELL, $sym);
            if p.is_null() {
                return $fallback;
            }
            // SAFETY: the symbol's C signature (module comment).
            let f: unsafe extern "C" fn($($t),*) -> $r = unsafe { std::mem::transmute(p) };
            // SAFETY: the caller keeps the C function's rules.
            unsafe { f($($a),*) }
        }
    };
}

fn enosys() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// Sets `errno`.
pub(crate) fn set_errno(e: c_int) {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() = e };
}

/// Reads `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is the calling thread's own.
    unsafe { *libc::__errno_location() }
}

real!(open = c"open"(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else enosys());
real!(open64 = c"open64"(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else enosys());
real!(openat = c"openat"(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else enosys());
real!(openat64 = c"openat64"(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, else enosys());
real!(close = c"close"(fd: c_int) -> c_int, else enosys());
real!(close_range = c"close_range"(first: c_uint, last: c_uint, flags: c_int) -> c_int, else enosys());
real!(ioctl = c"ioctl"(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int, else enosys());
real!(socket = c"socket"(domain: c_int, kind: c_int, protocol: c_int) -> c_int, else enosys());
real!(dup2 = c"dup2"(old: c_int, new: c_int) -> c_int, else enosys());
real!(dup3 = c"dup3"(old: c_int, new: c_int, flags: c_int) -> c_int, else enosys());
real!(lstat = c"lstat"(path: *const c_char, st: *mut libc::stat) -> c_int, else enosys());
real!(fstatat = c"fstatat"(dir: c_int, path: *const c_char, st: *mut libc::stat, flags: c_int) -> c_int, else enosys());
real!(statx = c"statx"(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, st: *mut libc::statx) -> c_int, else enosys());
real!(faccessat = c"faccessat"(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else enosys());
real!(stat = c"stat"(path: *const c_char, st: *mut libc::stat) -> c_int, else enosys());
real!(fstat = c"fstat"(fd: c_int, st: *mut libc::stat) -> c_int, else enosys());
real!(opendir = c"opendir"(path: *const c_char) -> *mut DIR, else { enosys(); std::ptr::null_mut() });
real!(readdir = c"readdir"(dir: *mut DIR) -> *mut libc::dirent, else std::ptr::null_mut());
real!(readdir64 = c"readdir64"(dir: *mut DIR) -> *mut libc::dirent64, else std::ptr::null_mut());
real!(closedir = c"closedir"(dir: *mut DIR) -> c_int, else enosys());
real!(dirfd = c"dirfd"(dir: *mut DIR) -> c_int, else enosys());

/// The real `mmap`, as a system call: an allocator may call it while `dlsym` allocates.
pub(crate) unsafe fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller keeps mmap's rules; the system call's arguments are the C function's.
    let p = unsafe { libc::syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) };
    std::ptr::with_exposed_provenance_mut(usize::from_ne_bytes(p.to_ne_bytes()))
}
