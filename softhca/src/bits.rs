//! Wire formats of mlx5: the bytes of WQEs, CQEs and doorbells as the device reads and writes them.
//!
//! Written from the layout in `<infiniband/mlx5dv.h>`. It decodes what an encoder elsewhere wrote and shares
//! nothing with it, so that a misreading on one side shows as a difference.

/// Opcodes of send WQEs.
pub(crate) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVAL: u8 = 0x01;
    pub(crate) const RDMA_WRITE: u8 = 0x08;
    pub(crate) const RDMA_WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const RDMA_READ: u8 = 0x10;
    pub(crate) const ATOMIC_CS: u8 = 0x11;
    pub(crate) const ATOMIC_FA: u8 = 0x12;
    pub(crate) const UMR: u8 = 0x25;

    /// Whether a request brings something back.
    pub(crate) fn is_read(op: u8) -> bool {
        matches!(op, RDMA_READ | ATOMIC_CS | ATOMIC_FA)
    }

    /// The name of an opcode, for the log.
    pub(crate) fn name(op: u8) -> &'static str {
        match op {
            NOP => "NOP",
            SEND_INVAL => "SEND_INVAL",
            RDMA_WRITE => "RDMA_WRITE",
            RDMA_WRITE_IMM => "RDMA_WRITE_IMM",
            SEND => "SEND",
            SEND_IMM => "SEND_IMM",
            RDMA_READ => "RDMA_READ",
            ATOMIC_CS => "ATOMIC_CS",
            ATOMIC_FA => "ATOMIC_FA",
            UMR => "UMR",
            _ => "?",
        }
    }
}

/// Opcodes of CQEs (upper four bits of the last byte).
pub(crate) mod cqe {
    pub(crate) const REQ: u8 = 0;
    pub(crate) const RESP_WR_IMM: u8 = 1;
    pub(crate) const RESP_SEND: u8 = 2;
    pub(crate) const RESP_SEND_IMM: u8 = 3;
    pub(crate) const RESP_SEND_INV: u8 = 4;
    pub(crate) const RESIZE_CQ: u8 = 5;
    pub(crate) const REQ_ERR: u8 = 13;
    pub(crate) const RESP_ERR: u8 = 14;
    /// Data of up to 32 bytes lies in the CQE.
    pub(crate) const SCATTER_32: u8 = 0x4;
    /// Data of up to 64 bytes lies before the CQE (128-byte entries).
    pub(crate) const SCATTER_64: u8 = 0x8;
    /// The entry is the title of a session of compressed ones.
    pub(crate) const COMPRESSED: u8 = 0xc;
    /// The sender asked for a solicited event.
    pub(crate) const SOLICITED: u8 = 0x2;

    /// Byte offsets in the 64-byte CQE.
    pub(crate) const SLID: usize = 22;
    pub(crate) const FLAGS_RQPN: usize = 24;
    pub(crate) const SRQN_UIDX: usize = 32;
    pub(crate) const IMM_INVAL_PKEY: usize = 36;
    pub(crate) const BYTE_CNT: usize = 44;
    pub(crate) const TIMESTAMP: usize = 48;
    pub(crate) const VENDOR_SYNDROME: usize = 54;
    pub(crate) const SYNDROME: usize = 55;
    pub(crate) const SOP_QPN: usize = 56;
    pub(crate) const WQE_COUNTER: usize = 60;
    pub(crate) const OP_OWN: usize = 63;
}

/// The short form of a CQE in a compressed session: byte offsets. The first word of a receiver's is a hash or a
/// checksum of the packet.
pub(crate) mod mini {
    pub(crate) const WQE_COUNTER: usize = 0;
    pub(crate) const OPCODE: usize = 2;
    pub(crate) const BYTE_CNT: usize = 4;
    pub(crate) const LEN: usize = 8;
    /// How many stand in one entry.
    pub(crate) const ARRAY: usize = 8;
}

/// Why a request failed: the syndrome byte of an error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// Local length error.
    LocalLength = 0x01,
    /// Local QP operation error.
    LocalQpOp = 0x02,
    /// Local protection error.
    LocalProtection = 0x04,
    /// The work request was flushed.
    Flushed = 0x05,
    /// Memory window bind error.
    MwBind = 0x06,
    /// Bad response.
    BadResponse = 0x10,
    /// Local access error.
    LocalAccess = 0x11,
    /// Remote invalid request.
    RemoteInvalidRequest = 0x12,
    /// Remote access error.
    RemoteAccess = 0x13,
    /// Remote operation error.
    RemoteOperation = 0x14,
    /// Transport retry counter exceeded.
    RetryExceeded = 0x15,
    /// Receiver-not-ready retry counter exceeded.
    RnrRetryExceeded = 0x16,
    /// Remote aborted.
    RemoteAborted = 0x22,
}

impl Syndrome {
    const ALL: [Self; 13] = [
        Self::LocalLength,
        Self::LocalQpOp,
        Self::LocalProtection,
        Self::Flushed,
        Self::MwBind,
        Self::BadResponse,
        Self::LocalAccess,
        Self::RemoteInvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
        Self::RetryExceeded,
        Self::RnrRetryExceeded,
        Self::RemoteAborted,
    ];

    /// The syndrome that a byte of an error CQE means.
    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|s| *s as u8 == byte)
    }
}

/// The flag of an inline data segment, and its length field.
pub(crate) const INLINE_SEG: u32 = 0x8000_0000;
/// The key that ends a list of receive segments.
pub(crate) const INVALID_LKEY: u32 = 0x100;
/// A byte count of 0 in a data segment means this.
pub(crate) const ZERO_MEANS: u64 = 1 << 31;
/// Size of a send WQE basic block.
pub(crate) const WQE_BB: u64 = 64;

/// `fm_ce_se`: ask for a CQE.
pub(crate) const CTRL_CQ_UPDATE: u8 = 2 << 2;
/// `fm_ce_se`: solicited event.
pub(crate) const CTRL_SOLICITED: u8 = 1 << 1;
/// `fm_ce_se`: fence after outstanding reads and atomics.
pub(crate) const CTRL_FENCE: u8 = 4 << 5;

/// Offsets of the BlueFlame registers in a UAR page.
pub(crate) const BF_OFFSETS: [usize; 4] = [0x800, 0x900, 0xa00, 0xb00];
/// Bytes of each.
pub(crate) const BF_OFFSET_STEP: usize = 0x100;
/// Offset of the CQ doorbell register in a UAR page.
pub(crate) const CQ_DOORBELL: usize = 0x20;

/// `flags` of the UMR control segment.
pub(crate) mod umr {
    pub(crate) const CHECK_FREE: u8 = 1 << 5;
    pub(crate) const CHECK_QPN: u8 = 1 << 3;
    /// `free` of the key context: the key becomes free (invalidate).
    pub(crate) const KEY_FREE: u8 = 1 << 6;
    pub(crate) const ATOMIC: u8 = 1 << 6;
    pub(crate) const REMOTE_WRITE: u8 = 1 << 5;
    pub(crate) const REMOTE_READ: u8 = 1 << 4;
    pub(crate) const LOCAL_WRITE: u8 = 1 << 3;
}

/// A byte of `b`; 0 outside.
pub(crate) fn u8_at(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

/// A big-endian `u16` of `b`; 0 outside.
pub(crate) fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..at + 2).and_then(|s| s.try_into().ok()).map_or(0, u16::from_be_bytes)
}

/// A big-endian `u32` of `b`; 0 outside.
pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// A big-endian `u64` of `b`; 0 outside.
pub(crate) fn be64(b: &[u8], at: usize) -> u64 {
    b.get(at..at + 8).and_then(|s| s.try_into().ok()).map_or(0, u64::from_be_bytes)
}

/// Writes `bytes` to `b` at `at`; nothing outside.
pub(crate) fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(d) = b.get_mut(at..at + bytes.len()) {
        d.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_outside_are_zero() {
        let b = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(be16(&b, 0), 0x0102);
        assert_eq!(be32(&b, 4), 0x0506_0708);
        assert_eq!(be32(&b, 5), 0);
        assert_eq!(be64(&b, 0), 0x0102_0304_0506_0708);
        assert_eq!(u8_at(&b, 9), 0);
    }

    #[test]
    fn writes_outside_are_ignored() {
        let mut b = [0u8; 4];
        put(&mut b, 2, &[9, 9, 9]);
        assert_eq!(b, [0; 4]);
        put(&mut b, 2, &[9, 8]);
        assert_eq!(b, [0, 0, 9, 8]);
    }
}
