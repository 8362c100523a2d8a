//! Polling a direct completion queue.
//!
//! # How a completion finds its request
//!
//! A completion names its queue pair by number, and numbers are used again, while completions of before may still
//! stand in the ring: after a reset by the same queue pair, after a completion queue was dropped (see
//! [`grave`](super::grave)) by another one. What tells them apart is where they stand. When queues are emptied, the
//! queue pair is in RESET, so the device writes no more completions of theirs: all that there are stand before the
//! entry that it writes next. That entry is kept with them ([`Lanes::retire`]). A completion before it is theirs, and
//! nobody's any more; one behind it is of whoever has the number now.
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
use super::bits::{cq_record, cqe, mini};
use super::cq::{DirectCq, arm_word};
use super::cqe_ring::{CqeAt, CqeRing};
use super::delivery::{Delivery, ToMemory};
use super::ring::{Lanes, RETIRED, Sent, is_before, queue};
use super::session;
use super::wc::{self, WorkCompletion};
use crate::cq::{Arm, CompletionQueue, CqFor, Direct, Left, PollCq, PollError, no_channel, poller_taken};
use crate::error::Result;
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
pub struct Poller<'a, V: Delivery = ToMemory> {
    /// The entry to look at next.
    at: CqeAt,
    /// The last word's owner bit in this lap, where it stands in the word.
    lap: u64,
    /// The queues that were completed last.
    last: Arc<Lanes>,
    shared: Arc<DirectCq>,
    ring: CqeRing,
    /// Entries up to the next time that something is to be done but polling, less one.
    stretch: u32,
    /// The format with the most data that entries of this size can have.
    widest: u8,
    /// What [`poll_slowly`](Self::poll_slowly) found.
    found: Sent,
    known: HashMap<u32, Vec<Arc<Lanes>>>,
    /// Some of them, by the last bits of their numbers: those that were found there last.
    recent: Box<[Option<Arc<Lanes>>; RECENT]>,
    /// What was left behind when so much was consumed.
    left_behind: Option<(Left, u32)>,
    cq: Parent<'a, CompletionQueue<'a, Direct<V>>>,
}

// SAFETY: the pointers in it lead to the ring of the completion queue that it holds, whose only reader it is.
unsafe impl<V: Delivery> Send for Poller<'_, V> {}

/// How many queues are found again without looking them up.
const RECENT: usize = 64;

/// What an entry of that kind says is done, if that makes sense.
#[inline(always)]
fn done(lanes: &Lanes, kind: u8, counter: u32) -> Option<Sent> {
    match kind {
        cqe::REQ | cqe::REQ_ERR => Some(lanes.send.complete(counter)),
        cqe::RESP_WR_IMM..=cqe::RESP_SEND_INV | cqe::RESP_ERR => {
            let id = match &lanes.shared {
                Some(shared) => shared.complete(counter)?,
                None => lanes.recv.complete(counter),
            };
            Some(Sent { id, noted: 0 })
        }
        _ => None,
    }
}

/// The owner bit in the last word.
const OWNER: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, cqe::OWNER]);
/// The owner bit that entries have in the lap of entry `index`.
fn lap_of(index: u32, ring: CqeRing) -> u64 {
    if index & ring.entries() == 0 { 0 } else { OWNER }
}

impl<'a, V: Delivery> Poller<'a, V> {
    /// Becomes the poller of `cq`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if it has one.
    pub fn new(cq: impl CqFor<'a, Direct<V>>) -> Result<Self> {
        let cq = cq.into_parent().into_own();
        let shared = Arc::clone(cq.state().shared());
        let Some(Place { consumed, known }) = shared.take_place() else {
            return Err(poller_taken());
        };
        let ring = shared.parts().ring;
        let nobody = Lanes::new(u32::MAX, RETIRED, queue(0).1, queue(0).1);
        Ok(Self {
            at: ring.at(consumed),
            lap: lap_of(consumed, ring),
            last: Arc::new(nobody),
            shared,
            ring,
            stretch: ring.entries() / 2 - 1,
            widest: if ring.is_wide() { cqe::SCATTER_64 } else { cqe::SCATTER_32 },
            found: Sent { id: 0, noted: 0 },
            known,
            recent: Box::new([const { None }; RECENT]),
            left_behind: None,
            cq,
        })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue<'a, Direct<V>> {
        &self.cq
    }

    /// Entries consumed; nobody else changes the number.
    #[inline(always)]
    fn consumed(&self) -> u32 {
        self.shared.consumed().load(Ordering::Relaxed)
    }

    /// Takes the next completion off the queue, if there is one.
    ///
    /// It is lent: read it, or [copy](WorkCompletion::copy) it, then go on.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<WorkCompletion<'_, V>> {
        // its owner bit is 0 if the entry is ours
        let word = self.at.last_word() ^ self.lap;
        let op = wc::op_own(word);
        if self.is_sent(op) {
            if let Some(next) = self.next_of_last(word, self.last.key()) {
                let sent = self.last.send.complete(wc::counter(word));
                return Some(self.step(next, sent, word));
            }
        } else if op & cqe::OWNER != 0 {
            if self.shared.has_news() {
                self.found_empty();
            }
            return None;
        } else if op >> 4 <= cqe::RESP_SEND_INV {
            // of a receive, or of a send that is not whole
            if let Some(next) = self.next_of_last(word, self.last.recv_key()).filter(|_| self.is_whole(word))
            {
                let id = self.last.recv.complete(wc::counter(word));
                return Some(self.step(next, Sent { id, noted: 0 }, word));
            }
        }
        let at = self.poll_slowly()?;
        Some(WorkCompletion::new(self.found, at.last_word() & !OWNER, at))
    }

    /// Whether it is the completion of a send that says all itself.
    #[inline(always)]
    fn is_sent(&self, op: u8) -> bool {
        const SENT: u8 = cqe::REQ << 4;
        if V::SCATTERS { op & !cqe::FORMAT == SENT && op <= self.widest } else { op == SENT }
    }

    /// Whether it is neither the title of a session, nor has data outside an entry of this size.
    #[inline(always)]
    fn is_whole(&self, word: u64) -> bool {
        if V::SCATTERS { wc::op_own(word) & cqe::FORMAT <= self.widest } else { !wc::is_title(word) }
    }

    /// If the next entry is of the queues that were completed last, whose key is `last`, and nothing is to be done but
    /// to go on: the index after it.
    #[inline(always)]
    fn next_of_last(&self, word: u64, last: u32) -> Option<u32> {
        let next = self.consumed().wrapping_add(1);
        (wc::key(word) == last && next & self.stretch != 0).then_some(next)
    }

    #[inline(always)]
    fn step(&mut self, next: u32, sent: Sent, word: u64) -> WorkCompletion<'_, V> {
        let at = self.at;
        self.shared.consumed().store(next, Ordering::Release);
        // SAFETY: the last entry of the ring ends a stretch.
        self.at = unsafe { self.ring.after(at) };
        WorkCompletion::new(sent, word, at)
    }

    /// The next completion, which is not simply the next one of the queues that were completed last; what was posted is
    /// `found`. (Not one value: that would have to go through memory, on the short way too.)
    #[cold]
    #[inline(never)]
    fn poll_slowly(&mut self) -> Option<CqeAt> {
        match self.poll_recent() {
            Some(at) => Some(at),
            None => self.poll_any(),
        }
    }

    /// The same, if it is of queues that were completed not long ago, and nothing is to be done but to go on.
    #[inline(always)]
    fn poll_recent(&mut self) -> Option<CqeAt> {
        let at = self.at;
        let word = at.last_word() ^ self.lap;
        let next = self.consumed().wrapping_add(1);
        if word & OWNER != 0 || !self.is_whole(word) || next & self.stretch == 0 {
            return None;
        }
        if wc::key(word) != self.last.key() && !self.recall(word) {
            return None;
        }
        self.found = done(&self.last, wc::kind(word), wc::counter(word))?;
        self.shared.consumed().store(next, Ordering::Release);
        // SAFETY: the last entry of the ring ends a stretch.
        self.at = unsafe { self.ring.after(at) };
        Some(at)
    }

    /// Makes the queues that an entry is of the last ones, if they were completed not long ago.
    #[inline(never)]
    fn recall(&mut self, word: u64) -> bool {
        let recent = self.recent.get(wc::qp_number(word) as usize % RECENT).and_then(Option::as_ref);
        let Some(lanes) = recent.filter(|lanes| wc::key(word) == lanes.key()) else { return false };
        self.last = Arc::clone(lanes);
        true
    }

    /// The same, whatever it is.
    #[cold]
    #[inline(never)]
    fn poll_any(&mut self) -> Option<CqeAt> {
        loop {
            let at = self.at;
            let word = at.last_word() ^ self.lap;
            if word & OWNER != 0 {
                if self.shared.has_news() {
                    self.found_empty();
                }
                return None;
            }
            if wc::is_title(word) && self.expand() {
                continue;
            }
            let found = self.find(word);
            let next = self.consumed().wrapping_add(1);
            self.shared.consumed().store(next, Ordering::Release);
            self.at = self.ring.at(next);
            if next & self.stretch == 0 {
                self.turn(next);
            }
            if let Some(found) = found {
                self.found = found;
                return Some(at);
            }
        }
    }

    /// The next entry is the title of a session of compressed completions: puts all of them into the ring in full, so
    /// that each is found like any other. False if it is none that can be.
    fn expand(&mut self) -> bool {
        let (first, ring) = (self.consumed(), self.ring);
        let _alone = self.shared.sessions();
        let title = self.at.words();
        let Some(count) = session::count(&title, ring.entries()).filter(|_| self.shared.is_compressed())
        else {
            return false;
        };
        let mut array = [0; mini::ARRAY as usize];
        // the title last: until then it stands for all
        let mut title_in_full = title;
        for number in 0..count {
            if number % mini::ARRAY == 0 {
                // before what is put in its place
                array = ring.at(first.wrapping_add(session::array_of(number))).words();
            }
            let index = first.wrapping_add(number);
            let [short, rest @ ..] = array;
            array = {
                let [a, b, c, d, e, f, g] = rest;
                [a, b, c, d, e, f, g, 0]
            };
            let full = session::expand(&title, number, short, lap_of(index, ring) != 0);
            if number == 0 {
                title_in_full = full;
            } else {
                // SAFETY: an entry of the session, which is the CPU's until it is given back.
                unsafe { ring.at(index).fill(full) };
            }
        }
        // SAFETY: as above.
        unsafe { self.at.fill(title_in_full) };
        true
    }

    /// Half of the ring was consumed: gives it back, and starts the next lap if it was the second half.
    fn turn(&mut self, consumed: u32) {
        self.lap = lap_of(consumed, self.ring);
        self.tell_consumed();
        let joined = self.shared.try_take_joined();
        self.meet(joined);
        self.known.retain(|_, lanes| {
            lanes.retain(|lanes| lanes.covers(consumed));
            !lanes.is_empty()
        });
        self.look_for_room(consumed);
        if self.shared.has_news() {
            self.shared.sweep();
            self.forget_retired();
        }
    }

    /// Tells the device how far we are.
    fn tell_consumed(&self) {
        barrier::cqe_before_record();
        self.shared.parts().record.store::<{ cq_record::CONSUMER }>(self.consumed() & cq_record::INDEX);
    }

    /// The request that an entry completes, or `None` if there is nothing to say.
    fn find(&mut self, word: u64) -> Option<Sent> {
        let kind = wc::kind(word);
        let is_send = matches!(kind, cqe::REQ | cqe::REQ_ERR);
        let is_recv = matches!(kind, cqe::RESP_WR_IMM..=cqe::RESP_SEND_INV | cqe::RESP_ERR);
        let has_data_outside =
            V::SCATTERS && wc::op_own(word) & cqe::FORMAT == cqe::SCATTER_64 && !self.ring.is_wide();
        if !is_send && !is_recv || has_data_outside {
            tracing::error!(kind, "an entry of a completion queue that is not known here was passed over");
            return None;
        }
        if wc::key(word) != self.last.key() {
            let number = wc::qp_number(word);
            self.last = self.lanes_of(number)?;
            if let Some(recent) = self.recent.get_mut(number as usize % RECENT) {
                *recent = Some(Arc::clone(&self.last));
            }
        }
        let lanes = &*self.last;
        let is_retired = lanes.is_retired();
        // a shared slot is free, whatever became of the queue pair by which the message came
        if is_retired && !(is_recv && lanes.shared.is_some()) {
            return None;
        }
        let done = done(lanes, kind, wc::counter(word));
        if done.is_none() {
            let slot = wc::counter(word);
            tracing::error!(
                slot,
                "the completion of a shared receive that is not outstanding was passed over"
            );
        }
        done.filter(|_| !is_retired)
    }

    /// Whose the next entry is, which names `number`, even if they were emptied since.
    fn lanes_of(&mut self, number: u32) -> Option<Arc<Lanes>> {
        let consumed = self.consumed();
        let covering = |known: &HashMap<u32, Vec<Arc<Lanes>>>| {
            known.get(&number)?.iter().find(|lanes| lanes.covers(consumed)).cloned()
        };
        covering(&self.known).or_else(|| {
            let joined = self.shared.take_joined();
            self.meet(joined);
            covering(&self.known)
        })
    }

    /// Nothing is kept of queues that are gone.
    fn forget_retired(&mut self) {
        self.recent.iter_mut().for_each(|lanes| drop(lanes.take_if(|lanes| lanes.is_retired())));
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
            self.shared.sweep();
            self.forget_retired();
            if !self.cq.room().left_behind().is_nothing() {
                self.shared.tell_news();
            }
        }
    }

    /// The same for a queue that is never empty: what was left behind one lap ago is gone.
    fn look_for_room(&mut self, consumed: u32) {
        match self.left_behind {
            Some((left, at)) if !is_before(consumed, at.wrapping_add(self.ring.entries())) => {
                self.cq.room().seen_empty(left);
                self.left_behind = None;
            }
            Some(_) => {}
            None => {
                let left = self.cq.room().left_behind();
                if !left.is_nothing() {
                    self.left_behind = Some((left, consumed));
                }
            }
        }
    }

    /// Asks for one event on the channel; see [`CompletionQueue::arm`](crate::CompletionQueue::arm) for the order of
    /// things.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`](crate::Error::Invalid) if the completion queue was made without a channel.
    pub fn arm(&mut self, what: Arm) -> Result<()> {
        if self.cq.channel().is_none() {
            return Err(no_channel());
        }
        self.tell_consumed();
        let parts = self.shared.parts();
        let word = arm_word(what, self.shared.events(), self.consumed());
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

impl<V: Delivery> Drop for Poller<'_, V> {
    fn drop(&mut self) {
        self.tell_consumed();
        self.shared.sweep();
        let known = std::mem::take(&mut self.known);
        self.shared.give_place(Place { consumed: self.consumed(), known });
    }
}

impl<V: Delivery> fmt::Debug for Poller<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("consumed", &self.consumed()).finish_non_exhaustive()
    }
}
