//! Which file descriptors are the device's: looked up without a lock on every intercepted call.
//!
//! # Safety
//!
//! System calls on descriptors that the caller made and hands over.
#![expect(unsafe_code, reason = "moves and closes descriptors")]

use super::real;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Descriptors from this number on are not looked after.
pub(crate) const MAX_FD: usize = 65536;

/// What each descriptor is, with the [`EPOCH`] in which it was.
static FDS: [AtomicU64; MAX_FD] = [const { AtomicU64::new(0) }; MAX_FD];

/// Counts the forks between this process and the one that started the device: what a parent knew of its descriptors
/// doesn't hold in its child.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// What a descriptor is to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command descriptor of an open context (its number).
    Command(u32),
    /// A directory or file of the fake sysfs (its index).
    Sysfs(u32),
    /// The reading end of an event channel (its number).
    Channel(u32),
    /// The device's own: the program knows nothing of it, and can't close it.
    Own,
}

const SHIFT: u32 = 28;

impl Kind {
    fn pack(self) -> u64 {
        let (kind, n) = match self {
            Self::Command(n) => (1, n),
            Self::Sysfs(n) => (2, n),
            Self::Channel(n) => (3, n),
            Self::Own => (4, 0),
        };
        u64::from(EPOCH.load(Ordering::Acquire)) << 32 | u64::from(kind << SHIFT | n)
    }

    fn unpack(v: u64) -> Option<Self> {
        let [e0, e1, e2, e3, v0, v1, v2, v3] = v.to_be_bytes();
        if u32::from_be_bytes([e0, e1, e2, e3]) != EPOCH.load(Ordering::Acquire) {
            return None;
        }
        let v = u32::from_be_bytes([v0, v1, v2, v3]);
        let n = v & ((1 << SHIFT) - 1);
        match v >> SHIFT {
            1 => Some(Self::Command(n)),
            2 => Some(Self::Sysfs(n)),
            3 => Some(Self::Channel(n)),
            4 => Some(Self::Own),
            _ => None,
        }
    }
}

fn cell(fd: RawFd) -> Option<&'static AtomicU64> {
    usize::try_from(fd).ok().and_then(|i| FDS.get(i))
}

/// What `fd` is, if it is ours.
pub(crate) fn get(fd: RawFd) -> Option<Kind> {
    Kind::unpack(cell(fd)?.load(Ordering::Acquire))
}

/// Notes what `fd` is. False if its number is too large.
pub(crate) fn set(fd: RawFd, kind: Kind) -> bool {
    cell(fd).map(|c| c.store(kind.pack(), Ordering::Release)).is_some()
}

/// Forgets `fd`, giving what it was.
pub(crate) fn take(fd: RawFd) -> Option<Kind> {
    let c = cell(fd)?;
    if c.load(Ordering::Relaxed) == 0 {
        return None;
    }
    Kind::unpack(c.swap(0, Ordering::AcqRel))
}

/// In a forked child: forgets all.
pub(crate) fn forget() {
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// All descriptors of the process; without `/proc`, all numbers that may be some.
pub(crate) fn all() -> Vec<RawFd> {
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let listed = std::fs::read_dir("/proc/self/fd").map(|all| all.flatten().filter_map(number).collect());
    listed.unwrap_or_else(|_| {
        // SAFETY: no arguments but a constant.
        let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
        (0..i32::try_from(most).unwrap_or(i32::MAX).min(i32::try_from(MAX_FD).unwrap_or(i32::MAX))).collect()
    })
}

/// Whether any descriptor is `kind`.
pub(crate) fn any(kind: Kind) -> bool {
    let v = kind.pack();
    FDS.iter().any(|c| c.load(Ordering::Relaxed) == v)
}

/// The first descriptor from `from` to `to` that is the device's own.
pub(crate) fn first_own(from: RawFd, to: RawFd) -> Option<RawFd> {
    (from..=to.min(i32::try_from(MAX_FD).unwrap_or(i32::MAX))).find(|fd| get(*fd) == Some(Kind::Own))
}

/// Makes a new descriptor the device's own: it moves out of the way of numbers that programs like to choose (0 to 2
/// above all), and `close`, `closefrom` and `close_range` leave it alone. Gives the error of the call that made it if
/// that failed.
pub(crate) fn own(fd: RawFd) -> Result<RawFd, i32> {
    const HIGH: i32 = 800;
    const LOW: i32 = 3;
    if fd < 0 {
        return Err(real::errno());
    }
    // SAFETY: duplicates the caller's descriptor, and closes it (module comment).
    let moved = unsafe {
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH);
        // The limit may be lower.
        let moved = if high < 0 { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, LOW) } else { high };
        let e = real::errno();
        real::close(fd);
        if moved < 0 {
            return Err(e);
        }
        moved
    };
    set(moved, Kind::Own);
    Ok(moved)
}

/// Closes a descriptor of the device's own.
pub(crate) fn disown(fd: RawFd) {
    take(fd);
    // SAFETY: the caller's descriptor (module comment).
    unsafe { real::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_forgets() {
        let fd = 60_001;
        assert!(set(fd, Kind::Channel(7)));
        assert_eq!(get(fd), Some(Kind::Channel(7)));
        assert!(any(Kind::Channel(7)));
        assert_eq!(take(fd), Some(Kind::Channel(7)));
        assert_eq!(get(fd), None);
        assert!(!set(70_000, Kind::Command(1)));
        assert_eq!(get(-1), None);
        set(fd, Kind::Own);
        assert_eq!((first_own(60_000, i32::MAX), first_own(60_002, i32::MAX)), (Some(fd), None));
        take(fd);
    }
}
