//! Devices, contexts and what can be asked of them; and that the null provider is what answers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support_null;

use std::ffi::CStr;

use ibv::sys::*;
use ibv::{
    AtomicCap, Context, Error, Gid, GidType, Guid, LinkLayer, Mtu, NodeType, PortState, TransportType,
    devices,
};
use nullhca::hca;
use support_null::*;

#[test]
fn the_programs_own_symbols_come_before_the_librarys() {
    let functions: [(&str, *const ()); 4] = [
        ("ibv_open_device", ibv_open_device as *const ()),
        ("ibv_create_qp", ibv_create_qp as *const ()),
        ("ibv_get_device_list", ibv_get_device_list as *const ()),
        ("ibv_wc_status_str", ibv_wc_status_str as *const ()),
    ];
    let program = {
        // SAFETY: plain data; the address is one of this program's functions.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(open as *const libc::c_void, &raw mut info), 0);
            info.dli_fbase
        }
    };
    for (name, function) in functions {
        // SAFETY: as above.
        let info = unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(function.cast(), &raw mut info), 0, "{name}");
            info
        };
        // SAFETY: the name of a loaded file.
        let file = unsafe { CStr::from_ptr(info.dli_fname) };
        assert_eq!(info.dli_fbase, program, "{name} is in {file:?}");
    }
}

#[test]
fn devices_are_listed_and_found() {
    let list = devices().unwrap();
    assert_eq!((list.len(), list.is_empty()), (2, false));
    let names: Vec<_> = list.iter().map(|device| device.name().to_owned()).collect();
    assert_eq!(names, ["null0", "null1"]);
    let second = list.by_name("null1").unwrap();
    assert_eq!(second.guid(), Guid(0x0002_c903_00a1_0001));
    assert_eq!(list.by_guid(second.guid()).unwrap().name(), "null1");
    assert_eq!((second.index(), second.node_type()), (Some(1), NodeType::CA));
    assert_eq!(second.transport_type(), TransportType::IB);
    assert_eq!(second.sysfs_path().to_str(), Some("/sys/class/infiniband/null1"));
    assert!(format!("{second:?}").contains("null1"));
    assert_eq!(Context::open_by_guid(second.guid()).unwrap().device_name(), "null1");
    let error = list.by_name("mlx5_0").unwrap_err();
    assert!(error.to_string().contains("there are: null0, null1"), "{error}");
    assert!(matches!(list.by_guid(Guid(1)), Err(Error::DeviceNotFound { .. })));
    assert_eq!((&list).into_iter().count(), 2);
    drop(list);
    assert_eq!(hca().live().lists, 0);
}

#[test]
fn without_devices_the_error_says_so() {
    hca().configure(|config| config.devices = 0);
    assert!(devices().unwrap().is_empty());
    let none = Context::open("null0").unwrap_err().to_string();
    assert!(none.contains("there is none on this machine"), "{none}");
    hca().fail("ibv_get_device_list", libc::ENOSYS);
    let unsupported = devices().unwrap_err().to_string();
    assert!(unsupported.contains("modprobe"), "{unsupported}");
    for error in [none, unsupported] {
        assert!(error.contains("rdma link add") && error.contains("softhca::Hca::start"), "{error}");
    }
}

#[test]
fn a_context_answers() {
    let ctx = open();
    let attr = ctx.device_attr();
    assert_eq!((attr.fw_ver(), attr.node_guid()), ("0.0.1".to_owned(), Guid(0x0002_c903_00a1_0000)));
    assert_eq!((attr.max_qp_wr(), attr.max_sge(), attr.max_cqe()), (32768, 30, 65536));
    assert_eq!((attr.phys_port_cnt(), attr.atomic_cap(), ctx.comp_vectors()), (1, AtomicCap::HCA, 2));
    let port = ctx.query_port(1).unwrap();
    assert_eq!(
        (port.state(), port.active_mtu(), port.max_mtu()),
        (PortState::ACTIVE, Mtu::B1024, Mtu::B4096)
    );
    assert_eq!((port.link_layer(), port.gid_tbl_len(), port.pkey_tbl_len()), (LinkLayer::ETHERNET, 8, 2));
    assert_eq!(ctx.query_port(2).unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!((ctx.query_pkey(1, 1).unwrap(), ctx.pkey_index(1, 0x8001).unwrap()), (0x8001, 1));
    assert_eq!(ctx.query_pkey(1, 2).unwrap_err().errno(), Some(libc::ENOENT));
    assert_eq!(ctx.pkey_index(1, 0x1234).unwrap_err().errno(), Some(libc::ENOENT));
    let table = ctx.gid_table().unwrap();
    assert_eq!(table.iter().map(|entry| entry.index).collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!((table[0].gid_type, table[2].gid_type), (GidType::ROCE_V1, GidType::ROCE_V2));
    assert_eq!(ctx.query_gid(1, 3).unwrap(), table[2].gid);
    assert_eq!(ctx.query_gid(1, 2).unwrap(), Gid::ZERO);
    assert_eq!(ctx.query_gid(1, 8).unwrap_err().errno(), Some(libc::EINVAL));
    assert!(matches!(ctx.query_gid(1, 1 << 31), Err(Error::Invalid { .. })));
    hca().fail("ibv_query_gid_table", libc::EOPNOTSUPP);
    assert_eq!(ctx.gid_table().unwrap_err().errno(), Some(libc::EOPNOTSUPP));
}

#[test]
fn a_roce_port_sends_from_its_best_gid() {
    let ctx = open();
    let index = || ctx.local_port(1).unwrap().gid_index;
    assert_eq!(index(), Some(3));
    let without = |index: u32| {
        hca().configure(|config| config.gids.retain(|entry| entry.gid_index != index));
    };
    without(3);
    assert_eq!(index(), Some(1));
    without(1);
    assert_eq!(index(), Some(0));
    without(0);
    let error = ctx.local_port(1).unwrap_err();
    assert!(error.to_string().contains("IP address"), "{error}");
    assert!(matches!(ctx.local_port_with_gid(1, 0), Err(Error::Invalid { .. })));
}

#[test]
fn fork_support_is_asked_for_once_it_is_needed() {
    open();
    assert_eq!(hca().count("ibv_fork_init"), 0);
    hca().configure(|config| config.fork_status = IBV_FORK_DISABLED);
    open();
    assert_eq!(hca().count("ibv_fork_init"), 1);
    // somebody registered memory before: nothing can be done about it
    hca().fail("ibv_fork_init", libc::EINVAL);
    open();
    hca().fail("ibv_fork_init", libc::ENOMEM);
    assert_eq!(Context::open("null0").unwrap_err().errno(), Some(libc::ENOMEM));
    hca().configure(|config| config.fork_status = IBV_FORK_ENABLED);
    open();
    assert_eq!(hca().count("ibv_fork_init"), 3);
}
