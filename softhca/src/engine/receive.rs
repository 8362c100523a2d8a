//! Receive queues: taking a WQE, filling its buffers, completing it.

use super::complete::{Entry, scatter_room};
use super::lifecycle::be_low16;
use super::request::{Lost, Request};
use crate::bits::{self, Syndrome, cqe, opcode};
use crate::mem::{self, Missing, Span};
use crate::model::Model;
use crate::objects::keys::User;
use crate::objects::{Event, QpKind, access};

/// Why a message could not be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No receive WQE.
    NotReady,
    /// Larger than the buffers.
    Length,
    /// A buffer that its queue may not write.
    Protection,
    /// The sender's memory can't be read.
    Unreadable(Lost),
}

/// Where a QP receives.
#[derive(Clone, Copy, Debug)]
struct Sink {
    qpn: u32,
    srq: Option<u32>,
    cqn: u32,
    uidx: u32,
    pd: u32,
}

/// A receive WQE: its number and its data segments.
#[derive(Debug, PartialEq, Eq)]
struct Slot {
    counter: u16,
    segments: Vec<(u64, u64, u32)>,
}

fn read_segments(at: u64, end: u64) -> Result<Vec<(u64, u64, u32)>, Missing> {
    let mut v = Vec::new();
    let mut at = at;
    while at + 16 <= end {
        let mut b = [0u8; 16];
        mem::read(at, &mut b)?;
        let (count, lkey) = (bits::be32(&b, 0), bits::be32(&b, 4));
        if lkey == bits::INVALID_LKEY {
            break;
        }
        let len = if count == 0 { bits::ZERO_MEANS } else { u64::from(count) };
        v.push((bits::be64(&b, 8), len, lkey));
        at += 16;
    }
    Ok(v)
}

impl Model {
    /// Where `qpn` receives a message for XRC SRQ `srqn` (0: not XRC).
    fn sink(&self, qpn: u32, srqn: u32) -> Option<Sink> {
        let q = self.qps.get(qpn)?;
        if q.kind == QpKind::XrcTgt {
            let s = self.srqs.get(srqn)?;
            let x = s.xrc?;
            return (Some(x.xrcd) == q.xrcd).then_some(Sink {
                qpn,
                srq: Some(srqn),
                cqn: x.cqn,
                uidx: x.uidx,
                pd: s.pd,
            });
        }
        let pd = q.srq.and_then(|n| self.srqs.get(n)).map_or(q.pd, |s| s.pd);
        Some(Sink { qpn, srq: q.srq, cqn: q.rcq, uidx: q.uidx, pd })
    }

    /// Whether an XRC request's SRQ exists in the target's domain.
    pub(crate) fn has_sink(&self, qpn: u32, srqn: u32) -> bool {
        self.sink(qpn, srqn).is_some()
    }

    /// Whether a receive WQE is there (or a queue that can't be read, which [`Model::deliver`] finds).
    pub(crate) fn can_receive(&self, qpn: u32, srqn: u32) -> bool {
        self.sink(qpn, srqn).is_some_and(|s| self.peek(&s) != Ok(None))
    }

    /// The next receive WQE.
    fn peek(&self, sink: &Sink) -> Result<Option<Slot>, Missing> {
        if let Some(srqn) = sink.srq {
            let Some(s) = self.srqs.get(srqn) else { return Ok(None) };
            if be_low16(mem::load_be32(s.db)?) == s.used {
                return Ok(None);
            }
            let at = s.buf + (u64::from(s.head) << s.shift);
            let segments = read_segments(at + 16, at + (1 << s.shift))?;
            return Ok(Some(Slot { counter: s.head, segments }));
        }
        let Some(q) = self.qps.get(sink.qpn).filter(|q| q.rq_count > 0) else { return Ok(None) };
        if be_low16(mem::load_be32(q.db)?) == q.rq_next {
            return Ok(None);
        }
        let at = q.rq + (u64::from(u32::from(q.rq_next) & (q.rq_count - 1)) << q.rq_shift);
        let segments = read_segments(at, at + (1 << q.rq_shift))?;
        Ok(Some(Slot { counter: q.rq_next, segments }))
    }

    /// Takes the WQE that [`Model::peek`] showed.
    fn pop(&mut self, sink: &Sink) {
        let Some(srqn) = sink.srq else {
            if let Some(q) = self.qps.get_mut(sink.qpn) {
                q.rq_next = q.rq_next.wrapping_add(1);
            }
            return;
        };
        let Some(s) = self.srqs.get_mut(srqn) else { return };
        let mut b = [0u8; 4];
        let next = mem::read(s.buf + (u64::from(s.head) << s.shift), &mut b);
        let (Ok(()), Ok(posted)) = (next, mem::load_be32(s.db)) else { return };
        crate::check::trap::check_taken(srqn, s.used, s.head);
        s.head = bits::be16(&b, 2);
        s.used = s.used.wrapping_add(1);
        let left = be_low16(posted).wrapping_sub(s.used);
        if s.limit != 0 && u32::from(left) < s.limit {
            s.limit = 0;
            let (fd, user) = (s.async_fd, s.user);
            self.log(|| format!("event SrqLimitReached of SRQ {srqn}"));
            if self.async_event(fd, user, Event::SrqLimitReached) {
                if let Some(s) = self.srqs.get_mut(srqn) {
                    s.async_events += 1;
                }
            }
        }
    }

    /// The memory behind a WQE's segments.
    fn buffers(&self, sink: &Sink, slot: &Slot) -> Option<Vec<Span>> {
        let user = User { pd: sink.pd, qpn: sink.qpn };
        slot.segments
            .iter()
            .map(|(va, len, key)| self.keys.translate(*key, user, *va, *len, access::LOCAL_WRITE))
            .collect()
    }

    fn refuse(&mut self, sink: &Sink, slot: &Slot, syndrome: Syndrome) {
        self.pop(sink);
        self.push_error_to(sink.cqn, sink.qpn, sink.uidx, false, syndrome, slot.counter, 0);
        self.enter_error(sink.qpn);
    }

    /// Receives `r` on `qpn`: takes a WQE, fills it, completes it.
    pub(crate) fn deliver(&mut self, qpn: u32, r: &Request) -> Result<(), Refusal> {
        let sink = self.sink(qpn, r.srqn).ok_or(Refusal::NotReady)?;
        let slot = match self.peek(&sink) {
            Ok(slot) => slot.ok_or(Refusal::NotReady)?,
            Err(Missing) => {
                self.fatal(qpn);
                return Err(Refusal::Protection);
            }
        };
        self.log(|| {
            let queue = sink.srq.map_or_else(String::new, |n| format!(" of SRQ {n}"));
            let list: String =
                slot.segments.iter().map(|(a, n, k)| format!(" [{a:#x} +{n} key {k:#x}]")).collect();
            format!("QP {qpn:#x} receive WQE {}{queue}{list}", slot.counter)
        });
        let Some(q) = self.qps.get(qpn) else { return Err(Refusal::NotReady) };
        let (kind, scatter_recv) = (q.kind, q.scatter_recv);
        let header = if kind == QpKind::Ud { 40 } else { 0 };
        let size = self.cqs.get(sink.cqn).map_or(64, |c| c.cqe_size);
        let immediate = matches!(r.op, opcode::SEND_IMM | opcode::RDMA_WRITE_IMM);
        let mut e = Entry::new(match r.op {
            opcode::RDMA_WRITE_IMM => cqe::RESP_WR_IMM,
            opcode::SEND_IMM => cqe::RESP_SEND_IMM,
            opcode::SEND_INVAL => cqe::RESP_SEND_INV,
            _ => cqe::RESP_SEND,
        });
        if r.op != opcode::RDMA_WRITE_IMM && r.len + header > 0 {
            let Some(mut spans) = self.buffers(&sink, &slot) else {
                self.refuse(&sink, &slot, Syndrome::LocalProtection);
                return Err(Refusal::Protection);
            };
            if r.len + header > mem::total(&spans) {
                self.refuse(&sink, &slot, Syndrome::LocalLength);
                return Err(Refusal::Length);
            }
            self.check_owned(&spans, r.len + header);
            let small = r.len <= scatter_room(size);
            let filled = if scatter_recv && small {
                r.bytes(r.len).map(|data| e.scatter(&data, size)).ok_or_else(|| r.unreadable())
            } else {
                fill(&mut spans, header, r)
            };
            match filled {
                Ok(()) => {}
                Err(Lost::Destination) => {
                    self.refuse(&sink, &slot, Syndrome::LocalProtection);
                    return Err(Refusal::Protection);
                }
                Err(lost) => return Err(Refusal::Unreadable(lost)),
            }
        }
        self.pop(&sink);
        let route = u32::from(r.grh.is_some()) << 28 | u32::from(r.sl & 0xf) << 24;
        if e.format != cqe::SCATTER_32 {
            e.put32(cqe::FLAGS_RQPN, route | r.src_qpn);
            bits::put(&mut e.body, cqe::SLID, &r.slid.to_be_bytes());
        }
        e.put32(cqe::SRQN_UIDX, sink.uidx);
        let keyed = immediate || r.op == opcode::SEND_INVAL;
        e.put32(cqe::IMM_INVAL_PKEY, if keyed { r.imm } else { self.pkey_index(qpn) });
        e.put32(cqe::BYTE_CNT, u32::try_from(r.len + header).unwrap_or(0));
        e.put32(cqe::SOP_QPN, qpn);
        bits::put(&mut e.body, cqe::WQE_COUNTER, &slot.counter.to_be_bytes());
        e.solicited = r.solicited;
        self.push_cqe(sink.cqn, qpn, e);
        Ok(())
    }

    fn pkey_index(&self, qpn: u32) -> u32 {
        self.qps.get(qpn).map_or(0, |q| u32::from(q.attr.pkey_index))
    }
}

/// Puts a message (behind the header of a datagram) into buffers.
fn fill(spans: &mut Vec<Span>, header: u64, r: &Request) -> Result<(), Lost> {
    if header > 0 {
        if let Some(g) = &r.grh {
            mem::scatter(spans, &grh_bytes(g, r.len)).map_err(|_| Lost::Destination)?;
        }
        skip(spans, header);
    }
    r.copy_to(spans)
}

/// Cuts `n` bytes off the front.
fn skip(spans: &mut Vec<Span>, n: u64) {
    let mut left = n;
    for s in spans.iter_mut() {
        let k = s.len.min(left);
        s.addr += k;
        s.len -= k;
        left -= k;
    }
    spans.retain(|s| s.len > 0);
}

/// The 40 bytes of a global route header.
fn grh_bytes(g: &super::request::Grh, len: u64) -> [u8; 40] {
    let mut b = [0u8; 40];
    let first = 6 << 28 | u32::from(g.traffic_class) << 20 | g.flow_label & 0xf_ffff;
    // Transport headers and CRC of a datagram: 8 + 12 + 4 bytes.
    let payload = u16::try_from(len + 24).unwrap_or(u16::MAX);
    bits::put(&mut b, 0, &first.to_be_bytes());
    bits::put(&mut b, 4, &payload.to_be_bytes());
    bits::put(&mut b, 6, &[0x1b, g.hop_limit]);
    bits::put(&mut b, 8, &g.sgid);
    bits::put(&mut b, 24, &g.dgid);
    b
}
