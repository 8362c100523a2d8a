//! Which file descriptors are the device's: looked up without a lock on every intercepted call.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Descriptors from this number on are not ours.
pub(crate) const MAX_FD: usize = 65536;

static FDS: [AtomicU32; MAX_FD] = [const { AtomicU32::new(0) }; MAX_FD];

/// What a descriptor is to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The command descriptor of an open context (its number).
    Command(u32),
    /// A directory or file of the fake sysfs (its index).
    Sysfs(u32),
    /// The reading end of an event channel (its number).
    Channel(u32),
}

const SHIFT: u32 = 28;

impl Kind {
    fn pack(self) -> u32 {
        match self {
            Self::Command(n) => 1 << SHIFT | n,
            Self::Sysfs(n) => 2 << SHIFT | n,
            Self::Channel(n) => 3 << SHIFT | n,
        }
    }

    fn unpack(v: u32) -> Option<Self> {
        let n = v & ((1 << SHIFT) - 1);
        match v >> SHIFT {
            1 => Some(Self::Command(n)),
            2 => Some(Self::Sysfs(n)),
            3 => Some(Self::Channel(n)),
            _ => None,
        }
    }
}

fn cell(fd: RawFd) -> Option<&'static AtomicU32> {
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

/// Forgets all.
pub(crate) fn clear() {
    for c in &FDS {
        c.store(0, Ordering::Release);
    }
}

/// Whether any descriptor is `kind`.
pub(crate) fn any(kind: Kind) -> bool {
    let v = kind.pack();
    FDS.iter().any(|c| c.load(Ordering::Relaxed) == v)
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
    }
}
