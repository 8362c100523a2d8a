//! `INVOKE_WRITE`: the commands of the old interface, wrapped in an ioctl.

use super::abi::{NumberResp, PairResp, cmd};
use super::{Call, Outcome};
use crate::events::Channel;

/// Bytes of a completion event.
const COMPLETION_EVENT: usize = 8;
/// Bytes of an asynchronous event.
pub(super) const ASYNC_EVENT: usize = 16;

impl Call<'_> {
    pub(super) fn invoke_write(&mut self) -> Outcome {
        // libibverbs asks without an argument whether INVOKE_WRITE exists.
        if !self.attrs.has(0) {
            return Err(libc::ENOSPC);
        }
        match self.attrs.number32(2) {
            cmd::QUERY_DEVICE => self.query_device(),
            cmd::EX_QUERY_DEVICE => self.query_device_ex(),
            cmd::ALLOC_PD => self.alloc_pd(),
            cmd::CREATE_AH => self.create_ah(),
            cmd::REG_MR => self.reg_mr(),
            cmd::REREG_MR => self.rereg_mr(),
            cmd::ALLOC_MW => self.alloc_mw(),
            cmd::CREATE_COMP_CHANNEL => self.create_comp_channel(),
            cmd::RESIZE_CQ => self.resize_cq(),
            cmd::EX_MODIFY_CQ => self.modify_cq(),
            cmd::MODIFY_QP => self.modify_qp(),
            cmd::EX_MODIFY_QP => {
                self.modify_qp()?;
                self.attrs.write(1, &PairResp { a: 0, b: 8 });
                Ok(())
            }
            cmd::QUERY_QP => self.query_qp(),
            cmd::OPEN_QP => self.open_qp(),
            cmd::ATTACH_MCAST => self.attach_mcast(true),
            cmd::DETACH_MCAST => self.attach_mcast(false),
            cmd::MODIFY_SRQ => self.modify_srq(),
            cmd::QUERY_SRQ => self.query_srq(),
            cmd::OPEN_XRCD => self.open_xrcd(),
            // Flow steering, work queues, and what else is not modelled.
            _ => Err(libc::EOPNOTSUPP),
        }
    }

    fn create_comp_channel(&mut self) -> Outcome {
        let (_, fd) = self.new_channel(COMPLETION_EVENT)?;
        self.attrs.write(1, &NumberResp { number: fd, reserved: 0 });
        Ok(())
    }

    pub(super) fn alloc_async_fd(&mut self) -> Outcome {
        let (n, fd) = self.new_channel(ASYNC_EVENT)?;
        self.model.context_mut(self.ctx)?.async_fds.push(n);
        self.attrs.set(0, fd);
        Ok(())
    }

    /// A new channel: its number, and the application's descriptor.
    fn new_channel(&mut self, size: usize) -> Result<(u32, u32), i32> {
        let c = Channel::new(size)?;
        let fd = u32::try_from(c.read).map_err(|_| libc::EMFILE)?;
        let n = self.model.channels.insert(c);
        if let Some(c) = self.model.channels.get(n) {
            c.publish(n);
        }
        Ok((n, fd))
    }

    /// The channel whose reading end the attribute `id` names.
    pub(super) fn channel(&self, id: u16) -> Result<Option<u32>, i32> {
        use crate::interpose::fds::{self, Kind};
        if !self.attrs.has(id) {
            return Ok(None);
        }
        let fd = i32::try_from(self.attrs.number(id)).map_err(|_| libc::EBADF)?;
        match fds::get(fd) {
            Some(Kind::Channel(n)) => Ok(Some(n)),
            _ => Err(libc::EBADF),
        }
    }

    /// Where asynchronous events about a new object go: to the descriptor named by attribute `id`, or the
    /// context's own.
    pub(super) fn async_fd(&self, id: u16) -> Result<Option<u32>, i32> {
        if let Some(n) = self.channel(id)? {
            return Ok(Some(n));
        }
        Ok(self.model.context(self.ctx)?.async_fds.first().copied())
    }
}
