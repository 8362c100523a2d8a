//! Addresses: GIDs, GUIDs, MTUs, the path of a packet ([`AddressVector`]) and a queue pair's [`Endpoint`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ibv_sys as sys;

use crate::error::{Error, Result};

/// A global identifier: 16 bytes in network order, an IPv6 address in form (for RoCE v2 over IPv4, a mapped one).
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// All zeros: an empty table entry, or "no GID".
    pub const ZERO: Self = Self([0; 16]);

    /// Whether all bytes are zero.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The GID as an IPv6 address.
    pub fn to_ipv6(self) -> Ipv6Addr {
        self.0.into()
    }

    /// The IPv4 address in it, if it is a mapped one (`::ffff:a.b.c.d`).
    pub fn to_ipv4(self) -> Option<Ipv4Addr> {
        self.to_ipv6().to_ipv4_mapped()
    }

    pub(crate) fn to_c(self) -> sys::ibv_gid {
        sys::ibv_gid { raw: self.0 }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ipv6().fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

/// A globally unique identifier of a device or node, written as `ibv_devinfo` does: `0002:c903:00a1:beef`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Guid(pub u64);

impl Guid {
    pub(crate) fn from_be(guid: u64) -> Self {
        Self(u64::from_be(guid))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| self.0 >> shift & 0xffff);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Guid {
    type Err = Error;

    /// Reads `0002:c903:00a1:beef`, or the same without colons, or with `0x` in front.
    fn from_str(text: &str) -> Result<Self> {
        let groups: Vec<&str> = text.strip_prefix("0x").unwrap_or(text).split(':').collect();
        let right = match groups.as_slice() {
            [all] => all.len() == 16,
            groups => groups.len() == 4 && groups.iter().all(|group| group.len() == 4),
        };
        let digits = groups.concat();
        match u64::from_str_radix(&digits, 16) {
            Ok(guid) if right && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => Ok(Self(guid)),
            _ => Err(Error::invalid(
                "a GUID",
                text,
                "16 hexadecimal digits, or four groups of four with colons",
            )),
        }
    }
}

/// A path MTU: the payload of one packet (`enum ibv_mtu`). A longer message is cut into packets on RC and UC, and
/// refused or lost on UD.
#[doc(alias = "ibv_mtu")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mtu(sys::ibv_mtu);

impl Mtu {
    /// 256 bytes.
    pub const B256: Self = Self(sys::IBV_MTU_256);
    /// 512 bytes.
    pub const B512: Self = Self(sys::IBV_MTU_512);
    /// 1024 bytes.
    pub const B1024: Self = Self(sys::IBV_MTU_1024);
    /// 2048 bytes.
    pub const B2048: Self = Self(sys::IBV_MTU_2048);
    /// 4096 bytes.
    pub const B4096: Self = Self(sys::IBV_MTU_4096);

    pub(crate) fn from_c(code: sys::ibv_mtu) -> Self {
        Self(code)
    }

    pub(crate) fn to_c(self) -> sys::ibv_mtu {
        self.0
    }

    /// The MTU of that many bytes, if there is one.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096]
            .into_iter()
            .find(|mtu| mtu.bytes() == bytes)
    }

    /// Its bytes; 0 for a code that is not one of the five of the InfiniBand specification.
    pub fn bytes(self) -> u32 {
        match self.0 {
            code @ sys::IBV_MTU_256..=sys::IBV_MTU_4096 => 128 << code,
            _ => 0,
        }
    }

    /// The code in `enum ibv_mtu`, 1 to 5.
    pub fn code(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// The global routing header's fields (`struct ibv_global_route`): needed on RoCE, and between InfiniBand subnets.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{AddressVector, Gid, Grh};
/// # fn f(peer: Gid) -> AddressVector {
/// let mut grh = Grh::new(peer, 3); // entry 3 of our GID table
/// grh.traffic_class = 26 << 2; // DSCP 26
/// AddressVector::global(1, grh)
/// # }
/// ```
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grh {
    /// The peer's GID.
    pub dgid: Gid,
    /// Index of our own GID in the port's table (`ibv_*_pingpong -g`).
    pub sgid_index: u8,
    /// Flow label, 20 bits; on RoCE v2 it picks the UDP source port.
    pub flow_label: u32,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN on RoCE v2).
    pub traffic_class: u8,
}

impl Grh {
    /// To `dgid` from entry `sgid_index` of our GID table; hop limit 64, the rest 0.
    pub fn new(dgid: Gid, sgid_index: u8) -> Self {
        Self { dgid, sgid_index, flow_label: 0, hop_limit: 64, traffic_class: 0 }
    }
}

/// How packets find the peer's port (`struct ibv_ah_attr`): by LID within an InfiniBand subnet, by GID elsewhere.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{AddressVector, Context, Endpoint};
/// # fn f(ctx: &Context, peer: Endpoint) -> Result<(), ibv::Error> {
/// let path = AddressVector::to_peer(&ctx.local_port(1)?, &peer)?.sl(3);
/// let in_the_subnet = AddressVector::lid(1, 0x0011);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressVector {
    /// Our port, from 1.
    pub port: u8,
    /// The peer's LID; 0 on RoCE.
    pub dlid: u16,
    /// The global route, if the packets carry one.
    pub grh: Option<Grh>,
    /// Service level, 0 to 15.
    pub sl: u8,
    /// Low bits of our own LID that packets leave with.
    pub src_path_bits: u8,
    /// Static rate (`enum ibv_rate`); 0 is the port's own.
    pub static_rate: u8,
}

impl AddressVector {
    /// From our `port` to the port with that LID of the same subnet.
    pub fn lid(port: u8, dlid: u16) -> Self {
        Self { port, dlid, grh: None, sl: 0, src_path_bits: 0, static_rate: 0 }
    }

    /// From our `port` along a global route.
    pub fn global(port: u8, grh: Grh) -> Self {
        Self { grh: Some(grh), ..Self::lid(port, 0) }
    }

    /// From our `local` port to `peer`, by GID if the peer has one.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the peer names a GID and `local` has none to send from.
    pub fn to_peer(local: &LocalPort, peer: &Endpoint) -> Result<Self> {
        // the low half decides, as for ibv_*_pingpong: it is never zero in a GID
        let grh = match (peer.gid.0.iter().skip(8).any(|&byte| byte != 0), local.gid_index) {
            (false, _) => None,
            (true, Some(sgid_index)) => Some(Grh::new(peer.gid, sgid_index)),
            (true, None) => {
                return Err(Error::invalid(
                    "the local GID index",
                    "none",
                    "needed for a peer that is addressed by its GID",
                ));
            }
        };
        Ok(Self { grh, ..Self::lid(local.port, peer.lid) })
    }

    /// With this service level.
    pub fn sl(mut self, sl: u8) -> Self {
        self.sl = sl;
        self
    }

    pub(crate) fn to_c(self) -> sys::ibv_ah_attr {
        let grh = self.grh.map_or_else(sys::ibv_global_route::default, |grh| sys::ibv_global_route {
            dgid: grh.dgid.to_c(),
            flow_label: grh.flow_label,
            sgid_index: grh.sgid_index,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
        });
        sys::ibv_ah_attr {
            grh,
            dlid: self.dlid,
            sl: self.sl,
            src_path_bits: self.src_path_bits,
            static_rate: self.static_rate,
            is_global: self.grh.is_some().into(),
            port_num: self.port,
        }
    }
}

/// Our side of a path: what [`Context::local_port`](crate::Context::local_port) found out about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocalPort {
    /// The port, from 1.
    pub port: u8,
    /// Its LID; 0 on RoCE.
    pub lid: u16,
    /// Index of the GID that we send from; `None` where LIDs do.
    pub gid_index: Option<u8>,
    /// That GID, or zeros.
    pub gid: Gid,
    /// The port's active MTU.
    pub mtu: Mtu,
}

/// What a peer must know of a queue pair to talk to it.
///
/// It has the wire form of the `ibv_*_pingpong` programs: 52 bytes of ASCII,
/// `LLLL:QQQQQQ:PPPPPP:` (LID, QPN and PSN in hex), the GID as 32 hex digits, and a NUL.
///
/// ```
/// use ibv::{Endpoint, Gid};
///
/// let endpoint = Endpoint { lid: 1, qpn: 0x11, psn: 0xabcdef, gid: Gid::ZERO };
/// let wire = endpoint.to_wire();
/// assert_eq!(&wire[..19], b"0001:000011:abcdef:");
/// assert_eq!(Endpoint::from_wire(&wire)?, endpoint);
/// # Ok::<(), ibv::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    /// LID of its port; 0 on RoCE.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// Packet sequence number of its first send, 24 bits.
    pub psn: u32,
    /// GID of its port, or zeros if it is addressed by LID alone.
    pub gid: Gid,
}

impl Endpoint {
    /// Length of the wire form in bytes.
    pub const WIRE_LEN: usize = 52;

    /// The wire form, of the low 24 bits of both numbers.
    pub fn to_wire(&self) -> [u8; Self::WIRE_LEN] {
        let gid = u128::from_be_bytes(self.gid.0);
        let text = format!(
            "{:04x}:{:06x}:{:06x}:{gid:032x}\0",
            self.lid,
            self.qpn & 0xff_ffff,
            self.psn & 0xff_ffff
        );
        let mut wire = [0; Self::WIRE_LEN];
        for (to, from) in wire.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        wire
    }

    /// Reads the wire form.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is not of that form.
    pub fn from_wire(wire: &[u8; Self::WIRE_LEN]) -> Result<Self> {
        let bad = || {
            Error::invalid(
                "the peer's address",
                format_args!("\"{}\"", wire.escape_ascii()),
                "not of the form LLLL:QQQQQQ:PPPPPP:GID in hex",
            )
        };
        let text = std::str::from_utf8(wire).map_err(|_| bad())?.trim_end_matches('\0');
        let mut fields = text.split(':');
        let mut field = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits).ok_or_else(bad)?;
            if !field.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(bad());
            }
            u128::from_str_radix(field, 16).map_err(|_| bad())
        };
        let (lid, qpn, psn, gid) = (field(4)?, field(6)?, field(6)?, field(32)?);
        if fields.next().is_some() {
            return Err(bad());
        }
        // the digits counted above bound each value
        Ok(Self { lid: lid as u16, qpn: qpn as u32, psn: psn as u32, gid: Gid(gid.to_be_bytes()) })
    }
}

/// A random 24-bit packet sequence number to start a connection with, so that packets of an earlier one with the
/// same queue pair numbers are not taken for its own.
pub fn random_psn() -> u32 {
    (RandomState::new().hash_one(std::process::id()) & 0xff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_that_of_the_pingpong_programs() {
        // as captured from ibv_rc_pingpong
        let wire = b"0000:000011:1f907f:00000000000000000000ffff0a090001\0";
        let endpoint = Endpoint::from_wire(wire).unwrap();
        assert_eq!(
            endpoint,
            Endpoint { lid: 0, qpn: 0x11, psn: 0x1f907f, gid: Ipv4Addr::new(10, 9, 0, 1).into() }
        );
        assert_eq!(&endpoint.to_wire(), wire);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["", "0000:000011:1f907f:", "0000:000011:1f907f:00000000000000000000ffff0a09000g", "x"] {
            let mut wire = [0; Endpoint::WIRE_LEN];
            wire[..text.len()].copy_from_slice(text.as_bytes());
            assert!(Endpoint::from_wire(&wire).is_err(), "{text}");
        }
        assert!(Endpoint::from_wire(b"+000:000011:1f907f:00000000000000000000ffff0a090001\0").is_err());
        assert!(Endpoint::from_wire(&[0xff; 52]).is_err());
    }

    #[test]
    fn guids_read_as_they_are_written() {
        let guid = Guid(0x0002_c903_00a1_beef);
        assert_eq!(guid.to_string(), "0002:c903:00a1:beef");
        assert_eq!("0002:c903:00a1:beef".parse::<Guid>().unwrap(), guid);
        assert_eq!("0x0002c90300a1beef".parse::<Guid>().unwrap(), guid);
        for text in [
            "",
            "2:c903",
            "+000000000000001",
            "0x0x0002c90300a1beef",
            "::0002c90300a1beef:::",
            "0002c903:00a1beef",
        ] {
            assert!(text.parse::<Guid>().is_err(), "{text}");
        }
    }

    #[test]
    fn mtus_are_powers_of_two() {
        assert_eq!(Mtu::from_bytes(1024), Some(Mtu::B1024));
        assert_eq!(Mtu::B4096.bytes(), 4096);
        assert_eq!(Mtu::from_bytes(1000), None);
    }
}
