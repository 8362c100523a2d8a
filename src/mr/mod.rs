//! Registered memory.
//!
//! # Safety
//!
//! A region owns its memory as a raw pointer and a length; no reference to it exists from registration until a
//! successful `ibv_dereg_mr`, which is the fence after which no device can reach it. The CPU reads and writes it
//! through [`dma`](crate::dma) alone. If deregistration fails, region and memory are leaked.

#![expect(unsafe_code, reason = "the Safety section above")]

mod buffer;
mod cpu;
mod remote;
mod slice;

pub use buffer::{Buffer, HugePages, Pages, PagesBuilder, RawBuffer, RawMemory};
pub use remote::{RemoteRegion, RemoteSlice, RemoteU64};
pub use slice::{MrSlice, MrU64, RangeError};

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use ibv_sys as sys;

use crate::error::{CloseError, Error, Refused, Result, VerbError};
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::raw::Raw;
use slice::{check_range, ends, wrong_range};

/// Who may use a region; [`Local`] or [`Remote`].
pub trait RegionKind: sealed::Sealed + 'static {}

/// A region for this side's requests only: what it holds is sent, or received into.
#[derive(Debug, Clone, Copy)]
pub enum Local {}

/// A region that peers may read, write or update, as far as its [`RemoteAccess`] goes.
#[derive(Debug, Clone, Copy)]
pub enum Remote {}

impl RegionKind for Local {}
impl RegionKind for Remote {}

/// A kind of region that peers may use: [`Remote`].
#[diagnostic::on_unimplemented(
    message = "a `{Self}` region is not for peers, and has no key to tell them",
    label = "make it with `MemoryRegion::remote` or `pd.alloc_remote`"
)]
pub trait ForPeers: RegionKind {}

impl ForPeers for Remote {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Local {}
    impl Sealed for super::Remote {}
}

bitflags::bitflags! {
    /// What a peer that knows the rkey may do with a region (`IBV_ACCESS_REMOTE_*`).
    ///
    /// The queue pair that the peer comes by must allow it as well: [`InitAttr::access`](crate::InitAttr::access),
    /// which allows nothing if not said.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct RemoteAccess: u32 {
        /// RDMA READ.
        const READ = sys::IBV_ACCESS_REMOTE_READ;
        /// RDMA WRITE.
        const WRITE = sys::IBV_ACCESS_REMOTE_WRITE;
        /// Compare-and-swap and fetch-and-add.
        const ATOMIC = sys::IBV_ACCESS_REMOTE_ATOMIC;
        /// Memory windows may be [bound](crate::bind_mw) over parts of the region, which give peers rights of their own
        /// there. On a queue pair it means nothing.
        #[doc(alias = "IBV_ACCESS_MW_BIND")]
        const MW_BIND = sys::IBV_ACCESS_MW_BIND;
    }
}

impl RemoteAccess {
    /// Without bits that have no name here, and a meaning of their own to the device.
    fn of_region(self) -> u32 {
        self.intersection(Self::all()).bits()
    }

    pub(crate) fn of_queue_pair(self) -> u32 {
        self.difference(Self::MW_BIND).of_region()
    }
}

/// `ibv_mr`—A registered region and the memory in it.
///
/// The region owns its memory. The device, and with [`Remote`] a peer, may write it at any moment, so it is never lent
/// as `&[u8]`: the CPU copies in and out with [`read`](Self::read) and [`write`](Self::write), or loads and stores 8
/// bytes at a time. Those see each byte either old or new, in no promised order. A completion orders them: what a
/// completed request wrote is seen by what the CPU reads after polling it.
///
/// Requests name parts of it by [`slice`](Self::slice). [`into_buffer`](Self::into_buffer) deregisters, and gives the
/// memory back.
///
/// `Send` and `Sync`, if its buffer is `Send`.
///
/// # Examples
///
/// ```no_run
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// # let pd = ctx.alloc_pd()?;
/// let mr = ibv::MemoryRegion::local(&pd, vec![0; 4096])?;
/// mr.write(0, b"hello")?;
/// let request = ibv::send(mr.slice(0..5)?);
/// # drop(request);
/// let buffer: Vec<u8> = mr.into_buffer()?;
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<'a, K: RegionKind = Local, M: Buffer = Pages> {
    raw: Raw<sys::ibv_mr>,
    memory: ManuallyDrop<Memory<M>>,
    lkey: u32,
    rkey: u32,
    /// What its windows are counted by, if there may be any: each has it too.
    windows: Option<Arc<()>>,
    // after `raw`: the region goes before its domain
    pd: Parent<'a, ProtectionDomain<'a>>,
    _kind: PhantomData<K>,
}

/// A buffer taken apart. Dropping it leaks the memory.
struct Memory<M: Buffer>(RawBuffer<M::Meta>);

impl<M: Buffer> Memory<M> {
    #[inline(always)]
    fn start(&self) -> *mut u8 {
        self.0.start.as_ptr()
    }

    /// # Safety
    ///
    /// Nothing uses the memory: it was never registered, or its region is gone.
    unsafe fn into_buffer(self) -> M {
        // SAFETY: `self` came from `into_raw`, and is used up; the rest by the caller's promise.
        unsafe { M::from_raw(self.0) }
    }
}

// SAFETY: the memory is owned like the buffer it came from, and a buffer may be dropped on another thread if it is
// `Send`; the CPU's accesses by `&self` are atomic, so they may come from all threads.
unsafe impl<K: RegionKind, M: Buffer + Send> Send for MemoryRegion<'_, K, M> {}
// SAFETY: as above; `&MemoryRegion` gives no access to the buffer itself.
unsafe impl<K: RegionKind, M: Buffer + Send> Sync for MemoryRegion<'_, K, M> {}

impl<'a, M: Buffer> MemoryRegion<'a, Local, M> {
    /// `ibv_reg_mr`—Registers `buffer` for requests of this side (`IBV_ACCESS_LOCAL_WRITE`).
    ///
    /// # Errors
    ///
    /// [`Refused`] with the buffer: [`Error::Verb`] with ENOMEM if it passes RLIMIT_MEMLOCK or the device's table is
    /// full, EINVAL; [`Error::Invalid`] if it is empty; [`Error::Limit`] if the device can't take that much.
    #[doc(alias = "ibv_reg_mr")]
    pub fn local(pd: impl Into<Parent<'a, ProtectionDomain<'a>>>, buffer: M) -> Result<Self, Refused<M>> {
        Self::register(pd.into(), buffer, sys::IBV_ACCESS_LOCAL_WRITE)
    }
}

impl<'a, M: Buffer> MemoryRegion<'a, Remote, M> {
    /// `ibv_reg_mr`—Registers `buffer` for requests of this side, and for those of `access` of peers that know its
    /// rkey and have a queue pair in this protection domain.
    ///
    /// # Errors
    ///
    /// As [`local`](MemoryRegion::local); and [`Error::Invalid`] if `access` is empty.
    #[doc(alias = "ibv_reg_mr")]
    pub fn remote(
        pd: impl Into<Parent<'a, ProtectionDomain<'a>>>,
        buffer: M,
        access: RemoteAccess,
    ) -> Result<Self, Refused<M>> {
        if access.is_empty() {
            let error = Error::invalid(
                "a remote region's access",
                "empty",
                "at least one right; else make a local one",
            );
            return Err(Refused::new(buffer, error));
        }
        Self::register(pd.into(), buffer, sys::IBV_ACCESS_LOCAL_WRITE | access.of_region())
    }
}

impl<'a, K: RegionKind, M: Buffer> MemoryRegion<'a, K, M> {
    fn register(pd: Parent<'a, ProtectionDomain<'a>>, buffer: M, access: u32) -> Result<Self, Refused<M>> {
        let raw = buffer.into_raw();
        let (start, len) = (raw.start, raw.len);
        let memory = Memory::<M>(raw);
        let register = || {
            if len == 0 {
                return Err(Error::invalid("the buffer's length", 0, "at least 1 byte"));
            }
            let max = pd.context().device_attr().max_mr_size();
            Error::check_limit("bytes of a memory region", len as u64, max)?;
            // SAFETY: the domain is alive; the memory is initialised, ours, and stays so until it is deregistered.
            let mr = unsafe { sys::ibv_reg_mr(pd.as_ptr(), start.as_ptr().cast(), len, access as i32) };
            // SAFETY: `mr` is new, or null with errno set.
            unsafe { Raw::new("ibv_reg_mr", mr, || format!("{len} bytes, access {access:#x}")) }
        };
        match register() {
            Ok(raw) => {
                // SAFETY: the region is new; its keys never change.
                let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
                let windows = (access & sys::IBV_ACCESS_MW_BIND != 0).then(Arc::default);
                let memory = ManuallyDrop::new(memory);
                Ok(Self { raw, memory, lkey, rkey, windows, pd, _kind: PhantomData })
            }
            // SAFETY: never registered.
            Err(error) => Err(Refused::new(unsafe { memory.into_buffer() }, error)),
        }
    }

    /// Its length in bytes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.memory.0.len
    }

    /// The key that requests name it by.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Address, length and key, to be told to peers.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{ProtectionDomain, RemoteAccess};
    /// # fn f(pd: &ProtectionDomain<'_>) -> Result<(), ibv::Error> {
    /// let mr = pd.alloc_remote(4096, RemoteAccess::WRITE)?;
    /// let wire = mr.remote_region().to_wire(); // 20 bytes, for the peer
    /// # Ok(())
    /// # }
    /// ```
    pub fn remote_region(&self) -> RemoteRegion
    where
        K: ForPeers,
    {
        RemoteRegion { addr: self.memory.start() as u64, len: self.len() as u64, rkey: self.rkey }
    }

    /// The key that peers name it by.
    pub fn rkey(&self) -> u32
    where
        K: ForPeers,
    {
        self.rkey
    }

    /// What the bind of a window over `range` says of it.
    pub(crate) fn bind_info(
        &self,
        range: impl RangeBounds<usize>,
        access: RemoteAccess,
    ) -> Result<sys::ibv_mw_bind_info>
    where
        K: ForPeers,
    {
        let (start, end) = ends(range, self.len());
        if start > end || end > self.len() {
            return Err(wrong_range(start, end, self.len()).into());
        }
        if access.of_region() == 0 || access.contains(RemoteAccess::MW_BIND) {
            let error =
                Error::invalid("a window's access", format!("{access:?}"), "some of READ, WRITE and ATOMIC");
            return Err(error);
        }
        Ok(sys::ibv_mw_bind_info {
            mr: self.raw.as_ptr(),
            addr: self.memory.start() as u64 + start as u64,
            length: (end - start) as u64,
            mw_access_flags: access.of_region(),
        })
    }

    /// What keeps it registered for as long as it is held.
    pub(crate) fn hold(region: Parent<'a, Self>) -> Result<Arc<dyn Send + Sync + 'a>>
    where
        M: Send,
    {
        let Some(windows) = &region.windows else {
            let expected = "with `RemoteAccess::MW_BIND`";
            return Err(Error::invalid("the region's access", "without `MW_BIND`", expected));
        };
        let windows = Arc::clone(windows);
        Ok(region.into_shared().map_or(windows as _, |region| region as _))
    }

    /// `ibv_dereg_mr`, unless a window may lead here whose end is not known: then nobody but the device has it any
    /// more.
    fn deregister(&mut self) -> Result<()> {
        if self.windows.as_ref().is_some_and(|windows| Arc::strong_count(windows) > 1) {
            let asked = "under a memory window that was forgotten, or could not be deallocated";
            return Err(VerbError::new("ibv_dereg_mr", libc::EBUSY, asked).into());
        }
        self.raw.destroy()
    }

    /// The protection domain that it is registered in.
    pub fn pd(&self) -> &ProtectionDomain<'a> {
        &self.pd
    }

    /// `ibv_sge`—The part of it that a request shall use, as a scatter/gather element.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if the range goes past the region's end, or is 2³¹ bytes or longer: a longer message takes
    /// several.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MemoryRegion, QueuePair, send};
    /// # fn f<'a>(qp: &QueuePair<'a>, mr: &'a MemoryRegion<'a>) -> Result<(), ibv::Error> {
    /// let (head, body) = (mr.slice(..64)?, mr.slice(1024..2048)?);
    /// qp.post(send([head, body]).signaled())?; // one message of 1088 bytes; made with `.send_sges(2)`
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_sge")]
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MrSlice<'_>, RangeError> {
        let (at, len) = check_range(range, self.len())?;
        Ok(MrSlice::new(self.memory.start() as u64 + at as u64, len, self.lkey))
    }

    /// All of it; see [`slice`](Self::slice).
    ///
    /// # Errors
    ///
    /// [`RangeError`] if the region is 2³¹ bytes or longer.
    #[inline]
    pub fn as_slice(&self) -> Result<MrSlice<'_>, RangeError> {
        self.slice(..)
    }

    /// 8 bytes at offset `at` that an atomic returns its result in.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if they are not aligned to 8, or go past the region's end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{MemoryRegion, QueuePair, RemoteU64, fetch_add};
    /// # fn f<'a>(qp: &QueuePair<'a>, mr: &'a MemoryRegion<'a>, counter: RemoteU64) -> Result<(), ibv::Error> {
    /// qp.post(fetch_add(mr.u64_at(64)?, counter, 1).signaled())?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn u64_at(&self, at: usize) -> Result<MrU64<'_>, RangeError> {
        let start = self.word(at)?;
        Ok(MrU64(MrSlice::new(start as u64, 8, self.lkey)))
    }

    /// `ibv_dereg_mr`—Deregisters it and gives the memory back.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the region, as it was; EBUSY if a memory window that was bound to it was forgotten.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(mr: ibv::MemoryRegion<'_>) -> Result<(), ibv::Error> {
    /// let pages = mr.into_buffer()?; // no device reaches it any more
    /// println!("{:?}", &pages[..5]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ibv_dereg_mr")]
    pub fn into_buffer(mut self) -> Result<M, CloseError<Self>> {
        if let Err(error) = self.deregister() {
            return Err(Refused::new(self, error));
        }
        let mut this = ManuallyDrop::new(self);
        // SAFETY: deregistered, so nothing reaches the memory; taken once, since `this` is never dropped.
        let buffer = unsafe { ManuallyDrop::take(&mut this.memory).into_buffer() };
        this.windows = None;
        // SAFETY: as above; the domain must still be let go, and the rest (`raw`) has nothing left to do.
        unsafe { std::ptr::drop_in_place(&raw mut this.pd) };
        Ok(buffer)
    }

    /// `ibv_dereg_mr`—Deregisters it and frees its memory, which dropping does as well.
    ///
    /// # Errors
    ///
    /// As [`into_buffer`](Self::into_buffer).
    #[doc(alias = "ibv_dereg_mr")]
    pub fn close(self) -> Result<(), CloseError<Self>> {
        self.into_buffer().map(drop)
    }

    /// The C object; see [`Context::as_ptr`](crate::Context::as_ptr).
    pub fn as_ptr(&self) -> *mut sys::ibv_mr {
        self.raw.as_ptr()
    }

    /// The memory. Whoever dereferences it must keep to the rules of [`MemoryRegion`]: the device may write it.
    pub fn memory(&self) -> NonNull<u8> {
        self.memory.0.start
    }
}

impl<K: RegionKind, M: Buffer> Drop for MemoryRegion<'_, K, M> {
    fn drop(&mut self) {
        match self.deregister() {
            // SAFETY: deregistered, so nothing reaches the memory; taken once, here.
            Ok(()) => drop(unsafe { ManuallyDrop::take(&mut self.memory).into_buffer() }),
            Err(error) => {
                tracing::error!(%error, len = self.len(), "a memory region could not be deregistered and is leaked");
                self.raw.leak();
            }
        }
    }
}

impl<K: RegionKind, M: Buffer> fmt::Debug for MemoryRegion<'_, K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("memory", &self.memory())
            .field("len", &self.len())
            .field("lkey", &self.lkey)
            .finish_non_exhaustive()
    }
}
