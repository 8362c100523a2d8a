//! Completion queues.

use super::abi::{
    DestroyCqResp, Mlx5CreateCq, Mlx5ResizeCq, ModifyCq, NumberResp, ResizeCq, ResizeCqResp, ids,
};
use super::device::VECTORS;
use super::{Call, Outcome};
use crate::bits::cqe;
use crate::mem;
use crate::objects::cq::Armed;
use crate::objects::{Cq, Handle};

const UAR_PAGE_INDEX: u16 = 2;
/// What a receiver's compressed completion holds beside its length: one of these.
pub(super) const FORMAT_HASH: u8 = 1;
pub(super) const FORMAT_CHECKSUM: u8 = 2;
const TIMESTAMP: u32 = 1;
const IGNORE_OVERRUN: u32 = 2;

impl Call<'_> {
    pub(super) fn create_cq(&mut self) -> Outcome {
        let q: Mlx5CreateCq = self.attrs.read(ids::UHW_IN);
        let limits = self.model.limits(self.ctx);
        let cqe = self.attrs.number32(1);
        let entries = cqe.checked_add(1).filter(|n| n.is_power_of_two()).ok_or(libc::EINVAL)?;
        let flags = self.attrs.number32(5);
        if self.attrs.number32(4) >= VECTORS
            || cqe > limits.max_cqe
            || flags & !(TIMESTAMP | IGNORE_OVERRUN) != 0
        {
            return Err(libc::EINVAL);
        }
        if !matches!(q.cqe_size, 64 | 128) || q.buf_addr == 0 || q.db_addr & 7 != 0 {
            return Err(libc::EINVAL);
        }
        let compresses = q.cqe_comp_en == 1;
        if compresses && !matches!(q.cqe_comp_res_format, FORMAT_HASH | FORMAT_CHECKSUM)
            || q.flags & !UAR_PAGE_INDEX != 0
        {
            // Compression with stride indices, padding and real-time timestamps.
            return Err(libc::EOPNOTSUPP);
        }
        if self.model.cqs.len() >= limits.max_cq as usize {
            return Err(libc::ENOMEM);
        }
        let channel = self.channel(3)?;
        let cq = Cq {
            ctx: self.ctx,
            user: self.attrs.number(2),
            buf: q.buf_addr,
            db: q.db_addr,
            entries,
            cqe_size: q.cqe_size,
            pi: 0,
            solicited_pi: 0,
            armed: Armed::No,
            last_arm: mem::load_be32(q.db_addr + 4).map_err(|_| libc::EFAULT)?,
            channel,
            async_fd: self.async_fd(7)?,
            comp_events: 0,
            async_events: 0,
            overrun: false,
            ignore_overrun: flags & IGNORE_OVERRUN != 0,
            uses: 0,
            compresses,
            session: Vec::new(),
        };
        if let Some(c) = channel.and_then(|n| self.model.channels.get_mut(n)) {
            c.uses += 1;
        }
        let cqn = self.model.cqs.insert(cq);
        crate::check::trap::watch_record(q.db_addr);
        crate::check::trap::watch_cq(cqn, q.db_addr);
        let handle = self.hold(Handle::Cq(cqn))?;
        self.attrs.set(0, handle);
        self.attrs.write(6, &cqe);
        self.attrs.write(ids::UHW_OUT, &NumberResp { number: cqn, reserved: 0 });
        let how = if compresses { ", compressed" } else { "" };
        self.note(|| format!("{entries} entries of {} bytes{how}", q.cqe_size));
        Ok(())
    }

    pub(super) fn destroy_cq(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let cqn = self.cq_of(handle)?;
        let cq = self.model.cqs.get(cqn).ok_or(libc::EINVAL)?;
        if cq.uses > 0 {
            return Err(libc::EBUSY);
        }
        // Events that were not read yet die with the queue, and don't count as reported.
        let unread = cq.channel.and_then(|n| self.model.channels.get(n)).map_or(0, |c| c.withdraw(cq.user));
        let r = DestroyCqResp {
            comp_events_reported: cq.comp_events.saturating_sub(unread),
            async_events_reported: cq.async_events.saturating_sub(self.model.withdraw(cq.async_fd, cq.user)),
        };
        self.model.remove_cq(cqn);
        self.attrs.write(1, &r);
        self.forget(handle)
    }

    pub(super) fn cq_of(&self, handle: u32) -> Result<u32, i32> {
        match self.handle(handle)? {
            Handle::Cq(cqn) => Ok(cqn),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn resize_cq(&mut self) -> Outcome {
        let q: ResizeCq = self.attrs.read(0);
        let d: Mlx5ResizeCq = self.attrs.read(ids::UHW_IN);
        let cqn = self.cq_of(q.cq_handle)?;
        let limits = self.model.limits(self.ctx);
        let entries = q.cqe.checked_add(1).filter(|n| n.is_power_of_two()).ok_or(libc::EINVAL)?;
        let cq = self.model.cqs.get(cqn).ok_or(libc::EINVAL)?;
        let consumed = mem::load_be32(cq.db).map_err(|_| libc::EFAULT)?;
        let held = cq.pi.wrapping_sub(consumed) & 0xff_ffff;
        if q.cqe > limits.max_cqe || held > q.cqe || d.buf_addr == 0 || u32::from(d.cqe_size) != cq.cqe_size {
            return Err(libc::EINVAL);
        }
        // The last entry in the old buffer says so; the library copies what it has not polled yet.
        self.model.push_cqe(cqn, 0, crate::engine::Entry::new(cqe::RESIZE_CQ));
        let cq = self.model.cqs.get_mut(cqn).ok_or(libc::EINVAL)?;
        cq.buf = d.buf_addr;
        cq.entries = entries;
        self.note(|| format!("{entries} entries"));
        self.attrs.write(1, &ResizeCqResp { cqe: q.cqe, reserved: 0 });
        Ok(())
    }

    /// Moderation is accepted; it only delays events on hardware.
    pub(super) fn modify_cq(&mut self) -> Outcome {
        const MODERATE: u32 = 1;
        let q: ModifyCq = self.attrs.read(0);
        self.cq_of(q.cq_handle)?;
        if q.attr_mask != MODERATE {
            return Err(libc::EOPNOTSUPP);
        }
        if q.cq_period > 4095 {
            return Err(libc::EINVAL);
        }
        Ok(())
    }
}
