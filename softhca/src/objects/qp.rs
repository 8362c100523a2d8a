//! Queue pairs.

use crate::uverbs::abi::{Plain, QpCap, QpDest};

/// The transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QpKind {
    Rc,
    Uc,
    Ud,
    XrcIni,
    XrcTgt,
}

impl QpKind {
    /// From the value of `ibv_qp_type`.
    pub(crate) fn from_wire(v: u32) -> Option<Self> {
        Some(match v {
            2 => Self::Rc,
            3 => Self::Uc,
            4 => Self::Ud,
            9 => Self::XrcIni,
            10 => Self::XrcTgt,
            _ => return None,
        })
    }

    /// Acknowledged transport.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcIni | Self::XrcTgt)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcIni => "XRC-INI",
            Self::XrcTgt => "XRC-TGT",
        }
    }
}

/// The state: the values of `ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum QpState {
    Reset = 0,
    Init = 1,
    Rtr = 2,
    Rts = 3,
    Sqd = 4,
    Sqe = 5,
    Err = 6,
}

impl QpState {
    pub(crate) fn from_wire(v: u8) -> Option<Self> {
        Some(match v {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Err,
            _ => return None,
        })
    }

    /// Whether messages are received.
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }
}

/// What the send queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing: the next WQE can run.
    Nothing,
    /// The end of an RNR wait.
    Rnr,
    /// The retransmission timer.
    Timeout,
    /// An answer from the fabric, or the retransmission timer.
    Answer,
}

/// The attributes that `modify_qp` sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) dest: QpDest,
    pub(crate) alt_dest: QpDest,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qpn: u32,
    pub(crate) access: u32,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) path_mtu: u8,
    pub(crate) path_mig_state: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port: u8,
    pub(crate) alt_timeout: u8,
}

impl Attributes {
    pub(crate) fn new() -> Self {
        Self {
            dest: QpDest::zeroed(),
            alt_dest: QpDest::zeroed(),
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qpn: 0,
            access: 0,
            pkey_index: 0,
            alt_pkey_index: 0,
            path_mtu: 0,
            path_mig_state: 0,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            alt_port: 0,
            alt_timeout: 0,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) ctx: u32,
    pub(crate) dev: usize,
    pub(crate) kind: QpKind,
    pub(crate) state: QpState,
    pub(crate) pd: u32,
    /// The application's `ibv_qp`, named in events.
    pub(crate) user: u64,
    pub(crate) uidx: u32,
    /// The UAR page whose registers ring it.
    pub(crate) uar: u32,
    pub(crate) scq: u32,
    pub(crate) rcq: u32,
    pub(crate) srq: Option<u32>,
    pub(crate) xrcd: Option<u32>,
    /// Handles of an XRC target.
    pub(crate) shares: u32,
    pub(crate) async_fd: Option<u32>,
    pub(crate) async_events: u32,
    pub(crate) cap: QpCap,
    pub(crate) sig_all: bool,
    pub(crate) block_loopback: bool,
    /// Received data of up to 32 or 64 bytes goes into the CQE.
    pub(crate) scatter_recv: bool,
    /// Data of reads and atomics goes into the CQE.
    pub(crate) scatter_send: bool,
    /// The receive queue's buffer, number of WQEs (a power of two or 0) and log2 of the stride.
    pub(crate) rq: u64,
    pub(crate) rq_count: u32,
    pub(crate) rq_shift: u32,
    /// The send queue's buffer and number of basic blocks.
    pub(crate) sq: u64,
    pub(crate) sq_count: u32,
    /// The doorbell record: receive counter, send counter.
    pub(crate) db: u64,
    /// The next send basic block and receive WQE to execute.
    pub(crate) sq_next: u16,
    pub(crate) rq_next: u16,
    pub(crate) attr: Attributes,
    /// The PSN of the next request, and of the next one expected.
    pub(crate) psn: u32,
    pub(crate) expected_psn: u32,
    /// The last atomic that was executed: its PSN and answer, for a repeated request.
    pub(crate) last_atomic: Option<(u32, u64)>,
    pub(crate) wait: Wait,
    pub(crate) deadline: u64,
    /// The number of the transmission that an answer must carry.
    pub(crate) transmission: u32,
    pub(crate) retries_left: u8,
    pub(crate) rnr_left: u8,
    /// The WQE at `sq_next` was sent before: the counters are under way.
    pub(crate) retrying: bool,
    /// The message at `sq_next` had its injected delay.
    pub(crate) delayed: bool,
    pub(crate) established: bool,
    pub(crate) notify_drained: bool,
    /// Groups it is attached to.
    pub(crate) groups: Vec<[u8; 16]>,
}

impl Qp {
    /// Back to what creation left.
    pub(crate) fn clear(&mut self) {
        self.state = QpState::Reset;
        self.sq_next = 0;
        self.rq_next = 0;
        self.attr = Attributes::new();
        self.psn = 0;
        self.expected_psn = 0;
        self.last_atomic = None;
        self.stop_waiting();
        self.established = false;
        self.notify_drained = false;
    }

    pub(crate) fn stop_waiting(&mut self) {
        self.wait = Wait::Nothing;
        self.retrying = false;
        self.delayed = false;
        self.transmission = self.transmission.wrapping_add(1);
    }

    /// Bytes of a packet.
    pub(crate) fn path_mtu(&self) -> u64 {
        128 << u32::from(self.attr.path_mtu).clamp(1, 5)
    }
}
