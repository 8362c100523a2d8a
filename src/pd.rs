//! Protection domains: what belongs together.
//!
//! # Safety
//!
//! Calls of verbs on a context that is open.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ibv_sys as sys;

use crate::addr::AddressVector;
use crate::ah::AddressHandle;
use crate::context::Context;
use crate::cq::CqFor;
use crate::error::{CloseError, Error, Refused, Result, VerbError};
use crate::mr::{Local, MemoryRegion, Pages, Remote, RemoteAccess};
use crate::mw::{MemoryWindow, WindowType};
use crate::parent::Parent;
use crate::qp::{QueuePairBuilder, Transport};
use crate::raw::Raw;

/// `ibv_pd`—A protection domain: queue pairs, regions and address handles work together only within one.
///
/// `Send` and `Sync`.
///
/// # Examples
///
/// ```no_run
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// let pd = ctx.alloc_pd()?;
/// let mr = pd.alloc_local(4096)?;
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_pd")]
pub struct ProtectionDomain<'a> {
    /// Shared with direct queue pairs that wait to be destroyed.
    raw: Arc<Raw<sys::ibv_pd>>,
    ctx: Parent<'a, Context>,
    posting: AtomicU8,
}

/// How the queues of a protection domain may post, fixed for good by the first of them.
///
/// A queue that is leaked goes on receiving into the keys that it was posted with. A provider may hand such a key out
/// again for new memory at the same address (libmlx5's registration cache does), which must then not be memory that
/// Rust references point to. So a domain has queues that post what they borrow, or pools that lend slices, never both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Posting {
    /// Queues that post borrowed regions; CPU access is by copying.
    Borrowed = 1,
}

impl Posting {
    const OPEN: u8 = 0;

    fn what(kind: u8) -> &'static str {
        match kind {
            1 => "queues that post borrowed regions",
            _ => "buffer pools",
        }
    }
}

impl<'a> ProtectionDomain<'a> {
    /// `ibv_alloc_pd`—A new protection domain of `ctx`, which is `&Context`, or an `Arc` of it.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with ENOMEM if the device has no more.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(ctx: impl Into<Parent<'a, Context>>) -> Result<Self> {
        let ctx = ctx.into();
        // SAFETY: the context is open.
        let pd = unsafe { sys::ibv_alloc_pd(ctx.as_ptr()) };
        // SAFETY: `pd` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_alloc_pd", pd, String::new) }?;
        Ok(Self { raw: Arc::new(raw), ctx, posting: AtomicU8::new(Posting::OPEN) })
    }

    /// The context that it was made from.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// A region of `len` fresh bytes for this side's use alone; see [`MemoryRegion::local`].
    ///
    /// # Errors
    ///
    /// Those of [`Pages::new`] and [`MemoryRegion::local`].
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_local(&self, len: usize) -> Result<MemoryRegion<'_, Local>> {
        Ok(MemoryRegion::local(self, Pages::new(len)?)?)
    }

    /// A region of `len` fresh bytes that peers may use; see [`MemoryRegion::remote`].
    ///
    /// # Errors
    ///
    /// Those of [`Pages::new`] and [`MemoryRegion::remote`].
    #[doc(alias = "ibv_reg_mr")]
    pub fn alloc_remote(&self, len: usize, access: RemoteAccess) -> Result<MemoryRegion<'_, Remote>> {
        Ok(MemoryRegion::remote(self, Pages::new(len)?, access)?)
    }

    /// Starts to make a queue pair of transport `T` that borrows this domain; see [`QueuePairBuilder`].
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp<'q, T: Transport>(
        &'q self,
        send_cq: impl CqFor<'q>,
        recv_cq: impl CqFor<'q>,
    ) -> QueuePairBuilder<'q, T> {
        QueuePairBuilder::new(self, send_cq, recv_cq)
    }

    /// [`MemoryWindow::new`] that borrows this domain.
    ///
    /// # Errors
    ///
    /// Those of [`MemoryWindow::new`].
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw<K: WindowType>(&self) -> Result<MemoryWindow<'_, K>> {
        MemoryWindow::new(self)
    }

    /// [`AddressHandle::new`] that borrows this domain.
    ///
    /// # Errors
    ///
    /// Those of [`AddressHandle::new`].
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, address: &AddressVector) -> Result<AddressHandle<'_>> {
        AddressHandle::new(self, address)
    }

    /// `ibv_dealloc_pd`—Gives it back, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the domain, with EBUSY if something made from it was leaked, or if completions of a dropped
    /// direct queue pair are still to be polled (a dropped domain is then given back later).
    #[doc(alias = "ibv_dealloc_pd")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        let closed = match Arc::get_mut(&mut self.raw) {
            Some(raw) => raw.destroy(),
            None => {
                let asked = "completions of a dropped direct queue pair were not polled yet";
                Err(VerbError::new("ibv_dealloc_pd", libc::EBUSY, asked).into())
            }
        };
        closed.map_err(|error| Refused::new(self, error))
    }

    /// The C object; see [`Context::as_ptr`].
    #[inline]
    pub fn as_ptr(&self) -> *mut sys::ibv_pd {
        self.raw.as_ptr()
    }

    /// For what may outlive it: a direct queue pair that waits to be destroyed.
    pub(crate) fn shared(&self) -> &Arc<Raw<sys::ibv_pd>> {
        &self.raw
    }

    /// Fixes how the queues of this domain post.
    pub(crate) fn claim(&self, posting: Posting) -> Result<()> {
        let wanted = posting as u8;
        match self.posting.compare_exchange(Posting::OPEN, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(held) if held == wanted => Ok(()),
            Err(held) => Err(Error::PostingKind { held: Posting::what(held), wanted: Posting::what(wanted) }),
        }
    }
}

impl fmt::Debug for ProtectionDomain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("context", &self.ctx).finish_non_exhaustive()
    }
}
