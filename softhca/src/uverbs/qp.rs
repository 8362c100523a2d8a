//! Queue pairs.

use super::abi::{
    CreateQpResp, Mlx5CreateQp, Mlx5CreateQpResp, ModifyQp, OpenQp, Plain, QpCap, QueryQp, QueryQpResp, ids,
};
use super::{Call, Outcome};
use crate::config::Link;
use crate::objects::qp::{Attributes, Wait};
use crate::objects::transitions::{self, mask as m};
use crate::objects::{Handle, Qp, QpKind, QpState};

/// Flags of `mlx5_ib_create_qp`.
mod flag {
    pub(super) const SCATTER_CQE: u32 = 1 << 1;
    pub(super) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    pub(super) const PACKET_BASED_CREDIT: u32 = 1 << 9;
    pub(super) const UAR_PAGE_INDEX: u32 = 1 << 10;
    pub(super) const KNOWN: u32 = SCATTER_CQE | ALLOW_SCATTER_CQE | PACKET_BASED_CREDIT | UAR_PAGE_INDEX;
}

const BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
const SQ_SIG_ALL: u32 = 1 << 12;

impl Call<'_> {
    pub(super) fn create_qp(&mut self) -> Outcome {
        let q: Mlx5CreateQp = self.attrs.read(ids::UHW_IN);
        let cap: QpCap = self.attrs.read(8);
        let flags = self.attrs.number32(10);
        // Raw packets, dynamically connected transport and RSS are not modelled.
        let kind = QpKind::from_wire(self.attrs.number32(9)).ok_or(libc::EOPNOTSUPP)?;
        if self.attrs.has(6) || self.attrs.has(11) || q.flags & !flag::KNOWN != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if flags & !(BLOCK_MULTICAST_LOOPBACK | SQ_SIG_ALL) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let limits = self.model.limits(self.ctx);
        let too_large = cap.max_send_wr > limits.max_qp_wr
            || cap.max_recv_wr > limits.max_qp_wr
            || cap.max_send_sge > limits.max_sge + 30
            || cap.max_recv_sge > 32;
        let rings = |n: u32| n == 0 || n.is_power_of_two();
        if too_large || !rings(q.sq_wqe_count) || !rings(q.rq_wqe_count) || q.rq_wqe_shift > 9 {
            return Err(libc::EINVAL);
        }
        let page = q.bfreg_index;
        if q.flags & flag::UAR_PAGE_INDEX == 0 || !self.model.context(self.ctx)?.has_page(page) {
            return Err(libc::EINVAL);
        }
        if self.model.qps.len() >= limits.max_qp as usize {
            return Err(libc::ENOMEM);
        }
        let target = kind == QpKind::XrcTgt;
        let pd = if target { 0 } else { self.pd_of(self.attrs.number32(2))? };
        let xrcd = match target.then(|| self.handle(self.attrs.number32(1))).transpose()? {
            None => None,
            Some(Handle::Xrcd(x)) => Some(x),
            Some(_) => return Err(libc::EINVAL),
        };
        let scq = if target { 0 } else { self.cq_of(self.attrs.number32(4))? };
        let rcq = if target || kind == QpKind::XrcIni { 0 } else { self.cq_of(self.attrs.number32(5))? };
        let srq = if self.attrs.has(3) { Some(self.srq_of(self.attrs.number32(3))?) } else { None };
        let rq_len = u64::from(q.rq_wqe_count) << q.rq_wqe_shift;
        let scatter = !self.model.config.no_scatter_to_cqe && q.flags & flag::SCATTER_CQE != 0;
        let sig_all = flags & SQ_SIG_ALL != 0;
        let qp = Qp {
            ctx: self.ctx,
            dev: self.model.context(self.ctx)?.dev,
            kind,
            state: QpState::Reset,
            pd,
            user: self.attrs.number(7),
            uidx: q.uidx,
            uar: page,
            scq,
            rcq,
            srq,
            xrcd,
            shares: u32::from(target),
            async_fd: self.async_fd(12)?,
            async_events: 0,
            cap: QpCap {
                max_recv_wr: q.rq_wqe_count,
                max_recv_sge: if q.rq_wqe_count > 0 { (1 << q.rq_wqe_shift) / 16 } else { 0 },
                ..cap
            },
            sig_all,
            block_loopback: flags & BLOCK_MULTICAST_LOOPBACK != 0,
            scatter_recv: scatter && matches!(kind, QpKind::Rc | QpKind::Uc),
            scatter_send: scatter
                && kind == QpKind::Rc
                && (sig_all || q.flags & flag::ALLOW_SCATTER_CQE != 0),
            rq: q.buf_addr,
            rq_count: if srq.is_some() { 0 } else { q.rq_wqe_count },
            rq_shift: q.rq_wqe_shift,
            sq: q.buf_addr + rq_len,
            sq_count: if target { 0 } else { q.sq_wqe_count },
            db: q.db_addr,
            sq_next: 0,
            rq_next: 0,
            attr: Attributes::new(),
            psn: 0,
            expected_psn: 0,
            last_atomic: None,
            wait: Wait::Nothing,
            deadline: u64::MAX,
            transmission: 0,
            retries_left: 0,
            rnr_left: 0,
            retrying: false,
            delayed: false,
            established: false,
            notify_drained: false,
            groups: Vec::new(),
        };
        self.model.use_pd(pd);
        for cqn in [scq, rcq] {
            if let Some(c) = self.model.cqs.get_mut(cqn) {
                c.uses += 1;
            }
        }
        if let Some(s) = srq.and_then(|n| self.model.srqs.get_mut(n)) {
            s.uses += 1;
        }
        if let Some(x) = xrcd.and_then(|n| self.model.xrcds.get_mut(n)) {
            x.uses += 1;
        }
        crate::check::trap::watch_record(q.db_addr);
        let (sq, sq_count) = (qp.sq, qp.sq_count);
        let qpn = self.model.qps.insert(qp);
        crate::check::trap::watch_qp(qpn, q.db_addr, sq, sq_count, self.ctx, page);
        self.model.context_mut(self.ctx)?.attach(page, qpn);
        let handle = self.hold(if target { Handle::QpShare(qpn) } else { Handle::Qp(qpn) })?;
        self.attrs.set(0, handle);
        self.attrs.write(13, &cap);
        self.attrs.write(14, &qpn);
        self.attrs.write(ids::UHW_OUT, &Mlx5CreateQpResp::zeroed());
        self.note(|| format!("{}, {} send blocks, {} receives", kind.name(), q.sq_wqe_count, q.rq_wqe_count));
        Ok(())
    }

    fn qp_of(&self, handle: u32) -> Result<u32, i32> {
        match self.handle(handle)? {
            Handle::Qp(n) | Handle::QpShare(n) => Ok(n),
            _ => Err(libc::EINVAL),
        }
    }

    /// Another handle for an XRC target.
    pub(super) fn open_qp(&mut self) -> Outcome {
        let q: OpenQp = self.attrs.read(0);
        let Handle::Xrcd(xrcd) = self.handle(q.pd_handle)? else { return Err(libc::EINVAL) };
        let qp = self.model.qps.get_mut(q.qpn).ok_or(libc::EINVAL)?;
        if qp.kind != QpKind::XrcTgt || qp.xrcd != Some(xrcd) || q.qp_type != 10 {
            return Err(libc::EINVAL);
        }
        qp.shares += 1;
        let handle = self.hold(Handle::QpShare(q.qpn))?;
        self.attrs.write(1, &CreateQpResp { qp_handle: handle, qpn: q.qpn, ..CreateQpResp::zeroed() });
        Ok(())
    }

    pub(super) fn destroy_qp(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let (qpn, shared) = match self.handle(handle)? {
            Handle::Qp(n) => (n, false),
            Handle::QpShare(n) => (n, true),
            _ => return Err(libc::EINVAL),
        };
        let q = self.model.qps.get(qpn).ok_or(libc::EINVAL)?;
        if !q.groups.is_empty() {
            return Err(libc::EBUSY);
        }
        let reported = q.async_events.saturating_sub(self.model.withdraw(q.async_fd, q.user));
        if shared {
            self.model.drop_share(qpn);
        } else {
            self.model.remove_qp(qpn);
        }
        self.attrs.write(1, &reported);
        self.forget(handle)
    }

    pub(super) fn query_qp(&mut self) -> Outcome {
        let q: QueryQp = self.attrs.read(0);
        let qp = self.model.qps.get(self.qp_of(q.qp_handle)?).ok_or(libc::EINVAL)?;
        let (a, c) = (&qp.attr, &qp.cap);
        let r = QueryQpResp {
            dest: a.dest,
            alt_dest: a.alt_dest,
            max_send_wr: c.max_send_wr,
            max_recv_wr: c.max_recv_wr,
            max_send_sge: c.max_send_sge,
            max_recv_sge: c.max_recv_sge,
            max_inline_data: c.max_inline_data,
            qkey: a.qkey,
            rq_psn: a.rq_psn,
            sq_psn: a.sq_psn,
            dest_qp_num: a.dest_qpn,
            qp_access_flags: a.access,
            pkey_index: a.pkey_index,
            alt_pkey_index: a.alt_pkey_index,
            qp_state: qp.state as u8,
            cur_qp_state: qp.state as u8,
            path_mtu: a.path_mtu,
            path_mig_state: a.path_mig_state,
            sq_draining: u8::from(qp.state == QpState::Sqd && qp.retrying),
            max_rd_atomic: a.max_rd_atomic,
            max_dest_rd_atomic: a.max_dest_rd_atomic,
            min_rnr_timer: a.min_rnr_timer,
            port_num: a.port,
            timeout: a.timeout,
            retry_cnt: a.retry_cnt,
            rnr_retry: a.rnr_retry,
            alt_port_num: a.alt_port,
            alt_timeout: a.alt_timeout,
            sq_sig_all: u8::from(qp.sig_all),
            ..QueryQpResp::zeroed()
        };
        self.attrs.write(1, &r);
        Ok(())
    }

    pub(super) fn modify_qp(&mut self) -> Outcome {
        let q: ModifyQp = self.attrs.read(0);
        let qpn = self.qp_of(q.qp_handle)?;
        let qp = self.model.qps.get(qpn).ok_or(libc::EINVAL)?;
        let from = qp.state;
        if q.attr_mask & m::CUR_STATE != 0 && q.cur_qp_state != from as u8 {
            return Err(libc::EINVAL);
        }
        let to = if q.attr_mask & m::STATE != 0 {
            QpState::from_wire(q.qp_state).ok_or(libc::EINVAL)?
        } else {
            from
        };
        let set = transitions::check(from, to, qp.kind, q.attr_mask).ok_or(libc::EINVAL)?;
        self.check_values(qpn, &q, set)?;
        self.note(|| format!("{from:?} to {to:?}"));
        if to == QpState::Reset {
            self.model.reset_qp(qpn);
            return Ok(());
        }
        let qp = self.model.qps.get_mut(qpn).ok_or(libc::EINVAL)?;
        store(&mut qp.attr, &q, set);
        if set & m::SQ_PSN != 0 {
            qp.psn = q.sq_psn & 0xff_ffff;
        }
        if set & m::RQ_PSN != 0 {
            qp.expected_psn = q.rq_psn & 0xff_ffff;
        }
        if q.attr_mask & m::STATE == 0 || to == from && to != QpState::Err {
            return Ok(());
        }
        match to {
            QpState::Err => self.model.enter_error(qpn),
            QpState::Sqd => {
                qp.state = to;
                qp.notify_drained = set & m::EN_SQD_ASYNC_NOTIFY != 0 && q.en_sqd_async_notify != 0;
                if !qp.retrying {
                    self.model.check_drained(qpn);
                }
            }
            QpState::Rts => {
                qp.state = to;
                self.model.run_sq(qpn);
            }
            _ => qp.state = to,
        }
        Ok(())
    }

    /// The values of the attributes in `set`.
    fn check_values(&self, qpn: u32, q: &ModifyQp, set: u32) -> Outcome {
        let qp = self.model.qps.get(qpn).ok_or(libc::EINVAL)?;
        let d = self.model.device(qp.dev)?;
        let has = |bit: u32| set & bit != 0;
        let bad = has(m::PORT) && q.port_num != 1
            || has(m::PKEY_INDEX) && usize::from(q.pkey_index) >= d.pkeys.len()
            || has(m::PATH_MTU) && !(1..=d.mtu).contains(&q.path_mtu)
            || has(m::TIMEOUT) && q.timeout > 31
            || has(m::RETRY_CNT) && q.retry_cnt > 7
            || has(m::RNR_RETRY) && q.rnr_retry > 7
            || has(m::MIN_RNR_TIMER) && q.min_rnr_timer > 31
            || has(m::MAX_QP_RD_ATOMIC) && q.max_rd_atomic > d.limits.max_rd_atomic
            || has(m::MAX_DEST_RD_ATOMIC) && q.max_dest_rd_atomic > d.limits.max_rd_atomic
            || has(m::DEST_QPN) && q.dest_qp_num > 0xff_ffff;
        if bad {
            return Err(libc::EINVAL);
        }
        if has(m::AV) {
            let a = &q.dest;
            let global = a.is_global != 0;
            if a.port_num != 1
                || d.link == Link::RoCE && !global
                || global && usize::from(a.sgid_index) >= d.gids.len()
            {
                return Err(libc::EINVAL);
            }
        }
        if has(m::ALT_PATH) {
            // Path migration is not modelled.
            return Err(libc::EOPNOTSUPP);
        }
        if has(m::QKEY) && q.qkey & (1 << 31) != 0 && !crate::run::is_privileged() {
            return Err(libc::EPERM);
        }
        Ok(())
    }
}

/// Stores the attributes in `set`.
fn store(a: &mut Attributes, q: &ModifyQp, set: u32) {
    macro_rules! take {
        ($($bit:ident: $($to:ident = $from:ident),+;)*) => { $( if set & m::$bit != 0 { $( a.$to = q.$from; )+ } )* };
    }
    take! {
        ACCESS_FLAGS: access = qp_access_flags;
        PKEY_INDEX: pkey_index = pkey_index;
        PORT: port = port_num;
        QKEY: qkey = qkey;
        AV: dest = dest;
        PATH_MTU: path_mtu = path_mtu;
        TIMEOUT: timeout = timeout;
        RETRY_CNT: retry_cnt = retry_cnt;
        RNR_RETRY: rnr_retry = rnr_retry;
        RQ_PSN: rq_psn = rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic = max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer = min_rnr_timer;
        SQ_PSN: sq_psn = sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic = max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state = path_mig_state;
        DEST_QPN: dest_qpn = dest_qp_num;
    }
}
