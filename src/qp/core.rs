//! The C object under a queue pair, without state, transport or what may be posted.
//!
//! # Safety
//!
//! A [`QpCore`] owns its `ibv_qp`, and holds its parents until that is destroyed. It is covariant in `'a`, so that
//! what hangs on a queue pair can hold it as parent.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::fmt;

use ibv_sys as sys;

use super::change::Change;
use super::state::QpState;
use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::parent::Parent;
use crate::pd::ProtectionDomain;
use crate::raw::{Raw, check};

/// Every bit of `enum ibv_qp_attr_mask` up to `IBV_QP_DEST_QPN`. (The rate limit, which comes after, is not for all.)
const ALL_ATTRIBUTES: c_int = ((sys::IBV_QP_DEST_QPN << 1) - 1) as c_int;

/// A completion queue with what was promised of its [room](crate::cq::Room).
pub(super) struct Share<'a> {
    cq: Parent<'a, CompletionQueue<'a>>,
    promised: u32,
}

impl<'a> Share<'a> {
    pub(super) fn new(cq: Parent<'a, CompletionQueue<'a>>, needed: u32) -> Result<Self> {
        cq.room().promise(needed)?;
        Ok(Self { cq, promised: needed })
    }

    /// Makes it `needed`, if that is more.
    pub(super) fn grow(&mut self, needed: u32) -> Result<()> {
        self.cq.room().promise(needed.saturating_sub(self.promised))?;
        self.promised = self.promised.max(needed);
        Ok(())
    }

    /// The queue pair is destroyed, after it may have completed something.
    fn leave_behind(&mut self) {
        self.cq.room().leave_behind(std::mem::take(&mut self.promised));
    }

    /// The queue pair is leaked, and may complete requests for ever.
    pub(super) fn keep_for_ever(&mut self) {
        self.promised = 0;
    }
}

impl Drop for Share<'_> {
    /// No queue pair came of it.
    fn drop(&mut self) {
        self.cq.room().withdraw(self.promised);
    }
}

/// The C object with its parents.
pub(crate) struct QpCore<'a> {
    raw: Raw<sys::ibv_qp>,
    // after `raw`: the queue pair goes before its parents
    send: Share<'a>,
    recv: Share<'a>,
    pd: Parent<'a, ProtectionDomain<'a>>,
}

impl<'a> QpCore<'a> {
    pub(super) fn new(
        raw: Raw<sys::ibv_qp>,
        send: Share<'a>,
        recv: Share<'a>,
        pd: Parent<'a, ProtectionDomain<'a>>,
    ) -> Self {
        Self { raw, send, recv, pd }
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
        self.call_modify(change, Some(to), || format!("{from} to {to}, {change:?}"))
    }

    /// `ibv_modify_qp` without a state: naming the present one is not the same everywhere (in SQD, Linux 6.12 starts to
    /// drain again).
    pub(super) fn modify_in_place(&self, state: QpState, change: Change) -> Result<()> {
        self.call_modify(change, None, || format!("in {state}, {change:?}"))
    }

    fn call_modify(&self, change: Change, to: Option<QpState>, asked: impl FnOnce() -> String) -> Result<()> {
        let (mut attr, mask) = change.to(to)?;
        // SAFETY: alive; `attr` is only read.
        let result = unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask as c_int) };
        check("ibv_modify_qp", result, asked)
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

    /// `ibv_destroy_qp`. What it completed may still be in the completion queues.
    pub(super) fn destroy(&mut self) -> Result<()> {
        self.raw.destroy()?;
        self.leave_behind();
        Ok(())
    }

    fn leave_behind(&mut self) {
        self.send.leave_behind();
        self.recv.leave_behind();
    }
}

impl Drop for QpCore<'_> {
    fn drop(&mut self) {
        match self.raw.destroy_or_leak() {
            true => self.leave_behind(),
            false => {
                self.send.keep_for_ever();
                self.recv.keep_for_ever();
            }
        }
    }
}

impl fmt::Debug for QpCore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpCore").field("qp_num", &self.qp_num()).finish_non_exhaustive()
    }
}
