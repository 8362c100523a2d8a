//! An open device, and the questions that can be put to it.
//!
//! # Safety
//!
//! A [`Context`] owns its `ibv_context`. Every other object holds the context as (grand)parent, so the pointer is
//! valid for as long as anything reachable was made from it.

#![expect(unsafe_code, reason = "the Safety section above")]

mod events;
mod gid;
mod port;
mod provider;

pub use events::{AsyncEvent, AsyncEventKind, AsyncEvents, AsyncSubject};
pub use gid::{GidEntry, GidType};
pub use port::{LinkLayer, PortAttr, PortState};
pub(crate) use provider::{Maker, Provider};

use std::ffi::OsStr;
use std::fmt;
use std::ptr::NonNull;

use ibv_sys as sys;

use crate::addr::{Gid, Guid, LocalPort};
use crate::cq::{CompletionChannel, CompletionQueue};
use crate::device::{DeviceAttr, devices};
use crate::error::{CloseError, Error, Refused, Result};
use crate::pd::ProtectionDomain;
use crate::raw::{Raw, check, last_error};

/// Switches that make a provider leave out the locks which `Sync` stands on: rdma-core's providers have the first,
/// Broadcom's own library the second.
const UNLOCKING: [&str; 2] = ["MLX5_SINGLE_THREADED", "BNXT_SINGLE_THREADED"];

/// `ibv_context`—An open device.
///
/// `Send` and `Sync`: libibverbs locks where it must.
///
/// # Examples
///
/// ```no_run
/// let ctx = ibv::Context::open("mlx5_0")?;
/// println!("firmware {}", ctx.device_attr().fw_ver());
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_context")]
pub struct Context {
    raw: Raw<sys::ibv_context>,
    name: Box<str>,
    attr: Box<DeviceAttr>,
    provider: Provider,
}

impl Context {
    /// `ibv_open_device`—Opens the device of that name, such as `mlx5_0`.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceNotFound`], and those of [`Device::open`](crate::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn open(name: &str) -> Result<Self> {
        devices()?.by_name(name)?.open()
    }

    /// `ibv_open_device`—Opens the device with that node GUID.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceNotFound`], and those of [`Device::open`](crate::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn open_by_guid(guid: Guid) -> Result<Self> {
        devices()?.by_guid(guid)?.open()
    }

    pub(crate) fn from_device(device: NonNull<sys::ibv_device>, name: &str) -> Result<Self> {
        let is_on = |value: &OsStr| !value.is_empty() && value != "0";
        match UNLOCKING.into_iter().find(|name| std::env::var_os(name).as_deref().is_some_and(is_on)) {
            Some(variable) => Err(Error::Unlocked { variable }),
            None => Self::from_device_unlocked(device, name),
        }
    }

    pub(crate) fn from_device_unlocked(device: NonNull<sys::ibv_device>, name: &str) -> Result<Self> {
        make_fork_safe()?;
        // SAFETY: the device is an entry of a list that is alive.
        let context = unsafe { sys::ibv_open_device(device.as_ptr()) };
        // SAFETY: `context` is new, or null with errno set.
        let raw = unsafe { Raw::new("ibv_open_device", context, || name.to_owned()) }?;
        let mut attr = sys::ibv_device_attr_ex::default();
        // SAFETY: the context is open; no input struct; `attr` is ours to write.
        let result = unsafe { sys::ibv_query_device_ex(raw.as_ptr(), std::ptr::null(), &raw mut attr) };
        check("ibv_query_device_ex", result, || name.to_owned())?;
        let attr = DeviceAttr(attr);
        // SAFETY: the context is open.
        let provider = unsafe { Provider::of(raw.as_ptr(), &attr) };
        Ok(Self { raw, name: name.into(), attr: Box::new(attr), provider })
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        &self.name
    }

    /// `ibv_query_device_ex`—The device's limits and identity.
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn device_attr(&self) -> &DeviceAttr {
        &self.attr
    }

    /// Completion vectors: a completion queue's events can be bound to one of so many interrupts.
    pub fn comp_vectors(&self) -> u32 {
        // SAFETY: the context is open, and the field never changes.
        u32::try_from(unsafe { (*self.as_ptr()).num_comp_vectors }).unwrap_or(0)
    }

    /// `ibv_query_port`—State and limits of a port; ports count from 1.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if there is no such port.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// let port = ctx.query_port(1)?;
    /// println!("{}, {}, MTU {}", port.state(), port.link_layer(), port.active_mtu());
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<PortAttr> {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open and `attr` is ours to write.
        let result = unsafe { sys::ibv_query_port(self.as_ptr(), port, &raw mut attr) };
        check("ibv_query_port", result, || format!("port {port}"))?;
        Ok(PortAttr(attr))
    }

    /// `ibv_query_gid`—One entry of a port's GID table; all zeros if it is empty.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if there is no such port or index.
    #[doc(alias = "ibv_query_gid")]
    pub fn query_gid(&self, port: u8, index: u32) -> Result<Gid> {
        let asked = || format!("port {port}, GID index {index}");
        let index = i32::try_from(index).map_err(|_| Error::invalid("the GID index", index, "below 2^31"))?;
        let mut gid = sys::ibv_gid::default();
        // SAFETY: the context is open and `gid` is ours to write.
        let result = unsafe { sys::ibv_query_gid(self.as_ptr(), port, index, &raw mut gid) };
        check("ibv_query_gid", result, asked)?;
        // SAFETY: all bytes of the union are initialised.
        Ok(Gid(unsafe { gid.raw }))
    }

    /// `ibv_query_gid_table`—The filled entries of the GID tables of all ports.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EIO if the device is gone, or with the errno of reading the table from sysfs on kernels
    /// before 5.10; [`Error::Invalid`] if the device claims more entries than memory has room for.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// for entry in ctx.gid_table()? {
    ///     println!("port {}, index {}: {} ({})", entry.port, entry.index, entry.gid, entry.gid_type);
    /// }
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self) -> Result<Vec<GidEntry>> {
        gid::table(self)
    }

    /// `ibv_query_pkey`—One entry of a port's P_Key table.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with ENOENT or EINVAL if there is no such port or index.
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        let mut pkey = 0u16;
        // SAFETY: the context is open and `pkey` is ours to write.
        let result = unsafe { sys::ibv_query_pkey(self.as_ptr(), port, index.into(), &raw mut pkey) };
        check("ibv_query_pkey", result, || format!("port {port}, P_Key index {index}"))?;
        Ok(u16::from_be(pkey))
    }

    /// `ibv_get_pkey_index`—Where a P_Key stands in a port's table.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with ENOENT if it is not there.
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn pkey_index(&self, port: u8, pkey: u16) -> Result<u16> {
        // SAFETY: the context is open.
        let index = unsafe { sys::ibv_get_pkey_index(self.as_ptr(), port, pkey.to_be()) };
        u16::try_from(index)
            .map_err(|_| last_error("ibv_get_pkey_index", || format!("port {port}, P_Key {pkey:#06x}")))
    }

    /// `ibv_query_port`, `ibv_query_gid_table`—Our side of a path from `port`: its LID and MTU, and on RoCE the GID to
    /// send from, which is the first of RoCE v2 over IPv4, RoCE v2 over a routable or link-local IPv6 address, RoCE v1.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if there is no such port, EIO if the device is gone, or on RoCE as
    /// [`gid_table`](Self::gid_table); [`Error::Invalid`] if the port is RoCE and has no GID.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// let local = ctx.local_port(1)?;
    /// println!("LID {}, GID {}, MTU {}", local.lid, local.gid, local.mtu);
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_query_gid_table")]
    pub fn local_port(&self, port: u8) -> Result<LocalPort> {
        let attr = self.query_port(port)?;
        let local =
            LocalPort { port, lid: attr.lid(), gid_index: None, gid: Gid::ZERO, mtu: attr.active_mtu() };
        if attr.link_layer() != LinkLayer::ETHERNET {
            return Ok(local);
        }
        let best = gid::table(self)?
            .into_iter()
            .filter(|entry| entry.port == u32::from(port))
            .min_by_key(GidEntry::rank);
        let entry = best.ok_or_else(|| {
            Error::invalid(
                "the port's GID table",
                "empty",
                "RoCE needs a GID: give the interface an IP address",
            )
        })?;
        self.local_port_with_gid(port, entry.index)
    }

    /// `ibv_query_port`, `ibv_query_gid`—Our side of a path from `port`, sending from entry `gid_index` of its GID
    /// table (`ibv_*_pingpong -g`).
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EINVAL if there is no such port or index, EIO if the device is gone; [`Error::Invalid`]
    /// if the entry is empty, or above 255.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let ctx = ibv::Context::open("mlx5_0")?;
    /// let local = ctx.local_port_with_gid(1, 3)?; // the entry that `Context::gid_table` shows at index 3 of port 1
    /// # Ok::<(), ibv::Error>(())
    /// ```
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_query_gid")]
    pub fn local_port_with_gid(&self, port: u8, gid_index: u32) -> Result<LocalPort> {
        let attr = self.query_port(port)?;
        let gid = self.query_gid(port, gid_index)?;
        let index = u8::try_from(gid_index)
            .map_err(|_| Error::invalid("the GID index", gid_index, "at most 255 can be sent from"))?;
        if gid.is_zero() {
            return Err(Error::invalid(
                "the GID index",
                gid_index,
                "this entry of the port's GID table is empty",
            ));
        }
        Ok(LocalPort { port, lid: attr.lid(), gid_index: Some(index), gid, mtu: attr.active_mtu() })
    }

    /// [`ProtectionDomain::new`] that borrows this context.
    ///
    /// # Errors
    ///
    /// Those of [`ProtectionDomain::new`].
    #[doc(alias = "ibv_alloc_pd")]
    pub fn alloc_pd(&self) -> Result<ProtectionDomain<'_>> {
        ProtectionDomain::new(self)
    }

    /// [`CompletionQueue::new`] that borrows this context.
    ///
    /// # Errors
    ///
    /// Those of [`CompletionQueue::new`].
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue<'_>> {
        CompletionQueue::new(self, entries)
    }

    /// [`CompletionChannel::new`] that borrows this context.
    ///
    /// # Errors
    ///
    /// Those of [`CompletionChannel::new`].
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompletionChannel<'_>> {
        CompletionChannel::new(self)
    }

    /// [`AsyncEvents::new`] that borrows this context.
    ///
    /// # Errors
    ///
    /// Those of [`AsyncEvents::new`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> Result<AsyncEvents<'_>> {
        AsyncEvents::new(self)
    }

    /// `ibv_close_device`—Closes it, which dropping does as well.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the context; no known library fails here.
    #[doc(alias = "ibv_close_device")]
    pub fn close(mut self) -> Result<(), CloseError<Self>> {
        self.raw.destroy().map_err(|error| Refused::new(self, error))
    }

    /// The C object, for calls that this crate does not have. Destroying it, or anything made through this crate, is
    /// not allowed.
    #[inline]
    pub fn as_ptr(&self) -> *mut sys::ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn provider(&self) -> Provider {
        self.provider
    }

    /// `Ok` if `other` is this very context.
    pub(crate) fn check_same(&self, other: &Self, what: &'static str) -> Result<()> {
        if self.as_ptr() == other.as_ptr() { Ok(()) } else { Err(Error::OtherContext { what }) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.name).finish_non_exhaustive()
    }
}

/// Makes a later `fork` leave registered pages to the parent (man `ibv_fork_init`). Newer kernels copy them for the
/// child, and then there is nothing to do.
fn make_fork_safe() -> Result<()> {
    // SAFETY: no precondition.
    let status = unsafe { sys::ibv_is_fork_initialized() };
    if status != sys::IBV_FORK_DISABLED {
        return Ok(());
    }
    // SAFETY: no precondition; if it is called too late (another library registered memory already) it says EINVAL.
    match unsafe { sys::ibv_fork_init() } {
        0 => Ok(()),
        libc::EINVAL => {
            tracing::warn!(
                "memory was registered before ibv_fork_init: a fork may take pages from the device"
            );
            Ok(())
        }
        errno => check("ibv_fork_init", errno, String::new),
    }
}
