//! The completion queue that is read here: what its poller and its queue pairs share.
//!
//! # Safety
//!
//! [`DirectCq`] holds the parts of a living `ibv_cq`: the completion queue owns both, the poller and the queue pairs
//! hold the completion queue as parent.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use ibv_sys as sys;

use super::bits::cqe;
use super::delivery::{Delivery, ToCqe};
use super::dv::{self, CqParts};
use super::grave::Graveyard;
use super::poller::Place;
use super::ring::{Joined, Lanes, is_before};
use super::{session, wc};
use crate::cq::state::CqState;
use crate::cq::{Arm, CompletionQueue, CompletionQueueBuilder, Direct, Room};
use crate::error::{Error, Result};
use crate::id::CqId;
use crate::lock::locked;
use crate::raw::Raw;

/// What the poller and the queue pairs of a completion queue share.
#[derive(Debug)]
pub struct DirectCq {
    parts: CqParts,
    cq: NonNull<sys::ibv_cq>,
    /// Entries consumed; counts on for ever, modulo 2³².
    consumed: AtomicU32,
    /// Room was left behind that the poller should give back.
    news: AtomicBool,
    /// Queues that came since the poller last looked.
    joined: Mutex<Joined>,
    /// Where the poller stands, while there is none.
    place: Mutex<Option<Place>>,
    graveyard: Graveyard,
    /// Whether the device may write sessions of compressed completions; the lock is held while one is put into its full
    /// form, so that who looks sees it as it was or as it will be.
    sessions: Option<Mutex<()>>,
}

/// The completion queue's hold on what it shares.
#[derive(Debug)]
pub struct OwnedCq(Arc<DirectCq>);

impl OwnedCq {
    pub(crate) fn shared(&self) -> &Arc<DirectCq> {
        &self.0
    }
}

impl CqState for OwnedCq {
    fn before_destroy(&self) {
        self.0.graveyard.clear();
    }
}

impl Drop for OwnedCq {
    fn drop(&mut self) {
        self.before_destroy();
    }
}

// SAFETY: the parts lead to memory that is accessed atomically, or (the record, the register) by the one poller; and
// to the living queue.
unsafe impl Send for DirectCq {}
// SAFETY: as above.
unsafe impl Sync for DirectCq {}

impl DirectCq {
    /// # Safety
    ///
    /// `cq` outlives it, and nothing is attached to it yet.
    unsafe fn new(cq: &Raw<sys::ibv_cq>, compressed: bool) -> Result<Self> {
        // SAFETY: by the caller's promise.
        let parts = unsafe { dv::take_cq(cq) }?;
        Ok(Self {
            parts,
            cq: cq.as_non_null(),
            consumed: AtomicU32::new(0),
            news: AtomicBool::new(false),
            joined: Mutex::default(),
            place: Mutex::new(Some(Place::default())),
            graveyard: Graveyard::default(),
            sessions: compressed.then(Mutex::default),
        })
    }

    #[inline(always)]
    pub(super) fn parts(&self) -> &CqParts {
        &self.parts
    }

    /// Entries consumed so far.
    #[inline(always)]
    pub(super) fn consumed(&self) -> &AtomicU32 {
        &self.consumed
    }

    /// How many entries before `until` were not read yet.
    pub(super) fn unread_before(&self, until: u32) -> u32 {
        let consumed = self.consumed.load(Ordering::Acquire);
        if is_before(consumed, until) { until.wrapping_sub(consumed) } else { 0 }
    }

    /// Whether there may be room to give back.
    #[inline(always)]
    pub(super) fn has_news(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    /// Takes the sign down; whoever raises it again did what it is about before.
    pub(super) fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::AcqRel)
    }

    /// Raises it.
    pub(super) fn tell_news(&self) {
        self.news.store(true, Ordering::Release);
    }

    /// The poller's place, if nobody has it.
    pub(super) fn take_place(&self) -> Option<Place> {
        locked(&self.place).take()
    }

    pub(super) fn give_place(&self, place: Place) {
        *locked(&self.place) = Some(place);
    }

    /// Queue pairs that wait to be destroyed.
    pub(super) fn graveyard(&self) -> &Graveyard {
        &self.graveyard
    }

    /// Destroys the queue pairs whose completions were all read.
    pub(crate) fn sweep(&self) {
        self.graveyard.sweep(self.consumed.load(Ordering::Acquire));
    }

    /// Completions that name `lanes`' number are of these queues from now on.
    pub(super) fn join(&self, lanes: Arc<Lanes>) {
        let consumed = self.consumed.load(Ordering::Acquire);
        locked(&self.joined).add(lanes, consumed);
    }

    /// The queues that came since this was last called, the oldest first.
    pub(super) fn take_joined(&self) -> Vec<Arc<Lanes>> {
        locked(&self.joined).take()
    }

    /// The same, if it can be had without waiting.
    pub(super) fn try_take_joined(&self) -> Vec<Arc<Lanes>> {
        self.joined.try_lock().map(|mut joined| joined.take()).unwrap_or_default()
    }

    /// The entry that the device writes next, or an older one that it had not yet written when this was called.
    ///
    /// It is found by looking, from any thread, while the poller may be at work.
    pub(super) fn next_entry(&self) -> u32 {
        let entries = self.parts.ring.entries();
        // no title that is ahead of the poller is passed meanwhile
        let _alone = self.sessions();
        loop {
            let mut index = self.consumed.load(Ordering::Acquire);
            // there is no more than a lap; titles that a faulty device wrote may lead round for ever
            let end = index.wrapping_add(entries);
            while is_before(index, end) && self.is_written(index, entries) {
                let at = self.parts.ring.at(index);
                let mut stands_for = 1;
                if self.is_compressed() && wc::is_title(at.last_word()) {
                    stands_for = session::count(&at.words(), entries).unwrap_or(1);
                    if is_before(index, self.consumed.load(Ordering::Acquire)) {
                        break;
                    }
                }
                index = index.wrapping_add(stands_for);
            }
            // What was not written *for this lap* was overwritten meanwhile, if the poller has passed it.
            if !is_before(index, self.consumed.load(Ordering::Acquire)) {
                return index;
            }
        }
    }

    /// Whether there may be compressed completions.
    pub(super) fn is_compressed(&self) -> bool {
        self.sessions.is_some()
    }

    /// The lock that goes with them.
    pub(super) fn sessions(&self) -> Option<MutexGuard<'_, ()>> {
        self.sessions.as_ref().map(locked)
    }

    fn is_written(&self, index: u32, entries: u32) -> bool {
        let [.., op_own] = self.parts.ring.at(index).last_word().to_ne_bytes();
        (op_own & cqe::OWNER != 0) == (index & entries != 0)
    }

    /// Events got so far.
    pub(super) fn events(&self) -> u32 {
        // SAFETY: the queue is alive (see the module).
        unsafe { dv::events_of(self.cq) }
    }
}

impl<'a> CompletionQueueBuilder<'a> {
    /// `mlx5dv_create_cq`—Makes it, to be read by this crate and by one [`Poller`](super::Poller); see
    /// [`mlx5`](super).
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build), where a device can have half as many entries: so many again are there for the
    /// device to go on while the poller is late in telling how far it has come. [`Error::Verb`] with EOPNOTSUPP if it
    /// is no mlx5 device, or if it shall be [compressed](Self::compressed) and the device cannot; [`Error::Invalid`] if
    /// [overcommitted](Self::overcommit).
    #[doc(alias = "mlx5dv_create_cq")]
    pub fn build_direct(self) -> Result<CompletionQueue<'a, Direct>> {
        self.make_direct()
    }

    /// [`build_direct`](Self::build_direct), for queue pairs that have the device put short data into the completion:
    /// up to 32 bytes, or 64 if it is [wide](Self::wide); see [`ToCqe`].
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE")]
    pub fn build_direct_scattered(self) -> Result<CompletionQueue<'a, Direct<ToCqe>>> {
        self.make_direct()
    }

    fn make_direct<V: Delivery>(self) -> Result<CompletionQueue<'a, Direct<V>>> {
        let ctx = self.check()?;
        dv::check_mlx5(ctx)?;
        let Self { entries: asked, comp_vector, overcommit, compressed, wide, .. } = self;
        if overcommit {
            return Err(Error::invalid(
                "the completion queue",
                "overcommitted",
                "made larger instead, without `overcommit`: a direct one can't be",
            ));
        }
        Error::check_limit("entries of a direct completion queue", asked, ctx.device_attr().max_cqe() / 2)?;
        let format = if compressed { Some(dv::short_form(ctx)?) } else { None };
        let id = CqId::new();
        let channel = self.channel_ptr();
        let entry_size = if wide { 128 } else { 64 };
        // one more is what the library adds
        let entries = asked.saturating_mul(2) - 1;
        // SAFETY: the channel is of the same context, and held by the queue.
        let raw = unsafe {
            dv::create_cq(ctx, entries, entry_size, format, id.to_context(), channel, comp_vector)
        }?;
        // SAFETY: nothing is attached yet; the queue owns both.
        let state = unsafe { DirectCq::new(&raw, format.is_some()) }?;
        let room = Room::new(state.parts.ring.entries() / 2, false);
        Ok(self.finish(raw, room, id, OwnedCq(Arc::new(state))))
    }
}

/// What the arm word of a completion queue says.
#[inline(always)]
pub(super) fn arm_word(what: Arm, events: u32, consumed: u32) -> u32 {
    use super::bits::cq_record::{INDEX, SEQUENCE_SHIFT, SOLICITED};
    let solicited = if what == Arm::Solicited { SOLICITED } else { 0 };
    (events & 3) << SEQUENCE_SHIFT | solicited | consumed & INDEX
}
