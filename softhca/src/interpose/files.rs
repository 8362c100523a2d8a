//! `open`, `openat`, `stat`, `fstat`, `close`, `close_range`, `closefrom`, `ioctl`, `mmap` and `socket`.
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
use libc::{c_char, c_int, c_uint, c_ulong, c_void, mode_t, off_t, size_t};
use std::ffi::CStr;
use std::fmt::Write as _;

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

/// Opens what `path` names, if it is ours.
fn open_ours(path: *const c_char, flags: c_int) -> Option<c_int> {
    let (text, tree) = near(path)?;
    if let Some(dev) = tree.cdev(text) {
        return Some(result(run::open_device(dev)));
    }
    if let Some((i, _)) = tree.find(text) {
        return Some(open_node(tree, i, flags));
    }
    hidden(tree, text).then(|| fail(libc::ENOENT))
}

/// Whether `path` is the host's and stays hidden.
pub(super) fn hidden(tree: &Tree, path: &str) -> bool {
    !tree.host && (path.starts_with(sysfs::CDEV) || path.starts_with(sysfs::INFINIBAND))
}

fn fail(errno: c_int) -> c_int {
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
    } else {
        fds::set(fd, Kind::Sysfs(i));
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
    open_ours(path, flags).unwrap_or_else(|| unsafe { real::open(path, flags, mode) })
}

/// `open64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    open_ours(path, flags).unwrap_or_else(|| unsafe { real::open64(path, flags, mode) })
}

/// Opens a name relative to one of our directories.
fn openat_ours(dir: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    let Some(Kind::Sysfs(base)) = fds::get(dir) else { return open_ours(path, flags) };
    let tree = sysfs::tree()?;
    let node = tree.node(base)?;
    // SAFETY: a C string, valid during the call.
    let name = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    if name.starts_with('/') {
        return open_ours(path, flags);
    }
    let mut full = node.path.clone();
    let _ = write!(full, "/{name}");
    if let Some((i, _)) = tree.find(&full) {
        return Some(open_node(tree, i, flags));
    }
    if !tree.host {
        return Some(fail(libc::ENOENT));
    }
    full.push('\0');
    // SAFETY: a C string; the host's entry of a listing that holds both.
    Some(unsafe { real::open(full.as_ptr().cast(), flags, 0) })
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

/// `stat(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn stat(path: *const c_char, st: *mut libc::stat) -> c_int {
    if let Some((text, tree)) = near(path) {
        if let Some(dev) = tree.cdev(text) {
            // SAFETY: a constant path and the caller's buffer.
            let rc = unsafe { real::stat(c"/dev/null".as_ptr(), st) };
            if rc == 0 {
                // SAFETY: the call filled the caller's buffer.
                unsafe { (*st).st_rdev = libc::makedev(sysfs::MAJOR, tree.minor(dev)) };
            }
            return rc;
        }
        if let Some((_, node)) = tree.find(text) {
            let like = if node.text.is_some() { c"/proc/self/status" } else { c"/" };
            // SAFETY: a constant path and the caller's buffer.
            return unsafe { real::stat(like.as_ptr(), st) };
        }
        if hidden(tree, text) {
            return fail(libc::ENOENT);
        }
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::stat(path, st) }
}

/// `fstat(2)`: the command descriptors (nameless files) show themselves as the character devices that the fake
/// sysfs promised.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat(fd: c_int, st: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    let rc = unsafe { real::fstat(fd, st) };
    if rc != 0 {
        return rc;
    }
    // SAFETY: the call succeeded, so it filled the caller's buffer.
    let nameless = unsafe { (*st).st_mode & libc::S_IFMT == libc::S_IFREG && (*st).st_nlink == 0 };
    if nameless {
        if let Some((tree, dev)) = sysfs::tree().and_then(|t| Some((t, run::device_of(fd)?))) {
            // SAFETY: as above.
            unsafe {
                (*st).st_mode = libc::S_IFCHR | 0o666;
                (*st).st_rdev = libc::makedev(sysfs::MAJOR, tree.minor(dev));
            }
        }
    }
    rc
}

/// `close(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    if !closing(fd) {
        return fail(libc::EBADF);
    }
    // SAFETY: the caller's argument, handed on.
    unsafe { real::close(fd) }
}

/// `fd` is about to be closed. False if it is the device's own: the program can't have meant it, but closes all
/// numbers that there may be (as a daemon does).
fn closing(fd: c_int) -> bool {
    // A child of vfork shares our memory but not our descriptors.
    match fds::get(fd).filter(|_| run::fork::is_owner()) {
        None => true,
        Some(Kind::Own) => false,
        Some(_) => {
            if let Some(kind) = fds::take(fd) {
                // Who closes what he failed to use still wants to know why that failed.
                let e = real::errno();
                run::closing(fd, kind);
                real::set_errno(e);
            }
            true
        }
    }
}

/// `close_range(2)`: all but the device's own.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let from = c_int::try_from(first).unwrap_or(c_int::MAX);
    let to = c_int::try_from(last).unwrap_or(c_int::MAX);
    let closes = c_uint::try_from(flags).is_ok_and(|f| f & libc::CLOSE_RANGE_CLOEXEC == 0);
    if !closes || first > last || !run::fork::is_owner() {
        // SAFETY: the caller's arguments, handed on.
        return unsafe { real::close_range(first, last, flags) };
    }
    for fd in from..=to.min(c_int::try_from(fds::MAX_FD).unwrap_or(c_int::MAX)) {
        closing(fd);
    }
    let mut start = from;
    while let Some(own) = fds::first_own(start, to) {
        // SAFETY: a part of the caller's range.
        if own > start && unsafe { real::close_range(start as c_uint, own as c_uint - 1, flags) } != 0 {
            return -1;
        }
        start = own + 1;
    }
    if start > to {
        return 0;
    }
    // SAFETY: the rest of the caller's range.
    unsafe { real::close_range(start as c_uint, last, flags) }
}

/// `closefrom(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0);
    // SAFETY: as the caller asks.
    if unsafe { close_range(first as c_uint, c_uint::MAX, 0) } == 0 {
        return;
    }
    // A kernel before 5.9.
    // SAFETY: no arguments but a constant.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    for fd in first..c_int::try_from(most).unwrap_or(c_int::MAX) {
        // SAFETY: as the caller asks.
        unsafe { close(fd) };
    }
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
