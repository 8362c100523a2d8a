//! Shared receive queues.

use super::abi::{Mlx5CreateSrq, ModifySrq, NumberResp, QuerySrq, QuerySrqResp, ids};
use super::{Call, Outcome};
use crate::objects::srq::XrcSrq;
use crate::objects::{Handle, Srq};

const BASIC: u32 = 0;
const XRC: u32 = 1;

impl Call<'_> {
    pub(super) fn create_srq(&mut self) -> Outcome {
        let q: Mlx5CreateSrq = self.attrs.read(ids::UHW_IN);
        let pd = self.pd_of(self.attrs.number32(1))?;
        let (max_wr, max_sge, limit) =
            (self.attrs.number32(5), self.attrs.number32(6), self.attrs.number32(7));
        let limits = self.model.limits(self.ctx);
        if max_wr == 0 || max_wr > limits.max_srq_wr || max_sge > 31 || limit > max_wr || q.flags != 0 {
            return Err(libc::EINVAL);
        }
        if self.model.srqs.len() >= limits.max_srq as usize {
            return Err(libc::ENOMEM);
        }
        let xrc = match self.attrs.number32(9) {
            BASIC => None,
            XRC => {
                let Handle::Xrcd(xrcd) = self.handle(self.attrs.number32(2))? else {
                    return Err(libc::EINVAL);
                };
                Some(XrcSrq { xrcd, cqn: self.cq_of(self.attrs.number32(3))?, uidx: q.uidx })
            }
            // Tag matching.
            _ => return Err(libc::EOPNOTSUPP),
        };
        let stride = (16 + 16 * max_sge).max(32).next_power_of_two();
        let srq = Srq {
            pd,
            user: self.attrs.number(4),
            buf: q.buf_addr,
            db: q.db_addr,
            shift: stride.ilog2(),
            max_wr,
            max_sge,
            limit,
            head: 0,
            used: 0,
            async_fd: self.async_fd(10)?,
            async_events: 0,
            uses: 0,
            xrc,
        };
        self.model.use_pd(pd);
        if let Some(x) = xrc {
            if let Some(d) = self.model.xrcds.get_mut(x.xrcd) {
                d.uses += 1;
            }
            if let Some(c) = self.model.cqs.get_mut(x.cqn) {
                c.uses += 1;
            }
        }
        let (db, buf, shift) = (srq.db, srq.buf, srq.shift);
        let srqn = self.model.srqs.insert(srq);
        // libmlx5 has room for a power of two, and keeps one free. Links have 16 bits.
        crate::check::trap::watch_srq(srqn, db, buf, shift, (max_wr.min(0xffff) + 1).next_power_of_two());
        let handle = self.hold(Handle::Srq(srqn))?;
        self.attrs.set(0, handle);
        self.attrs.write(11, &max_wr);
        self.attrs.write(12, &max_sge);
        self.attrs.write(13, &srqn);
        self.attrs.write(ids::UHW_OUT, &NumberResp { number: srqn, reserved: 0 });
        Ok(())
    }

    pub(super) fn srq_of(&self, handle: u32) -> Result<u32, i32> {
        match self.handle(handle)? {
            Handle::Srq(n) => Ok(n),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn destroy_srq(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let srqn = self.srq_of(handle)?;
        let s = self.model.srqs.get(srqn).ok_or(libc::EINVAL)?;
        if s.uses > 0 {
            return Err(libc::EBUSY);
        }
        let reported = s.async_events.saturating_sub(self.model.withdraw(s.async_fd, s.user));
        self.model.remove_srq(srqn);
        self.attrs.write(1, &reported);
        self.forget(handle)
    }

    pub(super) fn modify_srq(&mut self) -> Outcome {
        const MAX_WR: u32 = 1;
        const LIMIT: u32 = 2;
        let q: ModifySrq = self.attrs.read(0);
        let srqn = self.srq_of(q.srq_handle)?;
        if q.attr_mask & MAX_WR != 0 || q.attr_mask & !LIMIT != 0 {
            // mlx5 can't resize an SRQ.
            return Err(libc::EINVAL);
        }
        let s = self.model.srqs.get_mut(srqn).ok_or(libc::EINVAL)?;
        if q.attr_mask & LIMIT != 0 {
            if q.srq_limit >= s.max_wr {
                return Err(libc::EINVAL);
            }
            s.limit = q.srq_limit;
        }
        Ok(())
    }

    pub(super) fn query_srq(&mut self) -> Outcome {
        let q: QuerySrq = self.attrs.read(0);
        let s = self.model.srqs.get(self.srq_of(q.srq_handle)?).ok_or(libc::EINVAL)?;
        let r = QuerySrqResp { max_wr: s.max_wr, max_sge: s.max_sge, srq_limit: s.limit, reserved: 0 };
        self.attrs.write(1, &r);
        Ok(())
    }
}
