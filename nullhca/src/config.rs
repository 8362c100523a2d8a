//! What the device says of itself.

use std::ffi::{c_char, c_int};

use ibv_sys as sys;

/// What the devices of an [`Hca`](crate::Hca) are like. Changes count for what is opened, made or asked afterwards.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many devices there are, at most 2.
    pub devices: usize,
    /// The answer of `ibv_query_device`.
    pub device: sys::ibv_device_attr,
    /// The answer of `ibv_query_port` for each port.
    pub port: sys::ibv_port_attr,
    /// The GID table of port 1.
    pub gids: Vec<sys::ibv_gid_entry>,
    /// The P_Key table of each port.
    pub pkeys: Vec<u16>,
    /// Completion vectors.
    pub comp_vectors: c_int,
    /// Whether there is `ibv_create_qp_ex` with `ibv_wr_*`.
    pub extended: bool,
    /// What `ibv_create_cq_ex` can have readers for (`enum ibv_create_cq_wc_flags`); 0 if there is no such verb.
    pub wc_flags: u64,
    /// Changes the function pointers of a completion queue by `ibv_create_cq_ex`.
    pub edit_cq: fn(&mut sys::ibv_cq_ex),
    /// The answer of `ibv_is_fork_initialized`.
    pub fork_status: sys::ibv_fork_status,
    /// Entries that a completion queue gets when it asks for so many.
    pub grant_cqe: fn(c_int) -> c_int,
    /// Receives that a shared receive queue gets when it asks for so many.
    pub grant_srq: fn(u32) -> u32,
    /// Makes the capabilities that a queue pair gets out of those it asks for.
    pub grant_caps: fn(&mut sys::ibv_qp_cap),
    /// Changes the function pointers of a queue pair with `ibv_wr_*`.
    pub edit_qp: fn(&mut sys::ibv_qp_ex),
    /// Whether contexts get a data path that does and records nothing, for counting what is around it.
    pub fast: bool,
}

impl Default for Config {
    fn default() -> Self {
        let mut device = sys::ibv_device_attr {
            node_guid: 0x0002_c903_00a1_0000_u64.to_be(),
            sys_image_guid: 0x0002_c903_00a1_ffff_u64.to_be(),
            max_mr_size: 1 << 40,
            page_size_cap: 0xffff_f000,
            vendor_id: 0x0002_c9ff,
            max_qp: 1024,
            max_qp_wr: 32768,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 1024,
            max_cqe: 65536,
            max_mr: 1024,
            max_pd: 1024,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            atomic_cap: sys::IBV_ATOMIC_HCA,
            max_ah: 1024,
            max_srq: 1024,
            max_srq_wr: 32768,
            max_srq_sge: 31,
            max_pkeys: 2,
            phys_port_cnt: 1,
            ..sys::ibv_device_attr::default()
        };
        for (to, from) in device.fw_ver.iter_mut().zip(b"0.0.1") {
            *to = *from as c_char;
        }
        let port = sys::ibv_port_attr {
            state: sys::IBV_PORT_ACTIVE,
            max_mtu: sys::IBV_MTU_4096,
            active_mtu: sys::IBV_MTU_1024,
            gid_tbl_len: 8,
            max_msg_sz: 1 << 31,
            pkey_tbl_len: 2,
            phys_state: 5,
            active_width: 2,
            active_speed: 32,
            link_layer: sys::IBV_LINK_LAYER_ETHERNET as u8,
            ..sys::ibv_port_attr::default()
        };
        let gid = |index, gid_type, raw| sys::ibv_gid_entry {
            gid: sys::ibv_gid { raw },
            gid_index: index,
            port_num: 1,
            gid_type,
            ndev_ifindex: 2,
        };
        let link_local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1];
        let v4 = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
        Self {
            devices: 2,
            device,
            port,
            gids: vec![
                gid(0, sys::IBV_GID_TYPE_ROCE_V1, link_local),
                gid(1, sys::IBV_GID_TYPE_ROCE_V2, link_local),
                gid(3, sys::IBV_GID_TYPE_ROCE_V2, v4),
            ],
            pkeys: vec![0xffff, 0x8001],
            comp_vectors: 2,
            extended: true,
            wc_flags: u64::from(
                sys::IBV_WC_STANDARD_FLAGS
                    | sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
                    | sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
            ),
            edit_cq: |_| {},
            fork_status: sys::IBV_FORK_UNNEEDED,
            grant_cqe: |asked| asked,
            grant_srq: |asked| asked,
            grant_caps: |_| {},
            edit_qp: |_| {},
            fast: false,
        }
    }
}
