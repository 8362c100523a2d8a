//! The shared memory of a fabric: a place per process, and a ring of messages for each pair of them.
//!
//! The file has a head (what it is, and which places are in use), the places, and the rings. Memory is provided
//! before it is used: for a place when it is taken, for a ring when its sender first has something to say.
//!
//! # Safety
//!
//! Stretches of the file are mapped for the life of the process; every access is at a fixed offset within one: words
//! as atomics, facts and ring bytes by the copy routine of `mem`. A ring has one writer (the process of its source
//! place, under that process's lock) and one reader (likewise); bytes between tail and head are the reader's, the
//! others the writer's. Another process can break these rules only by being broken: it is of the same user, who could
//! as well attach a debugger.
#![expect(unsafe_code, reason = "shared memory")]

use super::file::{self, File};
use crate::mem;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

/// Places on a fabric.
pub(crate) const NODES: usize = 64;

/// How a file begins: what it is, and in which form. The form changes with anything that follows.
const MAGIC: [u8; 8] = *b"softhca\0";
const FORM: u32 = 2;

/// In the head: a word per place, not 0 if it is in use.
const USED: usize = 1024;
const HEAD: usize = 4096;
const PLACE: usize = 16384;
const RINGS: usize = HEAD + NODES * PLACE;
/// Bytes of a ring.
const RING: usize = 128 * 1024;
const INBOX: usize = NODES * RING;

/// Offsets in a place.
mod at {
    pub(super) const GENERATION: usize = 0;
    pub(super) const BELL: usize = 64;
    pub(super) const PUMPED: usize = 128;
    /// A bit per place that has sent something.
    pub(super) const SENDERS: usize = 192;
    /// Head and tail of the ring from each place.
    pub(super) const INDICES: usize = 4096;
    /// What a place tells about its devices.
    pub(super) const FACTS: usize = 12288;
}
pub(crate) const FACTS_LEN: usize = PLACE - at::FACTS;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Sent,
    /// The ring has no room now.
    Full,
    /// There is no memory for a ring.
    Lost,
}

/// The mapped file, and this process's place.
#[derive(Debug)]
pub(crate) struct Shm {
    file: File,
    pub(crate) own: usize,
    /// Where the head and the places, and the rings to this process, are mapped.
    base: usize,
    inbox: usize,
    /// Where the rings from this process are mapped, and which of them are.
    outbox: usize,
    open: AtomicU64,
    lets_copy: AtomicBool,
}

/// Comes in: the file, with a place of our own.
fn enter(name: &str) -> Result<(File, usize), String> {
    const TRIES: usize = 200;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 0..TRIES {
        let file = File::open(name)?;
        if !file.enter_gate() || !file.is_current() {
            // Somebody else comes or goes, or has removed it.
            drop(file);
            std::thread::sleep(PAUSE);
            continue;
        }
        let mut head = [0; MAGIC.len() + 4];
        file.read(0, &mut head)?;
        let mut expected = head;
        crate::bits::put(&mut expected, 0, &MAGIC);
        crate::bits::put(&mut expected, MAGIC.len(), &FORM.to_le_bytes());
        if head == [0; MAGIC.len() + 4] {
            file.allocate(0, HEAD)?;
            file.write(0, &expected)?;
        } else if head != expected {
            if file.remove_if_deserted() {
                continue;
            }
            return Err(format!(
                "fabric {name:?} is in use by another version of softhca: end those programs, or set \
                 SOFTHCA_FABRIC to another name"
            ));
        }
        let own = (0..NODES).find(|i| file.holder(*i).is_none());
        let own = own.ok_or_else(|| {
            format!("fabric {name:?} has {NODES} processes, which is all: set SOFTHCA_FABRIC to another name")
        })?;
        let place = HEAD + own * PLACE;
        file.allocate(place, PLACE)?;
        // The generation comes before the lock: who finds this process at the place, and the generation unchanged,
        // has a message of this process, and none whose addresses mean the memory of the one before.
        let mut generation = [0; 8];
        file.read(place + at::GENERATION, &mut generation)?;
        let next = u64::from_ne_bytes(generation).wrapping_add(1);
        file.write(place + at::GENERATION, &next.to_ne_bytes())?;
        if !file.take(own) {
            return Err(file.error("can't be locked"));
        }
        file.leave_gate();
        return Ok((file, own));
    }
    Err(format!("fabric {name:?}: others come and go all the time (or one is stopped in the act)"))
}

impl Shm {
    /// Joins the fabric `name` of this user.
    pub(crate) fn join(name: &str) -> Result<Self, String> {
        let (file, own) = enter(name)?;
        let base = file.map(0, RINGS, None)?;
        let inbox = file.map(RINGS + own * INBOX, INBOX, None)?;
        let outbox = file::reserve(INBOX)?;
        let (open, lets_copy) = (AtomicU64::new(0), AtomicBool::new(false));
        let s = Self { file, own, base, inbox, outbox, open, lets_copy };
        s.used(own).store(0, Ordering::Release);
        for src in 0..NODES {
            let head = s.head(own, src).load(Ordering::Acquire);
            s.tail(own, src).store(head, Ordering::Release);
        }
        Ok(s)
    }

    fn address(&self, node: usize, offset: usize) -> usize {
        self.base + HEAD + (node % NODES) * PLACE + offset % PLACE
    }

    fn used(&self, node: usize) -> &AtomicU32 {
        let address = self.base + USED + (node % NODES) * 4;
        // SAFETY: an aligned word of the head, which is mapped.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(address)) }
    }

    fn word64(&self, node: usize, offset: usize) -> &AtomicU64 {
        // SAFETY: an aligned word of a place, all of which are mapped.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(self.address(node, offset & !7))) }
    }

    /// Head of the ring from `src` to `node`: written by the sender.
    fn head(&self, node: usize, src: usize) -> &AtomicU64 {
        self.word64(node, at::INDICES + (src % NODES) * 128)
    }

    /// Its tail: written by the receiver.
    fn tail(&self, node: usize, src: usize) -> &AtomicU64 {
        self.word64(node, at::INDICES + (src % NODES) * 128 + 64)
    }

    /// The bytes of the ring to `node`, provided and mapped when it is first used.
    fn ring_to(&self, node: usize) -> Result<usize, String> {
        let node = node % NODES;
        let address = self.outbox + node * RING;
        if self.open.load(Ordering::Acquire) & 1 << node == 0 {
            let at = RINGS + node * INBOX + self.own * RING;
            self.file.allocate(at, RING)?;
            self.file.map(at, RING, Some(address))?;
            self.open.fetch_or(1 << node, Ordering::AcqRel);
        }
        Ok(address)
    }

    /// Whether there is, or was, a process at `node`: it has facts.
    pub(crate) fn is_used(&self, node: usize) -> bool {
        self.used(node).load(Ordering::Acquire) != 0
    }

    /// The process at `node`, as the kernel knows it: 0 if there is none, or none that has a number in the PID
    /// namespace of this one.
    pub(crate) fn process(&self, node: usize) -> i32 {
        self.file.holder(node).unwrap_or(0)
    }

    /// Whether the process at `node` lives.
    pub(crate) fn is_alive(&self, node: usize) -> bool {
        node == self.own || self.file.holder(node).is_some()
    }

    pub(crate) fn generation(&self, node: usize) -> u64 {
        self.word64(node, at::GENERATION).load(Ordering::Acquire)
    }

    /// Lets the other processes copy from and to the memory of this one. (Those of the same user may anyway, unless
    /// Yama forbids it.)
    pub(crate) fn let_copy(&self) {
        if !self.lets_copy.swap(true, Ordering::AcqRel) {
            // SAFETY: integers.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        }
    }

    /// Tells about our devices: from now on we can be found. (What the last one at this place told is gone.)
    pub(crate) fn write_facts(&self, bytes: &[u8]) {
        let n = bytes.len().min(FACTS_LEN);
        put(self.address(self.own, at::FACTS) as u64, bytes.get(..n).unwrap_or(&[]));
        self.used(self.own).store(1, Ordering::Release);
    }

    /// What `node` tells, from byte `offset` on.
    pub(crate) fn read_facts(&self, node: usize, offset: usize, out: &mut [u8]) {
        let offset = offset.min(FACTS_LEN);
        let n = out.len().min(FACTS_LEN - offset);
        let from = self.address(node, at::FACTS) + offset;
        get(from as u64, out.get_mut(..n).unwrap_or(&mut []));
    }

    /// Puts a message into the ring to `node`.
    pub(crate) fn push(&self, node: usize, message: &[u8]) -> Push {
        let need = (message.len() + Frame::LEN).next_multiple_of(8) as u64;
        let head = self.head(node, self.own).load(Ordering::Relaxed);
        let tail = self.tail(node, self.own).load(Ordering::Acquire);
        if head.wrapping_sub(tail).saturating_add(need) > RING as u64 {
            return Push::Full;
        }
        let ring = match self.ring_to(node) {
            Ok(ring) => ring,
            Err(e) => {
                static TOLD: AtomicBool = AtomicBool::new(false);
                if !TOLD.swap(true, Ordering::AcqRel) {
                    crate::log::tell(&format!(": {e}; messages are lost"));
                }
                return Push::Lost;
            }
        };
        let frame = Frame { len: message.len() as u64, generation: self.generation(self.own) };
        copy_in(ring, head, &frame.bytes());
        copy_in(ring, head.wrapping_add(Frame::LEN as u64), message);
        self.head(node, self.own).store(head.wrapping_add(need), Ordering::Release);
        self.word64(node, at::SENDERS).fetch_or(1 << self.own, Ordering::AcqRel);
        Push::Sent
    }

    /// Takes a message from the ring from `src`. What a process sent that had the place before is dropped.
    pub(crate) fn pop(&self, src: usize) -> Option<Vec<u8>> {
        let ring = self.inbox + (src % NODES) * RING;
        loop {
            let tail = self.tail(self.own, src).load(Ordering::Relaxed);
            let head = self.head(self.own, src).load(Ordering::Acquire);
            if head == tail {
                return None;
            }
            let mut frame = [0; Frame::LEN];
            copy_out(ring, tail, &mut frame);
            let frame = Frame::read(&frame);
            let there = head.wrapping_sub(tail).min(RING as u64);
            let taken = frame.len.checked_add(Frame::LEN as u64).filter(|n| *n <= there);
            let Some(taken) = taken else {
                // A broken writer: skip what it wrote.
                self.tail(self.own, src).store(head, Ordering::Release);
                return None;
            };
            let mut m = vec![0u8; usize::try_from(frame.len).unwrap_or(0)];
            copy_out(ring, tail.wrapping_add(Frame::LEN as u64), &mut m);
            self.tail(self.own, src).store(tail.wrapping_add(taken.next_multiple_of(8)), Ordering::Release);
            if frame.generation == self.generation(src) {
                return Some(m);
            }
        }
    }

    /// Whether a place has sent something since the last [`Shm::take_senders`].
    pub(crate) fn has_senders(&self) -> bool {
        self.word64(self.own, at::SENDERS).load(Ordering::Acquire) != 0
    }

    /// The places that have sent something since the last call, as bits.
    pub(crate) fn take_senders(&self) -> u64 {
        if self.has_senders() { self.word64(self.own, at::SENDERS).swap(0, Ordering::AcqRel) } else { 0 }
    }

    /// `src` may have sent more than was taken.
    pub(crate) fn put_back_sender(&self, src: usize) {
        self.word64(self.own, at::SENDERS).fetch_or(1 << (src % NODES), Ordering::AcqRel);
    }

    /// Tells the process at `node` that there is a message. Its service thread is woken only if the application
    /// itself doesn't poll: two that take turns at one device would only be in each other's way.
    pub(crate) fn ring_bell(&self, node: usize) {
        // The message is there before we look: who stops polling looks for messages afterwards.
        fence(Ordering::SeqCst);
        if !self.is_polling(node) {
            self.wake(node);
        }
    }

    fn bell_of(&self, node: usize) -> &AtomicU32 {
        // SAFETY: an aligned word of a place, all of which are mapped.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(self.address(node, at::BELL))) }
    }

    fn wake(&self, node: usize) {
        ring(self.bell_of(node));
    }

    /// Whether the application at `node` waits by polling.
    pub(crate) fn is_polling(&self, node: usize) -> bool {
        is_fresh(self.word64(node, at::PUMPED).load(Ordering::Acquire), monotonic_ns())
    }

    /// Notes that the application polls, so that peers don't wake our thread. As it may end that by going to sleep,
    /// without a word, the thread is told when it begins, and looks again and again while it lasts.
    pub(crate) fn note_pumped(&self) {
        let now = monotonic_ns();
        let before = self.word64(self.own, at::PUMPED).swap(now, Ordering::AcqRel);
        if !is_fresh(before, now) {
            self.wake(self.own);
        }
    }

    /// Notes that the application is about to sleep: peers wake our thread again, which looks for what came before.
    pub(crate) fn note_sleeps(&self) {
        self.word64(self.own, at::PUMPED).store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake(self.own);
    }

    /// The word that the service thread sleeps on.
    pub(crate) fn bell(&self) -> &AtomicU32 {
        self.bell_of(self.own)
    }

    /// Leaves; the last one removes the file. Called when the process ends.
    pub(crate) fn leave(&self) {
        self.used(self.own).store(0, Ordering::Release);
        self.file.give_back(self.own);
        // Somebody else may come or go just now. (Or be stopped in the act: then a later start cleans up.)
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            if self.file.enter_gate() {
                self.file.remove_if_deserted();
                self.file.leave_gate();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// In a forked child: the place is the parent's.
    pub(crate) fn abandon(&self) {
        self.file.abandon();
    }
}

/// Whether an application that polled in vain at `pumped` is taken to do so still.
fn is_fresh(pumped: u64, now: u64) -> bool {
    const FRESH_NS: u64 = 500_000;
    now.saturating_sub(pumped) <= FRESH_NS
}

/// Wakes who sleeps on a bell, in whatever process.
pub(crate) fn ring(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::AcqRel);
    // SAFETY: wakes waiters on a word.
    unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// What stands before a message in a ring.
struct Frame {
    len: u64,
    /// The sender's.
    generation: u64,
}

impl Frame {
    const LEN: usize = 16;

    fn bytes(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        crate::bits::put(&mut b, 0, &self.len.to_le_bytes());
        crate::bits::put(&mut b, 8, &self.generation.to_le_bytes());
        b
    }

    fn read(b: &[u8; Self::LEN]) -> Self {
        let [len, generation] =
            [0, 8].map(|at| b.get(at..at + 8).and_then(|w| w.try_into().ok()).map_or(0, u64::from_le_bytes));
        Self { len, generation }
    }
}

/// Writes to the mapping, which is ours and stays.
fn put(at: u64, bytes: &[u8]) {
    let _ = mem::write(at, bytes);
}

/// Reads from it.
fn get(at: u64, out: &mut [u8]) {
    let _ = mem::read(at, out);
}

/// Where the byte with index `at` is in a ring, and how many follow before its end.
fn place(ring: usize, at: u64) -> (usize, usize) {
    let offset = usize::try_from(at % RING as u64).unwrap_or(0);
    (ring + offset, RING - offset)
}

fn copy_in(ring: usize, at: u64, bytes: &[u8]) {
    let (to, room) = place(ring, at);
    let (a, b) = bytes.split_at(room.min(bytes.len()));
    put(to as u64, a);
    put(ring as u64, b);
}

fn copy_out(ring: usize, at: u64, out: &mut [u8]) {
    let (from, room) = place(ring, at);
    let (a, b) = out.split_at_mut(room.min(out.len()));
    get(from as u64, a);
    get(ring as u64, b);
}

/// The machine's clock, the same for all processes.
pub(crate) fn monotonic_ns() -> u64 {
    // SAFETY: room for the answer.
    unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t);
        u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(name: &str) -> Shm {
        Shm::join(&format!("unit-{name}-{}", std::process::id())).unwrap()
    }

    #[test]
    fn who_arms_a_cq_does_not_poll_any_more() {
        let s = join("polls");
        s.note_pumped();
        // The thread was told that it begins, and isn't woken again while it lasts.
        let before = s.bell().load(Ordering::Acquire);
        assert_eq!(before, 1);
        s.note_pumped();
        s.ring_bell(s.own);
        assert!(s.is_polling(s.own) && s.bell().load(Ordering::Acquire) == before);
        s.note_sleeps();
        assert!(!s.is_polling(s.own) && s.bell().load(Ordering::Acquire) == before + 1);
        s.leave();
    }

    #[test]
    fn a_join_that_fails_leaves_nothing_open() {
        use std::os::fd::AsRawFd;
        let name = format!("unit-fails-{}", std::process::id());
        // SAFETY: no arguments.
        let path = format!("/dev/shm/softhca-{}-{name}", unsafe { libc::geteuid() });
        std::fs::write(&path, b"something else").unwrap();
        let other = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: integers; zero is a value of each.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_len) = (libc::F_WRLCK as libc::c_short, 1);
        // SAFETY: a lock of a file of this test, which conflicts with those of the process.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
        for _ in 0..3 {
            assert!(Shm::join(&name).unwrap_err().contains("another version"));
        }
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.flat_map(|f| std::fs::read_link(f.path())).filter(|f| f.to_str() == Some(&path));
        assert_eq!(open.count(), 1, "only the test's own");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn messages_arrive_in_order_until_the_ring_is_full() {
        let s = join("ring");
        for round in 0..3 {
            let mut sent = 0usize;
            while s.push(s.own, &vec![sent as u8; sent % 5000]) == Push::Sent {
                sent += 1;
            }
            assert!(sent > 25, "{sent} in round {round}");
            assert_eq!(s.take_senders(), 1 << s.own);
            assert_eq!(s.take_senders(), 0);
            for i in 0..sent {
                assert_eq!(s.pop(s.own), Some(vec![i as u8; i % 5000]));
            }
            assert_eq!(s.pop(s.own), None);
        }
        s.leave();
    }

    #[test]
    fn the_next_at_a_place_has_another_generation() {
        let s = join("next");
        let before = s.generation(s.own);
        // The locks of a process don't keep itself from the place.
        let next = join("next");
        assert_eq!((next.own, s.generation(s.own)), (s.own, before + 1));
        next.leave();
    }

    #[test]
    fn what_a_place_sent_before_is_dropped() {
        let s = join("generations");
        s.push(s.own, b"old");
        s.word64(s.own, at::GENERATION).fetch_add(1, Ordering::AcqRel);
        s.push(s.own, b"new");
        assert_eq!(s.pop(s.own).as_deref(), Some(&b"new"[..]));
        assert_eq!(s.pop(s.own), None);
        s.leave();
    }

    #[test]
    fn what_a_broken_peer_writes_is_skipped() {
        let s = join("broken");
        // A message that is read again, with other lengths.
        s.push(s.own, &[0; 48]);
        let put = |len: u64, moved: u64| {
            let at = s.tail(s.own, s.own).load(Ordering::Relaxed);
            let generation = s.generation(s.own);
            copy_in(s.inbox + s.own * RING, at, &Frame { len, generation }.bytes());
            s.head(s.own, s.own).store(at.wrapping_add(moved), Ordering::Release);
        };
        for (len, moved) in [(u64::MAX, 64), (1 << 40, 1 << 50), (57, 64), (RING as u64, 2 * RING as u64)] {
            put(len, moved);
            assert_eq!(s.pop(s.own), None, "{len} {moved}");
        }
        put(48, 64);
        assert_eq!(s.pop(s.own).map(|m| m.len()), Some(48));
        assert_eq!(s.pop(s.own), None);
        s.leave();
    }
}
