//! Making a completion queue; `build_extended` is in `extended`, and the direct kinds are made in `mlx5/cq`.
//!
//! # Safety
//!
//! Context and channel are alive and of one context when the queue is created, and held by it from then on.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;

use ibv_sys as sys;

use super::{Bare, CompletionChannel, CompletionQueue, CqKind, Room};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::id::CqId;
use crate::parent::Parent;
use crate::raw::Raw;

/// How to make a [`CompletionQueue`]: what it is made by says how it is polled, for good.
///
/// | made by | polled by | for |
/// |---|---|---|
/// | [`build`](Self::build) | [`CompletionQueue::poll`], from any thread | everything, on every device; the default |
/// | [`build_extended`](Self::build_extended) | its one [`Poller`](crate::Poller) | timestamps; long completions of which little is read |
#[cfg_attr(
    feature = "mlx5",
    doc = "| [`build_direct`](Self::build_direct) | its one [`mlx5::Poller`](crate::mlx5::Poller) | mlx5 devices, where a poll counts: [`mlx5`](crate::mlx5) |
| [`build_direct_scattered`](Self::build_direct_scattered) | the same | short messages that are dealt with at once: up to 32 bytes of data, or 64, come in the completion ([`ToCqe`](crate::mlx5::ToCqe)) |"
)]
///
/// Queue pairs of both backends of libibverbs complete to the first two kinds; each direct kind has
/// direct queue pairs of its own. Code that is generic over [`PollCq`](crate::PollCq) polls all kinds but those with
/// data in their completions.
///
/// # Examples
///
/// ```no_run
/// use ibv::{CompletionChannel, CompletionQueue};
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let channel = CompletionChannel::new(&ctx)?;
/// let cq = CompletionQueue::builder(&ctx, 128).channel(&channel).comp_vector(1).build()?;
/// # Ok::<(), ibv::Error>(())
/// ```
pub struct CompletionQueueBuilder<'a> {
    ctx: Parent<'a, Context>,
    pub(crate) entries: u32,
    channel: Option<Parent<'a, CompletionChannel<'a>>>,
    pub(crate) comp_vector: u32,
    pub(crate) overcommit: bool,
    pub(crate) compressed: bool,
    pub(crate) wide: bool,
}

impl<'a> CompletionQueueBuilder<'a> {
    pub(super) fn new(ctx: Parent<'a, Context>, entries: u32) -> Self {
        Self {
            ctx,
            entries,
            channel: None,
            comp_vector: 0,
            overcommit: false,
            compressed: false,
            wide: false,
        }
    }

    /// Its events go to `channel`, once it is [armed](CompletionQueue::arm).
    pub fn channel(mut self, channel: impl Into<Parent<'a, CompletionChannel<'a>>>) -> Self {
        self.channel = Some(channel.into());
        self
    }

    /// Its events come by that completion vector (below [`Context::comp_vectors`]); 0 if not said.
    pub fn comp_vector(mut self, vector: u32) -> Self {
        self.comp_vector = vector;
        self
    }

    /// Lets queue pairs attach whose queues could overrun it. Then it is the program's part to have no more requests
    /// outstanding than it has entries: an overrun loses completions, and stops the queue on most devices.
    pub fn overcommit(mut self) -> Self {
        self.overcommit = true;
        self
    }

    /// Lets the device write completions that differ little in a short form, eight to an entry: less traffic on its bus
    /// at high rates. For [direct](Self::build_direct) ones alone, since libmlx5 cannot poll such a queue.
    #[cfg(feature = "mlx5")]
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE")]
    pub fn compressed(mut self) -> Self {
        self.compressed = true;
        self
    }

    /// Its entries shall have 128 bytes, a cache line of some machines, and not 64. For [direct](Self::build_direct)
    /// ones alone.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use ibv::CompletionQueue;
    ///
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// let cq = CompletionQueue::builder(&ctx, 256).wide().build_direct_scattered()?;
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[cfg(feature = "mlx5")]
    #[doc(alias = "MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE")]
    pub fn wide(mut self) -> Self {
        self.wide = true;
        self
    }

    /// `ibv_create_cq`—Makes it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the device has fewer entries or vectors; [`Error::Invalid`] for 0 entries;
    /// [`Error::OtherContext`]; [`Error::Verb`] with EINVAL or ENOMEM.
    #[doc(alias = "ibv_create_cq")]
    pub fn build(self) -> Result<CompletionQueue<'a, Bare>> {
        let entries = self.entries;
        let ctx = self.check()?;
        self.check_not_only_direct()?;
        let id = CqId::new();
        // SAFETY: context and channel are alive and belong together; cq_context is an id, never followed as a pointer.
        let cq = unsafe {
            sys::ibv_create_cq(
                ctx.as_ptr(),
                entries as c_int,
                id.to_context(),
                self.channel_ptr(),
                self.comp_vector as c_int,
            )
        };
        // SAFETY: `cq` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_create_cq", cq, || format!("{entries} entries")) }?;
        Ok(self.finish_as_granted(raw, id, ()))
    }

    /// What is asked of every kind.
    pub(crate) fn check(&self) -> Result<&Context> {
        let Self { ctx, entries, channel, comp_vector, .. } = self;
        if *entries == 0 {
            return Err(Error::invalid("entries of a completion queue", 0, "at least 1"));
        }
        Error::check_limit("entries of a completion queue", *entries, ctx.device_attr().max_cqe())?;
        Error::check_limit("the completion vector", *comp_vector, ctx.comp_vectors().saturating_sub(1))?;
        if let Some(channel) = channel {
            ctx.check_same(channel.context(), "completion channel")?;
        }
        Ok(ctx)
    }

    /// That it is nothing that only direct ones can be.
    pub(super) fn check_not_only_direct(&self) -> Result<()> {
        let refused = |actual, expected| Err(Error::invalid("the completion queue", actual, expected));
        match self {
            Self { compressed: true, .. } => refused(
                "compressed",
                "made by `build_direct`, or not compressed: libmlx5 cannot poll a compressed one",
            ),
            Self { wide: true, .. } => refused("wide", "made by `build_direct`, or without `wide`"),
            _ => Ok(()),
        }
    }

    pub(crate) fn channel_ptr(&self) -> *mut sys::ibv_comp_channel {
        self.channel.as_ref().map_or(null_mut(), |channel| channel.as_ptr())
    }

    /// The queue that came of it, with as many entries as C says.
    pub(super) fn finish_as_granted<K: CqKind>(
        self,
        raw: Raw<sys::ibv_cq>,
        id: CqId,
        state: K::State,
    ) -> CompletionQueue<'a, K> {
        // SAFETY: the queue is new; `cqe` changes only in a resize, which there is none of.
        let capacity = u32::try_from(unsafe { (*raw.as_ptr()).cqe }).unwrap_or(self.entries);
        let room = Room::new(capacity, self.overcommit);
        self.finish(raw, room, id, state)
    }

    /// The queue that came of it.
    pub(crate) fn finish<K: CqKind>(
        self,
        raw: Raw<sys::ibv_cq>,
        room: Room,
        id: CqId,
        state: K::State,
    ) -> CompletionQueue<'a, K> {
        CompletionQueue { raw, room, id, channel: self.channel, ctx: self.ctx, state }
    }
}

impl fmt::Debug for CompletionQueueBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueueBuilder")
            .field("entries", &self.entries)
            .field("comp_vector", &self.comp_vector)
            .field("overcommit", &self.overcommit)
            .finish_non_exhaustive()
    }
}
