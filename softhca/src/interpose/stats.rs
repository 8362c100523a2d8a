//! `stat` and its kin, and `access`: what is asked of a path of ours is answered as of one of the host's that is alike.
//!
//! # Safety
//!
//! As in `files`: the C functions' contracts are kept. `stat` and `stat64` are one structure on the supported machines.
#![expect(unsafe_code, reason = "defines C library functions")]

use super::fds::{self, Kind};
use super::files::{fail, hidden, near_at};
use super::{real, sysfs};
use crate::run;
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use std::borrow::Cow;
use std::ffi::{CStr, CString};

/// Keeps this module's functions in the link.
pub(crate) fn anchor() -> usize {
    (stat as *const ()).addr()
}

const DEVICE: &CStr = c"/dev/null";
const FILE: &CStr = c"/proc/self/status";
const DIRECTORY: &CStr = c"/";

/// Whom a question about a path goes to.
struct Like {
    path: Cow<'static, CStr>,
    /// The minor number of the device that it is.
    minor: Option<u32>,
}

/// What `path` is like, if it is ours, or the errno.
fn like(dir: c_int, path: *const c_char) -> Option<Result<Like, c_int>> {
    let (text, tree) = near_at(dir, path)?;
    let (path, minor) = if let Some(dev) = tree.cdev(&text) {
        (DEVICE.into(), Some(tree.minor(dev)))
    } else if let Some((_, node)) = tree.find(&text) {
        (if node.text.is_some() { FILE } else { DIRECTORY }.into(), None)
    } else if hidden(tree, &text) {
        return Some(Err(libc::ENOENT));
    } else {
        // The host's entry of a listing that holds both; or not near at all.
        let Cow::Owned(full) = text else { return None };
        (CString::new(full).ok()?.into(), None)
    };
    Some(Ok(Like { path, minor }))
}

/// Asks `path`'s like by `ask`, which takes a path; the answer goes through `amend` if it is a device.
fn answered(
    like: Result<Like, c_int>,
    ask: impl FnOnce(*const c_char) -> c_int,
    amend: impl FnOnce(u32),
) -> c_int {
    match like {
        Err(errno) => fail(errno),
        Ok(Like { path, minor }) => {
            let rc = ask(path.as_ptr());
            if let Some(minor) = minor.filter(|_| rc == 0) {
                amend(minor);
            }
            rc
        }
    }
}

/// The minor number of the device whose command descriptor `fd` is: a nameless file, of which `mode` and `links` are.
fn device(fd: c_int, mode: u32, links: u64) -> Option<u32> {
    if mode & libc::S_IFMT != libc::S_IFREG || links != 0 {
        return None;
    }
    let (tree, dev) = (sysfs::tree()?, run::device_of(fd)?);
    Some(tree.minor(dev))
}

fn is_ours(fd: c_int) -> bool {
    matches!(fds::get(fd), Some(Kind::Sysfs(_)))
}

/// `stat`, of a path relative to `dir`. `None` if it is not ours.
///
/// # Safety
/// As `fstatat`.
unsafe fn stat_ours(dir: c_int, path: *const c_char, st: *mut libc::stat) -> Option<c_int> {
    // SAFETY: a C string, and the caller's buffer.
    let ask = |path| unsafe { real::stat(path, st) };
    // SAFETY: the call filled the caller's buffer.
    let amend = move |minor| unsafe { (*st).st_rdev = libc::makedev(sysfs::MAJOR, minor) };
    Some(answered(like(dir, path)?, ask, amend))
}

macro_rules! by_path {
    ($($(#[$doc:meta])* $name:ident = $real:ident),+) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, st: *mut libc::stat) -> c_int {
            // SAFETY: the caller's arguments, handed on.
            unsafe { stat_ours(AT_FDCWD, path, st).unwrap_or_else(|| real::$real(path, st)) }
        }
    )+ };
}

by_path! {
    /// `stat(2)`.
    stat = stat,
    /// `stat64(2)`.
    stat64 = stat,
    /// `lstat(2)`: none of ours is a link.
    lstat = lstat,
    /// `lstat64(2)`.
    lstat64 = lstat
}

/// `fstatat(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstatat(
    dir: c_int,
    path: *const c_char,
    st: *mut libc::stat,
    flags: c_int,
) -> c_int {
    if is_empty(path, flags) {
        // SAFETY: the caller's buffer.
        return unsafe { fstat(dir, st) };
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { stat_ours(dir, path, st).unwrap_or_else(|| real::fstatat(dir, path, st, flags)) }
}

/// `fstatat64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstatat64(
    dir: c_int,
    path: *const c_char,
    st: *mut libc::stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    unsafe { fstatat(dir, path, st, flags) }
}

/// Whether the descriptor itself is meant.
fn is_empty(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: a C string, if there is one.
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

/// `fstat(2)`: the command descriptors (nameless files) show themselves as the character devices that the fake
/// sysfs promised, and the directories of it as directories.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat(fd: c_int, st: *mut libc::stat) -> c_int {
    if is_ours(fd) {
        // SAFETY: a constant path and the caller's buffer.
        return unsafe { real::stat(DIRECTORY.as_ptr(), st) };
    }
    // SAFETY: the caller's arguments, handed on; what the call filled if it succeeded.
    unsafe {
        let rc = real::fstat(fd, st);
        if rc != 0 {
            return rc;
        }
        #[expect(clippy::useless_conversion, reason = "32 bits on aarch64")]
        if let Some(minor) = device(fd, (*st).st_mode, (*st).st_nlink.into()) {
            (*st).st_mode = libc::S_IFCHR | 0o666;
            (*st).st_rdev = libc::makedev(sysfs::MAJOR, minor);
        }
    }
    0
}

/// `fstat64(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fstat64(fd: c_int, st: *mut libc::stat) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    unsafe { fstat(fd, st) }
}

/// `statx(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    st: *mut libc::statx,
) -> c_int {
    // SAFETY: C strings, and the caller's buffer and other arguments.
    let ask = |dir, path, flags| unsafe { real::statx(dir, path, flags, mask, st) };
    let amend = move |minor| {
        // SAFETY: a call filled the caller's buffer.
        unsafe { ((*st).stx_rdev_major, (*st).stx_rdev_minor) = (sysfs::MAJOR, minor) };
    };
    if is_empty(path, flags) {
        if is_ours(dir) {
            return ask(AT_FDCWD, DIRECTORY.as_ptr(), 0);
        }
        let rc = ask(dir, path, flags);
        // SAFETY: the call filled the caller's buffer if it succeeded.
        let (mode, links) = if rc == 0 { unsafe { ((*st).stx_mode, (*st).stx_nlink) } } else { (0, 1) };
        if let Some(minor) = device(dir, mode.into(), links.into()) {
            // SAFETY: as above.
            unsafe { (*st).stx_mode = (libc::S_IFCHR | 0o666) as u16 };
            amend(minor);
        }
        return rc;
    }
    match like(dir, path) {
        Some(like) => answered(like, |path| ask(AT_FDCWD, path, 0), amend),
        None => ask(dir, path, flags),
    }
}

/// `access(2)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    unsafe { faccessat(AT_FDCWD, path, mode, 0) }
}

/// `faccessat(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn faccessat(
    dir: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: C strings, and the caller's other arguments.
    let ask = |dir, path| unsafe { real::faccessat(dir, path, mode, flags) };
    match like(dir, path) {
        Some(like) => answered(like, |path| ask(AT_FDCWD, path), |_| ()),
        None => ask(dir, path),
    }
}

/// `euidaccess(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    unsafe { faccessat(AT_FDCWD, path, mode, libc::AT_EACCESS) }
}

/// `eaccess(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's arguments, handed on.
    unsafe { euidaccess(path, mode) }
}
