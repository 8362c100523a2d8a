//! Writing CQEs, and completion events.

use super::wqe::Wqe;
use crate::bits::{self, Syndrome, cqe, put};
use crate::mem::{self, Missing};
use crate::model::Model;
use crate::objects::cq::Armed;
use crate::objects::{Cq, Event};

/// A CQE to be written: the 64 bytes but the last, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) body: [u8; 64],
    pub(crate) opcode: u8,
    /// Whether data lies in the entry, or a session begins with it.
    pub(crate) format: u8,
    /// Data for the first half of a 128-byte entry.
    pub(crate) extra: Option<Vec<u8>>,
    pub(crate) solicited: bool,
}

impl Entry {
    pub(crate) fn new(opcode: u8) -> Self {
        Self { body: [0; 64], opcode, format: 0, extra: None, solicited: false }
    }

    pub(crate) fn put32(&mut self, at: usize, v: u32) {
        put(&mut self.body, at, &v.to_be_bytes());
    }

    pub(super) fn qpn(&self) -> u32 {
        bits::be32(&self.body, cqe::SOP_QPN) & 0xff_ffff
    }

    pub(super) fn is_error(&self) -> bool {
        matches!(self.opcode, cqe::REQ_ERR | cqe::RESP_ERR)
    }

    /// Puts up to 32 (or, in a 128-byte entry, 64) bytes of data into the entry.
    pub(crate) fn scatter(&mut self, data: &[u8], cqe_size: u32) {
        if cqe_size == 128 {
            self.format = cqe::SCATTER_64;
            self.extra = Some(data.to_vec());
        } else {
            self.format = cqe::SCATTER_32;
            put(&mut self.body, 0, data);
        }
    }
}

/// The most bytes that [`Entry::scatter`] takes.
pub(crate) fn scatter_room(cqe_size: u32) -> u64 {
    if cqe_size == 128 { 64 } else { 32 }
}

impl Model {
    /// Completes a request of QP `qpn`. If the queue overruns, the QP fails.
    pub(crate) fn push_cqe(&mut self, cqn: u32, qpn: u32, mut e: Entry) {
        let forced = self.faults.on_cqe(cqn);
        let now = self.now();
        let Some(cq) = self.cqs.get(cqn) else { return };
        let waiting = u32::try_from(cq.session.len()).unwrap_or(0);
        let room = mem::load_be32(cq.db).is_ok_and(|ci| {
            cq.ignore_overrun || cq.pi.wrapping_add(waiting).wrapping_sub(ci) & 0xff_ffff < cq.entries
        });
        let compresses = cq.compresses;
        if cq.overrun || forced || !room {
            return self.lose_cqe(cqn, qpn);
        }
        if !e.is_error() {
            put(&mut e.body, cqe::TIMESTAMP, &now.to_be_bytes());
        }
        if compresses && e.can_share() {
            self.join_session(cqn, e);
            return;
        }
        self.close_session(cqn);
        self.log_cqe(cqn, &e);
        self.write_cqe(cqn, &e, 1);
    }

    /// Writes a CQE that stands for `n` completions, and takes as many places.
    pub(super) fn write_cqe(&mut self, cqn: u32, e: &Entry, n: u32) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        if store(cq, e).is_err() {
            return self.lose_cqe(cqn, e.qpn());
        }
        let wakes = e.solicited || e.is_error();
        cq.pi = cq.pi.wrapping_add(n);
        if wakes {
            cq.solicited_pi = cq.pi;
        }
        let fire = match cq.armed {
            Armed::No => false,
            Armed::Any => true,
            Armed::Solicited => wakes,
        };
        self.stats.cqes += u64::from(n);
        self.stats.error_cqes += u64::from(e.is_error());
        if fire {
            self.completion_event(cqn);
        }
    }

    /// Tells the channel of CQ `cqn`, and disarms it.
    pub(crate) fn completion_event(&mut self, cqn: u32) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        cq.armed = Armed::No;
        let message = cq.user.to_ne_bytes();
        let channel = cq.channel;
        let sent = channel.and_then(|n| self.channels.get(n)).is_some_and(|c| c.send(&message));
        if sent {
            self.stats.completion_events += 1;
            if let Some(cq) = self.cqs.get_mut(cqn) {
                cq.comp_events += 1;
            }
            self.log(|| format!("completion event of CQ {cqn}"));
        }
    }

    /// A completion of QP `qpn` can't be written: the CQ is dead, and the QP with it.
    pub(super) fn lose_cqe(&mut self, cqn: u32, qpn: u32) {
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        if !std::mem::replace(&mut cq.overrun, true) {
            let (fd, user) = (cq.async_fd, cq.user);
            self.log(|| format!("event CqError of CQ {cqn}"));
            if self.async_event(fd, user, Event::CqError) {
                if let Some(cq) = self.cqs.get_mut(cqn) {
                    cq.async_events += 1;
                }
            }
        }
        self.fatal(qpn);
    }

    /// Completes a send WQE successfully. `bytes` are what a read or atomic brought.
    pub(crate) fn complete_send(&mut self, qpn: u32, w: &Wqe, bytes: u64, scatter: Option<&[u8]>) {
        let Some(q) = self.qps.get_mut(qpn) else { return };
        q.sq_next = q.sq_next.wrapping_add(w.blocks);
        q.retrying = false;
        let (uidx, cqn) = (q.uidx, q.scq);
        self.stats.wqes += 1;
        if !w.signaled {
            return;
        }
        let mut e = Entry::new(cqe::REQ);
        e.put32(cqe::SRQN_UIDX, uidx);
        e.put32(cqe::BYTE_CNT, u32::try_from(bytes).unwrap_or(0));
        e.put32(cqe::SOP_QPN, u32::from(w.opcode) << 24 | qpn);
        put(&mut e.body, cqe::WQE_COUNTER, &w.index.to_be_bytes());
        if let Some(data) = scatter {
            let size = self.cqs.get(cqn).map_or(64, |c| c.cqe_size);
            e.scatter(data, size);
        }
        self.push_cqe(cqn, qpn, e);
    }

    /// Writes an error CQE of a send (or receive) WQE.
    pub(crate) fn push_error(&mut self, qpn: u32, send: bool, syndrome: Syndrome, index: u16, opcode: u8) {
        let Some(q) = self.qps.get(qpn) else { return };
        let (cqn, uidx) = (if send { q.scq } else { q.rcq }, q.uidx);
        self.push_error_to(cqn, qpn, uidx, send, syndrome, index, opcode);
    }

    /// As [`Model::push_error`], to a certain CQ under a certain user index.
    #[expect(clippy::too_many_arguments, reason = "the fields of an error CQE")]
    pub(crate) fn push_error_to(
        &mut self,
        cqn: u32,
        qpn: u32,
        uidx: u32,
        send: bool,
        syndrome: Syndrome,
        index: u16,
        opcode: u8,
    ) {
        let mut e = Entry::new(if send { cqe::REQ_ERR } else { cqe::RESP_ERR });
        e.put32(cqe::SRQN_UIDX, uidx);
        put(&mut e.body, cqe::VENDOR_SYNDROME, &[0x80 | syndrome as u8, syndrome as u8]);
        e.put32(cqe::SOP_QPN, u32::from(opcode) << 24 | qpn);
        put(&mut e.body, cqe::WQE_COUNTER, &index.to_be_bytes());
        self.push_cqe(cqn, qpn, e);
    }
}

/// Stores an entry in the ring. The last byte makes it the application's.
fn store(cq: &Cq, e: &Entry) -> Result<(), Missing> {
    let at = cq.entry(cq.pi);
    if let Some(extra) = &e.extra {
        mem::write(at - 64, extra)?;
    }
    let (head, _) = e.body.split_at(cqe::OP_OWN);
    mem::write(at, head)?;
    let owner = u8::from(cq.pi & cq.entries != 0);
    let solicited = if e.solicited { cqe::SOLICITED } else { 0 };
    mem::store_u8_release(at + cqe::OP_OWN as u64, e.opcode << 4 | e.format | solicited | owner)
}
