//! Work completions, and what they say.
//!
//! # Safety
//!
//! A [`WorkCompletion`] is an `ibv_wc` that was zeroed once, so that reading a field the provider left out gives an
//! old number and nothing worse; the C unions in it hold plain integers.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{CStr, c_int};
use std::fmt;

use ibv_sys as sys;

/// `ibv_wc`—What became of a request.
///
/// Make an array of them once, and let [`CompletionQueue::poll`](crate::CompletionQueue::poll) fill it.
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy)]
#[repr(transparent)]
#[must_use = "a completion may be an error"]
pub struct WorkCompletion(sys::ibv_wc);

impl Default for WorkCompletion {
    /// One that no poll has filled: an error, so that it is never taken for a success.
    fn default() -> Self {
        Self(sys::ibv_wc { status: sys::IBV_WC_GENERAL_ERR, ..sys::ibv_wc::default() })
    }
}

impl WorkCompletion {
    #[cfg(feature = "mlx5")]
    #[inline(always)]
    pub(crate) fn from_c(wc: sys::ibv_wc) -> Self {
        Self(wc)
    }

    /// The id that the request was posted with.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// The queue pair that it was posted to (for a shared receive queue: that it came in by).
    #[inline(always)]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// Success, or what went wrong.
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.0.status)
    }

    /// The completion's fields, which mean something only if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`WcError`] with the status otherwise.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn f(wc: &ibv::WorkCompletion) {
    /// match wc.result() {
    ///     Ok(done) => println!("{:?} of {:?} bytes", done.opcode(), done.byte_len()),
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # }
    /// ```
    #[inline(always)]
    pub fn result(&self) -> Result<Completion<'_>, WcError> {
        if self.0.status == sys::IBV_WC_SUCCESS { Ok(Completion(&self.0)) } else { Err(self.error()) }
    }

    #[cold]
    #[inline(never)]
    fn error(&self) -> WcError {
        WcError {
            id: self.0.wr_id,
            status: self.status(),
            qp_num: self.0.qp_num,
            vendor_err: self.0.vendor_err,
        }
    }
}

impl fmt::Debug for WorkCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkCompletion").field("id", &self.id()).field("result", &self.result()).finish()
    }
}

/// A request that succeeded.
#[derive(Clone, Copy)]
pub struct Completion<'w>(&'w sys::ibv_wc);

impl<'w> Completion<'w> {
    #[inline(always)]
    pub(super) fn of(wc: &'w sys::ibv_wc) -> Self {
        Self(wc)
    }

    /// What kind of request it was.
    #[inline(always)]
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.0.opcode)
    }

    /// Whether it was a receive: a message, or a WRITE with immediate.
    #[inline(always)]
    pub fn is_recv(&self) -> bool {
        self.0.opcode & sys::IBV_WC_RECV != 0
    }

    /// The bytes that came in: of a receive (a datagram's counts its [`GRH_LEN`](crate::GRH_LEN) bytes too), a READ or
    /// an atomic. `None` for what only sends, where the field means nothing.
    #[inline(always)]
    pub fn byte_len(&self) -> Option<u32> {
        let brings = self.is_recv()
            || matches!(self.opcode(), WcOpcode::RDMA_READ | WcOpcode::COMP_SWAP | WcOpcode::FETCH_ADD);
        brings.then_some(self.0.byte_len)
    }

    /// The immediate data of a receive, as the sender gave it.
    #[inline(always)]
    pub fn imm(&self) -> Option<u32> {
        // rxe sets the flag on the sender's completion too, with a number that is not the one sent
        let has = self.is_recv() && self.flag(sys::IBV_WC_WITH_IMM);
        // SAFETY: a plain integer, whichever member was written.
        has.then(|| u32::from_be(unsafe { self.0.u1.imm_data }))
    }

    /// The rkey that a received SEND with invalidate made invalid. (Soft-RoCE invalidates it, and does not say so.)
    #[inline(always)]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        let has = self.is_recv() && self.flag(sys::IBV_WC_WITH_INV);
        // SAFETY: a plain integer, whichever member was written.
        has.then_some(unsafe { self.0.u1.invalidated_rkey })
    }

    /// The datagram's sender, for receives on UD.
    #[inline(always)]
    pub fn src_qp(&self) -> Option<u32> {
        self.is_recv().then_some(self.0.src_qp)
    }

    /// Whether the receive's buffer starts with a valid global routing header (on UD).
    #[inline(always)]
    pub fn has_grh(&self) -> bool {
        self.flag(sys::IBV_WC_GRH)
    }

    /// LID of the datagram's sender (on UD over InfiniBand).
    #[inline]
    pub fn slid(&self) -> Option<u16> {
        self.is_recv().then_some(self.0.slid)
    }

    /// Service level that the datagram came with (on UD).
    #[inline]
    pub fn sl(&self) -> Option<u8> {
        self.is_recv().then_some(self.0.sl)
    }

    /// Low bits of the LID that the datagram was sent to, if the port has several (on UD over InfiniBand).
    #[inline]
    pub fn dlid_path_bits(&self) -> Option<u8> {
        self.is_recv().then_some(self.0.dlid_path_bits)
    }

    pub(crate) fn as_wc(&self) -> &'w sys::ibv_wc {
        self.0
    }

    #[inline(always)]
    fn flag(&self, flag: u32) -> bool {
        self.0.wc_flags & flag != 0
    }
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("opcode", &self.opcode())
            .field("byte_len", &self.byte_len())
            .field("imm", &self.imm())
            .finish_non_exhaustive()
    }
}

/// A request that failed (or was flushed because an earlier one did): all that is valid of its completion.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct WcError {
    /// The id that the request was posted with.
    pub id: u64,
    /// What went wrong.
    pub status: WcStatus,
    /// The queue pair.
    pub qp_num: u32,
    /// The vendor's code for it.
    pub vendor_err: u32,
}

impl fmt::Display for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, status, qp_num, vendor_err } = self;
        write!(
            f,
            "request {id} on QP {qp_num:#08x} failed: {status} (status {}, vendor error {vendor_err:#x})",
            status.0
        )?;
        if let Some(hint) = status.hint() {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

/// What it says, since that is what a `main` that returns it prints.
impl fmt::Debug for WcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for WcError {}

macro_rules! codes {
    ($(#[$meta:meta])* $type:ident($c:ty) { $($(#[doc = $doc:literal])+ $name:ident = $value:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub $c);

        impl $type {
            $($(#[doc = $doc])+ pub const $name: Self = Self(sys::$value);)*
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(other) => write!(f, concat!(stringify!($type), "({})"), other),
                }
            }
        }
    };
}

pub(crate) use codes;

codes! {
    /// How a request ended (`enum ibv_wc_status`; InfiniBand specification 11.6.2). Newer libraries may know more.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use ibv::{WcStatus, WorkCompletion};
    /// # fn f(wc: &WorkCompletion) {
    /// match wc.status() {
    ///     WcStatus::SUCCESS | WcStatus::WR_FLUSH_ERR => {}
    ///     status => eprintln!("{status}: {}", status.hint().unwrap_or("no advice")),
    /// }
    /// # }
    /// ```
    WcStatus(sys::ibv_wc_status) {
        /// As asked.
        SUCCESS = IBV_WC_SUCCESS,
        /// A message longer than the receive's buffer, or than the port allows.
        LOC_LEN_ERR = IBV_WC_LOC_LEN_ERR,
        /// The queue pair could not do it.
        LOC_QP_OP_ERR = IBV_WC_LOC_QP_OP_ERR,
        /// An end-to-end context error.
        LOC_EEC_OP_ERR = IBV_WC_LOC_EEC_OP_ERR,
        /// A slice's key, bounds or access did not fit.
        LOC_PROT_ERR = IBV_WC_LOC_PROT_ERR,
        /// The queue pair was in, or went to, the error state before it was its turn.
        WR_FLUSH_ERR = IBV_WC_WR_FLUSH_ERR,
        /// A memory window could not be bound.
        MW_BIND_ERR = IBV_WC_MW_BIND_ERR,
        /// The peer answered something unexpected.
        BAD_RESP_ERR = IBV_WC_BAD_RESP_ERR,
        /// A write to this side's memory by the peer was not allowed.
        LOC_ACCESS_ERR = IBV_WC_LOC_ACCESS_ERR,
        /// The peer found the request invalid: too long for its receive, or not enabled.
        REM_INV_REQ_ERR = IBV_WC_REM_INV_REQ_ERR,
        /// The peer's memory may not be used so: key, bounds or access.
        REM_ACCESS_ERR = IBV_WC_REM_ACCESS_ERR,
        /// The peer could not complete it.
        REM_OP_ERR = IBV_WC_REM_OP_ERR,
        /// The peer never answered.
        RETRY_EXC_ERR = IBV_WC_RETRY_EXC_ERR,
        /// The peer had no receive posted, however often it was asked.
        RNR_RETRY_EXC_ERR = IBV_WC_RNR_RETRY_EXC_ERR,
        /// A reliable datagram domain was violated.
        LOC_RDD_VIOL_ERR = IBV_WC_LOC_RDD_VIOL_ERR,
        /// A reliable datagram request was invalid.
        REM_INV_RD_REQ_ERR = IBV_WC_REM_INV_RD_REQ_ERR,
        /// The peer aborted it.
        REM_ABORT_ERR = IBV_WC_REM_ABORT_ERR,
        /// An end-to-end context's number was invalid.
        INV_EECN_ERR = IBV_WC_INV_EECN_ERR,
        /// An end-to-end context's state was invalid.
        INV_EEC_STATE_ERR = IBV_WC_INV_EEC_STATE_ERR,
        /// The device failed.
        FATAL_ERR = IBV_WC_FATAL_ERR,
        /// The peer answered too late.
        RESP_TIMEOUT_ERR = IBV_WC_RESP_TIMEOUT_ERR,
        /// Anything else.
        GENERAL_ERR = IBV_WC_GENERAL_ERR,
        /// Tag matching failed.
        TM_ERR = IBV_WC_TM_ERR,
        /// A tag matching message has to be met in software.
        TM_RNDV_INCOMPLETE = IBV_WC_TM_RNDV_INCOMPLETE,
    }
}

impl WcStatus {
    /// What usually lies behind it.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::WR_FLUSH_ERR => "an earlier completion of this queue pair tells the reason",
            Self::RETRY_EXC_ERR => {
                "the peer is gone, not yet ready to receive (on Soft-RoCE also: has no receive posted), or its address or \
                 path is wrong"
            }
            Self::RNR_RETRY_EXC_ERR => "post receives before the peer sends, or let `rnr_retry` be 7",
            Self::REM_ACCESS_ERR => {
                "check rkey, range and access of the peer's region, and that its queue pair allows this access"
            }
            Self::LOC_PROT_ERR => "the region and the queue pair must be of the same protection domain",
            Self::MW_BIND_ERR => {
                "a window of type 2 must be free (new, or invalidated) to be bound, and the queue pair of its protection domain"
            }
            Self::LOC_LEN_ERR => "check that receives are as long as the messages",
            Self::REM_INV_REQ_ERR => {
                "the peer's receive is shorter than the message, or its queue pair does not allow the access \
                 (`InitAttr::access`)"
            }
            Self::LOC_QP_OP_ERR => {
                "on Soft-RoCE, a receive shorter than the message (on UD it must have room for `GRH_LEN` more), or a region \
                 or address handle that is gone or of another protection domain"
            }
            _ => return None,
        })
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the function knows a text for every number.
        let text = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

codes! {
    /// What kind of request was completed (`enum ibv_wc_opcode`). Newer libraries may know more.
    WcOpcode(sys::ibv_wc_opcode) {
        /// A SEND, with or without immediate.
        SEND = IBV_WC_SEND,
        /// An RDMA WRITE, with or without immediate.
        RDMA_WRITE = IBV_WC_RDMA_WRITE,
        /// An RDMA READ.
        RDMA_READ = IBV_WC_RDMA_READ,
        /// A compare-and-swap.
        COMP_SWAP = IBV_WC_COMP_SWAP,
        /// A fetch-and-add.
        FETCH_ADD = IBV_WC_FETCH_ADD,
        /// The bind of a memory window.
        BIND_MW = IBV_WC_BIND_MW,
        /// A local invalidate.
        LOCAL_INV = IBV_WC_LOCAL_INV,
        /// A segmented send.
        TSO = IBV_WC_TSO,
        /// An atomic write.
        ATOMIC_WRITE = IBV_WC_ATOMIC_WRITE,
        /// A receive of a message.
        RECV = IBV_WC_RECV,
        /// A receive consumed by the immediate data of a peer's WRITE.
        RECV_RDMA_WITH_IMM = IBV_WC_RECV_RDMA_WITH_IMM,
    }
}

/// A poll failed: the provider could not make sense of the queue. Nothing is known of what is outstanding; the queue,
/// and the queue pairs on it, are of no more use. (But for EBUSY: the kernel was changing the clock's data, which wall
/// clock times are made of, for longer than can be waited for.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("polling failed with {code}: {}", prospect(*.code))]
pub struct PollError {
    code: c_int,
}

fn prospect(code: c_int) -> &'static str {
    match code {
        libc::EBUSY => "the clock was busy, poll again",
        _ => "the completion queue is of no more use",
    }
}

impl PollError {
    #[cold]
    pub(super) fn new(code: c_int) -> Self {
        Self { code }
    }

    /// What `ibv_poll_cq`, `ibv_start_poll` or `ibv_next_poll` returned: not 0, and meaning what the provider likes.
    pub fn code(&self) -> i32 {
        self.code
    }
}
