//! Errors, flushing, draining, reset and the end of a QP.

use crate::bits::Syndrome;
use crate::mem;
use crate::model::Model;
use crate::objects::qp::Wait;
use crate::objects::{Event, QpState};
use crate::run::Direct;

impl Model {
    /// Sets what the send queue waits for, until `deadline` at most.
    pub(crate) fn set_wait(&mut self, qpn: u32, wait: Wait, deadline: Option<u64>) {
        let Some(q) = self.qps.get_mut(qpn) else { return };
        self.timers.remove(&(q.deadline, qpn));
        q.wait = wait;
        q.deadline = deadline.unwrap_or(u64::MAX);
        if let Some(d) = deadline {
            self.timers.insert((d, qpn));
        }
    }

    fn cancel(&mut self, qpn: u32) {
        self.set_wait(qpn, Wait::Nothing, None);
        if let Some(q) = self.qps.get_mut(qpn) {
            q.stop_waiting();
        }
    }

    /// Moves a QP to the error state and flushes its queues.
    pub(crate) fn enter_error(&mut self, qpn: u32) {
        let Some(q) = self.qps.get_mut(qpn) else { return };
        if q.state == QpState::Err {
            return;
        }
        let started = q.state != QpState::Reset;
        q.state = QpState::Err;
        let shared = q.srq.is_some() && started;
        self.log(|| format!("QP {qpn:#x} to ERR"));
        self.cancel(qpn);
        self.failed.insert(qpn);
        self.flush_sq(qpn);
        self.flush_rq(qpn);
        if shared {
            self.qp_event(qpn, Event::LastWqeReached);
        }
    }

    /// The device lost a completion of the QP, or was told to fail it.
    pub(crate) fn fatal(&mut self, qpn: u32) {
        let alive = self.qps.get(qpn).is_some_and(|q| !matches!(q.state, QpState::Err | QpState::Reset));
        if alive {
            self.enter_error(qpn);
            self.qp_event(qpn, Event::QpFatal);
        }
    }

    /// A send WQE failed: its error, then the rest of the queue. Unreliable queues only stop sending.
    pub(crate) fn fail_send(&mut self, qpn: u32, index: u16, blocks: u16, opcode: u8, syndrome: Syndrome) {
        self.cancel(qpn);
        let Some(q) = self.qps.get_mut(qpn) else { return };
        q.sq_next = q.sq_next.wrapping_add(blocks);
        let reliable = q.kind.is_reliable();
        self.stats.wqes += 1;
        self.push_error(qpn, true, syndrome, index, opcode);
        if reliable {
            self.enter_error(qpn);
        } else if let Some(q) = self.qps.get_mut(qpn).filter(|q| q.state == QpState::Rts) {
            q.state = QpState::Sqe;
            self.log(|| format!("QP {qpn:#x} to SQE"));
            self.flush_sq(qpn);
        }
    }

    /// Completes what is left in the send queue as flushed.
    pub(crate) fn flush_sq(&mut self, qpn: u32) {
        loop {
            let Some(q) = self.qps.get_mut(qpn) else { return };
            if q.sq_count == 0 {
                return;
            }
            let Ok(record) = mem::load_be32(q.db + 4) else { return };
            let pi = be_low16(record);
            let index = q.sq_next;
            if index == pi {
                return;
            }
            let Ok((opcode, blocks)) = super::wqe::peek(q, index) else { return };
            // Garbage in the ring must not carry the index past its end.
            let left = pi.wrapping_sub(index);
            q.sq_next = index.wrapping_add(blocks.min(left));
            self.push_error(qpn, true, Syndrome::Flushed, index, opcode);
        }
    }

    /// Completes what is in the receive queue as flushed.
    pub(crate) fn flush_rq(&mut self, qpn: u32) {
        loop {
            let Some(q) = self.qps.get_mut(qpn) else { return };
            if q.rq_count == 0 || q.srq.is_some() {
                return;
            }
            let Ok(record) = mem::load_be32(q.db) else { return };
            let pi = be_low16(record);
            let index = q.rq_next;
            if index == pi {
                return;
            }
            q.rq_next = index.wrapping_add(1);
            self.push_error(qpn, false, Syndrome::Flushed, index, 0);
        }
    }

    /// Says that the send queue is drained, if that was asked for.
    pub(crate) fn check_drained(&mut self, qpn: u32) {
        let Some(q) = self.qps.get_mut(qpn) else { return };
        if q.state == QpState::Sqd && q.wait == Wait::Nothing && std::mem::take(&mut q.notify_drained) {
            self.qp_event(qpn, Event::SqDrained);
        }
    }

    /// Back to RESET: the queues are empty, what was posted is forgotten. CQEs stay where they are.
    pub(crate) fn reset_qp(&mut self, qpn: u32) {
        self.cancel(qpn);
        self.failed.remove(&qpn);
        self.keys.unbind_all(qpn);
        crate::check::trap::reset_qp(qpn);
        if let Some(q) = self.qps.get_mut(qpn) {
            q.clear();
        }
    }

    /// Removes a QP. Its CQEs stay where they are, and its number is the next to be given out.
    pub(crate) fn remove_qp(&mut self, qpn: u32) {
        self.cancel(qpn);
        self.failed.remove(&qpn);
        self.keys.unbind_all(qpn);
        let Some(q) = self.qps.remove(qpn) else { return };
        self.direct.remove(&Direct::Qp(qpn));
        crate::check::trap::forget_qp(qpn, q.db);
        if let Some(c) = self.contexts.get_mut(q.ctx) {
            c.detach(q.uar, qpn);
        }
        for cqn in [q.scq, q.rcq] {
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.uses = cq.uses.saturating_sub(1);
            }
        }
        if let Some(s) = q.srq.and_then(|n| self.srqs.get_mut(n)) {
            s.uses = s.uses.saturating_sub(1);
        }
        if let Some(x) = q.xrcd.and_then(|n| self.xrcds.get_mut(n)) {
            x.uses = x.uses.saturating_sub(1);
        }
        self.release_pd(q.pd);
    }
}

pub(crate) fn be_low16(v: u32) -> u16 {
    let [_, _, a, b] = v.to_be_bytes();
    u16::from_be_bytes([a, b])
}
