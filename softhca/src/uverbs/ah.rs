//! Address handles and multicast groups.

use super::abi::{CreateAh, Mcast, Mlx5CreateAhResp, NumberResp, ids};
use super::{Call, Outcome};
use crate::config::Link;
use crate::objects::{Handle, QpKind};

impl Call<'_> {
    /// The provider asks only on RoCE: the kernel finds the destination's MAC address.
    pub(super) fn create_ah(&mut self) -> Outcome {
        let q: CreateAh = self.attrs.read(0);
        let pd = self.pd_of(q.pd_handle)?;
        let dev = self.model.context(self.ctx)?.dev;
        let device = self.model.device(dev)?;
        if q.attr.port_num != 1 {
            return Err(libc::EINVAL);
        }
        if device.link == Link::RoCE && q.attr.is_global == 0 {
            return Err(libc::EINVAL);
        }
        if q.attr.is_global != 0 && usize::from(q.attr.sgid_index) >= device.gids.len() {
            return Err(libc::EINVAL);
        }
        self.model.use_pd(pd);
        let handle = self.hold(Handle::Ah(pd))?;
        self.attrs.write(1, &NumberResp { number: handle, reserved: 0 });
        let [.., a, b] = q.attr.dgid;
        let dmac = [0x02, 0, 0, 0, a, b];
        let response_length = u32::try_from(size_of::<Mlx5CreateAhResp>()).unwrap_or(0);
        self.attrs.write(ids::UHW_OUT, &Mlx5CreateAhResp { response_length, dmac, reserved: [0; 6] });
        Ok(())
    }

    pub(super) fn destroy_ah(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let Handle::Ah(pd) = self.handle(handle)? else { return Err(libc::EINVAL) };
        self.model.release_pd(pd);
        self.forget(handle)
    }

    pub(super) fn attach_mcast(&mut self, attach: bool) -> Outcome {
        let q: Mcast = self.attrs.read(0);
        let Handle::Qp(qpn) = self.handle(q.qp_handle)? else { return Err(libc::EINVAL) };
        let qp = self.model.qps.get_mut(qpn).ok_or(libc::EINVAL)?;
        let [first, ..] = q.gid;
        if qp.kind != QpKind::Ud || first != 0xff {
            return Err(libc::EINVAL);
        }
        let at = qp.groups.iter().position(|g| *g == q.gid);
        match (attach, at) {
            (true, None) => qp.groups.push(q.gid),
            (true, Some(_)) => {}
            (false, Some(i)) => {
                qp.groups.swap_remove(i);
            }
            (false, None) => return Err(libc::EINVAL),
        }
        Ok(())
    }
}
