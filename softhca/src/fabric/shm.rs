//! The shared memory of a fabric: a file with a place per process, each with one ring from each other process.
//!
//! # Safety
//!
//! The file is mapped once, for the life of the process, with the size that [`Shm::join`] gave it; every access is
//! at a fixed offset within it: words as atomics, ring bytes by the copy routine of `mem`. A ring has one writer
//! (the process of its source place, under that process's lock) and one reader (likewise); bytes between tail and
//! head are the reader's, the others the writer's. Another process can break these rules only by being broken: it
//! is of the same user, who could as well attach a debugger.
#![expect(unsafe_code, reason = "shared memory and file locks")]

use crate::interpose::real;
use crate::mem;
use std::ffi::CString;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Places on a fabric.
pub(crate) const NODES: usize = 16;
/// Bytes of a ring.
const RING: u64 = 256 * 1024;
/// Where the rings of a place start.
const RINGS: usize = 8192;
const RING_STRIDE: usize = 4096 + RING as usize;
const NODE_STRIDE: usize = RINGS + NODES * RING_STRIDE;
const LEN: usize = NODES * NODE_STRIDE;
/// What a place tells about its devices, from this offset on.
const FACTS: usize = 4096;
pub(crate) const FACTS_LEN: usize = 4096;

/// Offsets in a place.
mod at {
    pub(super) const PID: usize = 0;
    pub(super) const GENERATION: usize = 8;
    pub(super) const BELL: usize = 64;
    pub(super) const PUMPED: usize = 128;
}

/// The mapped file, and this process's place.
#[derive(Debug)]
pub(crate) struct Shm {
    base: usize,
    fd: i32,
    pub(crate) own: usize,
    path: CString,
}

fn lock_range(kind: libc::c_int, start: usize, len: usize) -> libc::flock {
    // SAFETY: integers; zero is a value of each.
    let mut l: libc::flock = unsafe { std::mem::zeroed() };
    l.l_type = libc::c_short::try_from(kind).unwrap_or(0);
    l.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0);
    l.l_start = libc::off_t::try_from(start).unwrap_or(0);
    l.l_len = libc::off_t::try_from(len).unwrap_or(0);
    l
}

impl Shm {
    /// Joins the fabric `name` of this user.
    pub(crate) fn join(name: &str) -> Result<Self, String> {
        // SAFETY: no arguments.
        let user = unsafe { libc::geteuid() };
        let text = format!("/dev/shm/softhca-{user}-{name}");
        let path = CString::new(text.clone()).map_err(|e| e.to_string())?;
        for _ in 0..100 {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
            // SAFETY: a C string; makes a new descriptor.
            let fd = unsafe { real::open(path.as_ptr(), flags, 0o600) };
            let fd = real::keep_high(fd)
                .map_err(|e| format!("{text}: {}", std::io::Error::from_raw_os_error(e)))?;
            // SAFETY: sizes the file just opened; it never shrinks.
            if unsafe { libc::ftruncate(fd, LEN as libc::off_t) } != 0 {
                return Err(format!("{text}: {}", std::io::Error::last_os_error()));
            }
            let own = (0..NODES).find(|i| {
                let mut l = lock_range(libc::F_WRLCK, *i, 1);
                // SAFETY: a lock on the open file; it ends with the process.
                unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw mut l) == 0 }
            });
            // The last process of before may have removed the file in between.
            let same = same_file(fd, &path);
            match own {
                Some(own) if same => return Self::map(fd, own, path),
                None if same => {
                    close(fd);
                    return Err(format!("{text}: all {NODES} places are taken"));
                }
                _ => close(fd),
            }
        }
        Err(format!("{text}: comes and goes"))
    }

    fn map(fd: i32, own: usize, path: CString) -> Result<Self, String> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: maps the file; no address is asked for.
        let p = unsafe { real::mmap(null_mut(), LEN, prot, libc::MAP_SHARED, fd, 0) };
        if p == libc::MAP_FAILED {
            return Err(format!("fabric: {}", std::io::Error::last_os_error()));
        }
        let s = Self { base: p.expose_provenance(), fd, own, path };
        s.word64(own, at::GENERATION).fetch_add(1, Ordering::AcqRel);
        for src in 0..NODES {
            let head = s.ring(own, src, 0).load(Ordering::Acquire);
            s.ring(own, src, 64).store(head, Ordering::Release);
        }
        // SAFETY: lets processes of this user read and write our memory (they could anyway without Yama).
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
        // SAFETY: no arguments.
        let pid = unsafe { libc::getpid() };
        s.word32(own, at::PID).store(u32::try_from(pid).unwrap_or(0), Ordering::Release);
        Ok(s)
    }

    fn address(&self, node: usize, offset: usize) -> usize {
        self.base + (node % NODES) * NODE_STRIDE + offset % NODE_STRIDE
    }

    fn word32(&self, node: usize, offset: usize) -> &AtomicU32 {
        // SAFETY: an aligned word within the mapping (module comment).
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(self.address(node, offset & !3))) }
    }

    fn word64(&self, node: usize, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(self.address(node, offset & !7))) }
    }

    /// Head (offset 0) or tail (offset 64) of the ring from `src` to `node`.
    fn ring(&self, node: usize, src: usize, offset: usize) -> &AtomicU64 {
        self.word64(node, RINGS + (src % NODES) * RING_STRIDE + offset)
    }

    fn ring_data(&self, node: usize, src: usize) -> u64 {
        self.address(node, RINGS + (src % NODES) * RING_STRIDE + 4096) as u64
    }

    /// The process at `node`; 0 if there is none.
    pub(crate) fn pid(&self, node: usize) -> i32 {
        i32::try_from(self.word32(node, at::PID).load(Ordering::Acquire)).unwrap_or(0)
    }

    pub(crate) fn generation(&self, node: usize) -> u64 {
        self.word64(node, at::GENERATION).load(Ordering::Acquire)
    }

    /// Whether the process at `node` lives: it holds its lock.
    pub(crate) fn is_alive(&self, node: usize) -> bool {
        let mut l = lock_range(libc::F_WRLCK, node, 1);
        // SAFETY: asks about a lock.
        let rc = unsafe { libc::fcntl(self.fd, libc::F_OFD_GETLK, &raw mut l) };
        node == self.own || rc == 0 && i32::from(l.l_type) != libc::F_UNLCK
    }

    /// Tells about our devices.
    pub(crate) fn write_facts(&self, bytes: &[u8]) {
        let n = bytes.len().min(FACTS_LEN);
        mem::write(self.address(self.own, FACTS) as u64, bytes.get(..n).unwrap_or(&[]));
    }

    /// What `node` tells.
    pub(crate) fn facts(&self, node: usize, out: &mut [u8; FACTS_LEN]) {
        mem::read(self.address(node, FACTS) as u64, out);
    }

    fn copy_in(&self, node: usize, at: u64, bytes: &[u8]) {
        let data = self.ring_data(node, self.own);
        let first = usize::try_from(RING - at % RING).unwrap_or(0).min(bytes.len());
        let (a, b) = bytes.split_at(first);
        mem::write(data + at % RING, a);
        mem::write(data, b);
    }

    fn copy_out(&self, src: usize, at: u64, out: &mut [u8]) {
        let data = self.ring_data(self.own, src);
        let first = usize::try_from(RING - at % RING).unwrap_or(0).min(out.len());
        let (a, b) = out.split_at_mut(first);
        mem::read(data + at % RING, a);
        mem::read(data, b);
    }

    /// Puts a message into the ring to `node`. False if there is no room.
    pub(crate) fn push(&self, node: usize, message: &[u8]) -> bool {
        let need = (message.len() as u64 + 8).next_multiple_of(8);
        let head = self.ring(node, self.own, 0).load(Ordering::Relaxed);
        let tail = self.ring(node, self.own, 64).load(Ordering::Acquire);
        if head.wrapping_sub(tail).saturating_add(need) > RING {
            return false;
        }
        self.copy_in(node, head, &(message.len() as u64).to_le_bytes());
        self.copy_in(node, head.wrapping_add(8), message);
        self.ring(node, self.own, 0).store(head.wrapping_add(need), Ordering::Release);
        true
    }

    /// Takes a message from the ring from `src`.
    pub(crate) fn pop(&self, src: usize) -> Option<Vec<u8>> {
        let tail = self.ring(self.own, src, 64).load(Ordering::Relaxed);
        let head = self.ring(self.own, src, 0).load(Ordering::Acquire);
        if head == tail {
            return None;
        }
        let mut len = [0u8; 8];
        self.copy_out(src, tail, &mut len);
        let len = u64::from_le_bytes(len);
        let there = head.wrapping_sub(tail).min(RING);
        let Some(taken) = len.checked_add(8).filter(|n| *n <= there) else {
            // A broken writer: skip what it wrote.
            self.ring(self.own, src, 64).store(head, Ordering::Release);
            return None;
        };
        let mut m = vec![0u8; usize::try_from(len).unwrap_or(0)];
        self.copy_out(src, tail.wrapping_add(8), &mut m);
        let next = tail.wrapping_add(taken.next_multiple_of(8));
        self.ring(self.own, src, 64).store(next, Ordering::Release);
        Some(m)
    }

    /// Whether a message from `src` waits.
    pub(crate) fn has_message(&self, src: usize) -> bool {
        self.ring(self.own, src, 0).load(Ordering::Acquire)
            != self.ring(self.own, src, 64).load(Ordering::Relaxed)
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

    fn wake(&self, node: usize) {
        let bell = self.word32(node, at::BELL);
        bell.fetch_add(1, Ordering::AcqRel);
        // SAFETY: wakes waiters on a word of the mapping.
        unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// Whether the application at `node` waits by polling.
    pub(crate) fn is_polling(&self, node: usize) -> bool {
        const FRESH_NS: u64 = 500_000;
        let pumped = self.word64(node, at::PUMPED).load(Ordering::Acquire);
        monotonic_ns().saturating_sub(pumped) <= FRESH_NS
    }

    /// Notes that the application polls.
    pub(crate) fn note_pumped(&self) {
        self.word64(self.own, at::PUMPED).store(monotonic_ns(), Ordering::Release);
    }

    /// Notes that the application is about to sleep: peers wake our thread again, which looks for what came before.
    pub(crate) fn note_sleeps(&self) {
        self.word64(self.own, at::PUMPED).store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake(self.own);
    }

    /// The word that the service thread sleeps on.
    pub(crate) fn bell(&self) -> &'static AtomicU32 {
        // SAFETY: as in `word32`; the mapping stays for the life of the process.
        unsafe { AtomicU32::from_ptr(with_exposed_provenance_mut(self.address(self.own, at::BELL))) }
    }

    /// Leaves; the last one removes the file. Called when the process ends.
    pub(crate) fn leave(&self) {
        self.word32(self.own, at::PID).store(0, Ordering::Release);
        let mut mine = lock_range(libc::F_UNLCK, self.own, 1);
        let mut l = lock_range(libc::F_WRLCK, 0, NODES);
        // SAFETY: gives up our place, asks whether anybody holds one, and if none, removes our own file.
        unsafe {
            libc::fcntl(self.fd, libc::F_OFD_SETLK, &raw mut mine);
            let rc = libc::fcntl(self.fd, libc::F_OFD_GETLK, &raw mut l);
            if rc == 0 && i32::from(l.l_type) == libc::F_UNLCK && same_file(self.fd, &self.path) {
                libc::unlink(self.path.as_ptr());
            }
        }
    }
}

fn close(fd: i32) {
    // SAFETY: a descriptor of this module.
    unsafe { real::close(fd) };
}

fn same_file(fd: i32, path: &CString) -> bool {
    // SAFETY: room for both answers.
    unsafe {
        let (mut a, mut b): (libc::stat, libc::stat) = (std::mem::zeroed(), std::mem::zeroed());
        real::fstat(fd, &raw mut a) == 0
            && real::stat(path.as_ptr(), &raw mut b) == 0
            && (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
    }
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

    #[test]
    fn who_arms_a_cq_does_not_poll_any_more() {
        let s = Shm::join(&format!("unit-polls-{}", std::process::id())).unwrap();
        let before = s.bell().load(Ordering::Acquire);
        s.note_pumped();
        s.ring_bell(s.own);
        assert!(s.is_polling(s.own) && s.bell().load(Ordering::Acquire) == before);
        s.note_sleeps();
        assert!(!s.is_polling(s.own) && s.bell().load(Ordering::Acquire) == before + 1);
        s.leave();
    }

    #[test]
    fn what_a_broken_peer_writes_is_skipped() {
        let s = Shm::join(&format!("unit-{}", std::process::id())).unwrap();
        let put = |len: u64, moved: u64| {
            let at = s.ring(s.own, 1, 64).load(Ordering::Relaxed);
            mem::write(s.ring_data(s.own, 1) + at % RING, &len.to_le_bytes());
            s.ring(s.own, 1, 0).store(at.wrapping_add(moved), Ordering::Release);
        };
        for (len, moved) in [(u64::MAX, 64), (1 << 40, 1 << 50), (57, 64), (RING, 2 * RING)] {
            put(len, moved);
            assert_eq!(s.pop(1), None, "{len} {moved}");
            assert!(!s.has_message(1));
        }
        put(56, 64);
        assert_eq!(s.pop(1).map(|m| m.len()), Some(56));
        assert!(!s.has_message(1));
        s.leave();
    }
}
