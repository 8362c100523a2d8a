//! Memory regions.

use super::abi::{RegMr, RegMrResp, ReregMr, ReregMrResp};
use super::{Call, Outcome};
use crate::mem;
use crate::objects::keys::{Kind, Region};
use crate::objects::{Handle, access};

fn check_access(flags: u32) -> Outcome {
    if flags & access::ON_DEMAND != 0 {
        // A device without on-demand paging.
        return Err(libc::EOPNOTSUPP);
    }
    let writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if flags & !access::KNOWN != 0 || writes && flags & access::LOCAL_WRITE == 0 {
        return Err(libc::EINVAL);
    }
    Ok(())
}

fn check_range(start: u64, length: u64, hca_va: u64) -> Outcome {
    if length == 0 || start & 4095 != hca_va & 4095 || start.checked_add(length).is_none() {
        return Err(libc::EINVAL);
    }
    if mem::is_mapped(start, length) { Ok(()) } else { Err(libc::EFAULT) }
}

impl Call<'_> {
    /// The command of the old interface.
    pub(super) fn reg_mr(&mut self) -> Outcome {
        let q: RegMr = self.attrs.read(0);
        let pd = self.pd_of(q.pd_handle)?;
        let (handle, key) = self.register(pd, q.start, q.length, q.hca_va, q.access_flags)?;
        self.attrs.write(1, &RegMrResp { mr_handle: handle, lkey: key, rkey: key });
        Ok(())
    }

    /// The method that rdma-core 59 and newer use.
    pub(super) fn reg_mr_ex(&mut self) -> Outcome {
        if self.attrs.has(2) || self.attrs.has(7) {
            // DMA handles and dmabuf.
            return Err(libc::EOPNOTSUPP);
        }
        let pd = self.pd_of(self.attrs.number32(1))?;
        let (iova, start, length) = (self.attrs.number(3), self.attrs.number(4), self.attrs.number(5));
        let (handle, key) = self.register(pd, start, length, iova, self.attrs.number32(6))?;
        self.attrs.set(0, handle);
        self.attrs.write(9, &key);
        self.attrs.write(10, &key);
        Ok(())
    }

    /// A new region: its handle and key.
    fn register(&mut self, pd: u32, start: u64, len: u64, va: u64, flags: u32) -> Result<(u32, u32), i32> {
        check_access(flags)?;
        check_range(start, len, va)?;
        if self.model.keys.len() >= self.model.limits(self.ctx).max_mr as usize {
            return Err(libc::ENOMEM);
        }
        let iova = if flags & access::ZERO_BASED != 0 { va & 4095 } else { va };
        let index = self.model.keys.add_region(pd, Region { start, len, iova, access: flags });
        self.model.use_pd(pd);
        let key = self.model.keys.key_of(index).ok_or(libc::EINVAL)?;
        let handle = self.hold(Handle::Mr(index))?;
        self.note(|| format!("{len} bytes at {start:#x}, access {flags:#x}"));
        Ok((handle, key))
    }

    fn region(&self, handle: u32) -> Result<u32, i32> {
        match self.handle(handle)? {
            Handle::Mr(index) => Ok(index),
            _ => Err(libc::EINVAL),
        }
    }

    pub(super) fn rereg_mr(&mut self) -> Outcome {
        const TRANSLATION: u32 = 1;
        const PD: u32 = 2;
        const ACCESS: u32 = 4;
        let q: ReregMr = self.attrs.read(0);
        let index = self.region(q.mr_handle)?;
        if q.flags == 0 || q.flags & !(TRANSLATION | PD | ACCESS) != 0 {
            return Err(libc::EINVAL);
        }
        let entry = *self.model.keys.get(index).ok_or(libc::EINVAL)?;
        let Kind::Region(mut region) = entry.kind else { return Err(libc::EINVAL) };
        let mut pd = entry.pd;
        if q.flags & ACCESS != 0 {
            check_access(q.access_flags)?;
            region.access = q.access_flags;
        }
        if q.flags & PD != 0 {
            pd = self.pd_of(q.pd_handle)?;
        }
        if q.flags & TRANSLATION != 0 {
            check_range(q.start, q.length, q.hca_va)?;
            region.start = q.start;
            region.len = q.length;
            region.iova = q.hca_va;
        }
        self.model.release_pd(entry.pd);
        self.model.use_pd(pd);
        if let Some(e) = self.model.keys.get_mut(index) {
            e.pd = pd;
            e.kind = Kind::Region(region);
        }
        let key = self.model.keys.key_of(index).ok_or(libc::EINVAL)?;
        self.attrs.write(1, &ReregMrResp { lkey: key, rkey: key });
        Ok(())
    }

    pub(super) fn dereg_mr(&mut self) -> Outcome {
        let handle = self.attrs.number32(0);
        let index = self.region(handle)?;
        self.model.remove_key(index);
        self.forget(handle)
    }

    /// For `ibv_import_mr`.
    pub(super) fn query_mr(&mut self) -> Outcome {
        let index = self.region(self.attrs.number32(0))?;
        let Some(Kind::Region(r)) = self.model.keys.get(index).map(|e| e.kind) else {
            return Err(libc::EINVAL);
        };
        let key = self.model.keys.key_of(index).ok_or(libc::EINVAL)?;
        self.attrs.write(1, &key);
        self.attrs.write(2, &key);
        self.attrs.write(3, &r.len);
        self.attrs.write(4, &r.iova);
        Ok(())
    }
}
