//! Completion queues.
//!
//! # Safety
//!
//! A [`CompletionQueue`] owns its `ibv_cq`; queue pairs hold it as parent. Polling a [`Bare`] one is locked by the
//! provider, so it goes by `&self` from all threads.

#![expect(unsafe_code, reason = "the Safety section above")]

mod attach;
mod builder;
mod channel;
mod extended;
pub mod fields;
mod front;
mod poll_hint;
mod poller;
mod record;
mod room;
mod turns;
mod wc;

pub use attach::CqFor;
pub(crate) use attach::CqParent;
pub use builder::CompletionQueueBuilder;
pub use channel::CompletionChannel;
pub use fields::WcFields;
pub use poller::Poller;
pub use record::ExtendedCompletion;
pub(crate) use wc::codes;
pub use wc::{Completion, PollError, WcError, WcOpcode, WcStatus, WorkCompletion};

use std::convert::Infallible;
use std::ffi::c_int;
use std::fmt;

use ibv_sys as sys;

use crate::context::Context;
use crate::error::{CloseError, Error, Refused, Result, VerbError};
use crate::id::CqId;
#[cfg(feature = "mlx5")]
use crate::mlx5::{Delivery, ToMemory};
use crate::parent::Parent;
use crate::qp::Extended;
use crate::raw::Raw;
#[cfg(feature = "mlx5")]
pub(crate) use room::Left;
pub(crate) use room::Room;
use state::CqState;

/// How a completion queue is polled, fixed when it is made; [`Bare`], [`Extended`] or `Direct`.
///
/// Bare and extended ones serve the same queue pairs; to direct ones, only direct queue pairs attach.
pub trait CqKind: sealed::Sealed + 'static {
    /// What it has beside its C object.
    #[doc(hidden)]
    type State: state::CqState;
    /// What its completions of shared receives are looked up in.
    #[doc(hidden)]
    type SharedSlots: fmt::Debug + Send + Sync;
    /// What posting on a shared receive queue needs beside the C object, if that completes to it.
    #[doc(hidden)]
    type SharedQueue: fmt::Debug + Send + Sync;
    /// `()` if its queue pairs may have extended completion queues instead, or a type without values.
    #[doc(hidden)]
    type OrExtended: Copy + fmt::Debug + Send + Sync;
}

/// `ibv_poll_cq`, by anybody.
#[derive(Debug, Clone, Copy)]
pub enum Bare {}

/// Of an mlx5 device, whose rings are read and written by this crate. As a kind of completion queue: by its one
/// [`Poller`](crate::mlx5::Poller); as a [`Backend`](crate::Backend) of queue pairs: posting takes `&mut self`. See
/// [`mlx5`](crate::mlx5).
///
/// `V` is where short data comes: to memory, if nothing is said, or [`ToCqe`](crate::mlx5::ToCqe).
#[cfg(feature = "mlx5")]
#[derive(Debug, Clone, Copy)]
pub enum Direct<V: Delivery = ToMemory> {
    #[doc(hidden)]
    Never(std::convert::Infallible, std::marker::PhantomData<V>),
}

impl CqKind for Bare {
    type State = ();
    type SharedSlots = ();
    type SharedQueue = ();
    type OrExtended = ();
}
impl CqKind for Extended {
    type State = extended::ExtendedState;
    type SharedSlots = ();
    type SharedQueue = ();
    type OrExtended = Infallible;
}
#[cfg(feature = "mlx5")]
impl<V: Delivery> CqKind for Direct<V> {
    type State = crate::mlx5::OwnedCq;
    type SharedSlots = crate::mlx5::SharedSlots;
    type SharedQueue = crate::mlx5::DirectSrq;
    type OrExtended = Infallible;
}

pub(crate) mod state {
    /// What a completion queue has beside its C object; it is dropped before that is destroyed.
    pub trait CqState: Send + Sync + std::fmt::Debug {
        /// The C object is to be destroyed.
        fn before_destroy(&self) {}
    }

    impl CqState for () {}
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Bare {}
    impl Sealed for super::Extended {}
    #[cfg(feature = "mlx5")]
    impl<V: super::Delivery> Sealed for super::Direct<V> {}
}

/// `ibv_cq`—A completion queue: where the device reports what became of requests.
///
/// `Send` and `Sync`.
///
/// # Examples
///
/// ```no_run
/// use ibv::WorkCompletion;
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let cq = ctx.create_cq(128)?;
/// let mut wcs = [WorkCompletion::default(); 16];
/// for wc in cq.poll(&mut wcs)? {
///     match wc.result() {
///         Ok(done) => println!("request {} is done: {:?}", wc.id(), done.opcode()),
///         Err(error) => println!("request {} failed: {error}", wc.id()),
///     }
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_cq")]
pub struct CompletionQueue<'a, K: CqKind = Bare> {
    state: K::State,
    // after `state`: what that holds goes before the queue
    raw: Raw<sys::ibv_cq>,
    room: Room,
    id: CqId,
    // after `raw`: the queue goes before its channel and context
    channel: Option<Parent<'a, CompletionChannel<'a>>>,
    ctx: Parent<'a, Context>,
}

/// What completions can be polled from, whatever reads the device's ring: code written for it runs on every kind of
/// completion queue that gives completions in C's form, which are all but those with data in them.
///
/// # Examples
///
/// ```
/// use ibv::{Error, PollCq, WorkCompletion};
///
/// fn wait_for(cq: &mut impl PollCq, id: u64) -> Result<(), Error> {
///     let mut wcs = [WorkCompletion::default(); 16];
///     loop {
///         for wc in cq.poll_into(&mut wcs)? {
///             wc.result()?;
///             if wc.id() == id {
///                 return Ok(());
///             }
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give completions in C's form",
    label = "give `&mut &cq` of a plain completion queue, or `&mut` of the `Poller` of an extended or a direct one; where data may stand in the completions, call `Poller::poll`, and look for it"
)]
pub trait PollCq {
    /// Takes completions off the queue, as many as there are and `wcs` has room for.
    ///
    /// # Errors
    ///
    /// [`PollError`] if the queue makes no sense.
    fn poll_into<'w>(&mut self, wcs: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError>;
}

impl PollCq for &CompletionQueue<'_, Bare> {
    #[inline(always)]
    fn poll_into<'w>(&mut self, wcs: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError> {
        self.poll(wcs)
    }
}

/// `ibv_poll_cq`: how many of `wcs` were filled, or a negative code.
///
/// # Safety
///
/// `cq` is alive, or stands in for one that is.
#[inline(always)]
unsafe fn fill(cq: *mut sys::ibv_cq, wcs: &mut [WorkCompletion]) -> c_int {
    let room = wcs.len().min(c_int::MAX as usize) as c_int;
    // SAFETY: by the caller's promise; `wcs` has `room` entries of `ibv_wc`, which they are transparent over.
    unsafe { sys::ibv_poll_cq(cq, room, wcs.as_mut_ptr().cast()) }
}

/// The first `count`.
///
/// # Safety
///
/// [`fill`] returned it, of these, and it is not negative.
#[inline(always)]
unsafe fn filled(wcs: &mut [WorkCompletion], count: c_int) -> &[WorkCompletion] {
    // SAFETY: a provider fills no more entries than it was given, or it would have overrun them already. (Said twice:
    // with an array of one, the caller's loop is none.)
    unsafe {
        std::hint::assert_unchecked(count as usize <= wcs.len());
        std::slice::from_raw_parts(wcs.as_ptr(), count as usize)
    }
}

/// What [`CompletionQueue::arm`] shall raise an event for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arm {
    /// The next completion.
    Any,
    /// The next receive of a message sent as [solicited](crate::Send::solicited), or the next error.
    Solicited,
}

impl<'a> CompletionQueue<'a, Bare> {
    /// `ibv_create_cq`—A queue with at least `entries` entries, without events.
    ///
    /// The queues of a queue pair claim of it what their rings can hold, the next power of two above their depth; a sum
    /// that does not fit is refused when the queue pair is made. [`entries_for`](Self::entries_for) tells the need (for
    /// the 16 and 16 of a queue pair that says nothing, 64). What a dropped queue pair claimed comes back when a poll
    /// has found the queue empty.
    ///
    /// # Errors
    ///
    /// Those of [`CompletionQueueBuilder::build`].
    #[doc(alias = "ibv_create_cq")]
    pub fn new(ctx: impl Into<Parent<'a, Context>>, entries: u32) -> Result<Self> {
        Self::builder(ctx, entries).build()
    }

    /// How many entries a send or receive queue of `depth` requests claims of its completion queue.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ibv::{CompletionQueue, Rc};
    ///
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// # let pd = ctx.alloc_pd()?;
    /// let entries = CompletionQueue::entries_for(64) + CompletionQueue::entries_for(500);
    /// let cq = ctx.create_cq(entries)?;
    /// let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(64).recv_depth(500).build()?;
    /// # Ok::<(), ibv::Error>(())
    /// ```
    pub fn entries_for(depth: u32) -> u32 {
        Room::for_depth(depth)
    }

    /// For events, a completion vector, overcommitment, or another kind of completion queue: [`CompletionQueueBuilder`]
    /// has them all.
    pub fn builder(ctx: impl Into<Parent<'a, Context>>, entries: u32) -> CompletionQueueBuilder<'a> {
        CompletionQueueBuilder::new(ctx.into(), entries)
    }

    /// `ibv_poll_cq`—Takes completions off the queue, as many as there are and `wcs` has room for.
    ///
    /// `wcs` is made once and reused: nothing is copied but what the provider writes.
    ///
    /// # Errors
    ///
    /// [`PollError`] if the provider can't make sense of the queue. Then nothing is known of what is outstanding.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll<'w>(&self, wcs: &'w mut [WorkCompletion]) -> Result<&'w [WorkCompletion], PollError> {
        // SAFETY: alive.
        let mut count = unsafe { fill(self.raw.as_ptr(), wcs) };
        if count <= 0 {
            if count == 0 && self.room.left_behind().is_nothing() {
                return Ok(&[]);
            }
            count = self.found_none(count, wcs)?;
        }
        // SAFETY: as many as were filled.
        Ok(unsafe { filled(wcs, count) })
    }

    /// A poll failed, or found nothing while something is left behind: which a poll that begins now may free.
    #[cold]
    #[inline(never)]
    fn found_none(&self, count: c_int, wcs: &mut [WorkCompletion]) -> Result<c_int, PollError> {
        let left = self.room.left_behind();
        // SAFETY: alive.
        let count = if count < 0 { count } else { unsafe { fill(self.raw.as_ptr(), wcs) } };
        let found = usize::try_from(count).map_err(|_| PollError::new(count))?;
        // fewer than there is room for may be all up to an error that comes next (libefa)
        if found == 0 && !wcs.is_empty() {
            self.room.seen_empty(left);
        }
        Ok(count)
    }

    /// `ibv_req_notify_cq`—Asks for one event on the channel.
    ///
    /// The order that loses none: arm, poll until the queue is empty, wait for the event, and again. An event may
    /// find the queue empty.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it was made without a channel; [`Error::Verb`] with what the provider says: one that
    /// rings the device's doorbell (mlx5) never fails, one that asks the kernel (Soft-RoCE) has EIO if the device is
    /// gone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{Arm, CompletionChannel, CompletionQueue, WorkCompletion};
    /// # fn f(cq: &CompletionQueue<'_>, channel: &CompletionChannel<'_>) -> Result<(), ibv::Error> {
    /// # let mut wcs = [WorkCompletion::default(); 16];
    /// cq.arm(Arm::Any)?;
    /// while !cq.poll(&mut wcs)?.is_empty() {} // what came before it was armed raises no event
    /// channel.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_req_notify_cq")]
    #[inline]
    pub fn arm(&self, what: Arm) -> Result<()> {
        self.request_event(what)
    }
}

impl<K: CqKind> CompletionQueue<'_, K> {
    /// Not for queues that are read and written here.
    #[inline]
    fn request_event(&self, what: Arm) -> Result<()> {
        if self.channel.is_some() {
            // SAFETY: the queue is alive.
            let result =
                unsafe { sys::ibv_req_notify_cq(self.raw.as_ptr(), (what == Arm::Solicited).into()) };
            if result == 0 { Ok(()) } else { Err(not_armed(result)) }
        } else {
            Err(no_channel())
        }
    }
}

/// A completion queue has its poller.
#[cold]
pub(crate) fn poller_taken() -> Error {
    let expected = "one at a time: drop the other one, or let it poll for both";
    Error::invalid("the completion queue's poller", "taken", expected)
}

/// A completion queue was made without a channel, and so cannot be armed.
#[cold]
pub(crate) fn no_channel() -> Error {
    Error::invalid("the completion queue's channel", "none", "made with `builder().channel(..)`")
}

#[cold]
fn not_armed(errno: c_int) -> Error {
    VerbError::new("ibv_req_notify_cq", errno, String::new()).into()
}

impl<'a, K: CqKind> CompletionQueue<'a, K> {
    /// What its events are told apart by.
    pub fn id(&self) -> CqId {
        self.id
    }

    /// How many completions it holds.
    pub fn capacity(&self) -> u32 {
        self.room.capacity()
    }

    /// The context that it was made from.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// The channel that its events go to.
    pub fn channel(&self) -> Option<&CompletionChannel<'a>> {
        self.channel.as_deref()
    }

    /// `ibv_destroy_cq`—Destroys it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the queue, with EBUSY if a queue pair on it was leaked.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        self.state.before_destroy();
        self.raw.destroy().map_err(|error| Refused::new(self, error))
    }

    /// The C object; see [`Context::as_ptr`].
    pub fn as_ptr(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) fn state(&self) -> &K::State {
        &self.state
    }
}

impl<K: CqKind> fmt::Debug for CompletionQueue<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("id", &self.id)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}
