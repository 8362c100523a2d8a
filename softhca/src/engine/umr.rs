//! Binding and invalidating memory windows.

use super::wqe::Wqe;
use crate::bits::{Syndrome, umr as flag};
use crate::model::Model;
use crate::objects::access;
use crate::objects::keys::{Binding, Entry, Kind, User};

impl Model {
    /// Executes a UMR WQE of QP `qpn`.
    pub(crate) fn update_key(&mut self, qpn: u32, w: &Wqe) -> Result<(), Syndrome> {
        let (Some(u), Some(pd)) = (w.umr, self.qps.get(qpn).map(|q| q.pd)) else {
            return Err(Syndrome::LocalQpOp);
        };
        let refused = Err(Syndrome::MwBind);
        if u.free && u.check_qpn {
            // Local invalidate: the whole key must match.
            return if self.keys.invalidate(w.imm, User { pd, qpn }) { Ok(()) } else { refused };
        }
        let index = w.imm >> 8;
        let Some(Entry { pd: owner, kind: Kind::Window { ty, bound }, .. }) = self.keys.get(index).copied()
        else {
            return refused;
        };
        if owner != pd || u.check_free && bound.is_some() {
            return refused;
        }
        let binding = if u.free {
            // Binding a length of zero frees a window of type 1.
            None
        } else {
            let rights = rights(u.rights);
            if !self.keys.can_bind(u.region, pd, u.at, u.len, rights) {
                return refused;
            }
            let owner = (ty == 2).then_some(qpn);
            Some(Binding {
                region: u.region,
                at: u.at,
                iova: u.start,
                len: u.len,
                access: rights,
                qpn: owner,
            })
        };
        if let Some(e) = self.keys.get_mut(index) {
            e.variant = u.variant;
            e.kind = Kind::Window { ty, bound: binding };
        }
        Ok(())
    }
}

fn rights(bits: u8) -> u32 {
    let one = |flag: u8, right: u32| if bits & flag != 0 { right } else { 0 };
    one(flag::ATOMIC, access::REMOTE_ATOMIC)
        | one(flag::REMOTE_WRITE, access::REMOTE_WRITE)
        | one(flag::REMOTE_READ, access::REMOTE_READ)
        | one(flag::LOCAL_WRITE, access::LOCAL_WRITE)
}
