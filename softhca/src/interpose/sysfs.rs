//! The fake sysfs: a list of paths and contents, held in memory only.

use crate::config::{Config, Gid, GidKind, Link};
use crate::leaked::Leaked;

/// The directory of the uverbs devices.
pub(crate) const VERBS: &str = "/sys/class/infiniband_verbs";
/// The directory of the RDMA devices.
pub(crate) const INFINIBAND: &str = "/sys/class/infiniband";
/// The prefix of the character devices.
pub(crate) const CDEV: &str = "/dev/infiniband/uverbs";
/// The major number that the fake character devices report.
pub(crate) const MAJOR: u32 = 231;

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: String,
    /// `None` for a directory.
    pub(crate) text: Option<String>,
}

/// The tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// The first uverbs number.
    first: u32,
    devices: u32,
    /// Listings hold the host's entries too.
    pub(crate) host: bool,
}

static TREE: Leaked<Tree> = Leaked::new();

/// What the tree needs to know of a device.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) guid: u64,
    pub(crate) lid: u16,
    /// `ibv_port_attr`'s capabilities and length of the GID table.
    pub(crate) capabilities: u32,
    pub(crate) gid_len: usize,
    /// The network interface of the GIDs, if there is one.
    pub(crate) interface: Option<&'static str>,
    pub(crate) gids: Vec<Gid>,
}

/// Builds the tree.
pub(crate) fn install(config: &Config, facts: &[Facts]) {
    TREE.set(Tree::new(config, facts));
}

/// Builds a tree without a device, in which the host's are hidden too.
pub(crate) fn install_none() {
    let mut t = Tree::default();
    t.dir(VERBS);
    t.file(&format!("{VERBS}/abi_version"), "6\n");
    t.dir(INFINIBAND);
    TREE.set(t);
}

/// In a forked child: the parent's devices are not ours.
pub(crate) fn forget() {
    TREE.forget();
}

/// The tree, if the software device was started.
pub(crate) fn tree() -> Option<&'static Tree> {
    TREE.get()
}

fn hex_words(b: &[u8]) -> String {
    b.chunks(2)
        .map(|w| w.iter().map(|x| format!("{x:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(":")
}

impl Tree {
    fn new(config: &Config, facts: &[Facts]) -> Self {
        let first = if config.host_devices { 128 } else { 0 };
        let devices = u32::try_from(config.devices.len()).unwrap_or(0);
        let mut t = Self { nodes: Vec::new(), first, devices, host: config.host_devices };
        t.dir(VERBS);
        t.file(&format!("{VERBS}/abi_version"), "6\n");
        t.dir(INFINIBAND);
        for (i, (d, f)) in config.devices.iter().zip(facts).enumerate() {
            let n = first + u32::try_from(i).unwrap_or(0);
            let verbs = format!("{VERBS}/uverbs{n}");
            t.dir(&verbs);
            t.file(&format!("{verbs}/ibdev"), &format!("{}\n", d.name));
            t.file(&format!("{verbs}/abi_version"), "1\n");
            t.file(&format!("{verbs}/dev"), &format!("{MAJOR}:{}\n", minor(n)));
            let dev = format!("{INFINIBAND}/{}", d.name);
            t.dir(&dev);
            t.file(&format!("{dev}/node_type"), "1: CA\n");
            t.file(&format!("{dev}/node_guid"), &format!("{}\n", hex_words(&f.guid.to_be_bytes())));
            t.file(&format!("{dev}/sys_image_guid"), &format!("{}\n", hex_words(&f.guid.to_be_bytes())));
            t.file(&format!("{dev}/fw_ver"), "22.39.1002\n");
            t.file(&format!("{dev}/hw_rev"), "0\n");
            t.file(&format!("{dev}/board_id"), "SOFTHCA0000001\n");
            t.dir(&format!("{dev}/device"));
            // A ConnectX-6 Dx by its PCI ids: what the stock provider looks for.
            let alias = "pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc07i00\n";
            t.file(&format!("{dev}/device/modalias"), alias);
            t.file(&format!("{dev}/device/numa_node"), "-1\n");
            t.dir(&format!("{dev}/ports"));
            let port = format!("{dev}/ports/1");
            t.dir(&port);
            let ib = d.link == Link::InfiniBand;
            t.file(&format!("{port}/state"), "4: ACTIVE\n");
            t.file(&format!("{port}/phys_state"), "5: LinkUp\n");
            t.file(&format!("{port}/rate"), "200 Gb/sec (4X HDR)\n");
            t.file(&format!("{port}/lid"), &format!("{:#x}\n", f.lid));
            t.file(&format!("{port}/sm_lid"), if ib { "0x1\n" } else { "0x0\n" });
            t.file(&format!("{port}/sm_sl"), "0\n");
            t.file(&format!("{port}/lid_mask_count"), "0\n");
            t.file(&format!("{port}/cap_mask"), &format!("{:#010x}\n", f.capabilities));
            t.file(&format!("{port}/link_layer"), if ib { "InfiniBand\n" } else { "Ethernet\n" });
            t.dir(&format!("{port}/pkeys"));
            for (k, p) in d.pkeys.iter().enumerate() {
                t.file(&format!("{port}/pkeys/{k}"), &format!("{p:#06x}\n"));
            }
            t.dir(&format!("{port}/gids"));
            t.dir(&format!("{port}/gid_attrs"));
            t.dir(&format!("{port}/gid_attrs/types"));
            t.dir(&format!("{port}/gid_attrs/ndevs"));
            for k in f.gids.len()..f.gid_len {
                t.file(&format!("{port}/gids/{k}"), &format!("{}\n", hex_words(&[0; 16])));
            }
            for (k, g) in f.gids.iter().enumerate() {
                t.file(&format!("{port}/gids/{k}"), &format!("{}\n", hex_words(&g.raw)));
                let kind = if g.kind == GidKind::RoCEv2 { "RoCE v2\n" } else { "IB/RoCE v1\n" };
                t.file(&format!("{port}/gid_attrs/types/{k}"), kind);
                if let Some(interface) = f.interface {
                    t.file(&format!("{port}/gid_attrs/ndevs/{k}"), &format!("{interface}\n"));
                }
            }
        }
        t
    }

    fn dir(&mut self, path: &str) {
        self.nodes.push(Node { path: path.to_owned(), text: None });
    }

    fn file(&mut self, path: &str, text: &str) {
        self.nodes.push(Node { path: path.to_owned(), text: Some(text.to_owned()) });
    }

    /// Finds a node by its path.
    pub(crate) fn find(&self, path: &str) -> Option<(u32, &Node)> {
        let mut plain: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|p| !p.is_empty() && *p != ".") {
            match part {
                ".." => drop(plain.pop()),
                _ => plain.push(part),
            }
        }
        let path = format!("/{}", plain.join("/"));
        let i = self.nodes.iter().position(|n| n.path == path)?;
        Some((u32::try_from(i).ok()?, self.nodes.get(i)?))
    }

    /// The node with number `i`.
    pub(crate) fn node(&self, i: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(i).ok()?)
    }

    /// The `k`th name in directory `i`, and whether it is a directory.
    pub(crate) fn entry(&self, i: u32, k: usize) -> Option<(&str, bool)> {
        let dir = &self.node(i)?.path;
        let inside = |n: &'_ &Node| {
            n.path
                .strip_prefix(dir.as_str())
                .and_then(|r| r.strip_prefix('/'))
                .is_some_and(|r| !r.contains('/'))
        };
        let n = self.nodes.iter().filter(inside).nth(k)?;
        Some((n.path.rsplit('/').next()?, n.text.is_none()))
    }

    /// The device whose character device `path` is.
    pub(crate) fn cdev(&self, path: &str) -> Option<u32> {
        let n: u32 = path.strip_prefix(CDEV)?.parse().ok()?;
        n.checked_sub(self.first).filter(|i| *i < self.devices)
    }

    /// The minor number that device `i` reports.
    pub(crate) fn minor(&self, i: u32) -> u32 {
        minor(self.first + i)
    }
}

fn minor(n: u32) -> u32 {
    192 + n
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let c = Config::new().devices(2, crate::config::Link::RoCE).complete().unwrap();
        let gids = crate::config::usual_gids(crate::config::Link::RoCE, 1, 1);
        let facts = |guid| Facts {
            guid,
            lid: 0,
            capabilities: 0x0401_0000,
            gid_len: 8,
            interface: Some("lo"),
            gids: gids.clone(),
        };
        Tree::new(&c, &[facts(1), facts(2)])
    }

    #[test]
    fn lists_and_finds() {
        let t = tree();
        let (v, _) = t.find("/sys/class/infiniband_verbs/").unwrap();
        let names: Vec<_> = (0..).map_while(|k| t.entry(v, k)).collect();
        assert_eq!(names, [("abi_version", false), ("uverbs0", true), ("uverbs1", true)]);
        assert_eq!(
            t.find("/sys/class/infiniband/mlx5_1/node_guid").unwrap().1.text.as_deref(),
            Some("0000:0000:0000:0002\n")
        );
        assert!(t.find("/sys/class/infiniband/mlx5_2").is_none());
        let port = t.find("/sys/class/infiniband/mlx5_1/ports/1/..").unwrap().1;
        assert!(port.path.ends_with("mlx5_1/ports"));
        let texts = ["cap_mask", "lid_mask_count", "gids/7", "gid_attrs/ndevs/0"].map(|f| {
            t.find(&format!("/sys/class/infiniband/mlx5_0/./ports//1/{f}")).unwrap().1.text.clone().unwrap()
        });
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000\n";
        assert_eq!(texts, ["0x04010000\n", "0\n", zero, "lo\n"]);
        assert!(t.find("/sys/class/infiniband/mlx5_0/ports/1/gids/8").is_none());
    }

    #[test]
    fn knows_its_character_devices() {
        let t = tree();
        assert_eq!(t.cdev("/dev/infiniband/uverbs1"), Some(1));
        assert_eq!(t.cdev("/dev/infiniband/uverbs2"), None);
        assert_eq!(t.cdev("/dev/infiniband/rdma_cm"), None);
    }
}
