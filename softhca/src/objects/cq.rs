//! Completion queues.

use crate::engine::Entry;

/// A completion queue in the application's memory.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) ctx: u32,
    /// The application's `ibv_cq`, named in events.
    pub(crate) user: u64,
    pub(crate) buf: u64,
    /// The doorbell record: consumer index, arm word.
    pub(crate) db: u64,
    /// Entries, a power of two.
    pub(crate) entries: u32,
    pub(crate) cqe_size: u32,
    /// Producer index.
    pub(crate) pi: u32,
    /// The producer index after the last solicited completion.
    pub(crate) solicited_pi: u32,
    pub(crate) armed: Armed,
    /// The arm word seen last.
    pub(crate) last_arm: u32,
    pub(crate) channel: Option<u32>,
    /// The event descriptor for asynchronous events.
    pub(crate) async_fd: Option<u32>,
    pub(crate) comp_events: u32,
    pub(crate) async_events: u32,
    /// A completion was lost; the queue is dead.
    pub(crate) overrun: bool,
    pub(crate) ignore_overrun: bool,
    /// Queues that use it.
    pub(crate) uses: u32,
    /// Completions that resemble each other are written in a short form.
    pub(crate) compresses: bool,
    /// Those that wait to be written together.
    pub(crate) session: Vec<Entry>,
}

impl Cq {
    /// Where the 64-byte CQE of place `index` is: in an entry of 128 bytes it is the second half.
    pub(crate) fn entry(&self, index: u32) -> u64 {
        let size = u64::from(self.cqe_size);
        self.buf + u64::from(index & (self.entries - 1)) * size + (size - 64)
    }
}

/// Whether the next completion makes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    Any,
    Solicited,
}
