//! The structures and numbers of the kernel's RDMA user interface, as far as they are used here.
//!
//! From the uapi headers `<rdma/ib_user_verbs.h>`, `<rdma/ib_user_ioctl_cmds.h>`, `<rdma/mlx5-abi.h>` and
//! `<rdma/mlx5_user_ioctl_cmds.h>`. Field names are theirs.
//!
//! # Safety
//!
//! [`Plain`] marks types that any bytes are a value of and that have no padding that matters: integers and arrays
//! of them in C layout.
#![expect(unsafe_code, reason = "marks plain structures")]

/// Any bytes are a value.
///
/// # Safety
/// The type consists of integers only.
pub(crate) unsafe trait Plain: Copy {
    /// All bytes zero.
    fn zeroed() -> Self {
        // SAFETY: any bytes are a value, so zeros are.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($(#[$m:meta])* $name:ident { $($f:ident : $t:ty),* $(,)? })*) => { $(
        $(#[$m])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(dead_code, reason = "the layout is the kernel's; not every field is used")]
        pub(crate) struct $name { $(pub(crate) $f: $t),* }
        // SAFETY: integers and structures of integers only.
        unsafe impl Plain for $name {}
    )* };
}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

plain! {
    AllocUcontextReq { total_num_bfregs: u32, num_low_latency_bfregs: u32, flags: u32, comp_mask: u32,
        max_cqe_version: u8, reserved0: u8, reserved1: u16, reserved2: u32, lib_caps: u64 }
    AllocUcontextResp { qp_tab_size: u32, bf_reg_size: u32, tot_bfregs: u32, cache_line_size: u32,
        max_sq_desc_sz: u16, max_rq_desc_sz: u16, max_send_wqebb: u32, max_recv_wr: u32, max_srq_recv_wr: u32,
        num_ports: u16, flow_action_flags: u16, comp_mask: u32, response_length: u32, cqe_version: u8,
        cmds_supp_uhw: u8, eth_min_inline: u8, clock_info_versions: u8, hca_core_clock_offset: u64,
        log_uar_size: u32, num_uars_per_page: u32, num_dyn_bfregs: u32, dump_fill_mkey: u32 }
    QueryDeviceResp { fw_ver: u64, node_guid: u64, sys_image_guid: u64, max_mr_size: u64, page_size_cap: u64,
        vendor_id: u32, vendor_part_id: u32, hw_ver: u32, max_qp: u32, max_qp_wr: u32, device_cap_flags: u32,
        max_sge: u32, max_sge_rd: u32, max_cq: u32, max_cqe: u32, max_mr: u32, max_pd: u32, max_qp_rd_atom: u32,
        max_ee_rd_atom: u32, max_res_rd_atom: u32, max_qp_init_rd_atom: u32, max_ee_init_rd_atom: u32,
        atomic_cap: u32, max_ee: u32, max_rdd: u32, max_mw: u32, max_raw_ipv6_qp: u32, max_raw_ethy_qp: u32,
        max_mcast_grp: u32, max_mcast_qp_attach: u32, max_total_mcast_qp_attach: u32, max_ah: u32, max_fmr: u32,
        max_map_per_fmr: u32, max_srq: u32, max_srq_wr: u32, max_srq_sge: u32, max_pkeys: u16,
        local_ca_ack_delay: u8, phys_port_cnt: u8, reserved: [u8; 4] }
    ExQueryDeviceResp { base: QueryDeviceResp, comp_mask: u32, response_length: u32, odp_general: u64,
        odp_transport: [u32; 4], timestamp_mask: u64, hca_core_clock: u64, device_cap_flags_ex: u64,
        rss_caps: [u32; 4], max_wq_type_rq: u32, raw_packet_caps: u32, tm_caps: [u32; 6],
        max_cq_moderation_count: u16, max_cq_moderation_period: u16, moderation_reserved: u32, max_dm_size: u64,
        xrc_odp_caps: u32, reserved: u32 }
    Mlx5QueryDeviceResp { comp_mask: u32, response_length: u32, tso_caps: [u32; 2], rss_caps: [u64; 2],
        cqe_comp_max_num: u32, cqe_comp_supported_format: u32, packet_pacing_caps: [u32; 4],
        multi_pkt_send_wqes: u32, flags: u32 }
    QueryPortResp { port_cap_flags: u32, max_msg_sz: u32, bad_pkey_cntr: u32, qkey_viol_cntr: u32,
        gid_tbl_len: u32, pkey_tbl_len: u16, lid: u16, sm_lid: u16, state: u8, max_mtu: u8, active_mtu: u8,
        lmc: u8, max_vl_num: u8, sm_sl: u8, subnet_timeout: u8, init_type_reply: u8, active_width: u8,
        active_speed: u8, phys_state: u8, link_layer: u8, flags: u8, reserved: u8, port_cap_flags2: u16,
        reserved2: [u8; 6] }
    GidEntry { gid: [u64; 2], gid_index: u32, port_num: u32, gid_type: u32, netdev_ifindex: u32 }
    RegMr { response: u64, start: u64, length: u64, hca_va: u64, pd_handle: u32, access_flags: u32 }
    RegMrResp { mr_handle: u32, lkey: u32, rkey: u32 }
    ReregMr { response: u64, mr_handle: u32, flags: u32, start: u64, length: u64, hca_va: u64, pd_handle: u32,
        access_flags: u32 }
    ReregMrResp { lkey: u32, rkey: u32 }
    AllocMw { response: u64, pd_handle: u32, mw_type: u8, reserved: [u8; 3] }
    AllocMwResp { mw_handle: u32, rkey: u32 }
    OpenXrcd { response: u64, fd: u32, oflags: u32 }
    ResizeCq { response: u64, cq_handle: u32, cqe: u32 }
    ResizeCqResp { cqe: u32, reserved: u32 }
    ModifyCq { cq_handle: u32, attr_mask: u32, cq_count: u16, cq_period: u16, reserved: u32 }
    Mlx5ResizeCq { buf_addr: u64, cqe_size: u16, reserved0: u16, reserved1: u32 }
    Mlx5CreateCq { buf_addr: u64, db_addr: u64, cqe_size: u32, cqe_comp_en: u8, cqe_comp_res_format: u8,
        flags: u16, uar_page_index: u16, reserved0: u16, reserved1: u32 }
    Mlx5CreateSrq { buf_addr: u64, db_addr: u64, flags: u32, reserved0: u32, uidx: u32, reserved1: u32 }
    Mlx5CreateQp { buf_addr: u64, db_addr: u64, sq_wqe_count: u32, rq_wqe_count: u32, rq_wqe_shift: u32,
        flags: u32, uidx: u32, bfreg_index: u32, sq_buf_addr: u64, ece_options: u32, dci_streams: u16,
        reserved: u16 }
    Mlx5CreateQpResp { bfreg_index: u32, ece_options: u32, comp_mask: u32, tirn: u32, tisn: u32, rqn: u32,
        sqn: u32, reserved1: u32, tir_icm_addr: u64 }
    NumberResp { number: u32, reserved: u32 }
    DestroyCqResp { comp_events_reported: u32, async_events_reported: u32 }
    QpCap { max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32 }
    QpDest { dgid: [u8; 16], flow_label: u32, dlid: u16, reserved: u16, sgid_index: u8, hop_limit: u8,
        traffic_class: u8, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8 }
    QueryQp { response: u64, qp_handle: u32, attr_mask: u32 }
    QueryQpResp { dest: QpDest, alt_dest: QpDest, max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32,
        max_recv_sge: u32, max_inline_data: u32, qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32,
        qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16, qp_state: u8, cur_qp_state: u8, path_mtu: u8,
        path_mig_state: u8, sq_draining: u8, max_rd_atomic: u8, max_dest_rd_atomic: u8, min_rnr_timer: u8,
        port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8, alt_port_num: u8, alt_timeout: u8,
        sq_sig_all: u8, reserved: [u8; 5] }
    ModifyQp { dest: QpDest, alt_dest: QpDest, qp_handle: u32, attr_mask: u32, qkey: u32, rq_psn: u32,
        sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32, pkey_index: u16, alt_pkey_index: u16, qp_state: u8,
        cur_qp_state: u8, path_mtu: u8, path_mig_state: u8, en_sqd_async_notify: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8, rnr_retry: u8,
        alt_port_num: u8, alt_timeout: u8, reserved: [u8; 2] }
    OpenQp { response: u64, user_handle: u64, pd_handle: u32, qpn: u32, qp_type: u8, reserved: [u8; 7] }
    CreateQpResp { qp_handle: u32, qpn: u32, max_send_wr: u32, max_recv_wr: u32, max_send_sge: u32,
        max_recv_sge: u32, max_inline_data: u32, reserved: u32 }
    AhAttr { dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8, reserved: u8,
        dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8, port_num: u8, reserved2: u8 }
    CreateAh { response: u64, user_handle: u64, pd_handle: u32, reserved: u32, attr: AhAttr }
    Mlx5CreateAhResp { response_length: u32, dmac: [u8; 6], reserved: [u8; 6] }
    Mcast { gid: [u8; 16], qp_handle: u32, mlid: u16, reserved: u16 }
    ModifySrq { srq_handle: u32, attr_mask: u32, max_wr: u32, srq_limit: u32 }
    QuerySrq { response: u64, srq_handle: u32, reserved: u32 }
    QuerySrqResp { max_wr: u32, max_sge: u32, srq_limit: u32, reserved: u32 }
    PairResp { a: u32, b: u32 }
    AsyncEvent { element: u64, event_type: u32, reserved: u32 }
}

/// Objects and methods of the ioctl interface.
pub(crate) mod ids {
    pub(crate) const DEVICE: u16 = 0;
    pub(crate) const PD: u16 = 1;
    pub(crate) const CQ: u16 = 3;
    pub(crate) const QP: u16 = 4;
    pub(crate) const SRQ: u16 = 5;
    pub(crate) const AH: u16 = 6;
    pub(crate) const MR: u16 = 7;
    pub(crate) const MW: u16 = 8;
    pub(crate) const FLOW: u16 = 9;
    pub(crate) const XRCD: u16 = 10;
    pub(crate) const RWQ_IND_TBL: u16 = 11;
    pub(crate) const WQ: u16 = 12;
    pub(crate) const FLOW_ACTION: u16 = 13;
    pub(crate) const DM: u16 = 14;
    pub(crate) const COUNTERS: u16 = 15;
    pub(crate) const ASYNC_EVENT: u16 = 16;
    pub(crate) const DEVX: u16 = 0x1000;
    pub(crate) const DEVX_OBJ: u16 = 0x1001;
    pub(crate) const DEVX_UMEM: u16 = 0x1002;
    pub(crate) const VAR: u16 = 0x1006;
    pub(crate) const PP: u16 = 0x1007;
    pub(crate) const UAR: u16 = 0x1008;

    pub(crate) const INVOKE_WRITE: u16 = 0;
    pub(crate) const QUERY_PORT: u16 = 2;
    pub(crate) const GET_CONTEXT: u16 = 3;
    pub(crate) const QUERY_CONTEXT: u16 = 4;
    pub(crate) const QUERY_GID_TABLE: u16 = 5;
    pub(crate) const QUERY_GID_ENTRY: u16 = 6;
    pub(crate) const MR_DESTROY: u16 = 1;
    pub(crate) const ADVISE_MR: u16 = 2;
    pub(crate) const QUERY_MR: u16 = 3;
    pub(crate) const REG_DMABUF_MR: u16 = 4;
    pub(crate) const REG_MR: u16 = 5;
    pub(crate) const PD_QUERY: u16 = 0x1000;
    pub(crate) const UAR_ALLOC: u16 = 0x1000;
    pub(crate) const UAR_FREE: u16 = 0x1001;

    /// Driver-private input and output of any method.
    pub(crate) const UHW_IN: u16 = 0x1000;
    pub(crate) const UHW_OUT: u16 = 0x1001;
}

/// The old commands that come by `INVOKE_WRITE`.
pub(crate) mod cmd {
    pub(crate) const EXTENDED: u32 = 0x8000_0000;
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const CREATE_AH: u32 = 5;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const REREG_MR: u32 = 11;
    pub(crate) const ALLOC_MW: u32 = 14;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const RESIZE_CQ: u32 = 19;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const ATTACH_MCAST: u32 = 30;
    pub(crate) const DETACH_MCAST: u32 = 31;
    pub(crate) const MODIFY_SRQ: u32 = 33;
    pub(crate) const QUERY_SRQ: u32 = 34;
    pub(crate) const OPEN_XRCD: u32 = 37;
    pub(crate) const OPEN_QP: u32 = 40;
    pub(crate) const EX_QUERY_DEVICE: u32 = EXTENDED | 1;
    pub(crate) const EX_MODIFY_QP: u32 = EXTENDED | 26;
    pub(crate) const EX_MODIFY_CQ: u32 = EXTENDED | 57;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn sizes_are_the_headers() {
        assert_eq!(size_of::<QueryDeviceResp>(), 176);
        assert_eq!(size_of::<ExQueryDeviceResp>(), 304);
        assert_eq!(size_of::<Mlx5QueryDeviceResp>(), 64);
        assert_eq!(size_of::<ModifyQp>(), 112);
        assert_eq!(size_of::<QueryQpResp>(), 128);
        assert_eq!(size_of::<Mlx5CreateQp>(), 56);
        assert_eq!(size_of::<AllocUcontextResp>(), 72);
        assert_eq!(size_of::<QpDest>(), 32);
        assert_eq!(size_of::<AhAttr>(), 32);
        assert_eq!(size_of::<GidEntry>(), 32);
    }
}
