//! The requester: executes the WQEs of a send queue, in order.

use super::complete::scatter_room;
use super::lifecycle::be_low16;
use super::request::{Answer, Data, Payload, Request};
use super::route::Target;
use super::wqe::{self, NoWqe, Segment, Wqe};
use crate::bits::{Syndrome, opcode};
use crate::fault::Verdict;
use crate::mem::{self, Side, Space, Span};
use crate::model::Model;
use crate::objects::keys::User;
use crate::objects::qp::Wait;
use crate::objects::{Qp, QpKind, QpState, access};

/// RNR timer codes in nanoseconds.
const RNR_NS: [u64; 32] = [
    655_360_000,
    10_000,
    20_000,
    30_000,
    40_000,
    60_000,
    80_000,
    120_000,
    160_000,
    240_000,
    320_000,
    480_000,
    640_000,
    960_000,
    1_280_000,
    1_920_000,
    2_560_000,
    3_840_000,
    5_120_000,
    7_680_000,
    10_240_000,
    15_360_000,
    20_480_000,
    30_720_000,
    40_960_000,
    61_440_000,
    81_920_000,
    122_880_000,
    163_840_000,
    245_760_000,
    327_680_000,
    491_520_000,
];

/// What became of a WQE.
enum Progress {
    /// Completed; go on.
    Done,
    /// It waits.
    Waiting,
    /// The queue stopped.
    Failed,
}

const NOTHING: Payload = Payload::Bytes(Vec::new());

/// How many packets a message of `len` bytes takes.
fn packets(len: u64, q: &Qp) -> u32 {
    u32::try_from(len.div_ceil(q.path_mtu()).max(1)).unwrap_or(1)
}

fn allowed(kind: QpKind, op: u8) -> bool {
    match op {
        opcode::NOP => true,
        opcode::SEND | opcode::SEND_IMM => kind != QpKind::XrcTgt,
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => {
            matches!(kind, QpKind::Rc | QpKind::Uc | QpKind::XrcIni)
        }
        opcode::UMR => matches!(kind, QpKind::Rc | QpKind::Uc | QpKind::XrcIni),
        opcode::SEND_INVAL | opcode::RDMA_READ | opcode::ATOMIC_CS | opcode::ATOMIC_FA => {
            matches!(kind, QpKind::Rc | QpKind::XrcIni)
        }
        _ => false,
    }
}

impl Model {
    /// Executes the send queue of `qpn` as far as it goes.
    pub(crate) fn run_sq(&mut self, qpn: u32) {
        let mut known = None;
        loop {
            let Some(q) = self.qps.get(qpn) else { return };
            match q.state {
                QpState::Err | QpState::Sqe => return self.flush_sq(qpn),
                QpState::Rts => {}
                QpState::Sqd if q.retrying => {}
                QpState::Sqd => return self.check_drained(qpn),
                _ => return,
            }
            if q.wait != Wait::Nothing || q.sq_count == 0 {
                return;
            }
            // A queue whose memory is gone can't go on.
            let Ok(record) = mem::load_be32(q.db + 4) else { return self.fatal(qpn) };
            let pi = be_low16(record);
            let index = q.sq_next;
            if index == pi {
                return;
            }
            let read = wqe::read(q, qpn, index);
            if known.replace(pi) != Some(pi) && !q.retrying {
                self.log(|| format!("QP {qpn:#x} send record {pi}, next WQE {index}"));
            }
            let w = match read {
                Ok(w) => w,
                Err(NoWqe::Missing) => return self.fatal(qpn),
                Err(NoWqe::Stale { index: found, qpn: of, units, opcode }) => {
                    self.violation(format!(
                        "QP {qpn:#x}: the send doorbell record says {pi}, but WQE {index} is stale (index {found}, QP {of:#x}, size {units})"
                    ));
                    return self.fail_send(qpn, index, 1, opcode, Syndrome::LocalQpOp);
                }
            };
            if let Progress::Waiting | Progress::Failed = self.execute(qpn, &w) {
                return;
            }
        }
    }

    fn execute(&mut self, qpn: u32, w: &Wqe) -> Progress {
        let Some(q) = self.qps.get_mut(qpn) else { return Progress::Failed };
        if !q.retrying {
            q.retrying = true;
            q.retries_left = q.attr.retry_cnt;
            q.rnr_left = q.attr.rnr_retry;
        }
        let kind = q.kind;
        self.log(|| format!("QP {qpn:#x} {} WQE {} {w}", kind.name(), w.index));
        if !allowed(kind, w.opcode) || w.overruns {
            return self.failed(qpn, w, Syndrome::LocalQpOp);
        }
        if w.opcode == opcode::NOP {
            self.complete_send(qpn, w, 0, None);
            return Progress::Done;
        }
        if w.opcode == opcode::UMR {
            return match self.update_key(qpn, w) {
                Ok(()) => {
                    self.complete_send(qpn, w, 0, None);
                    Progress::Done
                }
                Err(s) => self.failed(qpn, w, s),
            };
        }
        let delayed = self.qps.get_mut(qpn).is_some_and(|q| std::mem::take(&mut q.delayed));
        match if delayed { Verdict::Pass } else { self.faults.on_message() } {
            Verdict::Pass => {}
            Verdict::Drop => {
                self.stats.faults += 1;
                self.log(|| format!("QP {qpn:#x} WQE {} lost by a fault", w.index));
                return self.conclude(qpn, w, &NOTHING, Answer::Silent);
            }
            Verdict::Delay(ns) => {
                let until = self.now().saturating_add(ns);
                self.log(|| format!("QP {qpn:#x} WQE {} waits {ns} ns: delayed by a fault", w.index));
                self.set_wait(qpn, Wait::Rnr, Some(until));
                if let Some(q) = self.qps.get_mut(qpn) {
                    q.delayed = true;
                }
                return Progress::Waiting;
            }
            fault @ Verdict::Corrupt => {
                self.log(|| format!("QP {qpn:#x} WQE {} corrupted by a fault", w.index));
                return self.transmit(qpn, w, fault);
            }
            fault @ Verdict::Unanswered => return self.transmit(qpn, w, fault),
            Verdict::Fail => {
                self.stats.faults += 1;
                self.fatal(qpn);
                return Progress::Failed;
            }
        }
        self.transmit(qpn, w, Verdict::Pass)
    }

    fn lost_answer(&mut self, qpn: u32, w: &Wqe) {
        self.stats.faults += 1;
        self.log(|| format!("QP {qpn:#x} WQE {}: the answer is lost by a fault", w.index));
    }

    fn failed(&mut self, qpn: u32, w: &Wqe, syndrome: Syndrome) -> Progress {
        self.fail_send(qpn, w.index, w.blocks, w.opcode, syndrome);
        Progress::Failed
    }

    /// The memory of the WQE's segments: bytes if any are inline.
    fn gather(&self, qpn: u32, w: &Wqe) -> Option<Payload> {
        let q = self.qps.get(qpn)?;
        let user = User { pd: q.pd, qpn };
        let need = if opcode::is_read(w.opcode) { access::LOCAL_WRITE } else { 0 };
        let mut spans = Vec::with_capacity(w.segments.len());
        let mut bytes: Option<Vec<u8>> = None;
        for s in &w.segments {
            match s {
                Segment::Inline(b) => bytes.get_or_insert_with(Vec::new).extend_from_slice(b),
                Segment::Pointer { addr, len, lkey } => {
                    spans.push(self.keys.translate(*lkey, user, *addr, *len, need)?);
                }
            }
        }
        Some(match bytes {
            None => Payload::Spans(Space::Own, spans),
            Some(mut b) => {
                b.extend(mem::gather(Space::Own, &spans, u64::MAX)?);
                Payload::Bytes(b)
            }
        })
    }

    fn transmit(&mut self, qpn: u32, w: &Wqe, fault: Verdict) -> Progress {
        let Some(payload) = self.gather(qpn, w) else {
            return self.failed(qpn, w, Syndrome::LocalProtection);
        };
        let len = w.len();
        let Some(q) = self.qps.get(qpn) else { return Progress::Failed };
        let Ok(d) = self.device(q.dev) else { return Progress::Failed };
        let most = if q.kind == QpKind::Ud { 128u64 << d.mtu } else { u64::from(d.limits.max_msg) };
        let wrong = matches!(w.opcode, opcode::ATOMIC_CS | opcode::ATOMIC_FA) && len != 8;
        if len > most || wrong {
            return self.failed(qpn, w, Syndrome::LocalLength);
        }
        let (target, grh) = match &w.av {
            Some(av) => self.datagram_target(q.dev, av),
            None => self.connection(qpn),
        };
        let mut r = Request {
            op: w.opcode,
            kind: q.kind,
            solicited: w.solicited,
            imm: w.imm,
            src_qpn: qpn,
            dst_qpn: w.av.map_or(q.attr.dest_qpn, |av| av.qpn),
            psn: q.psn,
            packets: packets(len, q),
            rkey: w.rkey,
            raddr: w.raddr,
            swap_add: w.swap_add,
            compare: w.compare,
            len,
            // The top bit asks for the QP's own Q_Key.
            qkey: w.av.map_or(0, |av| if av.qkey & (1 << 31) != 0 { q.attr.qkey } else { av.qkey }),
            pkey: d.pkeys.get(usize::from(q.attr.pkey_index)).copied().unwrap_or(0),
            srqn: w.srqn,
            slid: d.lid,
            sl: w.av.map_or(q.attr.dest.sl, |av| av.sl),
            grh,
            payload,
        };
        let dev = q.dev;
        if !opcode::is_read(w.opcode) {
            if let Payload::Spans(_, s) = &r.payload {
                self.check_owned_read(s);
            }
        }
        if fault == Verdict::Corrupt {
            self.stats.faults += 1;
            let Some(mut b) = r.bytes(u64::MAX) else {
                return self.failed(qpn, w, Syndrome::LocalProtection);
            };
            if let (Some(x), false) = (b.first_mut(), opcode::is_read(w.opcode)) {
                *x ^= 1;
                r.payload = Payload::Bytes(b);
            }
        }
        let answer = match target {
            Target::Local(to) => self.respond(to, &r),
            Target::Group(gid) => {
                // Each member gets a copy of what was read once.
                let Some(bytes) = r.bytes(u64::MAX) else {
                    return self.failed(qpn, w, Syndrome::LocalProtection);
                };
                r.payload = Payload::Bytes(bytes);
                self.multicast(dev, &gid, &r);
                Answer::Ack(Data::None)
            }
            Target::Remote(at) => match self.send_remote(qpn, at, &r) {
                Some(a) => a,
                None => {
                    if fault == Verdict::Unanswered {
                        self.lost_answer(qpn, w);
                        // One of another transmission is not heard.
                        if let Some(q) = self.qps.get_mut(qpn) {
                            q.transmission = q.transmission.wrapping_add(1).max(1);
                        }
                    }
                    return Progress::Waiting;
                }
            },
            Target::Nowhere => Answer::Silent,
        };
        if fault == Verdict::Unanswered && r.kind.is_reliable() {
            self.lost_answer(qpn, w);
            return self.conclude(qpn, w, &NOTHING, Answer::Silent);
        }
        self.conclude(qpn, w, &r.payload, answer)
    }

    /// A message to all members of a group, also of other processes.
    fn multicast(&mut self, dev: usize, gid: &[u8; 16], r: &Request) {
        let link = self.devices.get(dev).map(|d| d.link);
        self.deliver_group(gid, r, |m, qpn, to| {
            let own = to == dev && m.qps.get(qpn).is_some_and(|q| q.block_loopback);
            !own && m.devices.get(to).map(|d| d.link) == link
        });
        self.broadcast_remote(gid, r);
    }

    /// Delivers a multicast message to this process's members that `wants` lets through.
    pub(crate) fn deliver_group(
        &mut self,
        gid: &[u8; 16],
        r: &Request,
        wants: impl Fn(&Self, u32, usize) -> bool,
    ) {
        let members: Vec<(u32, usize)> =
            self.qps.iter().filter(|(_, q)| q.groups.contains(gid)).map(|(n, q)| (n, q.dev)).collect();
        for (qpn, to) in members {
            if wants(self, qpn, to) {
                self.datagram(to, qpn, r);
            }
        }
    }

    /// What an answer to WQE `w` makes of it; `payload` is the memory for what it brings back.
    fn conclude(&mut self, qpn: u32, w: &Wqe, payload: &Payload, answer: Answer) -> Progress {
        let Some(q) = self.qps.get(qpn) else { return Progress::Failed };
        // The QP itself may have failed while the message was executed (a connection to itself, an overrun).
        if !matches!(q.state, QpState::Rts | QpState::Sqd) || q.sq_next != w.index {
            return Progress::Failed;
        }
        let reliable = q.kind.is_reliable();
        match answer {
            Answer::Ack(data) => self.accept(qpn, w, payload, &data),
            Answer::Nak(s) => self.failed(qpn, w, s),
            _ if !reliable => {
                self.complete_send(qpn, w, 0, None);
                Progress::Done
            }
            Answer::Rnr(code) => self.receiver_not_ready(qpn, w, code),
            Answer::Silent => {
                let timeout = q.attr.timeout;
                let wait = 4096u64 << timeout.min(31);
                let until = self.now().saturating_add(wait);
                self.log(|| match timeout {
                    0 => format!("QP {qpn:#x} WQE {} waits for ever: no answer", w.index),
                    _ => format!("QP {qpn:#x} WQE {} waits {wait} ns: no answer", w.index),
                });
                self.set_wait(qpn, Wait::Timeout, (timeout != 0).then_some(until));
                Progress::Waiting
            }
        }
    }

    /// The request was executed; what it reads is put where it belongs.
    fn accept(&mut self, qpn: u32, w: &Wqe, payload: &Payload, data: &Data) -> Progress {
        let len = w.len();
        if let Some(s) = w.signaled.then(|| self.faults.on_completion()).flatten() {
            return self.failed(qpn, w, s);
        }
        if opcode::is_read(w.opcode) && !data.is_of(len) {
            return self.failed(qpn, w, Syndrome::BadResponse);
        }
        let mut bytes = 0;
        let mut scatter = None;
        if let (true, Payload::Spans(_, to)) = (opcode::is_read(w.opcode), payload) {
            bytes = len;
            let Some(q) = self.qps.get(qpn) else { return Progress::Failed };
            let size = self.cqs.get(q.scq).map_or(64, |c| c.cqe_size);
            if q.scatter_send && w.signaled && len > 0 && len <= scatter_room(size) {
                scatter = match data {
                    Data::Spans(from) => mem::gather(Space::Own, from, len),
                    Data::Bytes(b) => Some(b.clone()),
                    Data::None | Data::Placed => None,
                };
            }
            if scatter.is_none() {
                match place(to, data) {
                    Ok(()) => {}
                    Err(Side::Destination) => return self.failed(qpn, w, Syndrome::LocalProtection),
                    Err(Side::Source) => return self.failed(qpn, w, Syndrome::RemoteAccess),
                }
            }
            self.check_owned(to, len);
        }
        if let Some(q) = self.qps.get_mut(qpn) {
            q.psn = q.psn.wrapping_add(packets(len, q)) & 0xff_ffff;
        }
        self.complete_send(qpn, w, bytes, scatter.as_deref());
        self.check_drained(qpn);
        Progress::Done
    }

    fn receiver_not_ready(&mut self, qpn: u32, w: &Wqe, code: u8) -> Progress {
        let now = self.now();
        let Some(q) = self.qps.get_mut(qpn) else { return Progress::Failed };
        if q.rnr_left == 0 {
            return self.failed(qpn, w, Syndrome::RnrRetryExceeded);
        }
        if q.attr.rnr_retry != 7 {
            q.rnr_left -= 1;
        }
        let wait = RNR_NS.get(usize::from(code & 31)).copied().unwrap_or(0);
        self.log(|| format!("QP {qpn:#x} WQE {} waits {wait} ns: receiver not ready", w.index));
        self.set_wait(qpn, Wait::Rnr, Some(now + wait));
        Progress::Waiting
    }

    /// The QP's deadline passed.
    pub(crate) fn timer_fired(&mut self, qpn: u32) {
        let Some(q) = self.qps.get_mut(qpn) else { return };
        let wait = q.wait;
        q.wait = Wait::Nothing;
        q.deadline = u64::MAX;
        let index = q.sq_next;
        match wait {
            Wait::Nothing => return,
            Wait::Rnr => {}
            Wait::Timeout | Wait::Answer if !q.kind.is_reliable() => {
                // No answer is owed: the message is gone.
                q.transmission = q.transmission.wrapping_add(1);
                if let Ok(w) = wqe::read(q, qpn, index) {
                    self.complete_send(qpn, &w, 0, None);
                }
            }
            Wait::Timeout | Wait::Answer => {
                q.transmission = q.transmission.wrapping_add(1);
                if q.retries_left == 0 {
                    let Ok((opcode, blocks)) = wqe::peek(q, index) else { return self.fatal(qpn) };
                    return self.fail_send(qpn, index, blocks, opcode, Syndrome::RetryExceeded);
                }
                q.retries_left -= 1;
                self.stats.retries += 1;
            }
        }
        self.run_sq(qpn);
    }

    /// An answer came over the fabric.
    pub(crate) fn answered(&mut self, qpn: u32, transmission: u32, answer: Answer) {
        let Some(q) = self.qps.get(qpn) else { return };
        if q.wait != Wait::Answer || q.transmission != transmission {
            return;
        }
        let index = q.sq_next;
        let read = wqe::read(q, qpn, index);
        self.set_wait(qpn, Wait::Nothing, None);
        // Who goes on finds what is wrong with it.
        let Ok(w) = read else { return self.run_sq(qpn) };
        // Its regions may have gone meanwhile, which what was sent needs no more.
        let payload = match opcode::is_read(w.opcode).then(|| self.gather(qpn, &w)) {
            None => NOTHING,
            Some(Some(to)) => to,
            Some(None) => {
                self.failed(qpn, &w, Syndrome::LocalProtection);
                return;
            }
        };
        if let Progress::Done = self.conclude(qpn, &w, &payload, answer) {
            self.run_sq(qpn);
        }
    }
}

fn place(to: &[Span], data: &Data) -> Result<(), Side> {
    match data {
        Data::Spans(from) => mem::transfer(Space::Own, to, Space::Own, from),
        Data::Bytes(b) => mem::scatter(to, b),
        Data::None | Data::Placed => Ok(()),
    }
}
