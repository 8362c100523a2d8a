//! Wire formats of mlx5: what stands where in WQEs, CQEs and doorbells. Numbers only, no logic.
//!
//! Offsets are in bytes, from the start of the structure; multi-byte fields are big-endian. The structures are those
//! of `<infiniband/mlx5dv.h>` and of the programmer's reference manual ("PRM"), chapters 7 (work queues) and 7.12
//! (completion queues).

/// A basic block of a send queue: WQEs start at multiples of it (`MLX5_SEND_WQE_BB`).
pub(super) const WQE_BB: usize = 64;
/// The unit that WQEs are counted in, and that each segment but inline data takes (`ds` in the control segment).
pub(super) const SEGMENT: usize = 16;

/// The control segment (`struct mlx5_wqe_ctrl_seg`), 16 bytes, first in every send WQE.
///
/// | bytes | field |
/// |---|---|
/// | 0 | opmod: modifier of the opcode |
/// | 1..3 | index of the WQE's first basic block, modulo 2¹⁶ |
/// | 3 | opcode |
/// | 4..7 | number of the queue pair |
/// | 7 | ds: size of the WQE in units of 16 bytes, 6 bits |
/// | 8 | signature |
/// | 9..11 | stream channel of a DCI |
/// | 11 | `fm_ce_se`: fence mode, completion, solicited event |
/// | 12..16 | immediate data, or the key to invalidate |
pub(super) mod ctrl {
    /// Bit in `fm_ce_se`: write a CQE (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub(crate) const CQ_UPDATE: u8 = 2 << 2;
    /// Bit in `fm_ce_se`: solicited event (`MLX5_WQE_CTRL_SOLICITED`).
    pub(crate) const SOLICITED: u8 = 1 << 1;
    /// Fence mode in `fm_ce_se`: wait for what the WQE before does to keys (`MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE`).
    pub(crate) const SMALL_FENCE: u8 = 1 << 5;
    /// Fence mode in `fm_ce_se`: wait for earlier READs and atomics (`MLX5_WQE_CTRL_FENCE`).
    pub(crate) const FENCE: u8 = 4 << 5;
}

/// Opcodes of send WQEs (`MLX5_OPCODE_…`); a requester's CQE repeats them.
pub(super) mod opcode {
    /// SEND with invalidate.
    pub(crate) const SEND_INVAL: u8 = 0x01;
    /// RDMA WRITE.
    pub(crate) const RDMA_WRITE: u8 = 0x08;
    /// RDMA WRITE with immediate.
    pub(crate) const RDMA_WRITE_IMM: u8 = 0x09;
    /// SEND.
    pub(crate) const SEND: u8 = 0x0a;
    /// SEND with immediate.
    pub(crate) const SEND_IMM: u8 = 0x0b;
    /// RDMA READ.
    pub(crate) const RDMA_READ: u8 = 0x10;
    /// Update of a key: a window's bind, or a local invalidate.
    pub(crate) const UMR: u8 = 0x25;
    /// Compare and swap.
    pub(crate) const ATOMIC_CS: u8 = 0x11;
    /// Fetch and add.
    pub(crate) const ATOMIC_FA: u8 = 0x12;
}

/// The address vector of a datagram (`struct mlx5_wqe_av`), 48 bytes after the control segment.
///
/// | bytes | field |
/// |---|---|
/// | 0..4 | Q_Key |
/// | 4..8 | reserved |
/// | 8..12 | bit 31: extended form; bits 0..24: the peer's queue pair |
/// | 12 | rate, service level |
/// | 13 | force loopback, source LID bits (UDP source port on RoCE) |
/// | 14..16 | the peer's LID |
/// | 16..20 | reserved |
/// | 20..26 | the peer's MAC address |
/// | 26 | traffic class |
/// | 27 | hop limit |
/// | 28..32 | bit 30: has a GRH; GID index, flow label |
/// | 32..48 | the peer's GID |
pub(super) mod av {
    /// Its size.
    pub(crate) const LEN: usize = 48;
    /// The address vector has all 48 bytes (`MLX5_EXTENDED_UD_AV`).
    pub(crate) const EXTENDED: u32 = 1 << 31;
}

// The remote address segment (`struct mlx5_wqe_raddr_seg`), 16 bytes:
//   0..8 address, 8..12 rkey, 12..16 reserved.
// The atomic segment (`struct mlx5_wqe_atomic_seg`), 16 bytes:
//   0..8 the word to swap in, or to add; 8..16 the word to compare with (CMP_SWP).
// The data segment (`struct mlx5_wqe_data_seg`), 16 bytes:
//   0..4 length in bytes, 0 meaning 2³¹; 4..8 lkey; 8..16 address.
// Inline data (`struct mlx5_wqe_inl_data_seg`), padded to 16 bytes:
//   0..4 length in bytes and the bit below; 4.. the bytes.

/// The update of a key (opcode [`UMR`](opcode::UMR)): the UMR control segment (`struct mlx5_wqe_umr_ctrl_seg`), 48
/// bytes, the key's context (`struct mlx5_wqe_mkey_context_seg`), 64, and for a bind the list of what it leads to, one
/// data segment padded to 64.
///
/// | bytes of the first | field |
/// |---|---|
/// | 0 | flags |
/// | 4..6 | entries of the list, which are counted in fours |
/// | 8..16 | which fields of the context are meant |
///
/// | bytes of the second | field |
/// |---|---|
/// | 0 | bit 6: the key is to be free |
/// | 2 | access |
/// | 4..8 | bits 8..32: the only queue pair that may use it, or all ones; 0..8: the key's variable part |
/// | 16..24 | address of the first byte |
/// | 24..32 | length |
pub(super) mod umr {
    /// Flag: the list stands in the WQE (`MLX5_WQE_UMR_CTRL_FLAG_INLINE`).
    pub(crate) const INLINE: u8 = 1 << 7;
    /// Flag: the key must be free (`MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE`).
    pub(crate) const CHECK_FREE: u8 = 1 << 5;
    /// Flag: offset 0 in the list is meant (`MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET`).
    pub(crate) const TRANSLATION_OFFSET: u8 = 1 << 4;
    /// Flag: the key must be this queue pair's (`MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN`).
    pub(crate) const CHECK_QPN: u8 = 1 << 3;
    /// Fields: length (`MLX5_WQE_UMR_CTRL_MKEY_MASK_…`).
    pub(crate) const LEN: u64 = 1;
    /// Fields: address.
    pub(crate) const START: u64 = 1 << 6;
    /// Fields: the key's variable part.
    pub(crate) const KEY: u64 = 1 << 13;
    /// Fields: the queue pair.
    pub(crate) const QPN: u64 = 1 << 14;
    /// Fields: the bits of access.
    pub(crate) const ACCESS: u64 = 0xf << 18;
    /// Fields: whether it is free.
    pub(crate) const FREE: u64 = 1 << 29;
    /// In the context: free.
    pub(crate) const KEY_FREE: u8 = 1 << 6;
    /// Access (`MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_…`): atomics.
    pub(crate) const ATOMIC: u8 = 1 << 6;
    /// Access: WRITE.
    pub(crate) const REMOTE_WRITE: u8 = 1 << 5;
    /// Access: READ.
    pub(crate) const REMOTE_READ: u8 = 1 << 4;
    /// Access: what the device receives.
    pub(crate) const LOCAL_WRITE: u8 = 1 << 3;
}

/// Bit in a data segment's length: the bytes follow (`MLX5_INLINE_SEG`).
pub(super) const INLINE_SEG: u32 = 1 << 31;
/// The lkey that ends a receive WQE's list early (`MLX5_INVALID_LKEY`).
pub(super) const INVALID_LKEY: u32 = 0x100;

/// The segment that a shared queue's receive starts with (`struct mlx5_wqe_srq_next_seg`), 16 bytes: bytes 2..4 are the
/// index of the WQE after it; the rest is reserved, or a signature.
///
/// The doorbell record of such a queue has one word: receives posted, of which the lower 16 bits count.
pub(super) mod srq {
    /// See above.
    pub(crate) const NEXT: usize = 2;
    /// Word of the record.
    pub(crate) const RECORD: usize = 0;
}

/// A queue pair's doorbell record: two words of 32 bits, of which the lower 16 count.
pub(super) mod qp_record {
    /// Receives posted (`MLX5_RCV_DBR`).
    pub(crate) const RECV: usize = 0;
    /// Basic blocks posted (`MLX5_SND_DBR`).
    pub(crate) const SEND: usize = 1;
}

/// A completion queue's doorbell record and register.
pub(super) mod cq_record {
    /// Word of the record: entries consumed, 24 bits (`MLX5_CQ_SET_CI`).
    pub(crate) const CONSUMER: usize = 0;
    /// Word of the record: what to raise an event for (`MLX5_CQ_ARM_DB`).
    pub(crate) const ARM: usize = 1;
    /// Bits of both that count entries.
    pub(crate) const INDEX: u32 = 0xff_ffff;
    /// Bit of the arm word: solicited completions only (`MLX5_CQ_DB_REQ_NOT_SOL`).
    pub(crate) const SOLICITED: u32 = 1 << 24;
    /// Where the arm word's sequence number starts, 2 bits.
    pub(crate) const SEQUENCE_SHIFT: u32 = 28;
    /// Offset of the register in the UAR page (`MLX5_CQ_DOORBELL`): 0..4 the arm word, 4..8 the queue's number.
    pub(crate) const DOORBELL: usize = 0x20;
}

/// A completion (`struct mlx5_cqe64`), the last 64 bytes of an entry of 64 or 128.
///
/// | bytes | field | |
/// |---|---|---|
/// | 17 | `ML_PATH` | bits 0..7: the LID that a datagram came to, as an offset from the port's |
/// | 22..24 | `SLID` | LID of a datagram's sender |
/// | 24..28 | `FLAGS_RQPN` | bits 28, 29: has a GRH; 24..28: service level; 0..24: the sender's queue pair |
/// | 36..40 | `IMM_INVAL_PKEY` | immediate data, or the key that was invalidated, or the P_Key index |
/// | 44..48 | `BYTE_CNT` | length of what was received or read |
/// | 48..56 | `TIMESTAMP` | the device's clock |
/// | 54 | `VENDOR_SYNDROME` | of an error CQE |
/// | 55 | `SYNDROME` | of an error CQE |
/// | 56 | | opcode of the send WQE |
/// | 57..60 | `LAST_WORD` | number of the queue pair |
/// | 60..62 | | index of the WQE |
/// | 62 | | signature |
/// | 63 | | bits 4..8: kind of CQE; 2, 3: its format; 0: owner |
///
/// By its format, the first 32 bytes are data that was received or read, or the 64 bytes before it are.
pub(super) mod cqe {
    /// See the table.
    pub(crate) const ML_PATH: usize = 17;
    /// See the table.
    pub(crate) const SLID: usize = 22;
    /// See the table.
    pub(crate) const FLAGS_RQPN: usize = 24;
    /// See the table.
    pub(crate) const IMM_INVAL_PKEY: usize = 36;
    /// See the table.
    pub(crate) const BYTE_CNT: usize = 44;
    /// See the table.
    pub(crate) const TIMESTAMP: usize = 48;
    /// See the table.
    pub(crate) const VENDOR_SYNDROME: usize = 54;
    /// See the table.
    pub(crate) const SYNDROME: usize = 55;
    /// The last 8 bytes, which are read at once.
    pub(crate) const LAST_WORD: usize = 56;
    /// The last byte.
    pub(crate) const OP_OWN: usize = 63;

    /// Kind: a send WQE is done (`MLX5_CQE_REQ`).
    pub(crate) const REQ: u8 = 0;
    /// Kind: a receive, by WRITE with immediate (`MLX5_CQE_RESP_WR_IMM`).
    pub(crate) const RESP_WR_IMM: u8 = 1;
    /// Kind: a receive with immediate (`MLX5_CQE_RESP_SEND_IMM`).
    pub(crate) const RESP_SEND_IMM: u8 = 3;
    /// Kind: a receive that invalidated a key (`MLX5_CQE_RESP_SEND_INV`).
    pub(crate) const RESP_SEND_INV: u8 = 4;
    /// Kind: a send WQE failed (`MLX5_CQE_REQ_ERR`).
    pub(crate) const REQ_ERR: u8 = 13;
    /// Kind: a receive failed (`MLX5_CQE_RESP_ERR`).
    pub(crate) const RESP_ERR: u8 = 14;
    /// Format bits of the last byte (`MLX5_CQE_FORMAT_MASK`), unshifted.
    pub(crate) const FORMAT: u8 = 0xc;
    /// Format: up to 32 bytes of data are in it (`MLX5_INLINE_SCATTER_32`).
    pub(crate) const SCATTER_32: u8 = 0x4;
    /// Format: up to 64 bytes of data are before it, in an entry of 128 (`MLX5_INLINE_SCATTER_64`).
    pub(crate) const SCATTER_64: u8 = 0x8;
    /// Format: the title of a [session](super::mini) of compressed completions (`MLX5_COMPRESSED`).
    pub(crate) const COMPRESSED: u8 = 0xc;
    /// Whose the entry is: changes with each lap (`MLX5_CQE_OWNER_MASK`).
    pub(crate) const OWNER: u8 = 1;
}

/// Compressed completions: a session of n of them takes n entries of the ring, of which the device writes the first,
/// the title, and in the second, the ninth, the seventeenth, ... an array of eight short forms (`struct
/// mlx5_mini_cqe8`). The title is the first completion, but for [`BYTE_CNT`](cqe::BYTE_CNT), which is n, and what
/// stands in the short forms.
///
/// | bytes of a short form | of a send | of a receive |
/// |---|---|---|
/// | 0..2 | index of the WQE | hash or checksum |
/// | 2 | opcode of the WQE | |
/// | 4..8 | length | length |
///
/// Receives have the indices that follow the title's.
pub(super) mod mini {
    /// How many stand in an entry.
    pub(crate) const ARRAY: u32 = 8;
}

/// Syndromes of error CQEs (`MLX5_CQE_SYNDROME_…`) with the status that each means.
pub(super) const SYNDROMES: [(u8, ibv_sys::ibv_wc_status); 13] = [
    (0x01, ibv_sys::IBV_WC_LOC_LEN_ERR),
    (0x02, ibv_sys::IBV_WC_LOC_QP_OP_ERR),
    (0x04, ibv_sys::IBV_WC_LOC_PROT_ERR),
    (0x05, ibv_sys::IBV_WC_WR_FLUSH_ERR),
    (0x06, ibv_sys::IBV_WC_MW_BIND_ERR),
    (0x10, ibv_sys::IBV_WC_BAD_RESP_ERR),
    (0x11, ibv_sys::IBV_WC_LOC_ACCESS_ERR),
    (0x12, ibv_sys::IBV_WC_REM_INV_REQ_ERR),
    (0x13, ibv_sys::IBV_WC_REM_ACCESS_ERR),
    (0x14, ibv_sys::IBV_WC_REM_OP_ERR),
    (0x15, ibv_sys::IBV_WC_RETRY_EXC_ERR),
    (0x16, ibv_sys::IBV_WC_RNR_RETRY_EXC_ERR),
    (0x22, ibv_sys::IBV_WC_REM_ABORT_ERR),
];
