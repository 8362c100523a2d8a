//! `open`, `openat`, `ioctl`, `mmap` and `socket`.
//!
//! # Safety
//!
//! These are the C library's functions to every caller in the process, so they keep its contracts: pointers are
//! read only where the C function would read them, `errno` is set as it would be, and nothing unwinds.
//! A C-variadic function can't be defined in stable Rust; `open`, `openat` and `ioctl` are defined with their
//! optional argument as a fixed one. On x86-64 and aarch64 Linux the caller puts it into the same register either
//! way; when the caller passed none, it is only handed on.
#![expect(unsafe_code, reason = "defines C library functions")]

use super::fds::{self, Kind};
use super::sysfs::{self, Tree};
use super::{dirs, real};
use crate::run;
use libc::{c_char, c_int, c_ulong, c_void, mode_t, off_t, size_t};
use std::borrow::Cow;
use std::ffi::{CStr, CString};

/// Keeps this module's functions in the link.
pub(crate) fn anchor() -> usize {
    (open as *const ()).addr() ^ (mmap as *const ()).addr()
}

/// The paths below these are looked at; all others pass.
fn is_near(path: *const c_char) -> bool {
    let starts = |prefix: &[u8]| {
        prefix.iter().enumerate().all(|(i, b)| {
            // SAFETY: the string is read up to the first byte that differs from the prefix, so never past its NUL.
            let c = unsafe { path.add(i).read() };
            c.to_ne_bytes() == [*b]
        })
    };
    !path.is_null() && (starts(b"/sys/class/infiniband") || starts(b"/dev/infiniband/"))
}

/// The path as text, with the tree, if it could be ours.
pub(super) fn near<'a>(path: *const c_char) -> Option<(&'a str, &'static Tree)> {
    if !is_near(path) {
        return None;
    }
    run::start::on_demand();
    let tree = sysfs::tree()?;
    // SAFETY: a C string, valid during the call.
    let text = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    Some((text, tree))
}

/// The same of a path that may be relative to one of our directories.
pub(super) fn near_at<'a>(dir: c_int, path: *const c_char) -> Option<(Cow<'a, str>, &'static Tree)> {
    let Some(Kind::Sysfs(base)) = fds::get(dir).filter(|_| !path.is_null()) else {
        return near(path).map(|(text, tree)| (text.into(), tree));
    };
    // SAFETY: a C string, valid during the call.
    let name = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    let tree = sysfs::tree()?;
    let text =
        if name.starts_with('/') { name.into() } else { format!("{}/{name}", tree.node(base)?.path).into() };
    Some((text, tree))
}

/// Opens what a path names, if it is ours.
fn open_ours(text: &str, tree: &Tree, flags: c_int) -> Option<c_int> {
    if let Some(dev) = tree.cdev(text) {
        return Some(result(run::open_device(dev)));
    }
    if let Some((i, _)) = tree.find(text) {
        return Some(open_node(tree, i, flags));
    }
    hidden(tree, text).then(|| fail(libc::ENOENT))
}

fn open_path(path: *const c_char, flags: c_int) -> Option<c_int> {
    near(path).and_then(|(text, tree)| open_ours(text, tree, flags))
}

/// Whether `path` is the host's and stays hidden.
pub(super) fn hidden(tree: &Tree, path: &str) -> bool {
    !tree.host && (path.starts_with(sysfs::CDEV) || path.starts_with(sysfs::INFINIBAND))
}

pub(super) fn fail(errno: c_int) -> c_int {
    real::set_errno(errno);
    -1
}

fn result(r: Result<c_int, c_int>) -> c_int {
    r.unwrap_or_else(fail)
}

/// A descriptor from which the node's text can be read; for a directory, one for `openat`.
pub(super) fn open_node(tree: &Tree, i: u32, flags: c_int) -> c_int {
    let Some(node) = tree.node(i) else { return fail(libc::ENOENT) };
    if node.text.is_some() && flags & libc::O_DIRECTORY != 0 {
        return fail(libc::ENOTDIR);
    }
    // SAFETY: a constant C string; the call makes a new descriptor.
    let fd = unsafe { libc::memfd_create(c"softhca-sysfs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return fd;
    }
    if let Some(text) = &node.text {
        // SAFETY: writes the text's bytes to the new descriptor and rewinds it.
        unsafe {
            libc::write(fd, text.as_ptr().cast(), text.len());
            libc::lseek(fd, 0, libc::SEEK_SET);
        }
    } else if !fds::set(fd, Kind::Sysfs(i)) {
        // SAFETY: the new descriptor.
        unsafe { real::close(fd) };
        return fail(libc::EMFILE);
    }
    fd
}

/// `open(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    open_path(path, flags).unwrap_or_else(|| unsafe { real::open(path, flags, mode) })
}

/// `open64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    open_path(path, flags).unwrap_or_else(|| unsafe { real::open64(path, flags, mode) })
}

/// Opens a name that may be relative to one of our directories.
fn openat_ours(dir: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    let (text, tree) = near_at(dir, path)?;
    open_ours(&text, tree, flags).or_else(|| {
        // The host's entry of a listing that holds both.
        let full = CString::new(text.as_ref()).ok().filter(|_| matches!(text, Cow::Owned(_)))?;
        // SAFETY: a C string.
        Some(unsafe { real::open(full.as_ptr(), flags, 0) })
    })
}

/// `openat(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    openat_ours(dir, path, flags).unwrap_or_else(|| unsafe { real::openat(dir, path, flags, mode) })
}

/// `openat64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    openat_ours(dir, path, flags).unwrap_or_else(|| unsafe { real::openat64(dir, path, flags, mode) })
}

const RDMA_VERBS_IOCTL: c_ulong = 0xc018_1b01;

/// `ioctl(2)`: the uverbs commands of our contexts.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    if request == RDMA_VERBS_IOCTL {
        if let Some(ctx) = run::context_of(fd) {
            return match run::uverbs(ctx, arg) {
                0 => 0,
                e => fail(e),
            };
        }
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::ioctl(fd, request, arg) }
}

/// `mmap(2)`: the doorbell and clock pages of our contexts.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if fd >= 0 {
        if let Some(Kind::Command(ctx)) = fds::get(fd) {
            return run::map_device(ctx, addr, len, prot, offset);
        }
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::mmap(addr, len, prot, flags, fd, offset) }
}

/// `mmap64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments, handed on; `off_t` has 64 bits here.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

const NETLINK_RDMA: c_int = 20;

/// `socket(2)`: no RDMA netlink while the host's devices are hidden, so that libibverbs reads sysfs.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
        run::start::on_demand();
        if sysfs::tree().is_some() {
            return fail(libc::EPROTONOSUPPORT);
        }
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::socket(domain, kind, protocol) }
}

/// Whether `dir` is one of ours; for the directory functions.
pub(super) fn is_dir(dir: *const libc::DIR) -> bool {
    dirs::is_ours(dir)
}
