//! `opendir`, `readdir`, `closedir` and `dirfd` for the fake sysfs.
//!
//! # Safety
//!
//! As in `files`: the C functions' contracts are kept. A directory stream of ours is a box whose address is in
//! [`OPEN`] from `opendir` to `closedir`; only addresses found there are dereferenced, and by C's rules a stream
//! is used by one thread at a time.
#![expect(unsafe_code, reason = "defines C library functions")]

use super::fds;
use super::sysfs::{self, VERBS};
use super::{files, real};
use libc::{DIR, c_char, c_int, dirent, dirent64};
use std::mem::MaybeUninit;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps this module's functions in the link.
pub(crate) fn anchor() -> usize {
    (opendir as *const ()).addr()
}

struct Stream {
    node: u32,
    next: usize,
    fd: c_int,
    entry: MaybeUninit<dirent>,
    entry64: MaybeUninit<dirent64>,
    /// The host's directory of the same name, listed after ours.
    host: *mut DIR,
}

/// The addresses of the open streams.
static OPEN: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];
static COUNT: AtomicUsize = AtomicUsize::new(0);

pub(super) fn is_ours(dir: *const DIR) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && OPEN.iter().any(|s| s.load(Ordering::Acquire) == dir.addr())
}

fn stream(dir: *mut DIR) -> Option<&'static mut Stream> {
    // SAFETY: an address in OPEN is a live box (module comment), used by this thread alone during the call.
    files::is_dir(dir).then(|| unsafe { &mut *dir.cast::<Stream>() })
}

/// `opendir(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    let pass = || {
        // SAFETY: the caller's argument, handed on.
        unsafe { real::opendir(path) }
    };
    let Some((text, tree)) = files::near(path) else { return pass() };
    let Some((node, _)) = tree.find(text) else {
        if files::hidden(tree, text) {
            real::set_errno(libc::ENOENT);
            return null_mut();
        }
        return pass();
    };
    let fd = files::open_node(tree, node, libc::O_DIRECTORY);
    if fd < 0 {
        return null_mut();
    }
    let host = if tree.host { pass() } else { null_mut() };
    let s = Stream { node, next: 0, fd, entry: MaybeUninit::zeroed(), entry64: MaybeUninit::zeroed(), host };
    let p = Box::into_raw(Box::new(s));
    let addr = p.expose_provenance();
    let free = |s: &&AtomicUsize| s.compare_exchange(0, addr, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if OPEN.iter().find(free).is_none() {
        // SAFETY: the box just made, known to nobody else, and what was opened for it.
        unsafe {
            drop(Box::from_raw(p));
            fds::disown(fd);
            if !host.is_null() {
                real::closedir(host);
            }
        }
        real::set_errno(libc::EMFILE);
        return null_mut();
    }
    COUNT.fetch_add(1, Ordering::AcqRel);
    p.cast()
}

/// The next name and type of one of our streams.
fn advance(s: &mut Stream) -> Option<(String, bool)> {
    let tree = sysfs::tree()?;
    if let Some((name, is_dir)) = tree.entry(s.node, s.next) {
        s.next += 1;
        return Some((name.to_owned(), is_dir));
    }
    while !s.host.is_null() {
        // SAFETY: the host's stream, open until `closedir` of ours.
        let e = unsafe { real::readdir(s.host) };
        if e.is_null() {
            return None;
        }
        // SAFETY: an entry is valid until the next call on its stream; its name is a C string.
        let name = unsafe { std::ffi::CStr::from_ptr((&raw const (*e).d_name).cast()) }
            .to_string_lossy()
            .into_owned();
        let double = tree.node(s.node).is_some_and(|n| n.path == VERBS) && name == "abi_version";
        if !double && !name.starts_with('.') {
            return Some((name, true));
        }
    }
    None
}

macro_rules! fill {
    ($s:expr, $field:ident) => {{
        match advance($s) {
            None => null_mut(),
            Some((name, is_dir)) => {
                let e = $s.$field.as_mut_ptr();
                // SAFETY: the stream's own entry, zeroed at first; the name is cut to leave its last byte 0.
                unsafe {
                    let room = (*e).d_name.len() - 1;
                    let n = name.len().min(room);
                    (&raw mut (*e).d_name).cast::<u8>().write_bytes(0, room + 1);
                    (&raw mut (*e).d_name).cast::<u8>().copy_from_nonoverlapping(name.as_ptr(), n);
                    (*e).d_ino = 1;
                    (*e).d_type = if is_dir { libc::DT_DIR } else { libc::DT_REG };
                }
                e
            }
        }
    }};
}

/// `readdir(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readdir(dir: *mut DIR) -> *mut dirent {
    match stream(dir) {
        Some(s) => fill!(s, entry),
        // SAFETY: the caller's argument, handed on.
        None => unsafe { real::readdir(dir) },
    }
}

/// `readdir64(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn readdir64(dir: *mut DIR) -> *mut dirent64 {
    match stream(dir) {
        Some(s) => fill!(s, entry64),
        // SAFETY: the caller's argument, handed on.
        None => unsafe { real::readdir64(dir) },
    }
}

/// `dirfd(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dirfd(dir: *mut DIR) -> c_int {
    match stream(dir) {
        Some(s) => s.fd,
        // SAFETY: the caller's argument, handed on.
        None => unsafe { real::dirfd(dir) },
    }
}

/// `closedir(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closedir(dir: *mut DIR) -> c_int {
    let Some(s) = OPEN.iter().find(|s| !dir.is_null() && s.load(Ordering::Acquire) == dir.addr()) else {
        // SAFETY: the caller's argument, handed on.
        return unsafe { real::closedir(dir) };
    };
    let addr = s.swap(0, Ordering::AcqRel);
    COUNT.fetch_sub(1, Ordering::AcqRel);
    // SAFETY: the address was in OPEN and was taken out by this call alone: the box is ours to free.
    let s = unsafe { Box::from_raw(with_exposed_provenance_mut::<Stream>(addr)) };
    fds::take(s.fd);
    // SAFETY: closes what `opendir` opened.
    unsafe {
        if !s.host.is_null() {
            real::closedir(s.host);
        }
        real::close(s.fd)
    }
}
