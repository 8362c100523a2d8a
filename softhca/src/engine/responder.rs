//! The responder: checks a message and executes it on one of this process's QPs.

use super::receive::Refusal;
use super::request::{Answer, Data, Lost, Request};
use crate::bits::{Syndrome, opcode};
use crate::mem::{self, AtomicOp, Span};
use crate::model::Model;
use crate::objects::keys::User;
use crate::objects::{Event, QpKind, QpState, access};

impl Model {
    /// Executes `r`, which arrived at device `dev`.
    pub(crate) fn respond(&mut self, dev: usize, r: &Request) -> Answer {
        if !self.devices.get(dev).is_some_and(|d| d.link_up) {
            return Answer::Silent;
        }
        if r.kind == QpKind::Ud {
            return self.datagram(dev, r.dst_qpn, r);
        }
        let Some(q) = self.qps.get(r.dst_qpn) else { return Answer::Silent };
        let fits = match r.kind {
            QpKind::XrcIni => q.kind == QpKind::XrcTgt,
            kind => q.kind == kind,
        };
        if !fits
            || q.dev != dev
            || !q.state.receives()
            || q.attr.dest_qpn != r.src_qpn
            || !self.same_partition(r)
        {
            return Answer::Silent;
        }
        self.establish(r.dst_qpn);
        if r.kind == QpKind::Uc {
            return self.execute_unreliable(r);
        }
        let expected = self.qps.get(r.dst_qpn).map_or(0, |q| q.expected_psn);
        let ahead = r.psn.wrapping_sub(expected) & 0xff_ffff;
        match ahead {
            0 => self.execute_reliable(r),
            // Lost messages before this one: the requester must repeat them.
            1..0x80_0000 => Answer::Silent,
            _ => self.repeat(r),
        }
    }

    /// The P_Keys' lower 15 bits agree, and not both are limited members.
    fn same_partition(&self, r: &Request) -> bool {
        let own = self.qps.get(r.dst_qpn).and_then(|q| {
            self.devices.get(q.dev).and_then(|d| d.pkeys.get(usize::from(q.attr.pkey_index))).copied()
        });
        own.is_some_and(|p| p & 0x7fff == r.pkey & 0x7fff && (p | r.pkey) & 0x8000 != 0)
    }

    /// The first message on a QP that is not yet RTS.
    fn establish(&mut self, qpn: u32) {
        if let Some(q) = self.qps.get_mut(qpn).filter(|q| q.state == QpState::Rtr && !q.established) {
            q.established = true;
            self.qp_event(qpn, Event::CommEstablished);
        }
    }

    /// Receives a datagram on `qpn`, or drops it.
    pub(crate) fn datagram(&mut self, dev: usize, qpn: u32, r: &Request) -> Answer {
        let to_group = r.dst_qpn == 0xff_ffff;
        let addressed =
            Request { dst_qpn: qpn, payload: super::request::Payload::Bytes(Vec::new()), ..r.clone() };
        let fits = self.qps.get(qpn).is_some_and(|q| {
            q.kind == QpKind::Ud && q.dev == dev && q.state.receives() && q.attr.qkey == r.qkey
        });
        if !fits || !self.same_partition(&addressed) {
            self.log(|| format!("datagram for QP {qpn:#x} dropped"));
            return Answer::Ack(Data::None);
        }
        let received = self.deliver(qpn, r);
        if received.is_err() && !to_group {
            self.log(|| format!("datagram for QP {qpn:#x} not received"));
        }
        unanswered(received)
    }

    /// A request that was executed before: its answer was lost.
    fn repeat(&mut self, r: &Request) -> Answer {
        match r.op {
            opcode::RDMA_READ => self.read(r),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
                match self.qps.get(r.dst_qpn).and_then(|q| q.last_atomic) {
                    Some((psn, old)) if psn == r.psn => Answer::Ack(Data::Bytes(old.to_ne_bytes().to_vec())),
                    _ => Answer::Silent,
                }
            }
            _ => Answer::Ack(Data::None),
        }
    }

    fn execute_reliable(&mut self, r: &Request) -> Answer {
        let answer = match r.op {
            opcode::SEND | opcode::SEND_IMM => self.receive(r),
            opcode::SEND_INVAL => self.receive_and_invalidate(r),
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => self.write(r),
            opcode::RDMA_READ => self.read(r),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => self.atomic(r),
            _ => self.refuse_request(r.dst_qpn),
        };
        if matches!(answer, Answer::Ack(_)) {
            if let Some(q) = self.qps.get_mut(r.dst_qpn) {
                q.expected_psn = q.expected_psn.wrapping_add(r.packets) & 0xff_ffff;
            }
        }
        answer
    }

    /// UC: what can't be executed is dropped.
    fn execute_unreliable(&mut self, r: &Request) -> Answer {
        let nothing = Answer::Ack(Data::None);
        match r.op {
            opcode::SEND | opcode::SEND_IMM => unanswered(self.deliver(r.dst_qpn, r)),
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
                let Some(to) = self.target(r, access::REMOTE_WRITE) else { return nothing };
                if r.op == opcode::RDMA_WRITE_IMM && !self.can_receive(r.dst_qpn, 0) {
                    return nothing;
                }
                self.check_owned(&to, r.len);
                if let Err(lost) = r.copy_to(&to) {
                    return unanswered(Err(Refusal::Unreadable(lost)));
                }
                if r.op == opcode::RDMA_WRITE_IMM { unanswered(self.deliver(r.dst_qpn, r)) } else { nothing }
            }
            _ => nothing,
        }
    }

    fn user(&self, qpn: u32) -> Option<(User, u32)> {
        let q = self.qps.get(qpn)?;
        // An XRC target's region belongs to the PD that the target was made in: that of its SRQ.
        Some((User { pd: q.pd, qpn }, q.attr.access))
    }

    /// The memory that `r` names, if the QP and the key allow it.
    fn target(&self, r: &Request, need: u32) -> Option<Vec<Span>> {
        if r.len == 0 {
            return Some(Vec::new());
        }
        let (mut user, rights) = self.user(r.dst_qpn)?;
        if r.kind == QpKind::XrcIni {
            user.pd = self.srqs.get(r.srqn).map_or(user.pd, |s| s.pd);
        }
        if rights & need == 0 {
            return None;
        }
        self.keys.translate(r.rkey, user, r.raddr, r.len, need).map(|s| vec![s])
    }

    fn receive(&mut self, r: &Request) -> Answer {
        if r.kind == QpKind::XrcIni && !self.has_sink(r.dst_qpn, r.srqn) {
            return self.refuse_request(r.dst_qpn);
        }
        match self.deliver(r.dst_qpn, r) {
            Ok(()) => Answer::Ack(Data::None),
            Err(Refusal::NotReady) => self.not_ready(r.dst_qpn),
            Err(Refusal::Unreadable(Lost::Source)) => Answer::Nak(Syndrome::LocalProtection),
            Err(Refusal::Unreadable(_)) => Answer::Silent,
            Err(Refusal::Length) => Answer::Nak(Syndrome::RemoteInvalidRequest),
            Err(Refusal::Protection) => Answer::Nak(Syndrome::RemoteOperation),
        }
    }

    fn receive_and_invalidate(&mut self, r: &Request) -> Answer {
        if !self.can_receive(r.dst_qpn, r.srqn) {
            return self.not_ready(r.dst_qpn);
        }
        let Some((user, _)) = self.user(r.dst_qpn) else { return Answer::Silent };
        if !self.keys.may_invalidate(r.imm, user) {
            return self.refuse_access(r.dst_qpn);
        }
        let answer = self.receive(r);
        // A message that is lost comes again, and must find the key as it was.
        if !matches!(answer, Answer::Silent) {
            self.keys.invalidate(r.imm, user);
        }
        answer
    }

    fn not_ready(&mut self, qpn: u32) -> Answer {
        self.stats.rnr_naks += 1;
        Answer::Rnr(self.qps.get(qpn).map_or(0, |q| q.attr.min_rnr_timer))
    }

    fn write(&mut self, r: &Request) -> Answer {
        let Some(to) = self.target(r, access::REMOTE_WRITE) else { return self.refuse_access(r.dst_qpn) };
        if r.op == opcode::RDMA_WRITE_IMM {
            if r.kind == QpKind::XrcIni && !self.has_sink(r.dst_qpn, r.srqn) {
                return self.refuse_request(r.dst_qpn);
            }
            if !self.can_receive(r.dst_qpn, r.srqn) {
                return self.not_ready(r.dst_qpn);
            }
        }
        self.check_owned(&to, r.len);
        match r.copy_to(&to) {
            Ok(()) => {}
            Err(Lost::Source) => return Answer::Nak(Syndrome::LocalProtection),
            Err(Lost::Peer) => return Answer::Silent,
            Err(Lost::Destination) => return self.refuse_access(r.dst_qpn),
        }
        if r.op == opcode::RDMA_WRITE_IMM { self.receive(r) } else { Answer::Ack(Data::None) }
    }

    fn read(&mut self, r: &Request) -> Answer {
        match self.target(r, access::REMOTE_READ).filter(|from| mem::is_readable(from)) {
            Some(from) => Answer::Ack(Data::Spans(from)),
            None => self.refuse_access(r.dst_qpn),
        }
    }

    fn atomic(&mut self, r: &Request) -> Answer {
        if r.raddr % 8 != 0 {
            return self.refuse_request(r.dst_qpn);
        }
        let Some(to) = self.target(r, access::REMOTE_ATOMIC) else { return self.refuse_access(r.dst_qpn) };
        let Some(at) = to.first().filter(|s| s.len == 8 && s.addr % 8 == 0) else {
            return self.refuse_request(r.dst_qpn);
        };
        let op = if r.op == opcode::ATOMIC_FA {
            AtomicOp::FetchAdd(r.swap_add)
        } else {
            AtomicOp::CompareSwap { compare: r.compare, swap: r.swap_add }
        };
        let Ok(old) = mem::atomic(at.addr, op) else { return self.refuse_access(r.dst_qpn) };
        self.check_owned(&to, 8);
        if let Some(q) = self.qps.get_mut(r.dst_qpn) {
            q.last_atomic = Some((r.psn, old));
        }
        Answer::Ack(Data::Bytes(old.to_ne_bytes().to_vec()))
    }

    /// A key or right is missing: the responder fails, and says so.
    fn refuse_access(&mut self, qpn: u32) -> Answer {
        self.enter_error(qpn);
        self.qp_event(qpn, Event::QpAccessError);
        Answer::Nak(Syndrome::RemoteAccess)
    }

    /// The request makes no sense: likewise.
    fn refuse_request(&mut self, qpn: u32) -> Answer {
        self.enter_error(qpn);
        self.qp_event(qpn, Event::QpRequestError);
        Answer::Nak(Syndrome::RemoteInvalidRequest)
    }
}

/// What the sender of an unreliable message learns: only that its own memory could not be read.
fn unanswered(received: Result<(), Refusal>) -> Answer {
    match received {
        Err(Refusal::Unreadable(Lost::Source)) => Answer::Nak(Syndrome::LocalProtection),
        _ => Answer::Ack(Data::None),
    }
}
