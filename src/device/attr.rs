//! What a device can do: the answer of `ibv_query_device_ex`.

use std::ffi::CStr;
use std::fmt;

use ibv_sys as sys;

use crate::addr::Guid;

/// A device's limits and identity (`struct ibv_device_attr_ex`), read once when it is opened.
#[doc(alias = "ibv_device_attr")]
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Clone, Copy)]
pub struct DeviceAttr(pub(crate) sys::ibv_device_attr_ex);

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $field:ident,)*) => {
        impl DeviceAttr {
            $(
                $(#[doc = $doc])+
                pub fn $name(&self) -> u32 {
                    // signed in C, never negative from a driver
                    u32::try_from(self.0.orig_attr.$field).unwrap_or(0)
                }
            )*
        }

        impl fmt::Debug for DeviceAttr {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("DeviceAttr")
                    .field("fw_ver", &self.fw_ver())
                    .field("node_guid", &self.node_guid())
                    $(.field(stringify!($name), &self.$name()))*
                    .finish_non_exhaustive()
            }
        }
    };
}

limits! {
    /// The vendor's IEEE number.
    vendor_id: vendor_id,
    /// The vendor's number for this model.
    vendor_part_id: vendor_part_id,
    /// Hardware revision.
    hw_ver: hw_ver,
    /// Queue pairs.
    max_qp: max_qp,
    /// Outstanding requests of a send queue, or of a receive queue.
    max_qp_wr: max_qp_wr,
    /// Scatter/gather elements of a request.
    max_sge: max_sge,
    /// Scatter/gather elements of an RDMA READ, where that is less.
    max_sge_rd: max_sge_rd,
    /// Completion queues.
    max_cq: max_cq,
    /// Entries of a completion queue.
    max_cqe: max_cqe,
    /// Memory regions.
    max_mr: max_mr,
    /// Protection domains.
    max_pd: max_pd,
    /// Incoming RDMA READs and atomics that a queue pair answers at once.
    max_qp_rd_atom: max_qp_rd_atom,
    /// Outgoing RDMA READs and atomics that a queue pair has under way at once.
    max_qp_init_rd_atom: max_qp_init_rd_atom,
    /// Memory windows.
    max_mw: max_mw,
    /// Multicast groups.
    max_mcast_grp: max_mcast_grp,
    /// Address handles.
    max_ah: max_ah,
    /// Shared receive queues.
    max_srq: max_srq,
    /// Outstanding receives of a shared receive queue.
    max_srq_wr: max_srq_wr,
    /// Scatter elements of a shared receive queue's request.
    max_srq_sge: max_srq_sge,
    /// P_Keys in a port's table.
    max_pkeys: max_pkeys,
    /// Ports.
    phys_port_cnt: phys_port_cnt,
}

impl DeviceAttr {
    /// Firmware version.
    pub fn fw_ver(&self) -> String {
        let bytes = self.0.orig_attr.fw_ver.map(|c| c.to_ne_bytes()[0]);
        CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Node GUID.
    pub fn node_guid(&self) -> Guid {
        Guid::from_be(self.0.orig_attr.node_guid)
    }

    /// GUID of the system that the device is part of.
    pub fn sys_image_guid(&self) -> Guid {
        Guid::from_be(self.0.orig_attr.sys_image_guid)
    }

    /// The largest region that can be registered, in bytes.
    pub fn max_mr_size(&self) -> u64 {
        self.0.orig_attr.max_mr_size
    }

    /// With what the device's atomics are atomic.
    pub fn atomic_cap(&self) -> AtomicCap {
        AtomicCap(self.0.orig_attr.atomic_cap)
    }

    /// `enum ibv_device_cap_flags`, a bit each; newer kernels report bits that older headers do not name.
    #[doc(alias = "ibv_device_cap_flags")]
    pub fn cap_flags(&self) -> u64 {
        self.0.device_cap_flags_ex | u64::from(self.0.orig_attr.device_cap_flags)
    }

    /// Bits of a completion's hardware timestamp that count; 0 if there are no timestamps.
    pub fn completion_timestamp_mask(&self) -> u64 {
        self.0.completion_timestamp_mask
    }

    /// Frequency of the device's clock in kHz; 0 if it tells none.
    pub fn hca_core_clock_khz(&self) -> u64 {
        self.0.hca_core_clock
    }
}

/// With what a device's atomic operations are atomic (`enum ibv_atomic_cap`).
#[doc(alias = "ibv_atomic_cap")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct AtomicCap(pub sys::ibv_atomic_cap);

impl AtomicCap {
    /// There are none.
    pub const NONE: Self = Self(sys::IBV_ATOMIC_NONE);
    /// With other atomics of this device.
    pub const HCA: Self = Self(sys::IBV_ATOMIC_HCA);
    /// With the CPU's atomics as well.
    pub const GLOB: Self = Self(sys::IBV_ATOMIC_GLOB);
}
