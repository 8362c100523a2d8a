//! What the device says of itself, against sysfs and `ibv_devinfo`.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use ibv::{Context, Error, GidType, LinkLayer, NodeType, TransportType, devices};

use crate::leaks::skip;
use crate::rig::{MADE, Rig, checked, device_name, program, scenario};

fn sysfs(path: &str) -> String {
    let path = PathBuf::from("/sys/class/infiniband").join(device_name().unwrap()).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

/// The number before a colon or the text after it, as sysfs has `4: ACTIVE`.
fn code(path: &str) -> u32 {
    sysfs(path).split(':').next().unwrap().trim().parse().unwrap()
}

#[test]
fn the_device_is_found_by_name_and_guid() {
    scenario(|rig| {
        let name = device_name().unwrap();
        let list = devices().unwrap();
        assert_eq!(list.len(), fs::read_dir("/sys/class/infiniband").unwrap().count());
        let device = list.by_name(&name).unwrap();
        assert_eq!(device.guid().to_string(), sysfs("node_guid"));
        assert_eq!(device.node_type(), NodeType::CA);
        assert_eq!(format!("{}: {}", device.node_type().0, "CA"), sysfs("node_type"));
        assert_eq!(device.transport_type(), TransportType::IB);
        assert!(device.sysfs_path().ends_with(&name));
        // the kernel numbers devices by netlink alone, which a device in user space has not
        assert_eq!(device.index().is_some(), MADE.get().is_none());
        assert_eq!(list.by_guid(device.guid()).unwrap().name(), name);
        assert_eq!(list.iter().filter(|other| other.name() == name).count(), 1);
        let guid = device.guid();
        drop(list);
        assert_eq!(Context::open_by_guid(guid).unwrap().device_name(), name);
        assert_eq!(rig.ctx.device_attr().node_guid(), guid);
        assert_eq!(rig.ctx.device_attr().sys_image_guid().to_string(), sysfs("sys_image_guid"));
    });
}

#[test]
fn an_unknown_device_is_told_with_those_there_are() {
    checked(|| {
        let error = Context::open("no_such_device").unwrap_err();
        assert!(matches!(&error, Error::DeviceNotFound { .. }));
        assert!(error.to_string().contains(&device_name().unwrap()), "{error}");
        assert!(Context::open_by_guid(ibv::Guid(1)).is_err());
    });
}

#[test]
fn the_port_is_as_sysfs_has_it() {
    scenario(|rig| {
        let port = rig.ctx.query_port(1).unwrap();
        assert_eq!(port.state().0, code("ports/1/state"));
        assert_eq!(
            format!("{}: {}", port.state().0, port.state()),
            format!("{}: PORT_{}", port.state().0, sysfs("ports/1/state").split(' ').nth(1).unwrap())
        );
        assert_eq!(u32::from(port.phys_state()), code("ports/1/phys_state"));
        assert_eq!(
            u32::from_str_radix(sysfs("ports/1/cap_mask").trim_start_matches("0x"), 16).unwrap(),
            port.port_cap_flags()
        );
        assert_eq!(
            u16::from_str_radix(sysfs("ports/1/lid").trim_start_matches("0x"), 16).unwrap(),
            port.lid()
        );
        assert_eq!(
            u16::from_str_radix(sysfs("ports/1/sm_lid").trim_start_matches("0x"), 16).unwrap(),
            port.sm_lid()
        );
        assert_eq!(u32::from(port.lmc()), code("ports/1/lid_mask_count"));
        assert_eq!(port.link_layer().to_string(), sysfs("ports/1/link_layer"));
        let folder = |name| {
            fs::read_dir(format!("/sys/class/infiniband/{}/ports/1/{name}", device_name().unwrap()))
                .unwrap()
                .count()
        };
        assert_eq!(port.gid_tbl_len() as usize, folder("gids"));
        assert_eq!(usize::from(port.pkey_tbl_len()), folder("pkeys"));
        assert_eq!(rig.ctx.device_attr().phys_port_cnt() as usize, folder(".."));
    });
}

#[test]
fn the_gid_table_is_as_sysfs_has_it() {
    scenario(|rig| {
        let table = rig.ctx.gid_table().unwrap();
        let mut filled = 0;
        for index in 0..rig.ctx.query_port(1).unwrap().gid_tbl_len() {
            let text: Ipv6Addr = sysfs(&format!("ports/1/gids/{index}")).parse().unwrap();
            let gid = rig.ctx.query_gid(1, index).unwrap();
            assert_eq!(gid.to_ipv6(), text);
            let entry = table.iter().find(|entry| entry.port == 1 && entry.index == index);
            if gid.is_zero() {
                assert!(entry.is_none());
                if index > 16 {
                    break;
                }
                continue;
            }
            filled += 1;
            let entry = entry.unwrap();
            assert_eq!(entry.gid, gid);
            let in_sysfs = match sysfs(&format!("ports/1/gid_attrs/types/{index}")).as_str() {
                "RoCE v2" => GidType::ROCE_V2,
                _ => entry.gid_type,
            };
            assert_eq!(entry.gid_type, in_sysfs);
            let interface = sysfs(&format!("ports/1/gid_attrs/ndevs/{index}"));
            let ifindex = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).unwrap();
            assert_eq!(entry.ndev_ifindex, ifindex.trim().parse().ok());
        }
        assert!(filled >= 1 && filled <= table.len());
    });
}

#[test]
fn p_keys_lead_both_ways() {
    scenario(|rig| {
        let pkey = rig.ctx.query_pkey(1, 0).unwrap();
        assert_eq!(format!("{pkey:#06x}"), sysfs("ports/1/pkeys/0"));
        assert_eq!(rig.ctx.pkey_index(1, pkey).unwrap(), 0);
        let unknown = rig.ctx.pkey_index(1, 0x1234).unwrap_err();
        assert!(unknown.errno().is_some() && unknown.to_string().contains("0x1234"), "{unknown}");
        assert!(rig.ctx.query_pkey(1, u16::MAX).unwrap_err().errno().is_some());
    });
}

#[test]
fn ports_and_indices_that_are_not_there() {
    scenario(|rig| {
        for port in [0, 2 + rig.ctx.device_attr().phys_port_cnt() as u8, 255] {
            let error = rig.ctx.query_port(port).unwrap_err();
            assert_eq!(error.errno(), Some(libc::EINVAL), "{error}");
            assert!(error.to_string().contains(&format!("port {port}")), "{error}");
            assert!(rig.ctx.local_port(port).is_err());
        }
        assert!(rig.ctx.query_gid(1, 100_000).unwrap_err().errno().is_some());
        assert!(rig.ctx.query_gid(9, 0).unwrap_err().errno().is_some());
        assert!(matches!(rig.ctx.query_gid(1, u32::MAX), Err(Error::Invalid { .. })));
        let last = rig.ctx.query_port(1).unwrap().gid_tbl_len() - 1;
        let empty = rig.ctx.local_port_with_gid(1, last).unwrap_err();
        assert!(matches!(empty, Error::Invalid { .. }), "{empty}");
    });
}

#[test]
fn the_best_address_is_found_without_being_told() {
    scenario(|rig| {
        if rig.ctx.query_port(1).unwrap().link_layer() != LinkLayer::ETHERNET {
            return skip("the port is no RoCE port");
        }
        let local = rig.ctx.local_port(1).unwrap();
        let table = rig.ctx.gid_table().unwrap();
        let chosen = table.iter().find(|entry| entry.index == u32::from(local.gid_index.unwrap())).unwrap();
        assert_eq!(chosen.gid, local.gid);
        let has_ipv4 =
            table.iter().any(|entry| entry.gid.to_ipv4().is_some() && entry.gid_type == GidType::ROCE_V2);
        assert_eq!(local.gid.to_ipv4().is_some(), has_ipv4, "{table:?}");
    });
}

/// `ibv_devinfo -v` as names and values.
fn devinfo() -> Option<HashMap<String, String>> {
    let output = program("ibv_devinfo").args(["-v", "-d", &device_name()?]).output().ok()?;
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
    };
    Some(text.lines().filter_map(pair).collect())
}

#[test]
fn limits_are_those_that_devinfo_prints() {
    scenario(|rig| {
        let Some(info) = devinfo() else { return skip("no ibv_devinfo: install ibverbs-utils") };
        let attr = rig.ctx.device_attr();
        let numbers = [
            ("max_qp", attr.max_qp()),
            ("max_qp_wr", attr.max_qp_wr()),
            ("max_sge", attr.max_sge()),
            ("max_sge_rd", attr.max_sge_rd()),
            ("max_cq", attr.max_cq()),
            ("max_cqe", attr.max_cqe()),
            ("max_mr", attr.max_mr()),
            ("max_pd", attr.max_pd()),
            ("max_qp_rd_atom", attr.max_qp_rd_atom()),
            ("max_qp_init_rd_atom", attr.max_qp_init_rd_atom()),
            ("max_mw", attr.max_mw()),
            ("max_mcast_grp", attr.max_mcast_grp()),
            ("max_ah", attr.max_ah()),
            ("max_srq", attr.max_srq()),
            ("max_srq_wr", attr.max_srq_wr()),
            ("max_srq_sge", attr.max_srq_sge()),
            ("max_pkeys", attr.max_pkeys()),
            ("phys_port_cnt", attr.phys_port_cnt()),
            ("vendor_part_id", attr.vendor_part_id()),
            ("num_comp_vectors", rig.ctx.comp_vectors()),
            ("sm_lid", rig.ctx.query_port(1).unwrap().sm_lid().into()),
            ("port_lid", rig.ctx.query_port(1).unwrap().lid().into()),
        ];
        for (name, ours) in numbers {
            assert_eq!(info[name], ours.to_string(), "{name}");
        }
        let port = rig.ctx.query_port(1).unwrap();
        let words = [
            ("max_mr_size", format!("{:#x}", attr.max_mr_size())),
            ("vendor_id", format!("{:#06x}", attr.vendor_id())),
            ("hw_ver", format!("{:#X}", attr.hw_ver()).replace("0X", "0x")),
            ("fw_ver", attr.fw_ver()),
            ("node_guid", attr.node_guid().to_string()),
            ("sys_image_guid", attr.sys_image_guid().to_string()),
            ("hca_id", device_name().unwrap()),
            ("state", format!("{} ({})", port.state(), port.state().0)),
            ("max_mtu", format!("{} ({})", port.max_mtu(), port.max_mtu().code())),
            ("active_mtu", format!("{} ({})", port.active_mtu(), port.active_mtu().code())),
            ("link_layer", port.link_layer().to_string()),
            ("max_msg_sz", format!("{:#x}", port.max_msg_sz())),
            ("gid_tbl_len", port.gid_tbl_len().to_string()),
        ];
        // a device in user space is another one in each process, with a GUID of its own
        let own = |name: &str| MADE.get().is_some() && name.ends_with("_guid");
        for (name, ours) in words.into_iter().filter(|(name, _)| !own(name)) {
            assert_eq!(info[name], ours, "{name}");
        }
    });
}

#[test]
fn a_device_is_open_more_than_once() {
    checked(|| {
        let contexts: Vec<Rig> = (0..5).map(|_| Rig::open()).collect();
        let pds: Vec<_> = contexts.iter().map(|rig| rig.ctx.alloc_pd().unwrap()).collect();
        assert_eq!(pds.len(), 5);
    });
}
