//! Polling a direct completion queue.
//!
//! # How a completion finds its request
//!
//! A completion names its queue pair by number, and numbers are used again: after a reset by the same queue pair,
//! after it was destroyed by another one, while completions of before may still stand in the ring. What tells them
//! apart is where they stand. When queues are emptied, the queue pair is in RESET, so the device writes no more
//! completions of theirs: all that there are stand before the entry that it writes next. That entry is kept with them
//! ([`Lanes::retire`]). A completion before it is theirs, and nobody's any more; one behind it is of whoever has the
//! number now.
//!
//! # Safety
//!
//! The ring and the record are those of the completion queue, which the poller holds as parent. An entry is lent until
//! the poller goes on, since it is given back to the device by the poller alone, later.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::barrier;
use super::bits::{cq_record, cqe};
use super::cq::{DirectCq, arm_word};
use super::mmio::{CqeAt, CqeRing};
use super::ring::{Lanes, is_before, queue};
use super::wc::{self, WorkCompletion};
use crate::cq::{Arm, CompletionQueue, Direct, PollCq, PollError};
use crate::error::{Error, Result};
use crate::parent::Parent;

/// Where a poller stands; kept by the completion queue while it has none.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Entries consumed.
    consumed: u32,
    /// Queues by number; of several with one number, the one that comes first is the one that covers an entry first.
    known: HashMap<u32, Vec<Arc<Lanes>>>,
}

/// The one reader of a direct completion queue: who holds it polls.
///
/// `Send`: queue pairs and poller may be on different threads.
///
/// # Examples
///
/// ```no_run
/// use ibv::CompletionQueue;
/// use ibv::mlx5::Poller;
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let cq = CompletionQueue::builder(&ctx, 128).build_direct()?;
/// let mut poller = Poller::new(&cq)?;
/// while let Some(wc) = poller.poll() {
///     println!("request {} is done: {:?}", wc.id(), wc.result()?);
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
pub struct Poller<'a> {
    /// The entry to look at next.
    at: CqeAt,
    /// The last word's owner bit in this lap, where it stands in the word.
    lap: u64,
    consumed: u32,
    /// Entries up to the next time that something is to be done but polling, less one.
    stretch: u32,
    /// The queues that were completed last.
    last: Arc<Lanes>,
    /// Their number, as it stands in the last word.
    key: u32,
    ring: CqeRing,
    shared: Arc<DirectCq>,
    known: HashMap<u32, Vec<Arc<Lanes>>>,
    /// What was left behind when so much was consumed.
    left_behind: Option<(u32, u32)>,
    cq: Parent<'a, CompletionQueue<'a, Direct>>,
}

// SAFETY: the pointers in it lead to the ring of the completion queue that it holds, whose only reader it is.
unsafe impl Send for Poller<'_> {}

/// The owner bit in the last word.
const OWNER: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, cqe::OWNER]);
/// The queue pair's number in the first half of the last word.
const NUMBER: u32 = u32::from_ne_bytes([0, 0xff, 0xff, 0xff]);

/// Number as it stands in the last word.
fn key_of(number: u32) -> u32 {
    (number & 0xff_ffff).to_be()
}

/// The half of the last word with the number.
#[inline(always)]
fn first_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

impl<'a> Poller<'a> {
    /// Becomes the poller of `cq`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it has one.
    pub fn new(cq: impl Into<Parent<'a, CompletionQueue<'a, Direct>>>) -> Result<Self> {
        let cq = cq.into();
        let shared = Arc::clone(cq.state());
        let Some(Place { consumed, known }) = shared.take_place() else {
            let expected = "one at a time: drop the other one, or let it poll for both";
            return Err(Error::invalid("the completion queue's poller", "taken", expected));
        };
        let ring = shared.parts().ring;
        let nobody = Lanes::new(u32::MAX, queue(0).1, queue(0).1);
        let mut this = Self {
            at: ring.at(consumed),
            lap: 0,
            consumed,
            stretch: ring.entries() / 2 - 1,
            last: Arc::new(nobody),
            // no number in the word looks like it
            key: !NUMBER,
            ring,
            shared,
            known,
            left_behind: None,
            cq,
        };
        this.set_lap();
        Ok(this)
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue<'a, Direct> {
        &self.cq
    }

    fn set_lap(&mut self) {
        self.lap = if self.consumed & self.ring.entries() == 0 { 0 } else { OWNER };
    }

    /// Takes the next completion off the queue, if there is one.
    ///
    /// It is lent: read it, or [copy](WorkCompletion::copy) it, then go on.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<WorkCompletion<'_>> {
        loop {
            let at = self.at;
            let word = at.last_word();
            if (word ^ self.lap) & OWNER != 0 {
                if self.shared.has_news() {
                    self.found_empty();
                }
                return None;
            }
            let kind = wc::kind(word);
            let id = if first_half(word) & NUMBER == self.key
                && kind <= cqe::RESP_SEND_INV
                && !self.last.is_retired()
            {
                let lane = if kind == cqe::REQ { &self.last.send } else { &self.last.recv };
                Some(lane.complete(wc::counter(word)))
            } else {
                self.find(word)
            };
            self.advance();
            if let Some(id) = id {
                return Some(WorkCompletion::new(id, word, at));
            }
        }
    }

    #[inline(always)]
    fn advance(&mut self) {
        self.consumed = self.consumed.wrapping_add(1);
        self.shared.consumed().store(self.consumed, Ordering::Release);
        if self.consumed & self.stretch == 0 {
            self.turn();
        } else {
            // SAFETY: the last entry of the ring is followed by a turn.
            self.at = unsafe { self.ring.after(self.at) };
        }
    }

    /// Half of the ring was consumed: gives it back, and starts again at the top if it was the second half.
    #[cold]
    #[inline(never)]
    fn turn(&mut self) {
        self.at = self.ring.at(self.consumed);
        self.set_lap();
        self.tell_consumed();
        let joined = self.shared.try_take_joined();
        self.meet(joined);
        let consumed = self.consumed;
        self.known.retain(|_, lanes| {
            lanes.retain(|lanes| lanes.covers(consumed));
            !lanes.is_empty()
        });
        self.look_for_room();
    }

    /// Tells the device how far we are.
    fn tell_consumed(&self) {
        barrier::cqe_before_record();
        self.shared.parts().record.store::<{ cq_record::CONSUMER }>(self.consumed & cq_record::INDEX);
    }

    /// Where a completion is not simply the next one of the queues that were completed last: its request's id, or
    /// `None` if there is nothing to say.
    #[cold]
    #[inline(never)]
    fn find(&mut self, word: u64) -> Option<u64> {
        let kind = wc::kind(word);
        let is_send = matches!(kind, cqe::REQ | cqe::REQ_ERR);
        let is_recv = matches!(kind, cqe::RESP_WR_IMM..=cqe::RESP_SEND_INV | cqe::RESP_ERR);
        if !is_send && !is_recv {
            tracing::error!(kind, "an entry of a completion queue that is not known here was passed over");
            return None;
        }
        let number = wc::qp_number(word);
        let lanes = self.lanes_of(number)?;
        let lane = if is_send { &lanes.send } else { &lanes.recv };
        let id = lane.complete(wc::counter(word));
        self.key = key_of(number);
        self.last = lanes;
        Some(id)
    }

    /// Whose the next entry is, which names `number`; `None` if its queues are gone.
    fn lanes_of(&mut self, number: u32) -> Option<Arc<Lanes>> {
        let consumed = self.consumed;
        let covering = |known: &HashMap<u32, Vec<Arc<Lanes>>>| {
            known.get(&number)?.iter().find(|lanes| lanes.covers(consumed)).cloned()
        };
        let lanes = covering(&self.known).or_else(|| {
            let joined = self.shared.take_joined();
            self.meet(joined);
            covering(&self.known)
        })?;
        // theirs, but they were emptied since
        (!lanes.is_retired()).then_some(lanes)
    }

    fn meet(&mut self, joined: Vec<Arc<Lanes>>) {
        for lanes in joined {
            self.known.entry(lanes.number).or_default().push(lanes);
        }
    }

    #[cold]
    #[inline(never)]
    fn found_empty(&mut self) {
        let left = self.cq.room().left_behind();
        // what was left behind before this look is gone if the queue is still empty
        if (self.at.last_word() ^ self.lap) & OWNER != 0 && self.shared.take_news() {
            self.cq.room().seen_empty(left);
            self.left_behind = None;
            if self.cq.room().left_behind() != 0 {
                self.shared.tell_news();
            }
        }
    }

    /// The same for a queue that is never empty: what was left behind one lap ago is gone.
    fn look_for_room(&mut self) {
        match self.left_behind {
            Some((left, at)) if !is_before(self.consumed, at.wrapping_add(self.ring.entries())) => {
                self.cq.room().seen_empty(left);
                self.left_behind = None;
            }
            Some(_) => {}
            None => {
                let left = self.cq.room().left_behind();
                if left != 0 {
                    self.left_behind = Some((left, self.consumed));
                }
            }
        }
    }

    /// Asks for one event on the channel; see [`CompletionQueue::arm`](crate::CompletionQueue::arm) for the order of
    /// things.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the completion queue was made without a channel.
    pub fn arm(&mut self, what: Arm) -> Result<()> {
        if self.cq.channel().is_none() {
            return Err(Error::invalid(
                "the completion queue's channel",
                "none",
                "made with `builder().channel(..)`",
            ));
        }
        self.tell_consumed();
        let parts = self.shared.parts();
        let word = arm_word(what, self.shared.events(), self.consumed);
        parts.record.store::<{ cq_record::ARM }>(word);
        barrier::record_before_register();
        parts.register.ring(u64::from(word) << 32 | u64::from(parts.number));
        barrier::flush_register();
        Ok(())
    }
}

impl PollCq for Poller<'_> {
    #[inline]
    fn poll_into<'w>(
        &mut self,
        wcs: &'w mut [crate::WorkCompletion],
    ) -> Result<&'w [crate::WorkCompletion], PollError> {
        let mut found = 0;
        for wc in &mut *wcs {
            let Some(done) = self.poll() else { break };
            *wc = done.copy();
            found += 1;
        }
        Ok(wcs.get(..found).unwrap_or(&[]))
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.tell_consumed();
        let known = std::mem::take(&mut self.known);
        self.shared.give_place(Place { consumed: self.consumed, known });
    }
}

impl fmt::Debug for Poller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("consumed", &self.consumed).finish_non_exhaustive()
    }
}
