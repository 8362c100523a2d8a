//! `close`, `close_range`, `closefrom`, `dup2` and `dup3`: the ways in which a program gives up a descriptor.
//!
//! # Safety
//!
//! As in `files`: the C functions' contracts are kept.
#![expect(unsafe_code, reason = "defines C library functions")]

use super::fds::{self, Kind};
use super::files::fail;
use super::real;
use crate::run;
use libc::{c_int, c_uint};

/// Keeps this module's functions in the link.
pub(crate) fn anchor() -> usize {
    (close as *const ()).addr()
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

/// `new` is about to become what `old` is, which closes what it was. False if that is the device's own.
fn replacing(old: c_int, new: c_int) -> bool {
    // SAFETY: asks for the flags of a descriptor, if it is one; nothing is closed where it is none.
    old == new || unsafe { libc::fcntl(old, libc::F_GETFD) } < 0 || closing(new)
}

/// `dup2(2)`: not onto the device's own.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if !replacing(old, new) {
        return fail(libc::EBUSY);
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::dup2(old, new) }
}

/// `dup3(2)`: likewise.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // With other flags it fails, and closes nothing.
    if flags & !libc::O_CLOEXEC == 0 && !replacing(old, new) {
        return fail(libc::EBUSY);
    }
    // SAFETY: the caller's arguments, handed on.
    unsafe { real::dup3(old, new, flags) }
}
