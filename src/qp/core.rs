//! The C object under a queue pair, without state, transport or what may be posted.
//!
//! # Safety
//!
//! A [`QpCore`] owns its `ibv_qp`, and holds its parents until that is destroyed. It is covariant in `'a`, so that
//! what hangs on a queue pair can hold it as parent.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ibv_sys as sys;

use super::change::Change;
use super::link::{Leaver, Link};
use super::state::QpState;
use super::{Backend, Basic};
use crate::cq::{CqKind, CqParent};
use crate::error::{Error, PATH_ADVICE, Result};
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::raw::{Raw, check};
use crate::srq::SrqCore;

/// Every bit of `enum ibv_qp_attr_mask` up to `IBV_QP_DEST_QPN`. (The rate limit, which comes after, is not for all.)
const ALL_ATTRIBUTES: c_int = ((sys::IBV_QP_DEST_QPN << 1) - 1) as c_int;

/// A completion queue with what was promised of its [room](crate::cq::Room).
pub(super) struct Share<'a, K: CqKind> {
    cq: CqParent<'a, K>,
    /// What the queue needs.
    needed: u32,
    /// What is promised: that, or in RESET less by what was left behind.
    promised: AtomicU32,
    /// Whose receives complete there, if that is shared with others: then it has the promise.
    srq: Option<Arc<SrqCore<'a, K>>>,
}

impl<'a, K: CqKind> Share<'a, K> {
    /// Shares of the send and the receive completion queue; of one, if they are the same, both at once.
    pub(super) fn pair(
        send_cq: CqParent<'a, K>,
        recv_cq: CqParent<'a, K>,
        (send, recv): (u32, u32),
    ) -> Result<(Self, Self)> {
        if send_cq.as_ptr() == recv_cq.as_ptr() {
            send_cq.room().promise(send.saturating_add(recv))?;
            return Ok((Self::of(send_cq, send, None), Self::of(recv_cq, recv, None)));
        }
        Ok((Self::new(send_cq, send)?, Self::new(recv_cq, recv)?))
    }

    fn new(cq: CqParent<'a, K>, needed: u32) -> Result<Self> {
        cq.room().promise(needed)?;
        Ok(Self::of(cq, needed, None))
    }

    fn of(cq: CqParent<'a, K>, needed: u32, srq: Option<Arc<SrqCore<'a, K>>>) -> Self {
        Self { cq, needed, promised: AtomicU32::new(needed), srq }
    }

    /// A share of `send_cq` for a send queue, and of `recv_cq` for the receives of `srq`.
    pub(super) fn with_srq(
        send_cq: CqParent<'a, K>,
        recv_cq: CqParent<'a, K>,
        send: u32,
        srq: &Arc<SrqCore<'a, K>>,
    ) -> Result<(Self, Self)> {
        let send = Self::new(send_cq, send)?;
        srq.join(recv_cq.as_ptr().addr(), recv_cq.room())?;
        Ok((send, Self::of(recv_cq, 0, Some(Arc::clone(srq)))))
    }

    /// Makes it `needed`, if that is more.
    pub(super) fn grow(&mut self, needed: u32) -> Result<()> {
        if self.srq.is_some() {
            return Ok(());
        }
        self.cq.room().promise(needed.saturating_sub(self.needed))?;
        self.needed = self.needed.max(needed);
        *self.promised.get_mut() = self.needed;
        Ok(())
    }

    /// The queue is empty, but up to `entries` of what it completed may still stand there.
    fn leave_behind(&self, entries: u32) {
        let promised = self.promised.load(Ordering::Relaxed);
        let left = promised.min(entries);
        self.promised.store(promised - left, Ordering::Relaxed);
        self.cq.room().leave_behind(left);
    }

    /// The queue will complete something: what was left behind is promised again.
    fn claim(&self) -> Result<()> {
        let missing = self.needed - self.promised.load(Ordering::Relaxed);
        self.cq.room().promise(missing)?;
        self.promised.store(self.needed, Ordering::Relaxed);
        Ok(())
    }

    /// The queue pair is destroyed, and may have completed something.
    fn end(&mut self) {
        match self.srq.take() {
            Some(srq) => srq.leave(self.cq.as_ptr().addr(), self.cq.room(), true),
            None => self.leave_behind(self.needed),
        }
    }

    /// The queue pair is leaked, and may complete requests for ever.
    pub(super) fn keep_for_ever(&mut self) {
        *self.promised.get_mut() = 0;
        self.srq = None;
    }
}

impl<K: CqKind> Drop for Share<'_, K> {
    /// No queue pair came of it.
    fn drop(&mut self) {
        match self.srq.take() {
            Some(srq) => srq.leave(self.cq.as_ptr().addr(), self.cq.room(), false),
            None => self.cq.room().withdraw(*self.promised.get_mut()),
        }
    }
}

/// The C object with its parents.
pub(crate) struct QpCore<'a, B: Backend = Basic> {
    raw: Raw<sys::ibv_qp>,
    // after `raw`: the queue pair goes before its parents
    link: B::Link,
    send: Share<'a, B::Cq>,
    recv: Share<'a, B::Cq>,
    pd: Parent<'a, ProtectionDomain<'a>>,
    /// Whether it ever left RESET: before, it completes nothing.
    used: AtomicBool,
}

impl<'a, B: Backend> QpCore<'a, B> {
    pub(super) fn new(
        raw: Raw<sys::ibv_qp>,
        link: B::Link,
        send: Share<'a, B::Cq>,
        recv: Share<'a, B::Cq>,
        pd: Parent<'a, ProtectionDomain<'a>>,
    ) -> Self {
        Self { raw, link, send, recv, pd, used: AtomicBool::new(false) }
    }

    pub(super) fn pd(&self) -> &ProtectionDomain<'a> {
        &self.pd
    }

    pub(super) fn qp_num(&self) -> u32 {
        // SAFETY: alive; the number never changes.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// `ibv_modify_qp` to another state.
    pub(super) fn modify(&self, from: QpState, to: QpState, change: Change) -> Result<()> {
        if to != QpState::RESET {
            self.send.claim()?;
            self.recv.claim()?;
            self.used.store(true, Ordering::Relaxed);
        }
        self.call_modify(change, Some(to), advice(from, to), || format!("{from} to {to}, {change:?}"))
    }

    /// It has come to RESET, and may go on, with `queues` that are empty.
    pub(super) fn restarted(&self, queues: &mut B::Queues) {
        let (send, recv) = self.link.restarted(queues);
        self.send.leave_behind(send);
        self.recv.leave_behind(recv);
        self.link.left();
    }

    /// `ibv_modify_qp` without a state: naming the present one is not the same everywhere (in SQD, Linux 6.12 starts to
    /// drain again).
    pub(super) fn modify_in_place(&self, state: QpState, change: Change) -> Result<()> {
        self.call_modify(change, None, advice(state, state), || format!("in {state}, {change:?}"))
    }

    fn call_modify(
        &self,
        change: Change,
        to: Option<QpState>,
        advice: Option<&'static str>,
        asked: impl FnOnce() -> String,
    ) -> Result<()> {
        let (mut attr, mask) = change.to(to)?;
        // SAFETY: alive; `attr` is only read.
        let result = unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask as c_int) };
        check("ibv_modify_qp", result, asked).map_err(|error| match error {
            Error::Verb(error) => error.advise(libc::EINVAL, advice).into(),
            other => other,
        })
    }

    /// `ibv_query_qp`.
    pub(super) fn query(&self) -> Result<(sys::ibv_qp_attr, sys::ibv_qp_init_attr)> {
        let (mut attr, mut init) = (sys::ibv_qp_attr::default(), sys::ibv_qp_init_attr::default());
        // SAFETY: alive; both structs are ours to write. The mask is a hint, so all is asked for.
        let result =
            unsafe { sys::ibv_query_qp(self.raw.as_ptr(), &raw mut attr, ALL_ATTRIBUTES, &raw mut init) };
        check("ibv_query_qp", result, String::new)?;
        Ok((attr, init))
    }

    /// `ibv_destroy_qp`, at once or when it can be. What it completed may still be in the completion queues.
    pub(super) fn destroy(&mut self) -> Result<()> {
        if !self.raw.is_alive() {
            return Ok(());
        }
        if B::Link::NEEDS_RESET {
            self.modify(QpState::ERROR, QpState::RESET, Change::default())?;
        }
        let is_unused = !*self.used.get_mut();
        self.link.destroy(Leaver { qp: &mut self.raw, pd: self.pd.shared(), is_unused })?;
        self.leave_behind();
        Ok(())
    }

    fn leave_behind(&mut self) {
        if *self.used.get_mut() {
            self.send.end();
            self.recv.end();
        }
        self.link.left();
    }
}

/// What helps if the device finds a transition, or a change within a state, invalid.
fn advice(from: QpState, to: QpState) -> Option<&'static str> {
    match (from, to) {
        (QpState::RESET | QpState::INIT, QpState::INIT) => {
            Some("check port (from 1, `DeviceAttr::phys_port_cnt`) and access")
        }
        (QpState::INIT, QpState::RTR) => Some(PATH_ADVICE),
        (QpState::RTR, QpState::RTS) => Some("check `max_rd_atomic` (`DeviceAttr::max_qp_init_rd_atom`)"),
        (QpState::RTS | QpState::SQD, QpState::RTS | QpState::SQD) => Some(
            "if a request failed, the queue pair is in ERR (`query` tells), which `reset` leads out of; while it \
             drains (`QpAttr::is_draining`), wait",
        ),
        _ => None,
    }
}

impl<B: Backend> Drop for QpCore<'_, B> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            tracing::error!(%error, qp_num = self.qp_num(), "a queue pair could not be destroyed and is leaked");
            self.raw.leak();
            self.send.keep_for_ever();
            self.recv.keep_for_ever();
        }
    }
}

impl<B: Backend> fmt::Debug for QpCore<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpCore").field("qp_num", &self.qp_num()).finish_non_exhaustive()
    }
}
