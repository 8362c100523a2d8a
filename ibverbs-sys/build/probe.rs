//! Says what these headers have that others may not.
use std::collections::HashSet;

use syn::{ForeignItem, Item};

/// (cfg and metadata name, what to look for: a function, constant or type, or `struct.field`).
const KNOWN: [(&str, &str); 14] = [
    // 44
    ("atomic_write", "ibv_qp_ex.wr_atomic_write"),
    // 45
    ("flush", "ibv_qp_ex.wr_flush"),
    // Up to 58
    ("wr_opcode_str", "ibv_wr_opcode_str"),
    ("query_qp_data_in_order_caps", "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS"),
    // 59
    ("reg_mr_ex", "ibv_reg_mr_ex"),
    ("dmah", "ibv_alloc_dmah"),
    // 62
    ("port_active_speed_ex", "ibv_port_attr.active_speed_ex"),
    ("query_port_speed", "ibv_query_port_speed"),
    ("dm_export_dmabuf_fd", "ibv_dm_export_dmabuf_fd"),
    ("device_speed_change", "IBV_EVENT_DEVICE_SPEED_CHANGE"),
    // 64
    ("buf", "ibv_alloc_buf"),
    // 65
    ("export_buf_dmabuf_fd", "ibv_export_buf_dmabuf_fd"),
    ("comp_cntr", "ibv_create_comp_cntr"),
    ("resolve_addrinfo", "rdma_resolve_addrinfo"),
];

/// Sets `cfg(ibv_has_NAME)` for this crate, `DEP_IBVERBS_HAS_NAME=1` and `DEP_IBVERBS_VERSION` for dependants.
pub(crate) fn announce(file: &syn::File, version: Option<&str>) {
    let present = names(file);
    for (name, what) in KNOWN {
        println!("cargo::rustc-check-cfg=cfg(ibv_has_{name})");
        if present.contains(what) {
            println!("cargo::rustc-cfg=ibv_has_{name}");
            println!("cargo::metadata=HAS_{}=1", name.to_uppercase());
        }
    }
    if let Some(version) = version {
        println!("cargo::metadata=VERSION={version}");
        // For the tests.
        println!("cargo::rustc-env=IBV_SYS_RDMA_CORE={version}");
    }
}

fn names(file: &syn::File) -> HashSet<String> {
    let mut set = HashSet::new();
    for item in &file.items {
        match item {
            Item::Const(item) => drop(set.insert(item.ident.to_string())),
            Item::Type(item) => drop(set.insert(item.ident.to_string())),
            Item::Struct(item) => {
                for field in item.fields.iter().filter_map(|field| field.ident.as_ref()) {
                    set.insert(format!("{}.{field}", item.ident));
                }
                set.insert(item.ident.to_string());
            }
            Item::ForeignMod(item) => {
                for item in &item.items {
                    if let ForeignItem::Fn(item) = item {
                        set.insert(item.sig.ident.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    set
}
