//! Polling extended completion queues: `ibv_start_poll` … `ibv_end_poll`.
//!
//! # Safety
//!
//! A completion is there to be read between `ibv_start_poll`, which takes the provider's lock, and the next step; no
//! code of the user's runs until `ibv_end_poll` gives the lock back: what was asked for is copied out. One [`Poller`]
//! at a time reads a queue, since the completion that is read stands in the queue itself. Readers that the queue was
//! not made with are null pointers: [`Poller::new`] refuses to read by those.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use ibv_sys as sys;

use super::fields::WcFields;
use super::front::Front;
use super::record::ExtendedCompletion;
use super::wc::WorkCompletion;
use super::{Arm, CompletionQueue, CqFor, PollCq, PollError, fill, filled, poller_taken};
use crate::error::{Error, Result};
use crate::parent::Parent;
use crate::qp::Extended;

/// One condition, since these are nearly always the two that hold.
#[inline(always)]
fn has_come_to_success(result: c_int, status: sys::ibv_wc_status) -> bool {
    const _: () = assert!(sys::IBV_WC_SUCCESS == 0);
    result as u32 | status == 0
}

/// Begins a run: 0, or why there is none.
///
/// # Safety
///
/// `ex` is what a queue's front gave to its poller, and no run of it is under way.
#[inline(always)]
unsafe fn start(ex: *mut sys::ibv_cq_ex) -> c_int {
    /// What a provider looks at, and no more.
    static NOTHING_ELSE: sys::ibv_poll_cq_attr = sys::ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: alive, by the caller's promise.
    unsafe { sys::ibv_start_poll(ex, (&raw const NOTHING_ELSE).cast_mut()) }
}

/// [`start`], also while the kernel is changing the clock's data, which libmlx5 does not wait for.
///
/// # Safety
///
/// As there.
unsafe fn start_at_leisure(ex: *mut sys::ibv_cq_ex) -> c_int {
    const TRIES: u32 = 1 << 16;
    for _ in 1..TRIES {
        // SAFETY: by the caller's promise.
        match unsafe { start(ex) } {
            libc::EBUSY => std::hint::spin_loop(),
            result => return result,
        }
    }
    // SAFETY: by the caller's promise.
    unsafe { start(ex) }
}

/// `ibv_start_poll` … `ibv_end_poll`—The one reader of an extended completion queue: who holds it polls. `F` is what it
/// reads of each completion; see [`fields`](crate::fields).
///
/// `Send`: queue pairs and poller may be on different threads. Queue pairs take the provider's lock when they are
/// destroyed, so the queues are made with it (not as `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`).
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
    /// The queue's.
    front: NonNull<Front>,
    /// The queue's.
    run: NonZeroUsize,
    cq: Parent<'a, CompletionQueue<'a, Extended>>,
    _reads: PhantomData<F>,
}

// SAFETY: the pointer is to the front of the queue, which it holds, and whose only reader it is; the provider locks
// against all else that is done with the queue.
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
        let (front, run) = (NonNull::from(cq.room().front()), state.run);
        Ok(Self { front, run, cq, _reads: PhantomData })
    }

    /// The completion queue.
    pub fn cq(&self) -> &CompletionQueue<'a, Extended> {
        &self.cq
    }

    /// `ibv_start_poll` … `ibv_end_poll`—Takes completions off the queue, as many as there are and `wcs` has room for.
    ///
    /// `wcs` is made once and reused. Any poller also [fills](PollCq::poll_into) [`WorkCompletion`]s, by one call for
    /// all of them: where many completions come at a time and no field is asked for that those lack, that costs less.
    ///
    /// # Errors
    ///
    /// [`PollError`] if the provider can't make sense of the queue. Then nothing is known of what is outstanding. If
    /// that is found behind completions, these are given first, and all polls that come fail.
    #[inline(always)]
    pub fn poll<'w>(
        &mut self,
        wcs: &'w mut [ExtendedCompletion<F>],
    ) -> Result<&'w [ExtendedCompletion<F>], PollError> {
        let count = wcs.len();
        let Some((first, rest)) = wcs.split_first_mut() else { return Ok(&[]) };
        let ex = self.front().get();
        // SAFETY: no run is under way, since this is the poller.
        let result = unsafe { start(ex) };
        if result == libc::ENOENT {
            return Ok(&[]);
        }
        // SAFETY: alive.
        if !has_come_to_success(result, unsafe { (*ex).status }) {
            return self.go_on(ex, result, wcs);
        }
        // SAFETY: after start, at a success; the queue has the readers of `F`, which `new` has checked. Each that was
        // found has its place.
        unsafe {
            first.succeed(ex);
            let found = 1 + self.finish(ex, rest);
            std::hint::assert_unchecked(found <= count);
            Ok(wcs.get_unchecked(..found))
        }
    }

    /// `ibv_start_poll`, `ibv_end_poll`—Takes the next completion off the queue, if there is one.
    ///
    /// # Errors
    ///
    /// As [`poll`](Self::poll).
    #[inline(always)]
    pub fn poll_one(&mut self) -> Result<Option<ExtendedCompletion<F>>, PollError> {
        let ex = self.front().get();
        // SAFETY: no run is under way, since this is the poller.
        let result = unsafe { start(ex) };
        if result == libc::ENOENT {
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
        Ok(self.go_on(ex, result, &mut wc)?.first().copied())
    }

    #[inline(always)]
    fn front(&self) -> &Front {
        // SAFETY: the queue's, which is held.
        unsafe { self.front.as_ref() }
    }

    /// Copies the next completions of a run, as many as there are and `wcs` has room for, and ends it; how many they
    /// are.
    ///
    /// # Safety
    ///
    /// In a run of `ex`, which is the queue.
    #[inline(always)]
    unsafe fn finish(&mut self, ex: *mut sys::ibv_cq_ex, wcs: &mut [ExtendedCompletion<F>]) -> usize {
        let room = wcs.len();
        let mut rest = wcs.iter_mut();
        while !rest.as_slice().is_empty() {
            // SAFETY: after start.
            let result = unsafe { sys::ibv_next_poll(ex) };
            // SAFETY: alive.
            if has_come_to_success(result, unsafe { (*ex).status }) {
                if let Some(wc) = rest.next() {
                    // SAFETY: at a success; the queue has the readers of `F`.
                    unsafe { wc.succeed(ex) };
                }
            } else if result == libc::ENOENT {
                break;
            } else {
                let found = room - rest.len();
                // SAFETY: in a run of `ex`, after the step that had that result.
                return found + unsafe { self.stumble(result, ex, rest.into_slice()) }.0;
            }
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        room - rest.len()
    }

    /// [`finish`](Self::finish), from where a step has had that result, whatever it has come to; and what the last step
    /// had. (Apart, so that the other way needs no pointer to where it is.)
    ///
    /// # Safety
    ///
    /// As there, after that step.
    #[cold]
    #[inline(never)]
    unsafe fn stumble(
        &mut self,
        mut result: c_int,
        ex: *mut sys::ibv_cq_ex,
        wcs: &mut [ExtendedCompletion<F>],
    ) -> (usize, c_int) {
        let mut found = 0;
        while let (0, Some(wc)) = (result, wcs.get_mut(found)) {
            // SAFETY: in a run, at a completion; the queue has the readers of `F`.
            unsafe { wc.become_any(ex) };
            found += 1;
            if found < wcs.len() {
                // SAFETY: in a run.
                result = unsafe { sys::ibv_next_poll(ex) };
            }
        }
        // SAFETY: after start.
        unsafe { sys::ibv_end_poll(ex) };
        if !matches!(result, 0 | libc::ENOENT | libc::EBUSY) {
            // what was found is for this poll to give, the error for all that come
            self.die(result);
        }
        (found, result)
    }

    /// What comes of a start that was none of the usual two: it found a failure first, failed, or the front is closed.
    #[cold]
    #[inline(never)]
    fn go_on<'w>(
        &mut self,
        ex: *mut sys::ibv_cq_ex,
        result: c_int,
        wcs: &'w mut [ExtendedCompletion<F>],
    ) -> Result<&'w [ExtendedCompletion<F>], PollError> {
        let found = match result {
            // SAFETY: after start, of the queue.
            0 => unsafe { self.stumble(0, ex, wcs) }.0,
            code if code == libc::EBUSY || Front::is_closed(ex) => {
                self.look_around(|poller, queue| poller.poll_in_runs(queue, wcs))?
            }
            code => return Err(PollError::new(code)),
        };
        Ok(wcs.get(..found).unwrap_or(&[]))
    }

    /// Polls the queue behind the front, and closes that again if the next poll is to come here, too. `poll`: how many
    /// were found, and whether nothing is left.
    fn look_around(
        &mut self,
        poll: impl FnOnce(&mut Self, *mut sys::ibv_cq_ex) -> Result<(usize, bool), PollError>,
    ) -> Result<usize, PollError> {
        if let Some(code) = self.death() {
            return Err(PollError::new(code));
        }
        let queue: *mut sys::ibv_cq_ex = self.cq.as_ptr().cast();
        self.front().open(queue);
        let left = self.cq.room().left_behind();
        let polled = poll(self, queue);
        let is_empty = polled.is_ok_and(|(_, is_empty)| is_empty);
        if is_empty {
            self.cq.room().seen_empty(left);
        }
        if self.death().is_some() || self.run != NonZeroUsize::MAX || !(is_empty || left.is_nothing()) {
            self.front().close();
        }
        polled.map(|(found, _)| found)
    }

    /// Takes completions off the queue, no more of them in a run than there may be.
    fn poll_in_runs(
        &mut self,
        queue: *mut sys::ibv_cq_ex,
        wcs: &mut [ExtendedCompletion<F>],
    ) -> Result<(usize, bool), PollError> {
        let (mut found, mut result) = (0, 0);
        for part in wcs.chunks_mut(self.run.get()) {
            // SAFETY: the queue, and no run is under way.
            result = unsafe { start_at_leisure(queue) };
            if result != 0 {
                break;
            }
            // SAFETY: after start.
            let (more, last) = unsafe { self.stumble(0, queue, part) };
            (found, result) = (found + more, last);
            if result != 0 {
                break;
            }
        }
        match result {
            0 | libc::ENOENT => Ok((found, result != 0)),
            code if found == 0 => Err(PollError::new(code)),
            // for this moment only
            libc::EBUSY => Ok((found, false)),
            code => {
                self.die(code);
                Ok((found, false))
            }
        }
    }

    /// Keeps what the next poll fails with, this poller's or another's.
    fn die(&mut self, code: c_int) {
        self.cq.state().dead.store(code, Ordering::Relaxed);
        self.front().close();
    }

    fn death(&self) -> Option<c_int> {
        let code = self.cq.state().dead.load(Ordering::Relaxed);
        (code != 0).then_some(code)
    }

    /// [`poll_into`](PollCq::poll_into), if the call failed or the front is closed.
    #[cold]
    #[inline(never)]
    fn go_on_into(
        &mut self,
        cq: *mut sys::ibv_cq_ex,
        result: c_int,
        wcs: &mut [WorkCompletion],
    ) -> Result<c_int, PollError> {
        if !Front::is_closed(cq) {
            return Err(PollError::new(result));
        }
        let mut count = 0;
        self.look_around(|_, queue| {
            // SAFETY: alive.
            count = unsafe { fill(queue.cast(), wcs) };
            let found = usize::try_from(count).map_err(|_| PollError::new(count))?;
            // fewer than there is room for may be all up to an error that comes next (libefa)
            Ok((found, found == 0 && !wcs.is_empty()))
        })?;
        Ok(count)
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
    /// `ibv_poll_cq`—All standard fields, whatever `F` is.
    #[inline(always)]
    fn poll_into<'w>(&mut self, wcs: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError> {
        let cq = self.front().get();
        // SAFETY: alive; an extended queue starts with its `ibv_cq`.
        let mut count = unsafe { fill(cq.cast(), wcs) };
        if count < 0 {
            count = self.go_on_into(cq, count, wcs)?;
        }
        // SAFETY: as many as were filled.
        Ok(unsafe { filled(wcs, count) })
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
