//! What goes when a context or a channel is closed.

use crate::model::Model;
use crate::objects::Handle;
use crate::run::Direct;

impl Model {
    /// The reading end of a channel was closed.
    pub(crate) fn close_channel(&mut self, n: u32) {
        self.channels.remove(n);
        for c in self.contexts.numbers() {
            if let Some(c) = self.contexts.get_mut(c) {
                c.async_fds.retain(|f| *f != n);
            }
        }
    }

    /// The last descriptor of a context was closed: all it made goes, as when a process dies.
    pub(crate) fn close_context(&mut self, ctx: u32) {
        let Some(c) = self.contexts.get(ctx) else { return };
        let handles: Vec<Handle> = c.handles.iter().map(|(_, h)| *h).collect();
        for h in &handles {
            match h {
                Handle::Qp(n) if self.qps.get(*n).is_some_and(|q| q.shares == 0) => {
                    self.remove_qp(*n);
                }
                Handle::QpShare(n) => self.drop_share(*n),
                _ => {}
            }
        }
        for h in &handles {
            if let Handle::Srq(n) = h {
                self.remove_srq(*n);
            }
        }
        for h in &handles {
            match h {
                Handle::Cq(n) => self.remove_cq(*n),
                Handle::Mr(n) | Handle::Mw(n) => self.remove_key(*n),
                Handle::Ah(pd) => self.release_pd(*pd),
                _ => {}
            }
        }
        for h in &handles {
            match h {
                Handle::Pd(n) => {
                    self.pds.remove(*n);
                }
                Handle::Xrcd(n) => {
                    let _ = self.close_xrcd(*n);
                }
                Handle::Uar(page) => self.free_page(ctx, *page),
                _ => {}
            }
        }
        self.contexts.remove(ctx);
        self.log(|| format!("ctx {ctx} closed"));
        crate::check::trap::forget_context(ctx);
    }

    /// One user less of a shared XRC target QP.
    pub(crate) fn drop_share(&mut self, qpn: u32) {
        if let Some(q) = self.qps.get_mut(qpn) {
            q.shares = q.shares.saturating_sub(1);
            if q.shares == 0 {
                self.remove_qp(qpn);
            }
        }
    }

    /// Removes an SRQ.
    pub(crate) fn remove_srq(&mut self, srqn: u32) {
        let Some(s) = self.srqs.remove(srqn) else { return };
        crate::check::trap::forget_srq(srqn, s.db);
        self.release_pd(s.pd);
        if let Some(x) = s.xrc {
            if let Some(d) = self.xrcds.get_mut(x.xrcd) {
                d.uses = d.uses.saturating_sub(1);
            }
            if let Some(cq) = self.cqs.get_mut(x.cqn) {
                cq.uses = cq.uses.saturating_sub(1);
            }
        }
    }

    /// Removes a CQ.
    pub(crate) fn remove_cq(&mut self, cqn: u32) {
        let Some(cq) = self.cqs.remove(cqn) else { return };
        self.direct.remove(&Direct::Cq(cqn));
        crate::check::trap::forget_cq(cqn);
        crate::check::trap::forget_record(cq.db);
        if let Some(c) = cq.channel.and_then(|n| self.channels.get_mut(n)) {
            c.uses = c.uses.saturating_sub(1);
        }
    }
}
