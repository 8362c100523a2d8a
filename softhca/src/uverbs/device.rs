//! Contexts, devices, ports and GIDs.

use super::abi::{
    AllocUcontextReq, AllocUcontextResp, ExQueryDeviceResp, GidEntry, Mlx5QueryDeviceResp, Plain,
    QueryDeviceResp, QueryPortResp, ids,
};
use super::cq::{FORMAT_CHECKSUM, FORMAT_HASH};
use super::{Call, Outcome};
use crate::config::Link;
use crate::engine::compress;
use crate::model::Device;

/// Completion vectors.
pub(super) const VECTORS: u32 = 2;

fn size<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(0)
}

/// What `GET_CONTEXT` tells libmlx5: doorbell pages are allocated one by one (no static ones), CQEs are of version 1.
fn ucontext() -> AllocUcontextResp {
    const CORE_CLOCK_OFFSET: u32 = 1;
    const SQD2RTS: u32 = 1 << 3;
    AllocUcontextResp {
        qp_tab_size: 1 << 18,
        bf_reg_size: 512,
        cache_line_size: 64,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: 32768,
        max_recv_wr: 32768,
        max_srq_recv_wr: 32767,
        num_ports: 1,
        comp_mask: CORE_CLOCK_OFFSET | SQD2RTS,
        response_length: size::<AllocUcontextResp>(),
        cqe_version: 1,
        cmds_supp_uhw: 3,
        eth_min_inline: 1,
        clock_info_versions: 1,
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: 512,
        ..AllocUcontextResp::zeroed()
    }
}

fn attributes(d: &Device) -> QueryDeviceResp {
    // bad P_Key and Q_Key counters, change port, current state on modify, port-active event, system image GUID,
    // RNR NAK, memory windows, XRC, memory management extensions, windows of type 2B.
    const CAPS: u32 =
        0x2 | 0x4 | 0x20 | 0x80 | 0x400 | 0x800 | 0x1000 | 0x2_0000 | 0x10_0000 | 0x20_0000 | 0x100_0000;
    const ATOMIC_NONE: u32 = 0;
    const ATOMIC_HCA: u32 = 1;
    let l = &d.limits;
    QueryDeviceResp {
        fw_ver: 22 << 32 | 39 << 16 | 1002,
        node_guid: d.guid.to_be(),
        sys_image_guid: d.guid.to_be(),
        max_mr_size: u64::MAX,
        page_size_cap: 0xffff_ffff_ffff_f000,
        vendor_id: 0x02c9,
        vendor_part_id: 4125,
        max_qp: l.max_qp,
        max_qp_wr: l.max_qp_wr,
        device_cap_flags: CAPS,
        max_sge: l.max_sge,
        max_sge_rd: l.max_sge,
        max_cq: l.max_cq,
        max_cqe: l.max_cqe,
        max_mr: l.max_mr,
        max_pd: l.max_pd,
        max_qp_rd_atom: u32::from(l.max_rd_atomic),
        max_res_rd_atom: u32::from(l.max_rd_atomic).saturating_mul(l.max_qp),
        max_qp_init_rd_atom: u32::from(l.max_rd_atomic),
        atomic_cap: if d.lacks_atomics { ATOMIC_NONE } else { ATOMIC_HCA },
        max_mw: l.max_mw,
        max_mcast_grp: 2_097_152,
        max_mcast_qp_attach: 240,
        max_total_mcast_qp_attach: 503_316_480,
        max_ah: i32::MAX as u32,
        max_srq: l.max_srq,
        max_srq_wr: l.max_srq_wr,
        max_srq_sge: 31,
        max_pkeys: u16::try_from(d.pkeys.len()).unwrap_or(u16::MAX),
        local_ca_ack_delay: 16,
        phys_port_cnt: 1,
        ..QueryDeviceResp::zeroed()
    }
}

impl Call<'_> {
    fn device(&self) -> Result<&Device, i32> {
        self.model.device(self.model.context(self.ctx)?.dev)
    }

    pub(super) fn get_context(&mut self) -> Outcome {
        let q: AllocUcontextReq = self.attrs.read(ids::UHW_IN);
        const DEVX: u32 = 1;
        if q.flags & DEVX != 0 {
            // Raw firmware commands are not modelled; libmlx5 asks again without.
            return Err(libc::EOPNOTSUPP);
        }
        self.describe_context(0, ids::UHW_OUT);
        Ok(())
    }

    pub(super) fn query_context(&mut self) -> Outcome {
        self.describe_context(0, 0x1000);
        Ok(())
    }

    fn describe_context(&self, first: u16, driver: u16) {
        const OPTIONAL_MR_ACCESS: u64 = 1;
        self.attrs.write(first, &VECTORS);
        self.attrs.write(first + 1, &OPTIONAL_MR_ACCESS);
        self.attrs.write(driver, &ucontext());
    }

    pub(super) fn query_device(&mut self) -> Outcome {
        self.attrs.write(1, &attributes(self.device()?));
        Ok(())
    }

    pub(super) fn query_device_ex(&mut self) -> Outcome {
        let d = self.device()?;
        let base = attributes(d);
        let r = ExQueryDeviceResp {
            base,
            response_length: size::<ExQueryDeviceResp>(),
            timestamp_mask: u64::MAX >> 1,
            hca_core_clock: 1_000_000,
            device_cap_flags_ex: u64::from(base.device_cap_flags),
            max_cq_moderation_count: u16::MAX,
            max_cq_moderation_period: 4095,
            ..ExQueryDeviceResp::zeroed()
        };
        self.attrs.write(1, &r);
        const CQE_128B_COMP: u32 = 1;
        self.attrs.write(
            ids::UHW_OUT,
            &Mlx5QueryDeviceResp {
                response_length: size::<Mlx5QueryDeviceResp>(),
                cqe_comp_max_num: u32::try_from(compress::MOST).unwrap_or(0),
                cqe_comp_supported_format: u32::from(FORMAT_HASH | FORMAT_CHECKSUM),
                flags: CQE_128B_COMP,
                ..Mlx5QueryDeviceResp::zeroed()
            },
        );
        Ok(())
    }

    pub(super) fn query_port(&mut self) -> Outcome {
        if self.attrs.number(0) != 1 {
            return Err(libc::EINVAL);
        }
        const UP: (u8, u8) = (4, 5);
        const DOWN: (u8, u8) = (1, 3);
        let d = self.device()?;
        let (state, phys_state) = if d.link_up { UP } else { DOWN };
        let ib = d.link == Link::InfiniBand;
        let r = QueryPortResp {
            port_cap_flags: d.port_capabilities(),
            max_msg_sz: d.limits.max_msg,
            gid_tbl_len: u32::try_from(d.gid_len()).unwrap_or(8),
            pkey_tbl_len: u16::try_from(d.pkeys.len()).unwrap_or(u16::MAX),
            lid: d.lid,
            sm_lid: u16::from(ib),
            state,
            max_mtu: 5,
            active_mtu: d.mtu,
            max_vl_num: if ib { 4 } else { 0 },
            subnet_timeout: if ib { 18 } else { 0 },
            active_width: 2,
            active_speed: 64,
            phys_state,
            link_layer: if ib { 1 } else { 2 },
            flags: u8::from(!ib),
            ..QueryPortResp::zeroed()
        };
        self.attrs.write(1, &r);
        Ok(())
    }

    fn gid_entry(d: &Device, index: usize) -> Option<GidEntry> {
        let g = d.gids.get(index)?;
        let word = |at: usize| crate::bits::be64(&g.raw, at).to_be();
        Some(GidEntry {
            gid: [word(0), word(8)],
            gid_index: u32::try_from(index).ok()?,
            port_num: 1,
            gid_type: g.kind.wire(),
            netdev_ifindex: d.interface().map_or(0, |(_, index)| index),
        })
    }

    pub(super) fn query_gid_table(&mut self) -> Outcome {
        if self.attrs.number(1) != 0 {
            return Err(libc::EINVAL);
        }
        let d = self.device()?;
        let all: Vec<GidEntry> = (0..d.gids.len()).filter_map(|i| Self::gid_entry(d, i)).collect();
        if self.attrs.number(0) != size_of::<GidEntry>() as u64
            || self.attrs.len(2) < size_of_val(all.as_slice())
        {
            return Err(libc::EINVAL);
        }
        self.attrs.write_all(2, &all);
        self.attrs.write(3, &(all.len() as u64));
        Ok(())
    }

    pub(super) fn query_gid_entry(&mut self) -> Outcome {
        let index = usize::try_from(self.attrs.number(1)).map_err(|_| libc::EINVAL)?;
        let d = self.device()?;
        if self.attrs.number(0) != 1 || self.attrs.number(2) != 0 || index >= d.gid_len() {
            return Err(libc::EINVAL);
        }
        let e = Self::gid_entry(d, index).ok_or(libc::ENODATA)?;
        self.attrs.write(3, &e);
        Ok(())
    }
}
