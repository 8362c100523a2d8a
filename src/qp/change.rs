//! A call of `ibv_modify_qp` in the making: attributes, and the mask that says which are meant.

use std::fmt;

use ibv_sys as sys;

use super::state::QpState;
use crate::addr::{AddressVector, Mtu};
use crate::error::{Error, Result};
use crate::mr::RemoteAccess;

/// Attributes and mask. Every setter sets its bit.
#[derive(Clone, Copy, Default)]
pub struct Change {
    attr: sys::ibv_qp_attr,
    mask: u32,
}

macro_rules! setters {
    ($($name:ident($type:ty) = $bit:ident: $field:ident;)*) => {$(
        pub(super) fn $name(&mut self, value: $type) {
            self.attr.$field = value;
            self.mask |= sys::$bit;
        }
    )*};
}

impl Change {
    setters! {
        port(u8) = IBV_QP_PORT: port_num;
        pkey_index(u16) = IBV_QP_PKEY_INDEX: pkey_index;
        qkey(u32) = IBV_QP_QKEY: qkey;
        dest_qpn(u32) = IBV_QP_DEST_QPN: dest_qp_num;
        rq_psn(u32) = IBV_QP_RQ_PSN: rq_psn;
        sq_psn(u32) = IBV_QP_SQ_PSN: sq_psn;
        max_dest_rd_atomic(u8) = IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        max_rd_atomic(u8) = IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        min_rnr_timer(u8) = IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        timeout(u8) = IBV_QP_TIMEOUT: timeout;
        retry_cnt(u8) = IBV_QP_RETRY_CNT: retry_cnt;
        rnr_retry(u8) = IBV_QP_RNR_RETRY: rnr_retry;
        path_mig_state(sys::ibv_mig_state) = IBV_QP_PATH_MIG_STATE: path_mig_state;
    }

    pub(super) fn access(&mut self, access: RemoteAccess) {
        self.attr.qp_access_flags = access.of_queue_pair();
        self.mask |= sys::IBV_QP_ACCESS_FLAGS;
    }

    pub(super) fn path_mtu(&mut self, mtu: Mtu) {
        self.attr.path_mtu = mtu.to_c();
        self.mask |= sys::IBV_QP_PATH_MTU;
    }

    pub(super) fn address(&mut self, path: &AddressVector) {
        self.attr.ah_attr = path.to_c();
        self.mask |= sys::IBV_QP_AV;
    }

    pub(super) fn alt_path(&mut self, path: &AddressVector, pkey_index: u16, timeout: u8) {
        self.attr.alt_ah_attr = path.to_c();
        self.attr.alt_port_num = path.port;
        self.attr.alt_pkey_index = pkey_index;
        self.attr.alt_timeout = timeout;
        self.mask |= sys::IBV_QP_ALT_PATH;
    }

    pub(super) fn notify_when_drained(&mut self, notify: bool) {
        if notify {
            self.attr.en_sqd_async_notify = 1;
            self.mask |= sys::IBV_QP_EN_SQD_ASYNC_NOTIFY;
        }
    }

    pub(super) fn current_state(&mut self, state: QpState) {
        self.attr.cur_qp_state = state.0;
        self.mask |= sys::IBV_QP_CUR_STATE;
    }

    /// With the state to go to, if it is not to stay, checked: ready for the verb.
    pub(super) fn to(mut self, state: Option<QpState>) -> Result<(sys::ibv_qp_attr, u32)> {
        if let Some(state) = state {
            self.attr.qp_state = state.0;
            self.mask |= sys::IBV_QP_STATE;
        }
        let Self { attr, mask } = self;
        let checks: [(u32, &'static str, u32, u32); 10] = [
            (sys::IBV_QP_DEST_QPN, "the peer's QPN", attr.dest_qp_num, 0xff_ffff),
            (sys::IBV_QP_RQ_PSN, "the receive queue's PSN", attr.rq_psn, 0xff_ffff),
            (sys::IBV_QP_SQ_PSN, "the send queue's PSN", attr.sq_psn, 0xff_ffff),
            (sys::IBV_QP_MIN_RNR_TIMER, "the RNR timer's code", attr.min_rnr_timer.into(), 31),
            (sys::IBV_QP_TIMEOUT, "the timeout's code", attr.timeout.into(), 31),
            (sys::IBV_QP_RETRY_CNT, "the retry count", attr.retry_cnt.into(), 7),
            (sys::IBV_QP_RNR_RETRY, "the RNR retry count", attr.rnr_retry.into(), 7),
            (sys::IBV_QP_AV, "the service level", attr.ah_attr.sl.into(), 15),
            (sys::IBV_QP_AV, "the flow label", attr.ah_attr.grh.flow_label, 0xf_ffff),
            (sys::IBV_QP_ALT_PATH, "the alternate path's timeout code", attr.alt_timeout.into(), 31),
        ];
        for (bit, what, value, limit) in checks {
            if mask & bit != 0 {
                Error::check_limit(what, value, limit)?;
            }
        }
        Ok((attr, mask))
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attr_mask {:#x}", self.mask)
    }
}
