//! The file of a fabric: how processes come and go, and how it is sized and removed.
//!
//! A place is taken by a record lock of the process (`F_SETLK`). The kernel gives it back when the process ends, in
//! whatever way; forked children don't inherit it; and the kernel says which process holds it, by the number that it
//! has in the PID namespace of who asks. A lock of the whole process goes when *any* descriptor of the file is closed,
//! so a process opens the file of its fabric once, and looks at other files only before.
//!
//! Another lock, the gate, is held by who comes, goes or cleans up: nobody takes a place in a file that is just being
//! removed. All locks are far behind the bytes of the file, and stay there in all versions.
//!
//! # Safety
//!
//! System calls on the descriptor of a [`File`], with local structures and C strings.
#![expect(unsafe_code, reason = "file locks and sizes")]

use crate::interpose::{fds, real};
use std::ffi::CString;
use std::io::Error;
use std::os::fd::RawFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

const DIR: &str = "/dev/shm";
const GATE: u64 = 1 << 40;
const PLACES: u64 = GATE + 1;
/// To the end of all files.
const REST: u64 = 0;

/// An open file of a fabric.
#[derive(Debug)]
pub(super) struct File {
    fd: RawFd,
    path: CString,
}

fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

fn lock(kind: libc::c_int, start: u64, len: u64) -> libc::flock {
    // SAFETY: integers; zero is a value of each.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    l.l_type = libc::c_short::try_from(kind).unwrap_or(0);
    l.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0);
    l.l_start = i64::try_from(start).unwrap_or(0);
    l.l_len = i64::try_from(len).unwrap_or(0);
    l
}

impl File {
    /// Opens the file of the fabric `name` of this user, or makes it.
    pub(super) fn open(name: &str) -> Result<Self, String> {
        Self::at(&format!("{DIR}/softhca-{}-{name}", user()), libc::O_CREAT)
    }

    fn at(path: &str, flags: libc::c_int) -> Result<Self, String> {
        let c_path = CString::new(path).map_err(|e| format!("{path:?}: {e}"))?;
        let flags = flags | libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: a C string; makes a new descriptor.
        let fd = fds::own(unsafe { real::open(c_path.as_ptr(), flags, 0o600) });
        let fd = fd.map_err(|e| format!("{path}: {}", Error::from_raw_os_error(e)))?;
        Ok(Self { fd, path: c_path })
    }

    fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub(super) fn error(&self, what: &str) -> String {
        format!("{}: {what}: {}", self.path(), Error::last_os_error())
    }

    fn set(&self, kind: libc::c_int, at: u64) -> bool {
        let l = lock(kind, at, 1);
        // SAFETY: a lock on our own file, which isn't waited for.
        unsafe { libc::fcntl(self.fd, libc::F_SETLK, &raw const l) == 0 }
    }

    /// Who holds a lock in a range. The number is 0 if it can't be named here.
    fn holder_of(&self, start: u64, len: u64) -> Option<i32> {
        let mut l = lock(libc::F_WRLCK, start, len);
        // SAFETY: asks about a lock; the structure is local.
        let rc = unsafe { libc::fcntl(self.fd, libc::F_GETLK, &raw mut l) };
        (rc == 0 && i32::from(l.l_type) != libc::F_UNLCK).then(|| l.l_pid.max(0))
    }

    /// Holds the gate, if nobody else does.
    pub(super) fn enter_gate(&self) -> bool {
        self.set(libc::F_WRLCK, GATE)
    }

    pub(super) fn leave_gate(&self) {
        self.set(libc::F_UNLCK, GATE);
    }

    /// Takes place `i`, if nobody else has it.
    pub(super) fn take(&self, i: usize) -> bool {
        self.set(libc::F_WRLCK, PLACES + i as u64)
    }

    pub(super) fn give_back(&self, i: usize) {
        self.set(libc::F_UNLCK, PLACES + i as u64);
    }

    /// The process at place `i`, if any; 0 if it has no number here (it is in another PID namespace).
    pub(super) fn holder(&self, i: usize) -> Option<i32> {
        self.holder_of(PLACES + i as u64, 1)
    }

    /// Whether no other process uses the file.
    pub(super) fn is_deserted(&self) -> bool {
        self.holder_of(0, GATE).or(self.holder_of(PLACES, REST)).is_none()
    }

    /// Whether it is still the file of its name.
    pub(super) fn is_current(&self) -> bool {
        // SAFETY: room for both answers.
        unsafe {
            let (mut a, mut b): (libc::stat, libc::stat) = (std::mem::zeroed(), std::mem::zeroed());
            real::fstat(self.fd, &raw mut a) == 0
                && real::stat(self.path.as_ptr(), &raw mut b) == 0
                && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
        }
    }

    /// Removes the file if nobody uses it. The gate is ours.
    pub(super) fn remove_if_deserted(&self) -> bool {
        // SAFETY: removes our own file.
        self.is_deserted() && self.is_current() && unsafe { libc::unlink(self.path.as_ptr()) } == 0
    }

    /// Reads bytes from `at` on; those behind the end stay as they are.
    pub(super) fn read(&self, at: usize, out: &mut [u8]) -> Result<(), String> {
        // SAFETY: the buffer and its length.
        let n = unsafe { libc::pread(self.fd, out.as_mut_ptr().cast(), out.len(), at as libc::off_t) };
        if n < 0 { Err(self.error("can't be read")) } else { Ok(()) }
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        // SAFETY: the buffer and its length.
        let n = unsafe { libc::pwrite(self.fd, bytes.as_ptr().cast(), bytes.len(), at as libc::off_t) };
        if n < 0 { Err(self.error("can't be written")) } else { Ok(()) }
    }

    /// Provides memory for a stretch, so that using it can't fail.
    pub(super) fn allocate(&self, at: usize, len: usize) -> Result<(), String> {
        let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: room for the answer.
        let limited = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut most) } == 0;
        if limited && (at + len) as u64 > most.rlim_cur {
            let kib = (at + len) / 1024;
            return Err(format!(
                "{}: the limit of file sizes (ulimit -f) is too low for {kib} KiB",
                self.path()
            ));
        }
        loop {
            // SAFETY: a stretch of our own file.
            let e = unsafe { libc::posix_fallocate(self.fd, at as libc::off_t, len as libc::off_t) };
            return match e {
                0 => Ok(()),
                libc::EINTR => continue,
                libc::ENOSPC => Err(format!(
                    "{}: no room for {} KiB in {DIR}: free some or make it larger (docker run --shm-size=…)",
                    self.path(),
                    len / 1024
                )),
                e => Err(format!("{}: {}", self.path(), Error::from_raw_os_error(e))),
            };
        }
    }

    /// Maps a stretch, for the life of the process: somewhere, or in place of a part of what [`reserve`] gave.
    pub(super) fn map(&self, at: usize, len: usize, to: Option<usize>) -> Result<usize, String> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | to.map_or(0, |_| libc::MAP_FIXED);
        let to = to.map_or(null_mut(), with_exposed_provenance_mut);
        // SAFETY: maps our own file, over nothing but addresses that are reserved for it.
        let p = unsafe { real::mmap(to, len, prot, flags, self.fd, at as libc::off_t) };
        if p == libc::MAP_FAILED { Err(self.error("can't be mapped")) } else { Ok(p.expose_provenance()) }
    }

    /// In a forked child: closes the parent's descriptor, by nothing but a system call.
    pub(super) fn abandon(&self) {
        // SAFETY: the child's copy of the descriptor, which nobody uses any more.
        unsafe { libc::syscall(libc::SYS_close, self.fd) };
    }
}

impl Drop for File {
    fn drop(&mut self) {
        fds::disown(self.fd);
    }
}

/// Keeps addresses free for later maps: what is mapped while messages travel must not come to lie where the program
/// has just unmapped something, and make that readable again.
pub(super) fn reserve(len: usize) -> Result<usize, String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new map; no address is asked for.
    let p = unsafe { real::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if p == libc::MAP_FAILED {
        return Err(format!("fabric: no addresses for {len} bytes: {}", Error::last_os_error()));
    }
    Ok(p.expose_provenance())
}

/// Removes the files of this user's fabrics that were left behind: by processes that were killed.
pub(super) fn sweep() {
    let prefix = format!("softhca-{}-", user());
    for entry in std::fs::read_dir(DIR).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|n| n.starts_with(&prefix)) {
            continue;
        }
        let Some(file) = entry.path().to_str().and_then(|p| File::at(p, 0).ok()) else { continue };
        if file.enter_gate() {
            file.remove_if_deserted();
        }
    }
}
