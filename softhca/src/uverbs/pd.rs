//! Protection domains, XRC domains, UAR pages.

use super::abi::{AllocMwResp, NumberResp, OpenXrcd, ids};
use super::{Call, Outcome};
use crate::objects::{Handle, Pd, Xrcd};

impl Call<'_> {
    pub(super) fn alloc_pd(&mut self) -> Outcome {
        let limit = self.model.limits(self.ctx).max_pd;
        if self.model.pds.len() >= limit as usize {
            return Err(libc::ENOMEM);
        }
        let pdn = self.model.pds.insert(Pd { uses: 0 });
        let handle = self.hold(Handle::Pd(pdn))?;
        self.attrs.write(1, &NumberResp { number: handle, reserved: 0 });
        self.attrs.write(ids::UHW_OUT, &NumberResp { number: pdn, reserved: 0 });
        Ok(())
    }

    pub(super) fn dealloc_pd(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let Handle::Pd(pdn) = self.handle(handle)? else { return Err(libc::EINVAL) };
        self.model.free_pd(pdn)?;
        self.forget(handle)
    }

    /// `mlx5_ib` says which PDN a PD of another import of the device has.
    pub(super) fn query_pd(&mut self) -> Outcome {
        let pdn = self.pd_of(self.attrs.number32(0x1000))?;
        self.attrs.write(0x1001, &pdn);
        Ok(())
    }

    pub(super) fn open_xrcd(&mut self) -> Outcome {
        let q: OpenXrcd = self.attrs.read(0);
        let dev = self.model.context(self.ctx)?.dev;
        let create = q.oflags & (libc::O_CREAT as u32) != 0;
        let exclusive = q.oflags & (libc::O_EXCL as u32) != 0;
        let inode = if q.fd == u32::MAX {
            None
        } else {
            let fd = i32::try_from(q.fd).map_err(|_| libc::EBADF)?;
            Some(crate::run::inode_of(fd).ok_or(libc::EBADF)?)
        };
        let known = match inode {
            None => None,
            Some(_) => {
                self.model.xrcds.iter().find(|(_, x)| x.dev == dev && x.inode == inode).map(|(i, _)| i)
            }
        };
        let id = match known {
            Some(_) if create && exclusive => return Err(libc::EINVAL),
            Some(id) => id,
            None if !create && inode.is_some() => return Err(libc::EAGAIN),
            None if inode.is_none() && !create => return Err(libc::EINVAL),
            None => self.model.xrcds.insert(Xrcd { dev, inode, opens: 0, uses: 0 }),
        };
        self.model.xrcds.get_mut(id).ok_or(libc::EINVAL)?.opens += 1;
        let handle = self.hold(Handle::Xrcd(id))?;
        self.attrs.write(1, &NumberResp { number: handle, reserved: 0 });
        Ok(())
    }

    pub(super) fn close_xrcd(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let Handle::Xrcd(id) = self.handle(handle)? else { return Err(libc::EINVAL) };
        self.model.close_xrcd(id)?;
        self.forget(handle)
    }

    pub(super) fn alloc_uar(&mut self) -> Outcome {
        let page = self.model.context_mut(self.ctx)?.alloc_page().ok_or(libc::ENOSPC)?;
        let handle = self.hold(Handle::Uar(page))?;
        self.attrs.set(0x1000, handle);
        self.attrs.write(0x1002, &(u64::from(page) * 4096));
        self.attrs.write(0x1003, &4096u32);
        self.attrs.write(0x1004, &page);
        Ok(())
    }

    pub(super) fn free_uar(&mut self) -> Outcome {
        let handle = self.attrs.number32(0x1000);
        let Handle::Uar(page) = self.handle(handle)? else { return Err(libc::EINVAL) };
        self.model.free_page(self.ctx, page);
        self.forget(handle)
    }

    /// The PDN behind a PD handle.
    pub(super) fn pd_of(&self, handle: u32) -> Result<u32, i32> {
        match self.handle(handle)? {
            Handle::Pd(pdn) => Ok(pdn),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn alloc_mw(&mut self) -> Outcome {
        let q: super::abi::AllocMw = self.attrs.read(0);
        let pd = self.pd_of(q.pd_handle)?;
        if !matches!(q.mw_type, 1 | 2) {
            return Err(libc::EINVAL);
        }
        if self.model.keys.windows() >= self.model.limits(self.ctx).max_mw {
            return Err(libc::ENOMEM);
        }
        let index = self.model.keys.add_window(pd, q.mw_type);
        self.model.use_pd(pd);
        let rkey = self.model.keys.key_of(index).ok_or(libc::EINVAL)?;
        let handle = self.hold(Handle::Mw(index))?;
        self.attrs.write(1, &AllocMwResp { mw_handle: handle, rkey });
        Ok(())
    }

    pub(super) fn dealloc_mw(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let Handle::Mw(index) = self.handle(handle)? else { return Err(libc::EINVAL) };
        self.model.remove_key(index);
        self.forget(handle)
    }
}
