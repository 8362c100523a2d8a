//! What the software device looks like and how it runs.

use std::net::Ipv4Addr;

/// The most devices one process can have.
pub const MAX_DEVICES: usize = 8;

/// The fabric of programs whose user chose none.
pub(crate) const DEFAULT_FABRIC: &str = "default";

/// Who runs the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The test steps the device; time is virtual. The default.
    #[default]
    Manual,
    /// Manual, and each doorbell store is checked.
    Trap,
    /// The device runs inside the application's own post and poll calls; a sleeping thread serves what arrives
    /// while the application sleeps.
    Pump,
    /// Pump, and each doorbell store is checked.
    PumpTrap,
    /// A device thread polls the doorbells.
    Thread,
}

impl Mode {
    /// Whether each doorbell store is checked.
    #[must_use]
    pub fn traps(self) -> bool {
        matches!(self, Self::Trap | Self::PumpTrap)
    }

    /// Whether time is the machine's (else it is virtual).
    #[must_use]
    pub fn is_real_time(self) -> bool {
        matches!(self, Self::Pump | Self::PumpTrap | Self::Thread)
    }
}

/// The link layer of the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// InfiniBand: LIDs, one subnet.
    #[default]
    InfiniBand,
    /// Ethernet: RoCE, GIDs only.
    RoCE,
}

/// What kind of packets a GID is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE v1.
    RoCEv1,
    /// RoCE v2.
    RoCEv2,
}

impl GidKind {
    /// The value that the uverbs interface uses.
    pub(crate) fn wire(self) -> u32 {
        match self {
            Self::InfiniBand => 0,
            Self::RoCEv1 => 1,
            Self::RoCEv2 => 2,
        }
    }
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The 16 bytes.
    pub raw: [u8; 16],
    /// The kind.
    pub kind: GidKind,
}

/// Limits that the device reports and enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most QPs.
    pub max_qp: u32,
    /// Most outstanding work requests of a queue.
    pub max_qp_wr: u32,
    /// Most scatter/gather entries of a request.
    pub max_sge: u32,
    /// Most CQs.
    pub max_cq: u32,
    /// Most entries of a CQ.
    pub max_cqe: u32,
    /// Most memory regions.
    pub max_mr: u32,
    /// Most protection domains.
    pub max_pd: u32,
    /// Most SRQs.
    pub max_srq: u32,
    /// Most outstanding work requests of an SRQ.
    pub max_srq_wr: u32,
    /// Most memory windows.
    pub max_mw: u32,
    /// Outstanding reads and atomics of a QP.
    pub max_rd_atomic: u8,
    /// Longest message in bytes.
    pub max_msg: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_qp: 32768,
            max_qp_wr: 32768,
            max_sge: 30,
            max_cq: 32768,
            max_cqe: 4_194_303,
            max_mr: 65536,
            max_pd: 32768,
            max_srq: 32768,
            max_srq_wr: 32767,
            max_mw: 65536,
            max_rd_atomic: 16,
            max_msg: 1 << 30,
        }
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// The name; empty for `mlx5_0`, `mlx5_1`, …
    pub name: String,
    /// The link layer of its port.
    pub link: Link,
    /// The active MTU in bytes: 256, 512, 1024, 2048 or 4096 (0: 4096).
    pub mtu: u32,
    /// The GUID; 0 for one made from the LID.
    pub guid: u64,
    /// The GID table; empty for the usual one.
    pub gids: Vec<Gid>,
    /// The P_Key table; empty for 0xffff alone.
    pub pkeys: Vec<u16>,
    /// Limits.
    pub limits: Limits,
    /// It says that it has no atomics: libmlx5 refuses them then.
    pub lacks_atomics: bool,
}

impl Device {
    /// A device with link layer `link` and everything else as usual.
    #[must_use]
    pub fn new(link: Link) -> Self {
        Self { link, ..Self::default() }
    }

    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets the active MTU in bytes.
    #[must_use]
    pub fn mtu(mut self, bytes: u32) -> Self {
        self.mtu = bytes;
        self
    }

    /// Sets the GUID.
    #[must_use]
    pub fn guid(mut self, guid: u64) -> Self {
        self.guid = guid;
        self
    }

    /// Adds an entry to the GID table (instead of the usual entries).
    #[must_use]
    pub fn gid(mut self, gid: Gid) -> Self {
        self.gids.push(gid);
        self
    }

    /// Sets the `P_Key` table.
    #[must_use]
    pub fn pkeys(mut self, pkeys: &[u16]) -> Self {
        self.pkeys = pkeys.to_vec();
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes it one that says that it has no atomics.
    #[must_use]
    pub fn without_atomics(mut self) -> Self {
        self.lacks_atomics = true;
        self
    }
}

/// The whole software HCA of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// Who runs the device.
    pub mode: Mode,
    /// The devices; empty for one InfiniBand device.
    pub devices: Vec<Device>,
    /// The fabric shared with other processes of this user; `None` for none. If that called `default` can't be joined,
    /// this is told on standard error, and the process is alone.
    pub fabric: Option<String>,
    /// Faults to inject, in the form of `SOFTHCA_FAULTS`.
    pub faults: String,
    /// The host's real devices stay visible.
    pub host_devices: bool,
    /// Where the log goes.
    pub log: LogTarget,
    /// Small received messages are not put into the CQE, as hardware puts them where libmlx5 asks for it.
    pub no_scatter_to_cqe: bool,
}

/// Where the log of WQEs, doorbells and CQEs goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogTarget {
    /// Nowhere.
    #[default]
    Off,
    /// Standard error.
    Stderr,
    /// A file, appended to.
    File(String),
    /// Memory; [`crate::Hca::take_log`] gives it out.
    Memory,
}

impl Config {
    /// One InfiniBand device in manual mode.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the mode.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// `n` devices with link layer `link`.
    #[must_use]
    pub fn devices(mut self, n: usize, link: Link) -> Self {
        self.devices = (0..n).map(|_| Device { link, ..Device::default() }).collect();
        self
    }

    /// Adds a device.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.devices.push(device);
        self
    }

    /// Joins the fabric `name`.
    #[must_use]
    pub fn fabric(mut self, name: &str) -> Self {
        self.fabric = Some(name.to_owned());
        self
    }

    /// Sets the log.
    #[must_use]
    pub fn log(mut self, target: LogTarget) -> Self {
        self.log = target;
        self
    }

    /// Fills what was left to defaults, and checks the rest.
    pub(crate) fn complete(mut self) -> Result<Self, String> {
        if self.devices.is_empty() {
            self.devices.push(Device::default());
        }
        if self.devices.len() > MAX_DEVICES {
            return Err(format!("at most {MAX_DEVICES} devices"));
        }
        let prefix = if self.host_devices { "softhca" } else { "mlx5_" };
        for (i, d) in self.devices.iter_mut().enumerate() {
            if d.name.is_empty() {
                d.name = format!("{prefix}{i}");
            }
            if d.name.len() > 60 || d.name.contains('/') {
                return Err(format!("device name {:?}: too long or with a slash", d.name));
            }
            if d.mtu == 0 {
                d.mtu = 4096;
            }
            if !matches!(d.mtu, 256 | 512 | 1024 | 2048 | 4096) {
                return Err(format!("MTU {}: not one of 256, 512, 1024, 2048, 4096", d.mtu));
            }
            if d.pkeys.is_empty() {
                d.pkeys = vec![0xffff];
            }
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        match &self.fabric {
            Some(f) if f.is_empty() || f.len() > 100 || !f.bytes().all(plain) => {
                return Err(format!(
                    "fabric {f:?}: a name is 1 to 100 of the letters a to z and A to Z, digits, '-', '_' and '.'"
                ));
            }
            _ => {}
        }
        crate::fault::Faults::parse(&self.faults)?;
        Ok(self)
    }
}

/// The GUID of the device with LID `lid`.
pub(crate) fn guid_of(device: &Device, lid: u16) -> u64 {
    if device.guid != 0 { device.guid } else { 0x0c42_a103_00c0_0000 | u64::from(lid) }
}

/// The usual GID table of a device.
pub(crate) fn usual_gids(link: Link, guid: u64, lid: u16) -> Vec<Gid> {
    let mut local = [0u8; 16];
    crate::bits::put(&mut local, 0, &[0xfe, 0x80]);
    crate::bits::put(&mut local, 8, &guid.to_be_bytes());
    if link == Link::InfiniBand {
        return vec![Gid { raw: local, kind: GidKind::InfiniBand }];
    }
    let [hi, lo] = lid.to_be_bytes();
    let mapped = Ipv4Addr::new(10, 77, hi, lo).to_ipv6_mapped().octets();
    vec![
        Gid { raw: local, kind: GidKind::RoCEv1 },
        Gid { raw: local, kind: GidKind::RoCEv2 },
        Gid { raw: mapped, kind: GidKind::RoCEv1 },
        Gid { raw: mapped, kind: GidKind::RoCEv2 },
    ]
}
