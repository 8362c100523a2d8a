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
use std::sync::{Mutex, PoisonError};

use ibv_sys as sys;

use super::fields::WcFields;
use super::record::{ExtendedCompletion, FLAGS, OPCODE, Record, STANDARD, failure, has_readers};
use super::state::CqState;
use super::wc::{PollSuccessesError, WcError, WorkCompletion};
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
    /// A failure that was taken off the queue by a poller that is gone, and shown to nobody.
    unseen: Mutex<Option<WcError>>,
}

/// Why a poller looks at the dead queue.
#[derive(Clone, Copy)]
enum Halt {
    /// The queue is of no more use: what it returned.
    Dead(c_int),
    /// This failure was taken off it behind successes, and is to be given before all else.
    Failure(WcError),
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
        let readers = STANDARD | F::READS | OPCODE | FLAGS;
        let wc_flags = readers & !(OPCODE | FLAGS);
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
        if !unsafe { can_be_polled(cq, readers) } {
            return Err(VerbError::new(VERB, libc::EOPNOTSUPP, asked()).into());
        }
        let run = ctx.provider().longest_run();
        let state =
            ExtendedState { readers, run, has_poller: AtomicBool::new(false), unseen: Mutex::default() };
        Ok(self.finish_as_granted(raw, id, state))
    }
}

/// Whether the pointers are there that polling calls for `reads`.
///
/// # Safety
///
/// `cq` is alive.
unsafe fn can_be_polled(cq: *const sys::ibv_cq_ex, reads: u64) -> bool {
    // SAFETY: by the caller's promise.
    let (has_readers, cq) = unsafe { (has_readers(cq, reads), &*cq) };
    let has_steps = cq.start_poll.is_some() && cq.next_poll.is_some() && cq.end_poll.is_some();
    has_readers && has_steps && cq.read_vendor_err.is_some()
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

/// Copies the completion at which `ex` stands, whatever it is; the failure, if it is one that a `W` cannot be.
///
/// # Safety
///
/// There is one, and the queue has the readers of `W`.
unsafe fn read<W: Record>(ex: *mut sys::ibv_cq_ex, wc: &mut W) -> Result<(), WcError> {
    // SAFETY: by the caller's promise.
    unsafe {
        if (*ex).status == sys::IBV_WC_SUCCESS {
            wc.succeed(ex);
            return Ok(());
        }
        let failure = failure(ex);
        wc.fail(failure).map_err(|_| failure)
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
    /// The queue, or a dead one while there is a halt.
    ex: NonNull<sys::ibv_cq_ex>,
    /// The queue's.
    room: NonNull<Room>,
    /// How many completions may be read between start and end.
    run: NonZeroUsize,
    halt: Option<Halt>,
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
            let expected = "make it by `build_extended::<F>()` with the poller's `F`";
            return Err(Error::invalid("the completion queue", "made for other fields", expected));
        }
        if state.has_poller.swap(true, Ordering::Acquire) {
            return Err(poller_taken());
        }
        let unseen = state.unseen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (ex, room, run) = (cq.raw.as_non_null().cast(), NonNull::from(&cq.room), state.run);
        let mut poller = Self { ex, room, run, halt: None, cq, _reads: PhantomData };
        if let Some(failure) = unseen {
            poller.halt(Halt::Failure(failure));
        }
        Ok(poller)
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

    /// `ibv_start_poll` … `ibv_end_poll`—Takes completions that succeeded off the queue, as many as there are and `done`
    /// has room for, up to the first failure: [`poll`](Self::poll) for those to whom a failure is an exception, with
    /// nothing to look at but what was asked for, [`WrId`](crate::fields::WrId) among it.
    ///
    /// Fewer than `done` has room for need not be all: a failure may come next, which is off the queue, so that it
    /// raises no event any more and is not taken away when its queue pair is reset or destroyed. Poll until there is
    /// nothing before waiting for an event, or doing that.
    ///
    /// # Errors
    ///
    /// [`PollSuccessesError::Completion`] with the next completion, if that failed; it is off the queue then, and the
    /// next call goes on behind it. [`PollSuccessesError::Poll`] as [`poll`](Self::poll).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ibv::fields::{ByteLen, WrId};
    /// use ibv::{CompletionQueue, Poller};
    ///
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// let cq = CompletionQueue::builder(&ctx, 128).build_extended::<(WrId, ByteLen)>()?;
    /// let mut poller = Poller::<(WrId, ByteLen)>::new(&cq)?;
    /// let mut done = [Default::default(); 16];
    /// for (WrId(id), ByteLen(bytes)) in poller.poll_successes(&mut done)? {
    ///     println!("request {id}: {bytes:?} bytes");
    /// }
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[inline(always)]
    pub fn poll_successes<'w>(&mut self, done: &'w mut [F]) -> Result<&'w [F], PollSuccessesError> {
        self.fill(done)
    }

    #[inline(always)]
    fn fill<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], W::Error> {
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
        // SAFETY: after start, at a success; the queue has the readers of `W`: those of all queues, or those that `new`
        // has checked. Each that was found has its place.
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
        // SAFETY: the queue is alive, and no run of it under way, since this is its poller; or it is the dead one, which
        // looks at nothing.
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
                // SAFETY: at a success; the queue has the readers of `W`, as in `fill`; in bounds, as just looked.
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
            if let Err(failure) = unsafe { read(ex, wc) } {
                self.halt(Halt::Failure(failure));
                break;
            }
            found += 1;
            if found < wcs.len() {
                // SAFETY: in a run.
                result = unsafe { sys::ibv_next_poll(ex) };
            }
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        if result != 0 && result != libc::ENOENT {
            // what was found is for this poll to give, the error for all that come
            self.halt(Halt::Dead(result));
        }
        found
    }

    /// What comes of a start that was none of the usual two: there is a halt, it failed, found a failure first, found
    /// nothing while something is left behind, or is to be followed by others.
    #[cold]
    #[inline(never)]
    fn go_on<'w, W: Record>(&mut self, mut result: c_int, wcs: &'w mut [W]) -> Result<&'w [W], W::Error> {
        match (self.halt, wcs.first_mut()) {
            (Some(Halt::Dead(code)), _) => return Err(PollError::new(code).into()),
            (Some(Halt::Failure(failure)), Some(first)) => {
                (self.halt, self.ex) = (None, self.cq.raw.as_non_null().cast());
                first.fail(failure)?;
                return Ok(wcs.get(..1).unwrap_or(&[]));
            }
            _ => {}
        }
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
            let (0, Some(first)) = (result, part.first_mut()) else { break };
            let ex = self.ex.as_ptr();
            // SAFETY: after start, at a completion.
            if let Err(failure) = unsafe { read(ex, first) } {
                // SAFETY: after start.
                unsafe { sys::ibv_end_poll(ex) };
                if found == 0 {
                    return first.fail(failure).map(|()| &[] as &[W]);
                }
                self.halt(Halt::Failure(failure));
                break;
            }
            // SAFETY: after start.
            found += unsafe { self.finish(ex, part, 1) };
            if self.halt.is_some() {
                break;
            }
        }
        if result != 0 && result != libc::ENOENT {
            if found == 0 {
                return Err(PollError::new(result).into());
            }
            self.halt(Halt::Dead(result));
        }
        Ok(wcs.get(..found).unwrap_or(&[]))
    }

    /// The same after a start, if more is asked for than a run may give.
    #[cold]
    #[inline(never)]
    fn go_on_in_runs<'w, W: Record>(&mut self, wcs: &'w mut [W]) -> Result<&'w [W], W::Error> {
        self.go_on(0, wcs)
    }

    #[cold]
    #[inline(never)]
    fn halt(&mut self, halt: Halt) {
        self.halt = Some(halt);
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
        let state = self.cq.state();
        if let Some(Halt::Failure(failure)) = self.halt {
            *state.unseen.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        }
        state.has_poller.store(false, Ordering::Release);
    }
}

impl<F: WcFields> fmt::Debug for Poller<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("cq", &self.cq).finish_non_exhaustive()
    }
}
