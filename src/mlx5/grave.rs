//! Queue pairs that were given up while completions of theirs may still stand in a ring.
//!
//! The library does not take completions out of a ring that is read here, and the kernel gives a number out again at
//! once. So a queue pair is kept, in RESET, until the pollers of its completion queues have passed what it completed:
//! until then nobody else has its number. It goes earlier only with a completion queue of its own, which could not be
//! destroyed otherwise.
//!
//! What is kept has been promised room in the completion queue that it waits for, so there are never more of them than
//! that has entries.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use ibv_sys as sys;

use super::dv::OwnDomain;
use super::ring::is_before;
use crate::lock::locked;
use crate::raw::Raw;
use crate::srq::OwnedSrq;

/// What is left of a queue pair, in the order in which it goes.
#[derive(Debug)]
pub(super) struct Remains {
    _qp: Raw<sys::ibv_qp>,
    /// What it takes receives from, if that is shared; the program may have dropped it.
    _srq: Option<Arc<OwnedSrq>>,
    _domain: OwnDomain,
    /// What the domain was made in; whoever made that may have dropped it.
    _pd: Arc<Raw<sys::ibv_pd>>,
}

impl Remains {
    pub(super) fn new(
        qp: Raw<sys::ibv_qp>,
        srq: Option<Arc<OwnedSrq>>,
        domain: OwnDomain,
        pd: Arc<Raw<sys::ibv_pd>>,
    ) -> Self {
        Self { _qp: qp, _srq: srq, _domain: domain, _pd: pd }
    }
}

/// A queue pair that waits for pollers.
#[derive(Debug)]
pub(super) struct Grave {
    remains: Mutex<Option<Remains>>,
    /// How many completion queues have not been read past its completions.
    waits_for: AtomicU8,
    empty: AtomicBool,
}

impl Grave {
    /// One that stands in `waits_for` graveyards.
    pub(super) fn new(remains: Remains, waits_for: u8) -> Arc<Self> {
        Arc::new(Self {
            remains: Mutex::new(Some(remains)),
            waits_for: AtomicU8::new(waits_for),
            empty: AtomicBool::new(false),
        })
    }

    /// Destroys what is in it. When this returns, it is destroyed, whoever did it.
    fn clear(&self) {
        // the lock is held meanwhile: who comes second may be about to destroy the completion queue
        drop(locked(&self.remains).take());
        self.empty.store(true, Ordering::Release);
    }
}

/// The queue pairs that wait for one completion queue.
#[derive(Debug, Default)]
pub(super) struct Graveyard(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    /// Its completions stand before this entry of the ring.
    until: u32,
    passed: bool,
    grave: Arc<Grave>,
}

impl Graveyard {
    /// The queue pair's completions stand before entry `until`.
    pub(super) fn bury(&self, grave: Arc<Grave>, until: u32) {
        locked(&self.0).push(Entry { until, passed: false, grave });
    }

    /// Destroys those that wait for nobody else, now that `consumed` entries were read.
    pub(super) fn sweep(&self, consumed: u32) {
        let mut ready = Vec::new();
        let mut entries = locked(&self.0);
        for entry in entries.iter_mut().filter(|entry| !entry.passed && !is_before(consumed, entry.until)) {
            entry.passed = true;
            if entry.grave.waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                ready.push(Arc::clone(&entry.grave));
            }
        }
        // one stays here until it is destroyed, or the completion queue might be tried to be before it
        entries.retain(|entry| !entry.grave.empty.load(Ordering::Acquire));
        drop(entries);
        ready.iter().for_each(|grave| grave.clear());
    }

    /// Destroys all: the completion queue is to go.
    pub(super) fn clear(&self) {
        let entries = std::mem::take(&mut *locked(&self.0));
        entries.iter().for_each(|entry| entry.grave.clear());
    }
}
