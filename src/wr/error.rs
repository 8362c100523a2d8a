//! Why a post was refused.

use std::ffi::c_int;
use std::io;

/// Why a post was refused.
///
/// The variants but [`Device`](Self::Device) are found before the device sees anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The provider said no.
    #[error("the provider refused the post: {}{}", io::Error::from_raw_os_error(*errno), note(*errno, *accepted))]
    Device {
        /// Its errno: ENOMEM (on Soft-RoCE with [`Extended`](crate::Extended) ENOSPC) if the queue is full, EINVAL
        /// mostly for a queue pair that has moved to another state. ENOBUFS if a list is copied before it is posted, and
        /// there is no memory for it.
        errno: i32,
        /// How many requests, from the first, were posted all the same. `None` if the provider does not tell: then
        /// all of them may be in flight, and what they name must be left alone until the queue pair is reset.
        accepted: Option<u32>,
    },
    /// More scatter/gather elements than the queue was made for.
    #[error(
        "more scatter/gather elements than the {max} that the queue was made for (`send_sges`, `recv_sges`, or the shared \
         receive queue's `sges`)"
    )]
    TooManySges {
        /// What it was made for.
        max: u32,
    },
    /// More scatter/gather elements than the batch's storage has room for.
    #[error(
        "more scatter/gather elements than the {max} that the batch's storage has room for (its parameter `S`)"
    )]
    CellTooNarrow {
        /// What it has room for.
        max: u32,
    },
    /// More inline data than the queue pair was made for.
    #[error("more inline data than the {max} bytes that the queue pair was made for (`inline`)")]
    InlineTooLong {
        /// What it was made for.
        max: u32,
    },
    /// More than 2³¹ bytes in all, the longest message.
    #[error("the elements are longer than a message can be, which is 2^31 bytes")]
    MessageTooLong,
    /// The data is longer than the part of the peer's region that it is for.
    #[error("the local data is longer than the peer's slice")]
    RemoteTooShort,
    /// The address handle, or the memory window, belongs to another device context.
    #[error(
        "the address handle or window belongs to another device context: make it from the queue pair's own"
    )]
    OtherContext,
    /// The queue pair has no such request.
    #[error(
        "the queue pair's device, or its backend, has no such request (atomics, windows and invalidation are not \
         everywhere): post it on a `Basic` queue pair, or do without"
    )]
    Unsupported,
    /// The request was prepared by another queue pair.
    #[error("the request was prepared by another queue pair: prepare it by the one that posts it")]
    OtherQueuePair,
    /// The batch's storage is full: submit it first.
    #[error("the batch is full: submit it, or give it more storage")]
    BatchFull,
    /// The queue is full: poll its completions first. (The backends that go by the provider say it by
    /// [`Device`](Self::Device); [`is_queue_full`](Self::is_queue_full) knows both.)
    #[error(
        "the queue is full: poll completions first (unsignaled sends give their places back only with the completion of a \
         later signaled one)"
    )]
    QueueFull,
    /// The queue pair is not in a state that allows it.
    #[error(
        "the queue pair is in state {state}, which does not allow this post: sends need RTS, receives any state but \
         RESET; `reset` leads out of ERR"
    )]
    WrongState {
        /// The state.
        state: crate::QpState,
    },
}

impl PostError {
    /// The provider's errno, if it was the provider that refused.
    pub fn errno(&self) -> Option<i32> {
        match *self {
            Self::Device { errno, .. } => Some(errno),
            Self::QueueFull => Some(libc::ENOMEM),
            _ => None,
        }
    }

    /// Whether the queue was full: poll its completions, then post again what was not [accepted](Self::accepted) (on an
    /// [`Extended`](crate::Extended) queue pair that does not tell, all of it).
    pub fn is_queue_full(&self) -> bool {
        matches!(self, Self::QueueFull | Self::Device { errno: libc::ENOMEM | libc::ENOSPC, .. })
    }

    /// How many requests, from the first, were posted all the same; `None` if nobody knows, so that all of them may
    /// be in flight.
    pub fn accepted(&self) -> Option<u32> {
        match *self {
            Self::Device { accepted, .. } => accepted,
            _ => Some(0),
        }
    }

    #[cold]
    pub(super) fn device(errno: c_int, accepted: Option<u32>) -> Self {
        Self::Device { errno: errno.wrapping_abs(), accepted }
    }
}

fn note(errno: i32, accepted: Option<u32>) -> &'static str {
    match (errno, accepted) {
        (libc::ENOMEM | libc::ENOSPC, Some(0)) => " (the queue is full: poll completions first)",
        (libc::ENOMEM | libc::ENOSPC, Some(_)) => {
            " (the queue is full: poll completions, then post those that were not `accepted`)"
        }
        (libc::ENOMEM | libc::ENOSPC, None) => {
            " (the queue is full: poll completions first; if `trust_wr` promised that it never is, earlier requests may \
             be lost: count those outstanding)"
        }
        (_, Some(_)) => "",
        (_, None) => " (and did not say which requests are in flight: reset the queue pair to be sure)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_what_to_post_again() {
        for errno in [libc::ENOMEM, libc::ENOSPC] {
            let says = |accepted| PostError::device(errno, accepted).to_string();
            assert!(says(Some(0)).ends_with("(the queue is full: poll completions first)"));
            assert!(says(Some(3)).contains("those that were not `accepted`"));
            assert!(says(None).contains("`trust_wr`"));
        }
        assert!(PostError::device(libc::EIO, None).to_string().contains("reset the queue pair"));
    }
}
