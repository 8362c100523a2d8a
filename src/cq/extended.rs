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
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use ibv_sys as sys;

use super::fields::WcFields;
use super::record::{ExtendedCompletion, FLAGS, OPCODE, Record, STANDARD};
use super::state::CqState;
use super::wc::WorkCompletion;
use super::{Arm, CompletionQueue, CompletionQueueBuilder, CqFor, PollCq, PollError, Room, poller_taken};
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
    run: NonZeroUsize,
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
        self.check_not_only_direct()?;
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
        let (readers, run) = (wc_flags | OPCODE | FLAGS, ctx.provider().longest_run());
        let state = ExtendedState { readers, run, has_poller: AtomicBool::new(false) };
        Ok(self.finish_as_granted(raw, id, state))
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

/// A queue on which every poll fails, so that a poll need not look whether one did before.
struct Dead(sys::ibv_cq_ex);

// SAFETY: nobody writes to it.
unsafe impl Sync for Dead {}

static DEAD: Dead = {
    unsafe extern "C" fn start_poll(_: *mut sys::ibv_cq_ex, _: *mut sys::ibv_poll_cq_attr) -> c_int {
        libc::EIO
    }
    // SAFETY: integers, pointers and optional functions, for which zero is a value.
    let mut cq: sys::ibv_cq_ex = unsafe { MaybeUninit::zeroed().assume_init() };
    cq.start_poll = Some(start_poll);
    Dead(cq)
};

/// One condition, since these are nearly always the two that hold.
#[inline(always)]
fn has_come_to_success(result: c_int, status: sys::ibv_wc_status) -> bool {
    const _: () = assert!(sys::IBV_WC_SUCCESS == 0);
    result as u32 | status == 0
}

/// Copies the completion at which `ex` stands, whatever it is.
///
/// # Safety
///
/// There is one, and the queue has the readers of `W`.
unsafe fn read<W: Record>(ex: *mut sys::ibv_cq_ex, wc: &mut W) {
    // SAFETY: by the caller's promise.
    unsafe {
        match (*ex).status {
            sys::IBV_WC_SUCCESS => wc.succeed(ex),
            _ => wc.fail(ex),
        }
    }
}

/// `ibv_start_poll` … `ibv_end_poll`—The one reader of an extended completion queue: who holds it polls. `F` is what it
/// reads of each completion; see [`fields`](crate::fields).
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
    /// The queue, or a dead one after it failed.
    ex: NonNull<sys::ibv_cq_ex>,
    /// The queue's.
    room: NonNull<Room>,
    /// How many completions may be read between start and end.
    run: NonZeroUsize,
    /// How it failed, if it did.
    failed: Option<c_int>,
    cq: Parent<'a, CompletionQueue<'a, Extended>>,
    _reads: PhantomData<F>,
}

// SAFETY: the pointers are those of the queue and its room, which it holds, and whose only reader it is (or of the dead
// queue, which nobody writes); the provider locks against all else that is done with the queue.
unsafe impl<F: WcFields> Send for Poller<'_, F> {}

impl<'a, F: WcFields> Poller<'a, F> {
    /// Becomes the poller of `cq`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it has one, or was not made for the fields of `F`.
    pub fn new(cq: impl CqFor<'a, Extended>) -> Result<Self> {
        let cq = cq.into_parent().into_own();
        let state = cq.state();
        if F::READS & !state.readers != 0 {
            let expected = "the poller's: make the queue by `build_extended::<F>()` with the same `F`";
            return Err(Error::invalid("what the completion queue can say", "fewer fields", expected));
        }
        if state.has_poller.swap(true, Ordering::Acquire) {
            return Err(poller_taken());
        }
        let (ex, room, run) = (cq.raw.as_non_null().cast(), NonNull::from(&cq.room), state.run);
        Ok(Self { ex, room, run, failed: None, cq, _reads: PhantomData })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue<'a, Extended> {
        &self.cq
    }

    /// `ibv_start_poll` … `ibv_end_poll`—Takes completions off the queue, as many as there are and `wcs` has room for.
    ///
    /// `wcs` is made once and reused. (Any poller also [fills](PollCq::poll_into) [`WorkCompletion`]s.)
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
        let ex = self.ex.as_ptr();
        let result = self.start();
        if self.is_just_empty(result) {
            return Ok(None);
        }
        // SAFETY: alive.
        if has_come_to_success(result, unsafe { (*ex).status }) {
            // SAFETY: after start, at a success; the queue has the readers of `F`, which `new` has checked.
            let wc = unsafe {
                let wc = ExtendedCompletion::of_success(ex);
                sys::ibv_end_poll(ex);
                wc
            };
            return Ok(Some(wc));
        }
        let mut wc = [ExtendedCompletion::default()];
        Ok(self.go_on(result, &mut wc)?.first().copied())
    }

    #[inline(always)]
    fn fill<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        let count = wcs.len();
        let Some(first) = wcs.first_mut() else { return Ok(&[]) };
        let ex = self.ex.as_ptr();
        let result = self.start();
        if self.is_just_empty(result) {
            return Ok(&[]);
        }
        // SAFETY: alive.
        if !has_come_to_success(result, unsafe { (*ex).status }) {
            return self.go_on(result, wcs);
        }
        if count > self.run.get() {
            return self.go_on_in_runs(wcs);
        }
        // SAFETY: after start, at a success; the queue has the readers of `W`, which `new` has checked. Each that was found
        // has its place.
        unsafe {
            first.succeed(ex);
            let found = self.finish(ex, wcs, 1);
            std::hint::assert_unchecked(found <= count);
            Ok(wcs.get_unchecked(..found))
        }
    }

    /// Begins a run: 0, or why there is none.
    #[inline(always)]
    fn start(&mut self) -> c_int {
        let mut attr = sys::ibv_poll_cq_attr { comp_mask: 0 };
        // SAFETY: the queue is alive, and no run of it under way, since this is its poller.
        unsafe { sys::ibv_start_poll(self.ex.as_ptr(), &raw mut attr) }
    }

    /// Nothing is there, and nothing else is to be done.
    #[inline(always)]
    fn is_just_empty(&self, result: c_int) -> bool {
        // SAFETY: the queue's, which is held.
        result == libc::ENOENT && unsafe { self.room.as_ref() }.left_behind().is_nothing()
    }

    /// Copies the next completions of a run behind the first `found` of `wcs`, as many as there are and it has room for, and
    /// ends it; how many there are then.
    ///
    /// # Safety
    ///
    /// In a run of `ex`, which is the queue.
    #[inline(always)]
    unsafe fn finish<W: Record>(
        &mut self,
        ex: *mut sys::ibv_cq_ex,
        wcs: &mut [W],
        mut found: usize,
    ) -> usize {
        while found < wcs.len() {
            // SAFETY: after start.
            let result = unsafe { sys::ibv_next_poll(ex) };
            // SAFETY: alive.
            if has_come_to_success(result, unsafe { (*ex).status }) {
                // SAFETY: at a success; the queue has the readers of `W`, which `new` has checked; in bounds, as just looked.
                unsafe { wcs.get_unchecked_mut(found).succeed(ex) };
            } else if result == libc::ENOENT {
                break;
            } else {
                // SAFETY: where such a result leads.
                return unsafe { self.stumble(result, ex, wcs, found) };
            }
            found += 1;
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        found
    }

    /// [`finish`](Self::finish), from where a step with that result has not come to a success. (Apart, so that the
    /// other way needs no pointer to where it is.)
    ///
    /// # Safety
    ///
    /// As there, after that step.
    #[cold]
    #[inline(never)]
    unsafe fn stumble<W: Record>(
        &mut self,
        mut result: c_int,
        ex: *mut sys::ibv_cq_ex,
        wcs: &mut [W],
        mut found: usize,
    ) -> usize {
        while let (0, Some(wc)) = (result, wcs.get_mut(found)) {
            // SAFETY: in a run, at a completion, as in `finish`.
            unsafe { read(ex, wc) };
            found += 1;
            if found < wcs.len() {
                // SAFETY: in a run.
                result = unsafe { sys::ibv_next_poll(ex) };
            }
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        if result != 0 && result != libc::ENOENT {
            self.die(result);
        }
        found
    }

    /// What comes of a start that was none of the usual two: it failed, found a failure first, found nothing while
    /// something is left behind, or is to be followed by others.
    #[cold]
    #[inline(never)]
    fn go_on<'w, W: Record>(&mut self, mut result: c_int, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        if result == libc::ENOENT {
            let left = self.cq.room().left_behind();
            result = self.start();
            if result == libc::ENOENT {
                self.cq.room().seen_empty(left);
            }
        }
        let mut found = 0;
        for part in wcs.chunks_mut(self.run.get()) {
            if found > 0 {
                result = self.start();
            }
            if result != 0 {
                break;
            }
            let Some(first) = part.first_mut() else { break };
            let ex = self.ex.as_ptr();
            // SAFETY: after start, at a completion.
            found += unsafe {
                read(ex, first);
                self.finish(ex, part, 1)
            };
        }
        if result != 0 && result != libc::ENOENT {
            if found == 0 {
                return Err(PollError::new(self.failed.unwrap_or(result)));
            }
            self.die(result);
        }
        Ok(wcs.get(..found).unwrap_or(&[]))
    }

    /// The same after a start, if more is asked for than a run may give.
    #[cold]
    #[inline(never)]
    fn go_on_in_runs<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], PollError> {
        self.go_on(0, wcs)
    }

    /// It failed so, after it had found something. That is for this poll to give, the error for all that come.
    #[cold]
    #[inline(never)]
    fn die(&mut self, result: c_int) {
        self.failed = Some(result);
        self.ex = NonNull::from(&DEAD.0);
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
