//! The key table: memory regions and memory windows, and what each key lets whom do.

use super::access;
use super::slab::Slab;
use crate::mem::Span;

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// Where the memory is.
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// The address by which peers and work requests name its first byte.
    pub(crate) iova: u64,
    pub(crate) access: u32,
}

/// What a bound window covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// The key of the region it lies in (looked up at each access, as the hardware does).
    pub(crate) region: u32,
    /// The region's address of the window's first byte.
    pub(crate) at: u64,
    /// The address by which peers name its first byte.
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) access: u32,
    /// The QP it belongs to (type 2).
    pub(crate) qpn: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Region(Region),
    Window { ty: u8, bound: Option<Binding> },
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The low eight bits of its key.
    pub(crate) variant: u8,
    pub(crate) pd: u32,
    pub(crate) kind: Kind,
}

/// Who uses a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
}

/// All keys, by index (the upper 24 bits of a key).
#[derive(Debug)]
pub(crate) struct Keys {
    slab: Slab<Entry>,
    windows: u32,
}

impl Keys {
    pub(crate) fn new() -> Self {
        // Key 0x100 is the "no key" of receive lists, so the indices start above it.
        Self { slab: Slab::from(2), windows: 0 }
    }

    fn variant(&self) -> u8 {
        // The same index gives the same key: a region registered right after another was freed gets its key.
        let [.., low] = self.slab.next().wrapping_mul(37).to_be_bytes();
        low
    }

    pub(crate) fn add_region(&mut self, pd: u32, region: Region) -> u32 {
        let variant = self.variant();
        self.slab.insert(Entry { variant, pd, kind: Kind::Region(region) })
    }

    pub(crate) fn add_window(&mut self, pd: u32, ty: u8) -> u32 {
        self.windows += 1;
        let variant = self.variant();
        self.slab.insert(Entry { variant, pd, kind: Kind::Window { ty, bound: None } })
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<Entry> {
        let e = self.slab.remove(index)?;
        if matches!(e.kind, Kind::Window { .. }) {
            self.windows -= 1;
        }
        Some(e)
    }

    pub(crate) fn windows(&self) -> u32 {
        self.windows
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn key_of(&self, index: u32) -> Option<u32> {
        Some(index << 8 | u32::from(self.slab.get(index)?.variant))
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Entry> {
        self.slab.get(index)
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.slab.get_mut(index)
    }

    /// The entry whose key is exactly `key`.
    pub(crate) fn by_key(&self, key: u32) -> Option<&Entry> {
        self.slab.get(key >> 8).filter(|e| u32::from(e.variant) == key & 0xff)
    }

    /// The memory behind `len` bytes at `va` of `key`, if `user` may access it so. `None` is a protection error.
    pub(crate) fn translate(&self, key: u32, user: User, va: u64, len: u64, need: u32) -> Option<Span> {
        let e = self.by_key(key)?;
        if e.pd != user.pd {
            return None;
        }
        match e.kind {
            Kind::Region(r) => within(&r, va, len, need),
            Kind::Window { bound, .. } => {
                let b = bound?;
                if b.access & need != need || b.qpn.is_some_and(|q| q != user.qpn) {
                    return None;
                }
                let offset = va.checked_sub(b.iova)?;
                if len > b.len || offset > b.len - len {
                    return None;
                }
                let Kind::Region(r) = self.by_key(b.region)?.kind else { return None };
                within(&r, b.at.checked_add(offset)?, len, 0)
            }
        }
    }

    /// Whether a window may be bound to `len` bytes at `va` of region `key` with rights `rights`.
    pub(crate) fn can_bind(&self, key: u32, pd: u32, va: u64, len: u64, rights: u32) -> bool {
        let Some(e) = self.by_key(key) else { return false };
        let Kind::Region(r) = e.kind else { return false };
        let writes = rights & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
        e.pd == pd
            && r.access & access::MW_BIND != 0
            && (!writes || r.access & access::LOCAL_WRITE != 0)
            && within(&r, va, len, 0).is_some()
    }

    /// Invalidates window `key` for `user`. False if it can't be.
    pub(crate) fn invalidate(&mut self, key: u32, user: User) -> bool {
        let may = self.may_invalidate(key, user);
        if let Some(Entry { kind: Kind::Window { bound, .. }, .. }) =
            self.slab.get_mut(key >> 8).filter(|_| may)
        {
            *bound = None;
        }
        may
    }

    /// Whether [`Keys::invalidate`] would.
    pub(crate) fn may_invalidate(&self, key: u32, user: User) -> bool {
        self.by_key(key).is_some_and(|e| match &e.kind {
            Kind::Window { ty: 2, bound } => {
                e.pd == user.pd && bound.is_some_and(|b| b.qpn.is_none_or(|q| q == user.qpn))
            }
            _ => false,
        })
    }

    /// Windows bound by a QP that dies become free.
    pub(crate) fn unbind_all(&mut self, qpn: u32) {
        for n in self.slab.numbers() {
            if let Some(Entry { kind: Kind::Window { bound, .. }, .. }) = self.slab.get_mut(n) {
                if bound.is_some_and(|b| b.qpn == Some(qpn)) {
                    *bound = None;
                }
            }
        }
    }
}

fn within(r: &Region, va: u64, len: u64, need: u32) -> Option<Span> {
    if r.access & need != need {
        return None;
    }
    let offset = va.checked_sub(r.iova)?;
    if len > r.len || offset > r.len - len {
        return None;
    }
    Some(Span { addr: r.start.checked_add(offset)?, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: User = User { pd: 1, qpn: 7 };

    fn region(access: u32) -> Region {
        Region { start: 0x1000, len: 0x100, iova: 0x9000, access }
    }

    #[test]
    fn bounds_rights_and_domain_are_checked() {
        let mut k = Keys::new();
        let i = k.add_region(1, region(access::LOCAL_WRITE));
        let key = k.key_of(i).unwrap();
        let at = |va, len, need| k.translate(key, USER, va, len, need).map(|s| s.addr);
        assert_eq!(at(0x9000, 0x100, 0), Some(0x1000));
        assert_eq!(at(0x90ff, 1, access::LOCAL_WRITE), Some(0x10ff));
        assert_eq!(at(0x9000, 0x101, 0), None);
        assert_eq!(at(0x8fff, 1, 0), None);
        assert_eq!(at(u64::MAX, 2, 0), None);
        assert_eq!(at(0x9000, 1, access::REMOTE_READ), None);
        assert!(k.translate(key, User { pd: 2, qpn: 7 }, 0x9000, 1, 0).is_none());
        assert!(k.translate(key ^ 1, USER, 0x9000, 1, 0).is_none());
    }

    #[test]
    fn a_freed_key_comes_back_at_once() {
        let mut k = Keys::new();
        let a = k.add_region(1, region(0));
        let key = k.key_of(a);
        k.remove(a);
        let b = k.add_region(2, region(0));
        assert_eq!(k.key_of(b), key);
    }

    #[test]
    fn a_window_covers_its_part_for_its_queue() {
        let mut k = Keys::new();
        let r = k.add_region(1, region(access::LOCAL_WRITE | access::MW_BIND));
        let rkey = k.key_of(r).unwrap();
        let w = k.add_window(1, 2);
        let key = k.key_of(w).unwrap();
        assert!(k.can_bind(rkey, 1, 0x9010, 16, access::REMOTE_WRITE));
        assert!(!k.can_bind(rkey, 2, 0x9010, 16, access::REMOTE_WRITE));
        assert!(!k.can_bind(rkey, 1, 0x90f8, 16, 0));
        let b = Binding {
            region: rkey,
            at: 0x9010,
            iova: 0x9010,
            len: 16,
            access: access::REMOTE_WRITE,
            qpn: Some(7),
        };
        k.get_mut(w).unwrap().kind = Kind::Window { ty: 2, bound: Some(b) };
        assert_eq!(k.translate(key, USER, 0x9010, 16, access::REMOTE_WRITE).unwrap().addr, 0x1010);
        assert!(k.translate(key, USER, 0x900f, 1, access::REMOTE_WRITE).is_none());
        assert!(k.translate(key, USER, 0x9010, 1, access::REMOTE_READ).is_none());
        assert!(k.translate(key, User { pd: 1, qpn: 8 }, 0x9010, 1, access::REMOTE_WRITE).is_none());
        assert!(!k.invalidate(key, User { pd: 1, qpn: 8 }));
        assert!(k.invalidate(key, USER));
        assert!(!k.invalidate(key, USER));
        assert!(k.translate(key, USER, 0x9010, 1, access::REMOTE_WRITE).is_none());
    }
}
