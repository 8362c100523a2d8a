//! The devices of this machine, and what they can do.
//!
//! # Safety
//!
//! A [`DeviceList`] owns the array that `ibv_get_device_list` returned; a [`Device`] borrows the list, and each entry
//! is valid until `ibv_free_device_list`.

#![expect(unsafe_code, reason = "the Safety section above")]

mod attr;

pub use attr::{AtomicCap, DeviceAttr};

use std::ffi::{CStr, OsStr, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use ibv_sys as sys;

use crate::addr::Guid;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::raw::last_error;

/// `ibv_get_device_list`—The RDMA devices of this machine.
///
/// # Errors
///
/// [`Error::Verb`] with ENOSYS if the kernel has no RDMA support loaded, EPERM if the user may not look, ENOMEM.
///
/// # Examples
///
/// ```no_run
/// for device in &ibv::devices()? {
///     println!("{} {}", device.name(), device.guid());
/// }
/// # Ok::<(), ibv::Error>(())
/// ```
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<DeviceList> {
    let mut count: c_int = 0;
    // SAFETY: `count` is a valid out-parameter.
    let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
    let list = NonNull::new(list).ok_or_else(|| last_error("ibv_get_device_list", String::new))?;
    Ok(DeviceList { list, count: usize::try_from(count).unwrap_or(0) })
}

/// The devices found by [`devices`].
#[derive(Debug)]
pub struct DeviceList {
    list: NonNull<*mut sys::ibv_device>,
    count: usize,
}

// SAFETY: libibverbs never changes a list after returning it, and frees it from any thread.
unsafe impl Send for DeviceList {}
// SAFETY: as above; all access through `&` is reading.
unsafe impl Sync for DeviceList {}

impl DeviceList {
    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The devices.
    pub fn iter(&self) -> Devices<'_> {
        // SAFETY: the array has `count` entries and lives as long as `self`.
        Devices(unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) }.iter())
    }

    /// The device of that name, such as `mlx5_0`.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceNotFound`], with the names that there are.
    pub fn by_name(&self, name: &str) -> Result<Device<'_>> {
        self.find(name, |device| device.c_name().to_bytes() == name.as_bytes())
    }

    /// The device with that node GUID: unlike a name, it stays the same when cards are added.
    ///
    /// # Errors
    ///
    /// [`Error::DeviceNotFound`], with the names that there are.
    pub fn by_guid(&self, guid: Guid) -> Result<Device<'_>> {
        self.find(&format!("with GUID {guid}"), |device| device.guid() == guid)
    }

    fn find(&self, wanted: &str, is_it: impl FnMut(&Device<'_>) -> bool) -> Result<Device<'_>> {
        self.iter().find(is_it).ok_or_else(|| Error::DeviceNotFound {
            wanted: wanted.to_owned(),
            available: self.iter().map(|device| device.name().to_owned()).collect(),
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is ours, and the devices borrowed from it are gone.
        unsafe { sys::ibv_free_device_list(self.list.as_ptr()) };
    }
}

impl<'l> IntoIterator for &'l DeviceList {
    type Item = Device<'l>;
    type IntoIter = Devices<'l>;

    fn into_iter(self) -> Devices<'l> {
        self.iter()
    }
}

/// Iterator over the devices of a [`DeviceList`].
#[derive(Clone, Debug)]
pub struct Devices<'l>(std::slice::Iter<'l, *mut sys::ibv_device>);

impl<'l> Iterator for Devices<'l> {
    type Item = Device<'l>;

    fn next(&mut self) -> Option<Device<'l>> {
        let device = NonNull::new(*self.0.next()?)?;
        Some(Device { device, _list: PhantomData })
    }
}

/// A device, not yet opened.
#[derive(Clone, Copy)]
pub struct Device<'l> {
    device: NonNull<sys::ibv_device>,
    _list: PhantomData<&'l DeviceList>,
}

impl Device<'_> {
    /// `ibv_get_device_name`—Its name in the kernel, such as `mlx5_0` or `rxe0`.
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        // the kernel only makes names from a small part of ASCII
        self.c_name().to_str().unwrap_or("?")
    }

    fn c_name(&self) -> &CStr {
        // SAFETY: the device is alive; its name is a NUL-terminated array in it.
        unsafe { CStr::from_ptr(sys::ibv_get_device_name(self.device.as_ptr())) }
    }

    /// `ibv_get_device_guid`—Its node GUID.
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> Guid {
        // SAFETY: the device is alive.
        Guid::from_be(unsafe { sys::ibv_get_device_guid(self.device.as_ptr()) })
    }

    /// `ibv_get_device_index`—Its index in the kernel, if the kernel tells it.
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        // SAFETY: the device is alive.
        u32::try_from(unsafe { sys::ibv_get_device_index(self.device.as_ptr()) }).ok()
    }

    /// What kind of node it is in its network.
    pub fn node_type(&self) -> NodeType {
        // SAFETY: the device is alive and its fields are never written again.
        NodeType(unsafe { (*self.device.as_ptr()).node_type })
    }

    /// Its family of transports.
    pub fn transport_type(&self) -> TransportType {
        // SAFETY: as above.
        TransportType(unsafe { (*self.device.as_ptr()).transport_type })
    }

    /// Its folder in sysfs, such as `/sys/class/infiniband/mlx5_0`.
    pub fn sysfs_path(&self) -> &Path {
        // SAFETY: the path is a NUL-terminated array in the device.
        let path = unsafe { CStr::from_ptr((&raw const (*self.device.as_ptr()).ibdev_path).cast()) };
        Path::new(OsStr::from_bytes(path.to_bytes()))
    }

    /// `ibv_open_device`—Opens it.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`] with EACCES or EPERM if `/dev/infiniband/uverbs*` can't be read and written; ENODEV and others
    /// if the device went away. [`Error::Unlocked`] if the environment takes away a provider's locks.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        Context::from_device(self.device, self.name())
    }

    /// Opens it even where the environment takes away the provider's locks, which [`open`](Self::open) refuses.
    ///
    /// # Safety
    ///
    /// Neither this context nor anything made from it is used by two threads at the same time, although the types allow
    /// it; nor is anything that is made from now on from any other context of the process (libmlx5 keeps the switch in
    /// a global variable, and looks there when it makes a queue).
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub unsafe fn open_unlocked(&self) -> Result<Context> {
        Context::from_device_unlocked(self.device, self.name())
    }
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("guid", &self.guid())
            .field("node_type", &self.node_type())
            .finish_non_exhaustive()
    }
}

/// What kind of node a device is (`enum ibv_node_type`).
#[doc(alias = "ibv_node_type")]
#[doc(alias = "ibv_node_type_str")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct NodeType(pub sys::ibv_node_type);

impl NodeType {
    /// An InfiniBand or RoCE adapter.
    pub const CA: Self = Self(sys::IBV_NODE_CA);
    /// An InfiniBand switch.
    pub const SWITCH: Self = Self(sys::IBV_NODE_SWITCH);
    /// An InfiniBand router.
    pub const ROUTER: Self = Self(sys::IBV_NODE_ROUTER);
    /// An iWARP adapter.
    pub const RNIC: Self = Self(sys::IBV_NODE_RNIC);
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the function knows a text for every number.
        let text = unsafe { CStr::from_ptr(sys::ibv_node_type_str(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

/// A device's family of transports (`enum ibv_transport_type`).
#[doc(alias = "ibv_transport_type")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TransportType(pub sys::ibv_transport_type);

impl TransportType {
    /// InfiniBand transports, over InfiniBand or RoCE.
    pub const IB: Self = Self(sys::IBV_TRANSPORT_IB);
    /// iWARP.
    pub const IWARP: Self = Self(sys::IBV_TRANSPORT_IWARP);
}

impl fmt::Display for TransportType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            sys::IBV_TRANSPORT_IB => "InfiniBand",
            sys::IBV_TRANSPORT_IWARP => "iWARP",
            sys::IBV_TRANSPORT_USNIC => "usNIC",
            sys::IBV_TRANSPORT_USNIC_UDP => "usNIC UDP",
            sys::IBV_TRANSPORT_UNSPECIFIED => "unspecified",
            _ => "invalid transport",
        })
    }
}
