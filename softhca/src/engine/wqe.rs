//! Send WQEs: from bytes of the ring to fields.

use crate::bits::{self, be16, be32, be64, u8_at};
use crate::mem::{self, Missing};
use crate::objects::{Qp, QpKind};

/// The largest WQE: 63 units of 16 bytes, rounded up.
const MOST: usize = 1024;

/// A data segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Pointer { addr: u64, len: u64, lkey: u32 },
    Inline(Vec<u8>),
}

/// The address vector of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressVector {
    pub(crate) qkey: u32,
    pub(crate) qpn: u32,
    pub(crate) sl: u8,
    pub(crate) rlid: u16,
    pub(crate) has_grh: bool,
    pub(crate) sgid_index: u8,
    pub(crate) flow_label: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    pub(crate) rgid: [u8; 16],
}

/// The content of a UMR WQE: bind or invalidate a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Umr {
    pub(crate) check_free: bool,
    pub(crate) check_qpn: bool,
    pub(crate) free: bool,
    pub(crate) rights: u8,
    pub(crate) variant: u8,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) region: u32,
    pub(crate) at: u64,
}

/// A decoded send WQE.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) index: u16,
    pub(crate) opcode: u8,
    /// Basic blocks.
    pub(crate) blocks: u16,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fenced: bool,
    pub(crate) imm: u32,
    pub(crate) srqn: u32,
    pub(crate) raddr: u64,
    pub(crate) rkey: u32,
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
    pub(crate) av: Option<AddressVector>,
    pub(crate) umr: Option<Umr>,
    pub(crate) segments: Vec<Segment>,
    /// It states more than it has room for.
    pub(crate) overruns: bool,
}

impl Wqe {
    /// Bytes of the message, or bytes that it brings back.
    pub(crate) fn len(&self) -> u64 {
        let of = |s: &Segment| match s {
            Segment::Pointer { len, .. } => *len,
            Segment::Inline(b) => b.len() as u64,
        };
        self.segments.iter().map(of).sum()
    }
}

/// Why there is no WQE.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoWqe {
    /// What is there is another one, by its first bytes.
    Stale { index: u16, qpn: u32, units: u32, opcode: u8 },
    /// The ring is gone.
    Missing,
}

/// The bytes of the WQE at `index`, unwrapped from the ring.
fn fetch(q: &Qp, index: u16, len: usize, to: &mut [u8; MOST]) -> Result<(), Missing> {
    let ring = u64::from(q.sq_count) * bits::WQE_BB;
    if ring == 0 {
        return Ok(());
    }
    let at = u64::from(index) * bits::WQE_BB % ring;
    let first = usize::try_from(ring - at).unwrap_or(MOST).min(len);
    let (head, tail) = to.split_at_mut(first.min(MOST));
    mem::read(q.sq + at, head)?;
    tail.get_mut(..len - first).map_or(Ok(()), |rest| mem::read(q.sq, rest))
}

/// Reads and decodes the WQE at `index`.
pub(crate) fn read(q: &Qp, qpn: u32, index: u16) -> Result<Wqe, NoWqe> {
    let mut b = [0u8; MOST];
    fetch(q, index, 16, &mut b).map_err(|Missing| NoWqe::Missing)?;
    let (head, qpn_ds) = (be32(&b, 0), be32(&b, 4));
    let units = qpn_ds & 0x3f;
    let [_, i0, i1, opcode] = head.to_be_bytes();
    let (found, of) = (u16::from_be_bytes([i0, i1]), qpn_ds >> 8);
    if of != qpn || found != index || units == 0 || units.div_ceil(4) > q.sq_count {
        return Err(NoWqe::Stale { index: found, qpn: of, units, opcode });
    }
    let len = usize::try_from(units).unwrap_or(0) * 16;
    fetch(q, index, len, &mut b).map_err(|Missing| NoWqe::Missing)?;
    Ok(decode(q.kind, index, opcode, b.get(..len).unwrap_or(&[])))
}

/// The opcode and size (in basic blocks) that the WQE at `index` states.
pub(crate) fn peek(q: &Qp, index: u16) -> Result<(u8, u16), Missing> {
    let mut b = [0u8; MOST];
    fetch(q, index, 16, &mut b)?;
    let units = be32(&b, 4) & 0x3f;
    Ok((u8_at(&b, 3), u16::try_from(units.div_ceil(4).max(1)).unwrap_or(1)))
}

fn decode(kind: QpKind, index: u16, opcode: u8, b: &[u8]) -> Wqe {
    use bits::opcode as op;
    let flags = u8_at(b, 11);
    let mut w = Wqe {
        index,
        opcode,
        blocks: u16::try_from(b.len().div_ceil(64)).unwrap_or(1),
        signaled: flags & bits::CTRL_CQ_UPDATE != 0,
        solicited: flags & bits::CTRL_SOLICITED != 0,
        fenced: flags & bits::CTRL_FENCE != 0,
        imm: be32(b, 12),
        srqn: 0,
        raddr: 0,
        rkey: 0,
        swap_add: 0,
        compare: 0,
        av: None,
        umr: None,
        segments: Vec::new(),
        overruns: false,
    };
    if opcode == op::UMR {
        w.umr = Some(umr(b));
        return w;
    }
    if opcode == op::NOP {
        return w;
    }
    let mut at = 16;
    if kind == QpKind::XrcIni {
        w.srqn = be32(b, at) & 0xff_ffff;
        at += 16;
    }
    if kind == QpKind::Ud {
        w.av = Some(address(b.get(at..).unwrap_or(&[])));
        at += 48;
    }
    let atomic = matches!(opcode, op::ATOMIC_CS | op::ATOMIC_FA);
    if atomic || matches!(opcode, op::RDMA_WRITE | op::RDMA_WRITE_IMM | op::RDMA_READ) {
        w.raddr = be64(b, at);
        w.rkey = be32(b, at + 8);
        at += 16;
    }
    if atomic {
        w.swap_add = be64(b, at);
        w.compare = be64(b, at + 8);
        at += 16;
    }
    (w.segments, at) = segments(b, at);
    w.overruns = at > b.len();
    w
}

/// The segments from `at` on, and where the last one ends.
fn segments(b: &[u8], mut at: usize) -> (Vec<Segment>, usize) {
    let mut v = Vec::new();
    while at + 16 <= b.len() {
        let count = be32(b, at);
        if count & bits::INLINE_SEG != 0 {
            let n = usize::try_from(count & 0x3ff).unwrap_or(0);
            v.push(Segment::Inline(b.get(at + 4..at + 4 + n).unwrap_or(&[]).to_vec()));
            at += (4 + n).next_multiple_of(16);
        } else {
            let len = if count == 0 { bits::ZERO_MEANS } else { u64::from(count) };
            v.push(Segment::Pointer { addr: be64(b, at + 8), len, lkey: be32(b, at + 4) });
            at += 16;
        }
    }
    (v, at)
}

fn address(b: &[u8]) -> AddressVector {
    let grh = be32(b, 28);
    let mut rgid = [0u8; 16];
    bits::put(&mut rgid, 0, b.get(32..48).unwrap_or(&[]));
    AddressVector {
        qkey: be32(b, 0),
        qpn: be32(b, 8) & 0xff_ffff,
        sl: u8_at(b, 12) & 0xf,
        rlid: be16(b, 14),
        has_grh: grh & (1 << 30) != 0,
        sgid_index: u8::try_from(grh >> 20 & 0xff).unwrap_or(0),
        flow_label: grh & 0xf_ffff,
        traffic_class: u8_at(b, 26),
        hop_limit: u8_at(b, 27),
        rgid,
    }
}

fn umr(b: &[u8]) -> Umr {
    // Control (16), UMR control (48), key context (64), list of regions (64).
    let (ctrl, key, list) = (16, 64, 128);
    let qpn_key = be32(b, key + 4);
    let [.., variant] = qpn_key.to_be_bytes();
    Umr {
        check_free: u8_at(b, ctrl) & bits::umr::CHECK_FREE != 0,
        check_qpn: u8_at(b, ctrl) & bits::umr::CHECK_QPN != 0,
        free: u8_at(b, key) & bits::umr::KEY_FREE != 0,
        rights: u8_at(b, key + 2),
        variant,
        start: be64(b, key + 16),
        len: be64(b, key + 24),
        region: be32(b, list + 4),
        at: be64(b, list + 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_a_write_with_two_segments() {
        let mut b = vec![0u8; 64];
        bits::put(&mut b, 11, &[bits::CTRL_CQ_UPDATE | bits::CTRL_FENCE]);
        bits::put(&mut b, 16, &0x1122u64.to_be_bytes());
        bits::put(&mut b, 24, &0x77u32.to_be_bytes());
        bits::put(&mut b, 32, &5u32.to_be_bytes());
        bits::put(&mut b, 36, &9u32.to_be_bytes());
        bits::put(&mut b, 40, &0x4000u64.to_be_bytes());
        bits::put(&mut b, 48, &0u32.to_be_bytes());
        let w = decode(QpKind::Rc, 3, bits::opcode::RDMA_WRITE, &b);
        assert!(w.signaled && w.fenced && !w.solicited);
        assert_eq!((w.raddr, w.rkey, w.blocks), (0x1122, 0x77, 1));
        let first = Segment::Pointer { addr: 0x4000, len: 5, lkey: 9 };
        // A byte count of zero means 2 GiB.
        let second = Segment::Pointer { addr: 0, len: 1 << 31, lkey: 0 };
        assert_eq!(w.segments, [first, second]);
    }

    #[test]
    fn decodes_inline_data() {
        let mut b = vec![0u8; 48];
        bits::put(&mut b, 16, &(bits::INLINE_SEG | 14).to_be_bytes());
        bits::put(&mut b, 20, b"fourteen bytes");
        let w = decode(QpKind::Rc, 0, bits::opcode::SEND, &b);
        assert_eq!(w.segments.first(), Some(&Segment::Inline(b"fourteen bytes".to_vec())));
    }

    #[test]
    fn any_bytes_decode() {
        for n in 0..64usize {
            for op in 0..=255u8 {
                let b: Vec<u8> = (0..n * 16).map(|i| u8::try_from(i * 37 % 256).unwrap() ^ op).collect();
                for kind in [QpKind::Rc, QpKind::Ud, QpKind::XrcIni] {
                    decode(kind, 0, op, &b);
                }
            }
        }
    }
}
