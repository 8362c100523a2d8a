//! Which RDMA device of this machine to use, and how to address it.

use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/class/infiniband";

/// A usable port of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) port: u32,
    /// None on InfiniBand, where a LID is enough.
    pub(super) gid_index: Option<u32>,
}

impl Device {
    /// The options of the ping-pong programs that name it.
    pub(super) fn options(&self) -> Vec<String> {
        let mut options = vec!["-d".into(), self.name.clone(), "-i".into(), self.port.to_string()];
        if let Some(index) = self.gid_index {
            options.extend(["-g".into(), index.to_string()]);
        }
        options
    }
}

/// The device to use: the `wanted` one, else the first with an active port; None if the machine has none.
pub(super) fn find(wanted: Option<&str>) -> Result<Option<Device>> {
    find_in(Path::new(DEVICES), wanted)
}

fn find_in(devices: &Path, wanted: Option<&str>) -> Result<Option<Device>> {
    let names = match wanted {
        Some(name) if devices.join(name).exists() => vec![name.to_owned()],
        Some(name) => match list(devices).join(", ") {
            there if there.is_empty() => bail!("no device {name} here, nor any other but `--device soft`"),
            there => bail!("no device {name} here (there are: {there})"),
        },
        None => list(devices),
    };
    let found = names.iter().find_map(|name| active_port(devices, name));
    match (found, wanted) {
        (None, Some(name)) => bail!("device {name}: none of its ports is active and has an address"),
        (found, _) => Ok(found),
    }
}

fn active_port(devices: &Path, name: &str) -> Option<Device> {
    let ports = devices.join(name).join("ports");
    let mut numbers: Vec<u32> = list(&ports).iter().filter_map(|number| number.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.into_iter().find_map(|port| {
        let folder = ports.join(port.to_string());
        if !read(folder.join("state")).contains("ACTIVE") {
            return None;
        }
        let gid_index = match read(folder.join("link_layer")).as_str() {
            "Ethernet" => Some(routable_gid(&folder)?),
            _ => None,
        };
        Some(Device { name: name.to_owned(), port, gid_index })
    })
}

/// The index of the best GID for RoCE: version 2 with an IPv4 address, else version 2, else any.
fn routable_gid(port: &Path) -> Option<u32> {
    let mut indexes: Vec<u32> =
        list(&port.join("gids")).iter().filter_map(|index| index.parse().ok()).collect();
    indexes.sort_unstable();
    let rank = |index: &u32| {
        let gid = read(port.join("gids").join(index.to_string()));
        let kind = read(port.join("gid_attrs/types").join(index.to_string()));
        let is_set = gid.chars().any(|c| !matches!(c, '0' | ':'));
        let is_v4 = gid.starts_with("0000:0000:0000:0000:0000:ffff:");
        match (is_set, kind == "RoCE v2", is_v4) {
            (false, ..) => None,
            (_, true, true) => Some(0),
            (_, true, false) => Some(1),
            (_, false, _) => Some(2),
        }
    };
    indexes.into_iter().filter_map(|index| Some((rank(&index)?, index))).min().map(|(_, index)| index)
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn read(file: PathBuf) -> String {
    fs::read_to_string(file).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like that of sysfs, removed on drop.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("ibv-xtask-{}-{name}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_first_active_port_is_taken_with_its_ipv4_gid() {
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
        let tree = Tree::new(
            "roce",
            &[
                ("mlx5_0/ports/1/state", "1: DOWN\n"),
                ("mlx5_1/ports/1/state", "4: ACTIVE\n"),
                ("mlx5_1/ports/1/link_layer", "Ethernet\n"),
                ("mlx5_1/ports/1/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fe00:0001\n"),
                ("mlx5_1/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
                ("mlx5_1/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
                ("mlx5_1/ports/1/gid_attrs/types/2", "IB/RoCE v1\n"),
                ("mlx5_1/ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
                ("mlx5_1/ports/1/gid_attrs/types/3", "RoCE v2\n"),
                ("mlx5_1/ports/1/gids/4", zero),
            ],
        );
        let device = find_in(&tree.0, None).unwrap().unwrap();
        assert_eq!(device.options(), ["-d", "mlx5_1", "-i", "1", "-g", "3"]);
        assert!(find_in(&tree.0, Some("mlx5_0")).is_err(), "not active");
        assert!(find_in(&tree.0, Some("mlx5_7")).unwrap_err().to_string().contains("mlx5_0, mlx5_1"));
    }

    #[test]
    fn infiniband_needs_no_gid() {
        let tree = Tree::new(
            "ib",
            &[("mlx4_0/ports/2/state", "4: ACTIVE\n"), ("mlx4_0/ports/2/link_layer", "InfiniBand\n")],
        );
        let device = find_in(&tree.0, None).unwrap().unwrap();
        assert_eq!(device, Device { name: "mlx4_0".into(), port: 2, gid_index: None });
    }

    #[test]
    fn a_machine_without_devices_has_none() {
        assert_eq!(find_in(Path::new("/nothing/here"), None).unwrap(), None);
    }
}
