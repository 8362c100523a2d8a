//! A port's state and limits: the answer of `ibv_query_port`.

use std::fmt;

use ibv_sys as sys;

use crate::addr::Mtu;

/// State and limits of a port (`struct ibv_port_attr`).
#[doc(alias = "ibv_port_attr")]
#[derive(Clone, Copy)]
pub struct PortAttr(pub(super) sys::ibv_port_attr);

impl PortAttr {
    /// Whether it can carry traffic.
    pub fn state(&self) -> PortState {
        PortState(self.0.state)
    }

    /// The largest MTU that it could have.
    pub fn max_mtu(&self) -> Mtu {
        Mtu::from_c(self.0.max_mtu)
    }

    /// The MTU that it has.
    pub fn active_mtu(&self) -> Mtu {
        Mtu::from_c(self.0.active_mtu)
    }

    /// Its LID; 0 on RoCE.
    pub fn lid(&self) -> u16 {
        self.0.lid
    }

    /// How many low bits of its LID it ignores, so that it answers to several.
    pub fn lmc(&self) -> u8 {
        self.0.lmc
    }

    /// LID of the subnet manager.
    pub fn sm_lid(&self) -> u16 {
        self.0.sm_lid
    }

    /// The link underneath.
    pub fn link_layer(&self) -> LinkLayer {
        LinkLayer(self.0.link_layer)
    }

    /// Entries of its GID table, filled or not.
    pub fn gid_tbl_len(&self) -> u32 {
        u32::try_from(self.0.gid_tbl_len).unwrap_or(0)
    }

    /// Entries of its P_Key table.
    pub fn pkey_tbl_len(&self) -> u16 {
        self.0.pkey_tbl_len
    }

    /// The longest message in bytes.
    pub fn max_msg_sz(&self) -> u32 {
        self.0.max_msg_sz
    }

    /// Width code of the link: 1 is one lane, 2 four, 4 eight, 8 twelve, 16 two.
    pub fn active_width(&self) -> u8 {
        self.0.active_width
    }

    /// Speed code of a lane: 1 SDR, 2 DDR, 4 QDR, 8 FDR10, 16 FDR, 32 EDR, 64 HDR, 128 NDR.
    pub fn active_speed(&self) -> u8 {
        self.0.active_speed
    }

    /// Code of the physical state: 2 polling, 3 disabled, 5 link up.
    pub fn phys_state(&self) -> u8 {
        self.0.phys_state
    }

    /// `enum ibv_port_cap_flags`, a bit each.
    #[doc(alias = "ibv_port_cap_flags")]
    pub fn port_cap_flags(&self) -> u32 {
        self.0.port_cap_flags
    }

    /// Packets dropped because of a wrong P_Key.
    pub fn bad_pkey_cntr(&self) -> u32 {
        self.0.bad_pkey_cntr
    }

    /// Packets dropped because of a wrong Q_Key.
    pub fn qkey_viol_cntr(&self) -> u32 {
        self.0.qkey_viol_cntr
    }
}

impl fmt::Debug for PortAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortAttr")
            .field("state", &self.state())
            .field("link_layer", &self.link_layer())
            .field("lid", &self.lid())
            .field("max_mtu", &self.max_mtu())
            .field("active_mtu", &self.active_mtu())
            .field("max_msg_sz", &self.max_msg_sz())
            .field("gid_tbl_len", &self.gid_tbl_len())
            .field("pkey_tbl_len", &self.pkey_tbl_len())
            .finish_non_exhaustive()
    }
}

/// Whether a port can carry traffic (`enum ibv_port_state`).
#[doc(alias = "ibv_port_state")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortState(pub sys::ibv_port_state);

impl PortState {
    /// No link.
    pub const DOWN: Self = Self(sys::IBV_PORT_DOWN);
    /// A link, but no subnet manager has come by.
    pub const INIT: Self = Self(sys::IBV_PORT_INIT);
    /// Configured, not yet active.
    pub const ARMED: Self = Self(sys::IBV_PORT_ARMED);
    /// In use.
    pub const ACTIVE: Self = Self(sys::IBV_PORT_ACTIVE);
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::DOWN => "PORT_DOWN",
            Self::INIT => "PORT_INIT",
            Self::ARMED => "PORT_ARMED",
            Self::ACTIVE => "PORT_ACTIVE",
            _ => "invalid state",
        })
    }
}

impl fmt::Debug for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The link under a port (`IBV_LINK_LAYER_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkLayer(pub u8);

impl LinkLayer {
    /// Not told.
    pub const UNSPECIFIED: Self = Self(sys::IBV_LINK_LAYER_UNSPECIFIED as u8);
    /// InfiniBand: LIDs, a subnet manager.
    pub const INFINIBAND: Self = Self(sys::IBV_LINK_LAYER_INFINIBAND as u8);
    /// Ethernet: RoCE (or iWARP), GIDs.
    pub const ETHERNET: Self = Self(sys::IBV_LINK_LAYER_ETHERNET as u8);
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::UNSPECIFIED => "Unspecified",
            Self::INFINIBAND => "InfiniBand",
            Self::ETHERNET => "Ethernet",
            _ => "Unknown",
        })
    }
}

impl fmt::Debug for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
