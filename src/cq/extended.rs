//! Extended completion queues: `ibv_create_cq_ex`, `ibv_start_poll` … `ibv_end_poll`.
//!
//! # Safety
//!
//! An `ibv_cq_ex` starts with its `ibv_cq` (`ibv_cq_ex_to_cq` is this cast). A completion is there to be read between
//! `ibv_start_poll`, which takes the provider's lock, and the next step; no code of the user's runs until `ibv_end_poll`
//! gives the lock back: what was asked for is copied out. One [`Poller`] at a time reads a queue, since the completion that
//! is read stands in the queue itself. Readers that were not asked for are null pointers: a queue is made with those of
//! all standard fields and of what `build_extended` was told, each pointer checked then, and [`Poller::new`] refuses to read
//! others.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use ibv_sys as sys;

use super::fields::WcFields;
use super::record::{ExtendedCompletion, FLAGS, OPCODE, Record, STANDARD};
use super::state::CqState;
use super::wc::WorkCompletion;
use super::{Arm, CompletionQueue, CompletionQueueBuilder, PollCq, PollError, Room, poller_taken};
use crate::context::Provider;
use crate::error::{Error, Result, VerbError};
use crate::id::CqId;
use crate::parent::Parent;
use crate::qp::Extended;
use crate::raw::Raw;

/// What an extended completion queue has beside its C object.
#[derive(Debug)]
pub struct ExtendedState {
    /// The readers that it has: `enum ibv_create_cq_wc_flags`, and those of all queues.
    readers: u64,
    /// How many completions may be read between start and end.
    run: usize,
    has_poller: AtomicBool,
}

impl CqState for ExtendedState {}

impl<'a> CompletionQueueBuilder<'a> {
    /// `ibv_create_cq_ex`—Makes it, to be polled by one [`Poller`], which reads of each completion no more than it was
    /// made for: the standard fields or, if the device has them, the others that `F` names.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build); [`Error::Verb`] with EOPNOTSUPP if the device, or its driver, lacks extended queues
    /// or one of those fields.
    #[doc(alias = "ibv_create_cq_ex")]
    #[doc(alias = "ibv_cq_ex")]
    pub fn build_extended<F: WcFields>(self) -> Result<CompletionQueue<'a, Extended>> {
        const VERB: &str = "ibv_create_cq_ex";
        let entries = self.entries;
        let ctx = self.check()?;
        self.check_not_compressed()?;
        let wc_flags = (STANDARD | F::READS) & !(OPCODE | FLAGS);
        let id = CqId::new();
        let mut attr = sys::ibv_cq_init_attr_ex {
            cqe: entries,
            cq_context: id.to_context(),
            channel: self.channel_ptr(),
            comp_vector: self.comp_vector,
            wc_flags,
            ..Default::default()
        };
        let asked = || format!("{entries} entries, wc_flags {wc_flags:#x}");
        // SAFETY: context and channel are alive and belong together; cq_context is an id, never followed as a pointer.
        let cq = unsafe { sys::ibv_create_cq_ex(ctx.as_ptr(), &raw mut attr) };
        // SAFETY: `cq` is new, or null with errno set; it is destroyed as the `ibv_cq` that it starts with.
        let raw = unsafe { Raw::new(VERB, cq.cast::<sys::ibv_cq>(), asked) }?;
        // SAFETY: alive, and an `ibv_cq_ex`.
        if !unsafe { has_readers(cq, wc_flags) } {
            return Err(VerbError::new(VERB, libc::EOPNOTSUPP, asked()).into());
        }
        // SAFETY: the queue is new; `cqe` changes only in a resize, which there is none of.
        let capacity = u32::try_from(unsafe { (*cq).cqe }).unwrap_or(entries);
        let room = Room::new(capacity, self.overcommit);
        // rxe 44 gives its lock back twice, and finds completions that never were, if a run finds the queue's end
        let run = if let Provider::Rxe = ctx.provider() { 1 } else { usize::MAX };
        let state =
            ExtendedState { readers: wc_flags | OPCODE | FLAGS, run, has_poller: AtomicBool::new(false) };
        Ok(self.finish(raw, room, id, state))
    }
}

/// Whether the pointers are there that polling calls.
///
/// # Safety
///
/// `cq` is alive.
unsafe fn has_readers(cq: *const sys::ibv_cq_ex, wc_flags: u64) -> bool {
    // SAFETY: by the caller's promise.
    let cq = unsafe { &*cq };
    let asked = |flag: u32| wc_flags & u64::from(flag) != 0;
    macro_rules! are_there {
        ($($flag:ident: $reader:ident),*) => { $((!asked(sys::$flag) || cq.$reader.is_some()))&&* };
    }
    let always = cq.start_poll.is_some() && cq.next_poll.is_some() && cq.end_poll.is_some();
    always
        && cq.read_opcode.is_some()
        && cq.read_vendor_err.is_some()
        && cq.read_wc_flags.is_some()
        && are_there!(
            IBV_WC_EX_WITH_BYTE_LEN: read_byte_len,
            IBV_WC_EX_WITH_IMM: read_imm_data,
            IBV_WC_EX_WITH_QP_NUM: read_qp_num,
            IBV_WC_EX_WITH_SRC_QP: read_src_qp,
            IBV_WC_EX_WITH_SLID: read_slid,
            IBV_WC_EX_WITH_SL: read_sl,
            IBV_WC_EX_WITH_DLID_PATH_BITS: read_dlid_path_bits,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: read_completion_ts,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: read_completion_wallclock_ns
        )
}

/// The one reader of an extended completion queue: who holds it polls. `F` is what it reads of each completion; see
/// [`fields`](crate::fields).
///
/// `Send`: queue pairs and poller may be on different threads. Queue pairs take the provider's lock when they are destroyed,
/// so the queues are made with it (not as `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
///
/// # Examples
///
/// ```no_run
/// use ibv::fields::Timestamp;
/// use ibv::{CompletionQueue, Poller};
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let cq = CompletionQueue::builder(&ctx, 128).build_extended::<Timestamp>()?;
/// let mut poller = Poller::<Timestamp>::new(&cq)?;
/// while let Some(wc) = poller.poll_one()? {
///     let Timestamp(ticks) = wc.result()?;
///     println!("request {} was done at {ticks}", wc.id());
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_start_poll")]
#[doc(alias = "ibv_next_poll")]
#[doc(alias = "ibv_end_poll")]
pub struct Poller<'a, F: WcFields = ()> {
    ex: NonNull<sys::ibv_cq_ex>,
    /// How many completions may be read between start and end; none after it failed.
    run: usize,
    /// How it failed, if a run did that had found something before.
    failed: c_int,
    cq: Parent<'a, CompletionQueue<'a, Extended>>,
    _reads: PhantomData<F>,
}

// SAFETY: the pointer is that of the queue, which it holds, and whose only reader it is; the provider locks against all
// else that is done with the queue.
unsafe impl<F: WcFields> Send for Poller<'_, F> {}

impl<'a, F: WcFields> Poller<'a, F> {
    /// Becomes the poller of `cq`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it has one, or was not made for the fields of `F`.
    pub fn new(cq: impl Into<Parent<'a, CompletionQueue<'a, Extended>>>) -> Result<Self> {
        let cq = cq.into();
        let state = cq.state();
        if F::READS & !state.readers != 0 {
            let expected = "made for what the poller reads: `build_extended::<F>()`";
            return Err(Error::invalid("the completion queue's fields", "fewer", expected));
        }
        if state.has_poller.swap(true, Ordering::Acquire) {
            return Err(poller_taken());
        }
        let (ex, run) = (cq.raw.as_non_null().cast(), state.run);
        Ok(Self { ex, run, failed: 0, cq, _reads: PhantomData })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue<'a, Extended> {
        &self.cq
    }

    /// `ibv_start_poll` … `ibv_end_poll`—Takes completions off the queue, as many as there are and `wcs` has room for.
    ///
    /// `wcs` is made once and reused. (A poller for other fields may [fill](PollCq::poll_into) [`WorkCompletion`]s.)
    ///
    /// # Errors
    ///
    /// [`PollError`] if the provider can't make sense of the queue. Then nothing is known of what is outstanding.
    #[inline(always)]
    pub fn poll<'w>(
        &mut self,
        wcs: &'w mut [ExtendedCompletion<F>],
    ) -> Result<&'w [ExtendedCompletion<F>], PollError> {
        self.fill(wcs)
    }

    /// `ibv_start_poll`, `ibv_end_poll`—Takes the next completion off the queue, if there is one.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<ExtendedCompletion<F>>, PollError> {
        let mut wc = ExtendedCompletion::default();
        let found = self.fill(std::slice::from_mut(&mut wc))?.len();
        Ok((found != 0).then_some(wc))
    }

    #[inline(always)]
    fn fill<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        if wcs.len() > self.run {
            return self.fill_in_runs(wcs);
        }
        match self.fill_once(wcs) {
            Ok(found) => Ok(wcs.get(..found).unwrap_or(&[])),
            Err(libc::ENOENT) if self.cq.room().left_behind().is_nothing() => Ok(&[]),
            Err(result) => self.found_none(result, wcs),
        }
    }

    /// What one run finds, or why it did not begin.
    #[inline(always)]
    fn fill_once<W: Record>(&mut self, wcs: &mut [W]) -> Result<usize, c_int> {
        let ex = self.ex.as_ptr();
        let mut wcs = wcs.iter_mut();
        let Some(first) = wcs.next() else { return Ok(0) };
        let mut attr = sys::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the queue is alive, and no run of it under way, since this is its poller.
        let result = unsafe { sys::ibv_start_poll(ex, &raw mut attr) };
        if result != 0 {
            return Err(result);
        }
        // SAFETY: at a completion; the queue has the readers of `F`, which `new` has checked.
        unsafe { first.read(ex) };
        let mut found = 1;
        for wc in wcs {
            // SAFETY: after start.
            let result = unsafe { sys::ibv_next_poll(ex) };
            if result != 0 {
                self.ended(result);
                break;
            }
            // SAFETY: as above.
            unsafe { wc.read(ex) };
            found += 1;
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        Ok(found)
    }

    /// A run ended before the array was full: at the queue's end, or with an error, which is kept for the next poll.
    #[inline(always)]
    fn ended(&mut self, result: c_int) {
        if result != libc::ENOENT {
            (self.run, self.failed) = (0, result);
        }
    }

    /// Fills an array by runs that are shorter.
    #[cold]
    #[inline(never)]
    fn fill_in_runs<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        if self.run == 0 {
            return Err(PollError::new(self.failed));
        }
        let mut found = 0;
        for run in wcs.chunks_mut(self.run) {
            match self.fill(run).map(<[W]>::len) {
                Ok(0) => break,
                Ok(more) => found += more,
                Err(error) if found == 0 => return Err(error),
                Err(error) => {
                    self.ended(error.code());
                    break;
                }
            }
        }
        Ok(wcs.get(..found).unwrap_or(&[]))
    }

    /// A poll failed, or found nothing while something is left behind: which a poll that begins now may free.
    #[cold]
    #[inline(never)]
    fn found_none<'w, W: Record>(&mut self, result: c_int, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        let left = self.cq.room().left_behind();
        let result = if result == libc::ENOENT { self.fill_once(wcs) } else { Err(result) };
        match result {
            Ok(found) => Ok(wcs.get(..found).unwrap_or(&[])),
            Err(libc::ENOENT) => {
                self.cq.room().seen_empty(left);
                Ok(&[])
            }
            Err(result) => Err(PollError::new(result)),
        }
    }

    /// `ibv_req_notify_cq`—Asks for one event on the channel; see [`CompletionQueue::arm`] for the order of things.
    ///
    /// # Errors
    ///
    /// As there.
    #[doc(alias = "ibv_req_notify_cq")]
    #[inline]
    pub fn arm(&mut self, what: Arm) -> Result<()> {
        self.cq.request_event(what)
    }
}

impl<F: WcFields> PollCq for Poller<'_, F> {
    /// Reads all standard fields, whatever `F` is.
    #[inline]
    fn poll_into<'w>(&mut self, wcs: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError> {
        self.fill(wcs)
    }
}

impl<F: WcFields> Drop for Poller<'_, F> {
    fn drop(&mut self) {
        self.cq.state().has_poller.store(false, Ordering::Release);
    }
}

impl<F: WcFields> fmt::Debug for Poller<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("cq", &self.cq).finish_non_exhaustive()
    }
}
