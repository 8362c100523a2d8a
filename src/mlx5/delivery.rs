//! Where short data comes: to memory, or in the completion.
//!
//! # Safety
//!
//! The 64 bytes before a completion are read only if it says that there is data, which it does in an entry of 128
//! bytes: the poller passes over others.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::ops::Deref;

use super::bits::cqe;
use super::wc::Completion;

/// Where the device puts short data, which the kind of the completion queue says: [`Direct`](crate::Direct) is
/// `Direct<ToMemory>`.
pub trait Delivery: sealed::Sealed + Copy + fmt::Debug + Send + Sync + 'static {
    #[doc(hidden)]
    const SCATTERS: bool;
}

/// All data goes where the request says.
#[derive(Debug, Clone, Copy)]
pub enum ToMemory {}

/// Short data comes in the completion ("scatter to CQE"), and nowhere else: it is read by
/// [`Completion::scattered`].
///
/// Short are up to 32 bytes, or 64 in [wide](crate::CompletionQueueBuilder::wide) entries: of a message
/// that was received, or of the answer to a signaled READ or atomic, on RC and UC queue pairs that are made with such
/// completion queues. Requests are posted as ever, with room in memory for all that may come; what comes in the
/// completion leaves it as it is. Data that is longer goes to memory, and so do a peer's WRITEs, and datagrams. A
/// device need not do any of it: look at each completion.
///
/// It pays for short messages that are dealt with at once: the device writes once instead of twice, and the data is in
/// the cache line that the poller has read already. It does not where messages are collected in memory, since they have
/// to be copied there then. Completions with data are not [compressed](crate::CompletionQueueBuilder::compressed).
///
/// libmlx5 copies such data to the address in the request when it polls. Here nothing does: the region may be gone by
/// then. So there is no completion in C's form, which has no room for the data: neither
/// [`copy`](super::WorkCompletion::copy), nor [`PollCq`](crate::PollCq).
///
/// # Examples
///
/// ```no_run
/// use ibv::mlx5::Poller;
/// use ibv::{CompletionQueue, Context, MemoryRegion, QueuePairBuilder, Rc, recv};
///
/// # fn f(ctx: &Context, inbox: &MemoryRegion<'_>) -> Result<(), ibv::Error> {
/// let pd = ctx.alloc_pd()?;
/// let cq = CompletionQueue::builder(ctx, 256).build_direct_scattered()?;
/// let mut poller = Poller::new(&cq)?;
/// let qp = QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).build()?;
/// // ... it is connected, and receives `id` are posted, each for a slot of 256 bytes
/// while let Some(wc) = poller.poll() {
///     let done = wc.result()?;
///     let mut message = [0; 256];
///     let len = done.byte_len().unwrap_or(0) as usize;
///     match done.scattered() {
///         Some(data) => message[..len].copy_from_slice(&data),
///         None => inbox.read(wc.id() as usize * 256, &mut message[..len])?,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE")]
#[doc(alias = "MLX5_SCATTER_TO_CQE")]
#[derive(Debug, Clone, Copy)]
pub enum ToCqe {}

impl Delivery for ToMemory {
    const SCATTERS: bool = false;
}

impl Delivery for ToCqe {
    const SCATTERS: bool = true;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ToMemory {}
    impl Sealed for super::ToCqe {}
}

/// Data that came in a completion; it dereferences to its bytes.
#[derive(Clone, Copy)]
pub struct Scattered {
    bytes: [[u8; 8]; 8],
    len: usize,
}

impl Deref for Scattered {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        let bytes = self.bytes.as_flattened();
        bytes.get(..self.len).unwrap_or(bytes)
    }
}

impl AsRef<[u8]> for Scattered {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Scattered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Completion<'_, ToCqe> {
    /// The data, if it came in the completion: all [`byte_len`](Self::byte_len) bytes. If not, it is where the request
    /// said.
    #[inline(always)]
    pub fn scattered(&self) -> Option<Scattered> {
        let (op_own, at) = self.op_own_and_place();
        let (words, room) = match op_own & cqe::FORMAT {
            cqe::SCATTER_32 => {
                let [a, b, c, d] = at.first_words();
                ([a, b, c, d, 0, 0, 0, 0], 32)
            }
            // SAFETY: an entry of 128 bytes (see the module).
            cqe::SCATTER_64 => (unsafe { at.words_before() }, 64),
            _ => return None,
        };
        // no device says more
        let len = (self.byte_len()? as usize).min(room);
        Some(Scattered { bytes: words.map(u64::to_ne_bytes), len })
    }
}
