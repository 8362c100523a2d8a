//! Says what these headers have that older ones, down to rdma-core 39, don't have.
//!
//! The answer comes from the bindings themselves, not from a version: distributions patch, and folders given by
//! hand have no version.

use std::collections::HashSet;

use syn::{Field, ForeignItem, Item};

/// (name, what to look for: a function, a constant, a type, or `struct.field`). By the rdma-core that added it.
const KNOWN: &[(&str, &str)] = &[
    // 40
    ("mlx5_devx_eq", "mlx5dv_devx_create_eq"),
    // 42
    ("mlx5_crypto_login_obj", "mlx5dv_crypto_login_create"),
    ("mlx5_steering_anchor", "mlx5dv_create_steering_anchor"),
    ("mlx5_dest_root_table", "mlx5dv_dr_action_create_dest_root_table"),
    // 43
    ("mlx5_umem_dmabuf", "mlx5dv_devx_umem_in.dmabuf_fd"),
    // 44
    ("atomic_write", "ibv_qp_ex.wr_atomic_write"),
    // 45
    ("flush", "ibv_qp_ex.wr_flush"),
    // 46
    ("query_qp_data_in_order_caps", "IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS"),
    // 47
    ("mlx5_max_dc_rd_atom", "mlx5dv_context.max_dc_rd_atom"),
    // 49
    ("port_active_speed_ex", "ibv_port_attr.active_speed_ex"),
    ("wr_opcode_str", "ibv_wr_opcode_str"),
    // 50
    ("mlx5_reg_c0", "mlx5dv_context.reg_c0"),
    // 54
    ("mlx5_data_direct", "mlx5dv_reg_dmabuf_mr"),
    ("mlx5_obj_devx", "mlx5dv_obj.devx"),
    // 55
    ("mlx5_ooo_recv_wrs", "mlx5dv_context.ooo_recv_wrs_caps"),
    // 58
    ("mlx5_context_fds", "mlx5dv_context_attr.fds"),
    // 59
    ("dmah", "ibv_alloc_dmah"),
    ("reg_mr_ex", "ibv_reg_mr_ex"),
    // 60
    ("mlx5_flow_counters_bulk", "MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET"),
    ("resolve_addrinfo", "rdma_resolve_addrinfo"),
    ("write_cm_event", "rdma_write_cm_event"),
    // 62
    ("device_speed_change", "IBV_EVENT_DEVICE_SPEED_CHANGE"),
    ("dm_export_dmabuf_fd", "ibv_dm_export_dmabuf_fd"),
    ("query_port_speed", "ibv_query_port_speed"),
    // 63
    ("mlx5_devx_export", "mlx5dv_devx_obj_export"),
    // 64
    ("buf", "ibv_alloc_buf"),
    // After 64
    ("comp_cntr", "ibv_create_comp_cntr"),
    ("export_buf_dmabuf_fd", "ibv_export_buf_dmabuf_fd"),
];

/// Sets `cfg(ibv_has_NAME)` for this crate, `DEP_IBVERBS_HAS_NAME=1` and `DEP_IBVERBS_VERSION` for dependants.
pub(crate) fn announce(file: &syn::File, version: Option<&str>) {
    let present = names(file);
    for (name, what) in KNOWN {
        println!("cargo::rustc-check-cfg=cfg(ibv_has_{name})");
        if present.contains(*what) {
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
            Item::Struct(item) => note(&mut set, &item.ident, item.fields.iter()),
            Item::Union(item) => note(&mut set, &item.ident, item.fields.named.iter()),
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

fn note<'a>(set: &mut HashSet<String>, ty: &syn::Ident, fields: impl Iterator<Item = &'a Field>) {
    set.extend(fields.filter_map(|field| Some(format!("{ty}.{}", field.ident.as_ref()?))));
    set.insert(ty.to_string());
}
