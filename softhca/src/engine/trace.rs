//! What the log says of WQEs, doorbells and CQEs.

use super::complete::Entry;
use super::wqe::{Segment, Wqe};
use crate::bits::{self, Syndrome, cqe, opcode};
use crate::model::Model;
use std::fmt;

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer { addr, len, lkey } => write!(f, "[{addr:#x} +{len} key {lkey:#x}]"),
            Self::Inline(b) => write!(f, "[{} inline]", b.len()),
        }
    }
}

impl fmt::Display for Wqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(opcode::name(self.opcode))?;
        if let Some(u) = &self.umr {
            if u.free && u.check_qpn {
                write!(f, " invalidate key {:#x}", self.imm)?;
            } else if u.free {
                write!(f, " unbind key {:#x}", self.imm)?;
            } else {
                write!(f, " bind {:#x} +{} of key {:#x}, rights {:#x}", u.at, u.len, u.region, u.rights)?;
            }
        }
        if let Some(av) = &self.av {
            write!(f, " to QP {:#x} at LID {} Q_Key {:#x}", av.qpn, av.rlid, av.qkey)?;
        }
        if self.srqn != 0 {
            write!(f, " to SRQ {}", self.srqn)?;
        }
        match self.opcode {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM | opcode::RDMA_READ => {
                write!(f, " {:#x} key {:#x}", self.raddr, self.rkey)?;
            }
            opcode::ATOMIC_FA => write!(f, " {:#x} key {:#x} add {}", self.raddr, self.rkey, self.swap_add)?,
            opcode::ATOMIC_CS => {
                let (compare, swap) = (self.compare, self.swap_add);
                write!(f, " {:#x} key {:#x} compare {compare} swap {swap}", self.raddr, self.rkey)?;
            }
            _ => {}
        }
        match self.opcode {
            opcode::SEND_IMM | opcode::RDMA_WRITE_IMM => write!(f, " imm {:#x}", self.imm)?,
            opcode::SEND_INVAL => write!(f, " invalidate {:#x}", self.imm)?,
            _ => {}
        }
        for s in &self.segments {
            write!(f, " {s}")?;
        }
        let flags = [(self.signaled, "signaled"), (self.solicited, "solicited"), (self.fenced, "fenced")];
        for (_, name) in flags.iter().filter(|(on, _)| *on) {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

impl Model {
    /// A send register was written with `value`: the first bytes of a WQE.
    pub(super) fn log_doorbell(&mut self, ctx: u32, page: u32, at: usize, value: [u8; 8], copied: bool) {
        let (head, qpn_ds) = (bits::be32(&value, 0), bits::be32(&value, 4));
        let (qpn, index) = (qpn_ds >> 8, head >> 8 & 0xffff);
        let how = if copied { "BlueFlame" } else { "doorbell" };
        let name = opcode::name(bits::u8_at(&value, 3));
        self.log(|| format!("ctx {ctx} page {page} +{at:#x}: {how}, QP {qpn:#x} WQE {index} {name}"));
    }

    pub(super) fn log_cqe(&mut self, cqn: u32, e: &Entry) {
        if !self.log_is_on() {
            return;
        }
        let qpn = e.qpn();
        let wqe = bits::be16(&e.body, cqe::WQE_COUNTER);
        let bytes = bits::be32(&e.body, cqe::BYTE_CNT);
        let imm = bits::be32(&e.body, cqe::IMM_INVAL_PKEY);
        let code = bits::u8_at(&e.body, cqe::SYNDROME);
        let error = Syndrome::from_wire(code).map_or_else(|| format!("{code:#04x}"), |s| format!("{s:?}"));
        let mut what = match e.opcode {
            cqe::REQ => format!("sent {}", opcode::name(bits::u8_at(&e.body, cqe::SOP_QPN))),
            cqe::RESP_WR_IMM => format!("WRITE_IMM received, {bytes} bytes, imm {imm:#x}"),
            cqe::RESP_SEND => format!("received, {bytes} bytes"),
            cqe::RESP_SEND_IMM => format!("received with immediate, {bytes} bytes, imm {imm:#x}"),
            cqe::RESP_SEND_INV => format!("received with invalidate, {bytes} bytes, key {imm:#x}"),
            cqe::RESIZE_CQ => "resized".to_owned(),
            cqe::REQ_ERR => format!("send error {error}"),
            cqe::RESP_ERR => format!("receive error {error}"),
            _ => format!("opcode {}", e.opcode),
        };
        if e.format != 0 {
            what += ", data in the entry";
        }
        if e.solicited {
            what += ", solicited";
        }
        self.log(|| format!("CQE on CQ {cqn}: QP {qpn:#x} WQE {wqe} {what}"));
    }
}
