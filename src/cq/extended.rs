//! Extended completion queues: `ibv_create_cq_ex`.
//!
//! # Safety
//!
//! An `ibv_cq_ex` starts with its `ibv_cq` (`ibv_cq_ex_to_cq` is this cast). Readers that were not asked for are null
//! pointers: a queue is made with those of all standard fields and of what `build_extended` was told, each pointer
//! checked then.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicI32};

use ibv_sys as sys;

use super::fields::WcFields;
use super::record::{FLAGS, OPCODE, STANDARD, has_readers};
use super::state::CqState;
use super::{CompletionQueue, CompletionQueueBuilder};
use crate::error::{Result, VerbError};
use crate::id::CqId;
use crate::qp::Extended;
use crate::raw::Raw;

/// What an extended completion queue has beside its C object.
#[derive(Debug)]
pub struct ExtendedState {
    /// The readers that it has: `enum ibv_create_cq_wc_flags`, and those of all queues.
    pub(super) readers: u64,
    /// How many completions may be read between start and end.
    pub(super) run: NonZeroUsize,
    pub(super) has_poller: AtomicBool,
    /// What a run ended with that left the queue of no more use, or 0.
    pub(super) dead: AtomicI32,
}

impl CqState for ExtendedState {}

impl<'a> CompletionQueueBuilder<'a> {
    /// `ibv_create_cq_ex`—Makes it, to be polled by one [`Poller`](crate::Poller), which reads of each completion no
    /// more than it was made for: the standard fields or, if the device has them, the others that `F` names.
    ///
    /// # Errors
    ///
    /// Those of [`build`](Self::build); [`Error::Verb`](crate::Error::Verb) with EOPNOTSUPP if the device, or its
    /// driver, lacks extended queues or one of those fields.
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
            ExtendedState { readers, run, has_poller: AtomicBool::new(false), dead: AtomicI32::new(0) };
        let queue = self.finish_as_granted(raw, id, state);
        // its first poll opens it, and whether it stays so is known there
        queue.room().front().close();
        Ok(queue)
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
