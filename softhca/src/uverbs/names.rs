//! Names of commands and errors, for the log.

use super::abi::{cmd, ids as id};

/// The name of a method; `command` is that of an `INVOKE_WRITE`.
pub(super) fn of((object, method): (u16, u16), command: u32) -> String {
    let known = match (object, method) {
        (id::DEVICE, id::INVOKE_WRITE) => written(command),
        (id::DEVICE, id::QUERY_PORT) => "query_port",
        (id::DEVICE, id::GET_CONTEXT) => "get_context",
        (id::DEVICE, id::QUERY_CONTEXT) => "query_context",
        (id::DEVICE, id::QUERY_GID_TABLE) => "query_gid_table",
        (id::DEVICE, id::QUERY_GID_ENTRY) => "query_gid_entry",
        (id::ASYNC_EVENT, 0) => "alloc_async_fd",
        (id::PD, 0) => "dealloc_pd",
        (id::PD, id::PD_QUERY) => "query_pd",
        (id::MR, id::MR_DESTROY) => "dereg_mr",
        (id::MR, id::QUERY_MR) => "query_mr",
        (id::MR, id::REG_MR) => "reg_mr",
        (id::MR, id::ADVISE_MR) => "advise_mr",
        (id::MR, id::REG_DMABUF_MR) => "reg_dmabuf_mr",
        (id::MW, 0) => "dealloc_mw",
        (id::XRCD, 0) => "close_xrcd",
        (id::AH, 0) => "destroy_ah",
        (id::CQ, 0) => "create_cq",
        (id::CQ, 1) => "destroy_cq",
        (id::SRQ, 0) => "create_srq",
        (id::SRQ, 1) => "destroy_srq",
        (id::QP, 0) => "create_qp",
        (id::QP, 1) => "destroy_qp",
        (id::UAR, id::UAR_ALLOC) => "alloc_uar",
        (id::UAR, id::UAR_FREE) => "free_uar",
        (id::DM, _) => "device memory",
        (id::FLOW | id::FLOW_ACTION, _) => "flow steering",
        (id::COUNTERS, _) => "counters",
        (id::WQ | id::RWQ_IND_TBL, _) => "work queue",
        (id::DEVX | id::DEVX_OBJ | id::DEVX_UMEM, _) => "DEVX",
        _ => "",
    };
    if known.is_empty() { format!("object {object:#x} method {method:#x}") } else { known.to_owned() }
}

fn written(command: u32) -> &'static str {
    match command {
        cmd::QUERY_DEVICE => "query_device",
        cmd::EX_QUERY_DEVICE => "query_device_ex",
        cmd::ALLOC_PD => "alloc_pd",
        cmd::CREATE_AH => "create_ah",
        cmd::REG_MR => "reg_mr",
        cmd::REREG_MR => "rereg_mr",
        cmd::ALLOC_MW => "alloc_mw",
        cmd::CREATE_COMP_CHANNEL => "create_comp_channel",
        cmd::RESIZE_CQ => "resize_cq",
        cmd::EX_MODIFY_CQ => "modify_cq",
        cmd::MODIFY_QP | cmd::EX_MODIFY_QP => "modify_qp",
        cmd::QUERY_QP => "query_qp",
        cmd::OPEN_QP => "open_qp",
        cmd::ATTACH_MCAST => "attach_mcast",
        cmd::DETACH_MCAST => "detach_mcast",
        cmd::MODIFY_SRQ => "modify_srq",
        cmd::QUERY_SRQ => "query_srq",
        cmd::OPEN_XRCD => "open_xrcd",
        _ => "unknown command",
    }
}

/// The name of an errno.
pub(super) fn of_error(errno: i32) -> String {
    crate::fault::ERRNOS
        .iter()
        .find(|(_, e)| *e == errno)
        .map_or_else(|| format!("errno {errno}"), |(name, _)| (*name).to_owned())
}
