//! Address handles: where a datagram goes.
//!
//! # Safety
//!
//! An [`AddressHandle`] owns its `ibv_ah`; posts check that it is of the queue pair's context, since a provider would
//! take another's for its own.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;

use ibv_sys as sys;

use crate::addr::AddressVector;
use crate::cq::Completion;
use crate::error::{CloseError, Error, Refused, Result};
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::raw::Raw;

/// Length in bytes of the global routing header area at the start of every received datagram's buffer.
pub const GRH_LEN: usize = 40;

/// `ibv_ah`—The address of a peer's port, for datagrams.
///
/// `Send` and `Sync`.
///
/// # Examples
///
/// ```no_run
/// use ibv::{AddressVector, Endpoint};
///
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// # let peer = Endpoint { lid: 1, qpn: 2, psn: 3, gid: ibv::Gid::ZERO };
/// let pd = ctx.alloc_pd()?;
/// let address = AddressVector::to_peer(&ctx.local_port(1)?, &peer)?;
/// let ah = pd.create_ah(&address)?;
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_ah")]
pub struct AddressHandle<'a> {
    raw: Raw<sys::ibv_ah>,
    /// Its address vector, if the device is an mlx5.
    #[cfg(feature = "mlx5")]
    address: Option<crate::mlx5::AddressBytes>,
    pd: Parent<'a, ProtectionDomain<'a>>,
}

impl<'a> AddressHandle<'a> {
    /// `ibv_create_ah`—A handle for `address`.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if the port is wrong, or RoCE finds no GRH in the address; ENODATA if the GID index
    /// is empty; ETIMEDOUT or EHOSTUNREACH if RoCE can't resolve the peer's GID to a MAC address.
    #[doc(alias = "ibv_create_ah")]
    pub fn new(pd: impl Into<Parent<'a, ProtectionDomain<'a>>>, address: &AddressVector) -> Result<Self> {
        let pd = pd.into();
        let mut attr = address.to_c();
        // SAFETY: the domain is alive, and `attr` is only read.
        let ah = unsafe { sys::ibv_create_ah(pd.as_ptr(), &raw mut attr) };
        // SAFETY: `ah` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_create_ah", ah, || format!("{address:?}")) }?;
        Ok(Self::of(raw, pd))
    }

    /// `ibv_create_ah_from_wc`—A handle for the sender of a received datagram: `grh` is the first [`GRH_LEN`] bytes
    /// of the buffer that it came in, `port` our port that it came by.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); and [`Error::Verb`] with EINVAL if the GRH is of no known form, or its destination is
    /// none of our GIDs.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{AddressHandle, CompletionQueue, GRH_LEN, MemoryRegion, ProtectionDomain, WorkCompletion};
    /// # fn f(pd: &ProtectionDomain<'_>, cq: &CompletionQueue<'_>, mr: &MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// let mut wcs = [WorkCompletion::default()];
    /// for wc in cq.poll(&mut wcs)? {
    ///     let datagram = wc.result()?;
    ///     let mut grh = [0; GRH_LEN];
    ///     mr.read(0, &mut grh)?; // it was received into the region's start
    ///     let sender = AddressHandle::from_datagram(pd, &datagram, &grh, 1)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_create_ah_from_wc")]
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn from_datagram(
        pd: impl Into<Parent<'a, ProtectionDomain<'a>>>,
        datagram: &Completion<'_>,
        grh: &[u8; GRH_LEN],
        port: u8,
    ) -> Result<Self> {
        let pd = pd.into();
        if !datagram.is_recv() {
            return Err(Error::invalid("the completion", "not a receive", "of a received datagram"));
        }
        let mut wc = *datagram.as_wc();
        // ibv_grh is 40 bytes that must be aligned
        let mut aligned = sys::ibv_grh::default();
        const { assert!(size_of::<sys::ibv_grh>() == GRH_LEN) };
        // SAFETY: both are GRH_LEN bytes, and every byte pattern is an ibv_grh.
        unsafe { std::ptr::copy_nonoverlapping(grh.as_ptr(), (&raw mut aligned).cast(), GRH_LEN) };
        // SAFETY: the domain is alive; `wc` is a successful receive completion; all is only read.
        let ah = unsafe { sys::ibv_create_ah_from_wc(pd.as_ptr(), &raw mut wc, &raw mut aligned, port) };
        // SAFETY: `ah` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_create_ah_from_wc", ah, || format!("port {port}")) }?;
        Ok(Self::of(raw, pd))
    }

    fn of(raw: Raw<sys::ibv_ah>, pd: Parent<'a, ProtectionDomain<'a>>) -> Self {
        Self {
            // SAFETY: the handle is new, and of this context.
            #[cfg(feature = "mlx5")]
            address: unsafe { crate::mlx5::address_of(pd.context(), raw.as_ptr()) },
            raw,
            pd,
        }
    }

    #[cfg(feature = "mlx5")]
    #[inline(always)]
    pub(crate) fn mlx5_address(&self) -> Option<&crate::mlx5::AddressBytes> {
        self.address.as_ref()
    }

    /// The protection domain that it is of.
    pub fn pd(&self) -> &ProtectionDomain<'a> {
        &self.pd
    }

    /// The context that it is of.
    #[inline(always)]
    pub(crate) fn context_ptr(&self) -> *mut sys::ibv_context {
        // SAFETY: alive; the field never changes.
        unsafe { (*self.raw.as_ptr()).context }
    }

    /// `ibv_destroy_ah`—Destroys it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the handle.
    #[doc(alias = "ibv_destroy_ah")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        self.raw.destroy().map_err(|error| Refused::new(self, error))
    }

    /// The C object; see [`Context::as_ptr`](crate::Context::as_ptr).
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut sys::ibv_ah {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for AddressHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle").field("pd", &self.pd).finish_non_exhaustive()
    }
}
