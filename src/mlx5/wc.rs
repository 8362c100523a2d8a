//! What a completion says, read where the device wrote it.

use std::fmt;
use std::marker::PhantomData;

use ibv_sys as sys;

use super::bits::{SYNDROMES, cqe, opcode};
use super::cqe_ring::CqeAt;
use super::delivery::{Delivery, ToMemory};
use super::ring::Sent;
use crate::cq::{WcError, WcOpcode, WcStatus};

/// What became of a request: a view on the device's own entry, lent by [`Poller::poll`](super::Poller::poll).
///
/// It says what a [`WorkCompletion`](crate::WorkCompletion) says, and reads no more of the entry than is asked for.
#[must_use = "a completion may be an error"]
pub struct WorkCompletion<'p, V: Delivery = ToMemory> {
    id: u64,
    /// What was noted of a send, in the high half.
    noted: u64,
    /// The entry's last 8 bytes, but the owner bit, which is 0.
    word: u64,
    at: CqeAt,
    /// The entry is the CPU's until the poller goes on.
    _lent: PhantomData<(&'p mut (), V)>,
}

/// The note of a bind.
pub(super) const BIND: u32 = 1;

/// The last byte: kind, format, owner.
#[inline(always)]
pub(super) fn op_own(word: u64) -> u8 {
    word.to_ne_bytes()[7]
}

/// Whether the entry is the title of a session of compressed completions.
#[inline(always)]
pub(super) fn is_title(word: u64) -> bool {
    op_own(word) & cqe::FORMAT == cqe::COMPRESSED
}

/// The kind of an entry.
#[inline(always)]
pub(super) fn kind(word: u64) -> u8 {
    op_own(word) >> 4
}

/// The queue pair's number.
#[inline(always)]
pub(super) fn qp_number(word: u64) -> u32 {
    (u64::from_be(word) >> 32) as u32 & 0xff_ffff
}

/// The index of the WQE.
#[inline(always)]
pub(super) fn counter(word: u64) -> u32 {
    (u64::from_be(word) >> 16) as u32 & 0xffff
}

/// A queue pair's number as it stands in the word.
pub(super) fn key_of(number: u32) -> u32 {
    (number & 0xff_ffff).to_be()
}

/// The number as it stands in the word.
#[inline(always)]
pub(super) fn key(word: u64) -> u32 {
    const NUMBER: u32 = u32::from_ne_bytes([0, 0xff, 0xff, 0xff]);
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]) & NUMBER
}

/// The status that each syndrome means.
#[expect(clippy::indexing_slicing, reason = "by a byte, of 256, when it is compiled")]
static STATUS: [sys::ibv_wc_status; 256] = {
    let mut table = [sys::IBV_WC_GENERAL_ERR; 256];
    let mut known: &[(u8, sys::ibv_wc_status)] = &SYNDROMES;
    while let [(syndrome, status), rest @ ..] = known {
        table[*syndrome as usize] = *status;
        known = rest;
    }
    table
};

/// The status that a syndrome means.
pub(super) fn status(syndrome: u8) -> WcStatus {
    // a table of all, so that the machine code has no jump by number, past which nobody can look for fences
    WcStatus(STATUS.get(usize::from(syndrome)).copied().unwrap_or(sys::IBV_WC_GENERAL_ERR))
}

#[cold]
fn error(id: u64, word: u64, at: CqeAt) -> WcError {
    WcError {
        id,
        status: status(at.u8_at::<{ cqe::SYNDROME }>()),
        qp_num: qp_number(word),
        vendor_err: at.u8_at::<{ cqe::VENDOR_SYNDROME }>().into(),
    }
}

impl<'p, V: Delivery> WorkCompletion<'p, V> {
    #[inline(always)]
    pub(super) fn new(sent: Sent, word: u64, at: CqeAt) -> Self {
        let Sent { id, noted } = sent;
        Self { id, noted, word, at, _lent: PhantomData }
    }

    /// The id that the request was posted with.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The queue pair that it was posted to.
    #[inline(always)]
    pub fn qp_num(&self) -> u32 {
        qp_number(self.word)
    }

    /// Success, or what went wrong.
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        if self.failed() { status(self.at.u8_at::<{ cqe::SYNDROME }>()) } else { WcStatus::SUCCESS }
    }

    #[inline(always)]
    fn failed(&self) -> bool {
        self.word.to_le() >= u64::from(cqe::REQ_ERR) << 60
    }

    /// The completion's fields, which mean something only if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`WcError`] with the status otherwise.
    #[inline(always)]
    pub fn result(&self) -> Result<Completion<'_, V>, WcError> {
        if self.failed() {
            Err(error(self.id, self.word, self.at))
        } else {
            Ok(Completion { noted: self.noted, word: self.word, at: self.at, _lent: PhantomData })
        }
    }
}

impl WorkCompletion<'_> {
    /// The same in C's form, to keep.
    pub fn copy(&self) -> crate::WorkCompletion {
        let mut wc = sys::ibv_wc { wr_id: self.id, qp_num: self.qp_num(), ..Default::default() };
        match self.result() {
            Ok(done) => done.fill(&mut wc),
            Err(error) => (wc.status, wc.vendor_err) = (error.status.0, error.vendor_err),
        }
        crate::WorkCompletion::from_c(wc)
    }
}

impl<V: Delivery> fmt::Debug for WorkCompletion<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkCompletion").field("id", &self.id()).field("result", &self.result()).finish()
    }
}

/// A request that succeeded.
#[derive(Clone, Copy)]
pub struct Completion<'w, V: Delivery = ToMemory> {
    noted: u64,
    word: u64,
    at: CqeAt,
    _lent: PhantomData<(&'w (), V)>,
}

impl<V: Delivery> Completion<'_, V> {
    /// What kind of request it was.
    #[inline(always)]
    pub fn opcode(&self) -> WcOpcode {
        match kind(self.word) {
            cqe::REQ => self.sent(),
            cqe::RESP_WR_IMM => WcOpcode::RECV_RDMA_WITH_IMM,
            _ => WcOpcode::RECV,
        }
    }

    fn sent(&self) -> WcOpcode {
        match self.wqe_opcode() {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => WcOpcode::RDMA_WRITE,
            opcode::RDMA_READ => WcOpcode::RDMA_READ,
            opcode::ATOMIC_CS => WcOpcode::COMP_SWAP,
            opcode::ATOMIC_FA => WcOpcode::FETCH_ADD,
            // the entry does not say which
            opcode::UMR if self.noted >> 32 == u64::from(BIND) => WcOpcode::BIND_MW,
            opcode::UMR => WcOpcode::LOCAL_INV,
            _ => WcOpcode::SEND,
        }
    }

    #[inline(always)]
    fn wqe_opcode(&self) -> u8 {
        self.word.to_ne_bytes()[0]
    }

    /// Whether it was a receive: a message, or a WRITE with immediate.
    #[inline(always)]
    pub fn is_recv(&self) -> bool {
        kind(self.word) != cqe::REQ
    }

    /// The bytes that came in: of a receive (a datagram's counts its [`GRH_LEN`](crate::GRH_LEN) bytes too), a READ or
    /// an atomic. `None` for what only sends.
    #[inline(always)]
    pub fn byte_len(&self) -> Option<u32> {
        if self.is_recv() {
            return Some(self.at.u32_at::<{ cqe::BYTE_CNT }>());
        }
        match self.wqe_opcode() {
            opcode::RDMA_READ => Some(self.at.u32_at::<{ cqe::BYTE_CNT }>()),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => Some(8),
            _ => None,
        }
    }

    #[inline(always)]
    fn imm_field(&self) -> u32 {
        self.at.u32_at::<{ cqe::IMM_INVAL_PKEY }>()
    }

    /// The immediate data of a receive, as the sender gave it.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        matches!(kind(self.word), cqe::RESP_WR_IMM | cqe::RESP_SEND_IMM).then(|| self.imm_field())
    }

    /// The rkey that a received SEND with invalidate made invalid.
    #[inline(always)]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        (kind(self.word) == cqe::RESP_SEND_INV).then(|| self.imm_field())
    }

    #[inline(always)]
    fn sender(&self) -> u32 {
        self.at.u32_at::<{ cqe::FLAGS_RQPN }>()
    }

    /// The datagram's sender, for receives on UD.
    #[inline(always)]
    pub fn src_qp(&self) -> Option<u32> {
        self.is_recv().then(|| self.sender() & 0xff_ffff)
    }

    /// Whether the receive's buffer starts with a valid global routing header (on UD).
    #[inline(always)]
    pub fn has_grh(&self) -> bool {
        self.is_recv() && self.sender() >> 28 & 3 != 0
    }

    /// LID of the datagram's sender (on UD over InfiniBand).
    pub fn slid(&self) -> Option<u16> {
        // its word starts 2 bytes before it
        const WORD: usize = cqe::SLID - 2;
        self.is_recv().then(|| self.at.u32_at::<WORD>() as u16)
    }

    /// Service level that the datagram came with (on UD).
    pub fn sl(&self) -> Option<u8> {
        self.is_recv().then(|| (self.sender() >> 24) as u8 & 0xf)
    }

    /// When the device completed it, in ticks of its clock
    /// ([`hca_core_clock_khz`](crate::DeviceAttr::hca_core_clock_khz)).
    pub fn timestamp(&self) -> u64 {
        self.at.u64_at::<{ cqe::TIMESTAMP }>()
    }

    /// What the last byte says, and where the entry is, for who reads the data in it.
    #[inline(always)]
    pub(super) fn op_own_and_place(&self) -> (u8, CqeAt) {
        (op_own(self.word), self.at)
    }

    fn fill(&self, wc: &mut sys::ibv_wc) {
        wc.opcode = self.opcode().0;
        wc.byte_len = self.byte_len().unwrap_or(0);
        if !self.is_recv() {
            let with_imm = matches!(self.wqe_opcode(), opcode::RDMA_WRITE_IMM | opcode::SEND_IMM);
            wc.wc_flags = if with_imm { sys::IBV_WC_WITH_IMM } else { 0 };
            return;
        }
        if let Some(imm) = self.imm() {
            wc.wc_flags |= sys::IBV_WC_WITH_IMM;
            wc.u1 = sys::ibv_wc_u1 { imm_data: imm.to_be() };
        } else if let Some(rkey) = self.invalidated_rkey() {
            wc.wc_flags |= sys::IBV_WC_WITH_INV;
            wc.u1 = sys::ibv_wc_u1 { invalidated_rkey: rkey };
        }
        if self.has_grh() {
            wc.wc_flags |= sys::IBV_WC_GRH;
        }
        wc.src_qp = self.sender() & 0xff_ffff;
        wc.sl = self.sl().unwrap_or(0);
        wc.slid = self.slid().unwrap_or(0);
        wc.pkey_index = self.imm_field() as u16;
        wc.dlid_path_bits = self.at.u8_at::<{ cqe::ML_PATH }>() & 0x7f;
    }
}

impl<V: Delivery> fmt::Debug for Completion<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("opcode", &self.opcode())
            .field("byte_len", &self.byte_len())
            .field("imm", &self.imm())
            .finish_non_exhaustive()
    }
}
