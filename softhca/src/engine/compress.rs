//! CQE compression: completions that differ little are written as one title and an array of short forms.
//!
//! A *session* of n completions takes n places in the queue, of which the device writes only some: the title (a CQE
//! with the format "compressed", whose byte count is n) in the first, and arrays of eight short forms ("mini CQEs")
//! in the second, the ninth, the seventeenth and so on. The consumer passes over all n, and gives the owner bits of
//! those places their due value itself.
//!
//! On hardware a session ends by time; here with the device's pass, or with a completion that can't join it.

use super::complete::Entry;
use crate::bits::{self, cqe, mini};
use crate::mem;
use crate::model::Model;

/// The most completions of a session.
pub(crate) const MOST: usize = 64;

impl Entry {
    /// Whether the completion may be part of a session at all: errors and data in the entry have no short form.
    pub(super) fn can_share(&self) -> bool {
        self.format == 0 && matches!(self.opcode, cqe::REQ | cqe::RESP_WR_IMM..=cqe::RESP_SEND_INV)
    }

    /// Whether it may follow `last` in a session: all but what the short form holds is the same, and a receiver's
    /// WQEs are counted from the title's.
    fn follows(&self, last: &Self) -> bool {
        let common = |e: &Self| {
            let mut b = e.body;
            bits::put(&mut b, cqe::BYTE_CNT, &[0; 4]);
            bits::put(&mut b, cqe::TIMESTAMP, &[0; 8]);
            bits::put(&mut b, cqe::WQE_COUNTER, &[0; 2]);
            if e.opcode == cqe::REQ {
                bits::put(&mut b, cqe::SOP_QPN, &[0]);
            }
            (b, e.opcode, e.solicited)
        };
        let in_turn = self.opcode == cqe::REQ || self.counter() == last.counter().wrapping_add(1);
        in_turn && common(self) == common(last)
    }

    fn counter(&self) -> u16 {
        bits::be16(&self.body, cqe::WQE_COUNTER)
    }

    /// The short form. A receiver's hash or checksum is of IP packets, and 0 without.
    fn mini(&self) -> [u8; mini::LEN] {
        let mut b = [0; mini::LEN];
        if self.opcode == cqe::REQ {
            bits::put(&mut b, mini::WQE_COUNTER, &self.counter().to_be_bytes());
            bits::put(&mut b, mini::OPCODE, &[bits::u8_at(&self.body, cqe::SOP_QPN)]);
        }
        bits::put(&mut b, mini::BYTE_CNT, &bits::be32(&self.body, cqe::BYTE_CNT).to_be_bytes());
        b
    }
}

impl Model {
    /// Adds a completion to the session of CQ `cqn`, or begins another one.
    pub(super) fn join_session(&mut self, cqn: u32, e: Entry) {
        let Some(cq) = self.cqs.get(cqn) else { return };
        if cq.session.len() >= MOST || cq.session.last().is_some_and(|last| !e.follows(last)) {
            self.close_session(cqn);
        }
        if let Some(cq) = self.cqs.get_mut(cqn) {
            cq.session.push(e);
            self.sessions.insert(cqn);
        }
    }

    /// Writes what waits in the session of CQ `cqn`.
    pub(super) fn close_session(&mut self, cqn: u32) {
        self.sessions.remove(&cqn);
        let Some(cq) = self.cqs.get_mut(cqn) else { return };
        let session = std::mem::take(&mut cq.session);
        for e in &session {
            self.log_cqe(cqn, e);
        }
        let Some(first) = session.first() else { return };
        if session.len() == 1 {
            self.write_cqe(cqn, first, 1);
        } else {
            let Some(cq) = self.cqs.get(cqn) else { return };
            let arrays = session.chunks(mini::ARRAY).zip((0..).step_by(mini::ARRAY));
            for (part, at) in arrays {
                let place = cq.entry(cq.pi.wrapping_add(at.max(1)));
                let bytes: Vec<u8> = part.iter().flat_map(Entry::mini).collect();
                if mem::write(place, &bytes).is_err() {
                    return self.lose_cqe(cqn, first.qpn());
                }
            }
            let n = u32::try_from(session.len()).unwrap_or(0);
            let mut title = first.clone();
            title.put32(cqe::BYTE_CNT, n);
            title.format = cqe::COMPRESSED;
            self.write_cqe(cqn, &title, n);
        }
    }

    /// Writes what waits in any session.
    pub(crate) fn close_sessions(&mut self) {
        while let Some(cqn) = self.sessions.first().copied() {
            self.close_session(cqn);
        }
    }
}
