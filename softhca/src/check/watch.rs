//! What trap mode watches, and its checks. Used by signal handlers: atomics in places that stay only.
//!
//! # Safety
//!
//! Memory is read by aligned volatile words at addresses of live queues: entries of [`QUEUES`] and [`CQS`] are
//! removed before the application may free what they name (see `trap`).
#![expect(unsafe_code, reason = "reads rings and records by address")]

use super::slots::Slots;
use crate::bits;
use std::ptr::with_exposed_provenance;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(super) static STORES: AtomicU64 = AtomicU64::new(0);
pub(super) static RECORD_STORES: AtomicU64 = AtomicU64::new(0);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    UnknownQp = 1,
    WrongRegister,
    RecordNotSet,
    NotTheWqe,
    CopyDiffers,
    Width,
    NoRegister,
    RecordWidth,
    WqeNotWritten,
    UnknownCq,
    ArmDiffers,
    HalfAgain,
    NoSlot,
}

const KINDS: [Kind; 13] = [
    Kind::UnknownQp,
    Kind::WrongRegister,
    Kind::RecordNotSet,
    Kind::NotTheWqe,
    Kind::CopyDiffers,
    Kind::Width,
    Kind::NoRegister,
    Kind::RecordWidth,
    Kind::WqeNotWritten,
    Kind::UnknownCq,
    Kind::ArmDiffers,
    Kind::HalfAgain,
    Kind::NoSlot,
];

/// Findings, until somebody turns them into text.
pub(super) struct Findings {
    count: AtomicUsize,
    slots: [[AtomicU64; 4]; 256],
}

pub(super) static FOUND: Findings =
    Findings { count: AtomicUsize::new(0), slots: [const { [const { AtomicU64::new(0) }; 4] }; 256] };

impl Findings {
    pub(super) fn add(&self, kind: Kind, a: u64, b: u64, c: u64) {
        let i = self.count.fetch_add(1, Ordering::AcqRel);
        if let Some([k, x, y, z]) = self.slots.get(i) {
            x.store(a, Ordering::Relaxed);
            y.store(b, Ordering::Relaxed);
            z.store(c, Ordering::Relaxed);
            k.store(kind as u64, Ordering::Release);
        }
    }

    /// Gives how many more there were, for which there was no room.
    pub(super) fn drain(&self, mut f: impl FnMut(Kind, u64, u64, u64)) -> usize {
        let n = self.count.swap(0, Ordering::AcqRel);
        for [k, x, y, z] in self.slots.iter().take(n) {
            let code = k.swap(0, Ordering::AcqRel);
            if let Some(kind) = KINDS.into_iter().find(|k| *k as u64 == code) {
                f(kind, x.load(Ordering::Relaxed), y.load(Ordering::Relaxed), z.load(Ordering::Relaxed));
            }
        }
        n.saturating_sub(self.slots.len())
    }
}

/// Doorbell pages of the application, with the WQE that each register was rung for last.
pub(super) struct Pages(Slots<PageSlot, 64>);

#[derive(Debug, Default)]
struct PageSlot {
    addr: AtomicUsize,
    ctx: AtomicU32,
    page: AtomicU32,
    /// For each register: QP number << 32 | 1 << 31 | index.
    last: [AtomicU64; 4],
    /// For each pair of registers: who rang last, its number + 1.
    by: [AtomicU32; 2],
}

pub(super) static PAGES: Pages = Pages(Slots::new());

impl Pages {
    pub(super) fn add(&self, addr: usize, ctx: u32, page: u32) {
        // A new mapping at an old address replaces it.
        let at = |s: &PageSlot, a| s.addr.load(Ordering::Acquire) == a;
        let s = self.0.iter().find(|s| at(s, addr)).unwrap_or_else(|| self.0.claim(|s| at(s, 0)));
        s.ctx.store(ctx, Ordering::Relaxed);
        s.page.store(page, Ordering::Relaxed);
        s.addr.store(addr, Ordering::Release);
    }

    pub(super) fn remove_where(&self, which: impl Fn(u32, u32) -> bool) {
        for s in self.0.iter() {
            if s.addr.load(Ordering::Acquire) != 0
                && which(s.ctx.load(Ordering::Relaxed), s.page.load(Ordering::Relaxed))
            {
                s.addr.store(0, Ordering::Release);
            }
        }
    }

    fn get(&self, addr: usize) -> Option<&PageSlot> {
        self.0.iter().find(|s| s.addr.load(Ordering::Acquire) == addr & !4095 && addr >= 4096)
    }
}

/// Pages with doorbell records.
pub(super) struct Records(Slots<RecordPage, 64>);

#[derive(Debug, Default)]
struct RecordPage {
    /// 0 if free.
    addr: AtomicUsize,
    /// How many records are on it.
    records: AtomicU32,
}

pub(super) static RECORDS: Records = Records(Slots::new());

impl Records {
    fn get(&self, page: usize) -> Option<&RecordPage> {
        self.0.iter().find(|p| p.addr.load(Ordering::Acquire) == page)
    }

    /// Counts a record on `page`; true if it is the first. (Called under the model's lock.)
    pub(super) fn add(&self, page: usize) -> bool {
        if let Some(p) = self.get(page) {
            p.records.fetch_add(1, Ordering::AcqRel);
            return false;
        }
        let p = self.0.claim(|p| p.addr.load(Ordering::Acquire) == 0);
        p.records.store(1, Ordering::Release);
        p.addr.store(page, Ordering::Release);
        true
    }

    /// True if it was the last one on `page`.
    pub(super) fn remove(&self, page: usize) -> bool {
        let Some(p) = self.get(page) else { return false };
        if p.records.fetch_sub(1, Ordering::AcqRel) != 1 {
            return false;
        }
        p.addr.store(0, Ordering::Release);
        true
    }

    fn has(&self, addr: usize) -> bool {
        addr >= 4096 && self.get(addr & !4095).is_some()
    }
}

/// A queue as the checks need it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) number: u32,
    pub(super) db: u64,
    pub(super) ring: u64,
    pub(super) blocks: u32,
    pub(super) ctx: u32,
    pub(super) page: u32,
}

pub(super) struct Queues(Slots<QueueSlot, 64>);

#[derive(Debug, Default)]
struct QueueSlot {
    /// Number + 1; 0 if free.
    number: AtomicU32,
    db: AtomicU64,
    ring: AtomicU64,
    blocks: AtomicU32,
    ctx: AtomicU32,
    page: AtomicU32,
    /// The send index that the record named last.
    next: AtomicU32,
    /// The register that was rung last, + 1; with [`AGAIN`] if it was also the one before.
    turn: AtomicU32,
    /// The send index behind the WQE that it was rung for.
    behind: AtomicU32,
}

const AGAIN: u32 = 1 << 31;

pub(super) static QUEUES: Queues = Queues(Slots::new());
pub(super) static CQS: Queues = Queues(Slots::new());

impl Queues {
    fn live(&self) -> impl Iterator<Item = &QueueSlot> {
        self.0.iter().filter(|s| s.number.load(Ordering::Acquire) != 0)
    }

    /// (Called under the model's lock.)
    pub(super) fn add(&self, q: Queue) {
        let s = self.0.claim(|s| s.number.load(Ordering::Acquire) == 0);
        s.db.store(q.db, Ordering::Relaxed);
        s.ring.store(q.ring, Ordering::Relaxed);
        s.blocks.store(q.blocks, Ordering::Relaxed);
        s.ctx.store(q.ctx, Ordering::Relaxed);
        s.page.store(q.page, Ordering::Relaxed);
        s.next.store(0, Ordering::Relaxed);
        s.turn.store(0, Ordering::Relaxed);
        s.behind.store(0, Ordering::Relaxed);
        s.number.store(q.number + 1, Ordering::Release);
    }

    pub(super) fn remove(&self, number: u32) {
        if let Some(s) = self.get(number) {
            s.number.store(0, Ordering::Release);
        }
    }

    pub(super) fn reset(&self, number: u32) {
        if let Some(s) = self.get(number) {
            s.next.store(0, Ordering::Release);
            s.behind.store(0, Ordering::Release);
            // indices start anew, so a store that was not seen before would not be missed
            s.turn.store(0, Ordering::Relaxed);
        }
    }

    /// Whether all that the records of the send queues on a page name was rung, as far as was seen. While one thread
    /// executes its store the page is open, and the stores of others pass unseen: what a register was rung for last,
    /// and by whom, is then not known.
    fn all_rang(&self, ctx: u32, page: u32) -> bool {
        let here =
            |s: &&QueueSlot| (s.ctx.load(Ordering::Relaxed), s.page.load(Ordering::Relaxed)) == (ctx, page);
        self.live()
            .filter(here)
            .all(|s| record(s.db.load(Ordering::Relaxed) + 4) & 0xffff == s.behind.load(Ordering::Acquire))
    }

    fn get(&self, number: u32) -> Option<&QueueSlot> {
        self.live().find(|s| s.number.load(Ordering::Acquire) == number + 1)
    }
}

/// Stores that were not checked, since more threads than [`STEPS`] has places for made one at once.
pub(super) static UNCHECKED: AtomicU64 = AtomicU64::new(0);

/// Threads that are executing the one store.
pub(super) struct Steps([(AtomicU32, AtomicUsize, AtomicU32); 256]);

pub(super) static STEPS: Steps =
    Steps([const { (AtomicU32::new(0), AtomicUsize::new(0), AtomicU32::new(0)) }; 256]);

impl Steps {
    /// False if there is no place left.
    pub(super) fn begin(&self, thread: u32, addr: usize, width: u32) -> bool {
        let claim = |s: &&(AtomicU32, AtomicUsize, AtomicU32)| {
            s.0.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(s) = self.0.iter().find(claim) else { return false };
        ACTIVE.fetch_add(1, Ordering::AcqRel);
        s.1.store(addr, Ordering::Relaxed);
        s.2.store(width, Ordering::Relaxed);
        true
    }

    /// Whether `thread` began this store before: another thread closed the page again before it was executed.
    pub(super) fn is_at(&self, thread: u32, addr: usize) -> bool {
        self.get(thread).is_some_and(|(at, _)| at == addr)
    }

    /// What `thread` is executing.
    pub(super) fn get(&self, thread: u32) -> Option<(usize, u32)> {
        let s = self.0.iter().find(|s| s.0.load(Ordering::Acquire) == thread)?;
        Some((s.1.load(Ordering::Relaxed), s.2.load(Ordering::Relaxed)))
    }

    pub(super) fn end(&self, thread: u32) {
        if let Some(s) = self.0.iter().find(|s| s.0.load(Ordering::Acquire) == thread) {
            s.0.store(0, Ordering::Release);
            ACTIVE.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// How many threads are between a store's fault and the end of its check.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// Whether a store is being executed or checked: the device leaves the registers alone meanwhile.
pub(super) fn is_stepping() -> bool {
    ACTIVE.load(Ordering::Acquire) != 0
}

/// What a watched address is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Register { ctx: u32, page: u32 },
    Record,
}

pub(super) fn find(addr: usize) -> Option<Place> {
    if let Some(s) = PAGES.get(addr) {
        return Some(Place::Register {
            ctx: s.ctx.load(Ordering::Relaxed),
            page: s.page.load(Ordering::Relaxed),
        });
    }
    RECORDS.has(addr).then_some(Place::Record)
}

pub(super) fn word(addr: u64) -> [u8; 8] {
    let p: *const u64 = with_exposed_provenance(usize::try_from(addr & !7).unwrap_or(0));
    // SAFETY: an aligned word of a live ring, record or register page (module comment).
    unsafe { p.read_volatile() }.to_ne_bytes()
}

pub(super) fn record(addr: u64) -> u32 {
    let p: *const u32 = with_exposed_provenance(usize::try_from(addr & !3).unwrap_or(0));
    // SAFETY: as above.
    u32::from_be(unsafe { p.read_volatile() })
}

/// The first eight bytes of a WQE: index, QP number, size in units of 16 bytes.
fn control(b: &[u8; 8]) -> (u32, u32, u32) {
    let (head, tail) = (bits::be32(b, 0), bits::be32(b, 4));
    (head >> 8 & 0xffff, tail >> 8, tail & 0x3f)
}

fn ring_word(s: &QueueSlot, index: u32, offset: u64) -> [u8; 8] {
    let blocks = u64::from(s.blocks.load(Ordering::Relaxed)).max(1);
    let at = (u64::from(index) * 64 + offset) % (blocks * 64);
    word(s.ring.load(Ordering::Relaxed) + at)
}

/// Checks a store to a doorbell page that was just executed.
pub(super) fn check_register(addr: usize, ctx: u32, page: u32, width: u32) {
    let offset = addr & 4095;
    let value = word(addr as u64);
    let taken = value == [0; 8];
    if offset == bits::CQ_DOORBELL {
        if width != 8 {
            return FOUND.add(Kind::Width, width.into(), offset as u64, 0);
        }
        // A device that was just looking at the register may have taken the value already.
        if !taken {
            check_arm(&value);
        }
        return;
    }
    let Some((k, register)) =
        bits::BF_OFFSETS.into_iter().enumerate().find(|(_, r)| (*r..*r + 256).contains(&offset))
    else {
        return FOUND.add(Kind::NoRegister, width.into(), offset as u64, 0);
    };
    let Some(slot) = PAGES.get(addr) else { return };
    let (Some(last), Some(by)) = (slot.last.get(k), slot.by.get(k / 2)) else { return };
    if !matches!(width, 8 | 16 | 32 | 64) || offset % 8 != 0 {
        return FOUND.add(Kind::Width, width.into(), offset as u64, 0);
    }
    let inside = (offset - register) as u64;
    if inside == 0 && taken {
        last.store(0, Ordering::Release);
        return;
    }
    if inside == 0 {
        check_ring(&value, ctx, page);
        let (index, qpn, units) = control(&value);
        last.store(u64::from(qpn) << 32 | 1 << 31 | u64::from(index), Ordering::Release);
        let (is_alone, register) = (by.swap(qpn + 1, Ordering::AcqRel) == qpn + 1, k as u32 + 1);
        if let Some(q) = QUEUES.get(qpn) {
            let behind = index.wrapping_add(units.div_ceil(4)) & 0xffff;
            let is_next = q.behind.swap(behind, Ordering::AcqRel) == index;
            let again = is_alone && is_next && q.turn.load(Ordering::Relaxed) & !AGAIN == register;
            q.turn.store(if again { register | AGAIN } else { register }, Ordering::Relaxed);
        }
    }
    // What BlueFlame copies must be the WQE.
    let rung = last.load(Ordering::Acquire);
    if rung == 0 {
        return;
    }
    let (qpn, index) = (u32::try_from(rung >> 32).unwrap_or(0), u32::try_from(rung & 0xffff).unwrap_or(0));
    let Some(q) = QUEUES.get(qpn) else { return };
    // a copy, of which the first bytes went to the register of the copy before
    let is_copy = inside + u64::from(width) > 8;
    if is_copy && !QUEUES.all_rang(ctx, page) {
        return;
    }
    if is_copy && q.turn.fetch_and(!AGAIN, Ordering::Relaxed) & AGAIN != 0 {
        return FOUND.add(Kind::HalfAgain, qpn.into(), index.into(), register as u64);
    }
    for step in (0..u64::from(width)).step_by(8) {
        if inside + step != 0 && word(addr as u64 + step) != ring_word(q, index, inside + step) {
            return FOUND.add(Kind::CopyDiffers, qpn.into(), index.into(), inside + step);
        }
    }
}

fn check_ring(value: &[u8; 8], ctx: u32, page: u32) {
    let (index, qpn, units) = control(value);
    let Some(q) = QUEUES.get(qpn) else { return FOUND.add(Kind::UnknownQp, qpn.into(), 0, 0) };
    let own = q.page.load(Ordering::Relaxed);
    if (q.ctx.load(Ordering::Relaxed), own) != (ctx, page) {
        FOUND.add(Kind::WrongRegister, qpn.into(), page.into(), own.into());
    }
    let behind = index.wrapping_add(units.div_ceil(4)) & 0xffff;
    let says = record(q.db.load(Ordering::Relaxed) + 4) & 0xffff;
    if says != behind {
        FOUND.add(Kind::RecordNotSet, qpn.into(), behind.into(), says.into());
    }
    if ring_word(q, index, 0) != *value {
        FOUND.add(Kind::NotTheWqe, qpn.into(), index.into(), 0);
    }
}

fn check_arm(value: &[u8; 8]) {
    let (arm, cqn) = (bits::be32(value, 0), bits::be32(value, 4) & 0xff_ffff);
    let Some(q) = CQS.get(cqn) else { return FOUND.add(Kind::UnknownCq, cqn.into(), 0, 0) };
    let says = record(q.db.load(Ordering::Relaxed) + 4);
    if says != arm {
        FOUND.add(Kind::ArmDiffers, cqn.into(), arm.into(), says.into());
    }
}

/// Checks a store to a page of doorbell records that was just executed.
pub(super) fn check_record(addr: usize, width: u32) {
    let at = addr as u64;
    let Some(q) = QUEUES.live().find(|q| {
        let db = q.db.load(Ordering::Relaxed);
        at < db + 8 && at + u64::from(width.max(1)) > db + 4
    }) else {
        return;
    };
    let qpn = q.number.load(Ordering::Acquire).wrapping_sub(1);
    let db = q.db.load(Ordering::Relaxed);
    if width != 4 && at == db + 4 || width < 4 {
        return FOUND.add(Kind::RecordWidth, width.into(), at, 0);
    }
    let to = record(db + 4) & 0xffff;
    let mut index = q.next.load(Ordering::Acquire);
    // A jump further than the ring is long is a reset of the record.
    let blocks = q.blocks.load(Ordering::Relaxed);
    if to.wrapping_sub(index) & 0xffff > blocks {
        q.next.store(to, Ordering::Release);
        return;
    }
    while index != to {
        let (found, number, units) = control(&ring_word(q, index, 0));
        if found != index || number != qpn || units == 0 {
            q.next.store(to, Ordering::Release);
            return FOUND.add(Kind::WqeNotWritten, qpn.into(), to.into(), index.into());
        }
        let next = index.wrapping_add(units.div_ceil(4)) & 0xffff;
        if to.wrapping_sub(index) & 0xffff < next.wrapping_sub(index) & 0xffff {
            q.next.store(to, Ordering::Release);
            return FOUND.add(Kind::WqeNotWritten, qpn.into(), to.into(), index.into());
        }
        index = next;
    }
    q.next.store(to, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_at_the_store_that_it_began() {
        static S: Steps = Steps([const { (AtomicU32::new(0), AtomicUsize::new(0), AtomicU32::new(0)) }; 256]);
        assert!(!S.is_at(1, 0x1000));
        assert!(S.begin(1, 0x1000, 8) && S.begin(2, 0x2000, 4));
        assert!(S.is_at(1, 0x1000) && !S.is_at(1, 0x2000) && S.is_at(2, 0x2000));
        S.end(1);
        S.end(2);
        assert!(S.get(1).is_none() && S.get(2).is_none());
    }

    #[test]
    fn findings_come_out_once() {
        static F: Findings =
            Findings { count: AtomicUsize::new(0), slots: [const { [const { AtomicU64::new(0) }; 4] }; 256] };
        F.add(Kind::Width, 1, 2, 3);
        F.add(Kind::UnknownQp, 4, 5, 6);
        let mut v = Vec::new();
        F.drain(|k, a, _, c| v.push((k, a, c)));
        assert_eq!(v, [(Kind::Width, 1, 3), (Kind::UnknownQp, 4, 6)]);
        assert_eq!(F.drain(|_, _, _, _| panic!("empty")), 0);
        // What has no room is counted.
        for i in 0..300 {
            F.add(Kind::Width, i, 0, 0);
        }
        let mut kept = 0;
        assert_eq!((F.drain(|_, _, _, _| kept += 1), kept), (44, 256));
    }
}
