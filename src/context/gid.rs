//! A port's GID table.
//!
//! # Safety
//!
//! One call that fills an array which is ours.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;

use ibv_sys as sys;

use super::Context;
use crate::addr::Gid;
use crate::error::{Error, Result, VerbError};

/// A filled entry of a GID table (`struct ibv_gid_entry`).
#[doc(alias = "ibv_gid_entry")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The port, from 1.
    pub port: u32,
    /// Its place in the port's table, which `sgid_index` means.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// What packets look like that leave with it.
    pub gid_type: GidType,
    /// The network interface that it belongs to (as `if_nametoindex` counts), if any.
    pub ndev_ifindex: Option<u32>,
}

impl GidEntry {
    /// Order of preference for [`Context::local_port`].
    pub(super) fn rank(&self) -> (u8, u32) {
        let link_local = self.gid.0.starts_with(&[0xfe, 0x80]);
        let class = match self.gid_type {
            GidType::ROCE_V2 if self.gid.to_ipv4().is_some() => 0,
            GidType::ROCE_V2 if !link_local => 1,
            GidType::ROCE_V2 => 2,
            _ => 3,
        };
        (class, self.index)
    }
}

/// What packets look like that leave with a GID (`enum ibv_gid_type`).
#[doc(alias = "ibv_gid_type")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GidType(pub u32);

impl GidType {
    /// InfiniBand.
    pub const IB: Self = Self(sys::IBV_GID_TYPE_IB);
    /// RoCE version 1: an Ethernet protocol of its own.
    pub const ROCE_V1: Self = Self(sys::IBV_GID_TYPE_ROCE_V1);
    /// RoCE version 2: over UDP and IP, routable.
    pub const ROCE_V2: Self = Self(sys::IBV_GID_TYPE_ROCE_V2);
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IB => f.write_str("IB"),
            Self::ROCE_V1 => f.write_str("RoCE v1"),
            Self::ROCE_V2 => f.write_str("RoCE v2"),
            Self(other) => write!(f, "GID type {other}"),
        }
    }
}

impl fmt::Debug for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(super) fn table(ctx: &Context) -> Result<Vec<GidEntry>> {
    // too small an array is EINVAL, so it must hold every entry of every port
    let mut room = 0usize;
    for port in 1..=u8::try_from(ctx.device_attr().phys_port_cnt()).unwrap_or(u8::MAX) {
        room += usize::try_from(ctx.query_port(port)?.gid_tbl_len()).unwrap_or(0);
    }
    let mut entries = Vec::new();
    if entries.try_reserve_exact(room).is_err() {
        return Err(Error::invalid(
            "the number of GIDs that the device claims",
            room,
            "what fits into memory",
        ));
    }
    entries.resize(room, sys::ibv_gid_entry::default());
    // SAFETY: the context is open, and the array has `room` entries of the size that the function is told.
    let count = unsafe { sys::ibv_query_gid_table(ctx.as_ptr(), entries.as_mut_ptr(), room, 0) };
    let count = usize::try_from(count).map_err(|_| {
        let errno = i32::try_from(count.unsigned_abs()).unwrap_or(libc::EINVAL);
        Error::from(VerbError::new("ibv_query_gid_table", errno, format!("{room} entries")))
    })?;
    entries.truncate(count);
    Ok(entries
        .into_iter()
        .map(|entry| GidEntry {
            port: entry.port_num,
            index: entry.gid_index,
            // SAFETY: all bytes of the union are initialised.
            gid: Gid(unsafe { entry.gid.raw }),
            gid_type: GidType(entry.gid_type),
            ndev_ifindex: (entry.ndev_ifindex != 0).then_some(entry.ndev_ifindex),
        })
        .collect())
}
