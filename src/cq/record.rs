//! Completions, copied out of an extended completion queue.
//!
//! # Safety
//!
//! A provider leaves the pointers of readers null that were not asked for. [`Record::read`] and [`Raw::read`] are called at
//! a completion, of a queue that has the readers which they call. The fields of an [`ExtendedCompletion`] are there
//! whenever its status is success.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::mem::MaybeUninit;

use ibv_sys as sys;

use super::fields::WcFields;
use super::wc::{WcError, WcStatus, WorkCompletion};

/// The reader of the opcode, which all queues have.
pub(super) const OPCODE: u64 = 1 << 63;
/// The reader of `enum ibv_wc_flags`, which all queues have.
pub(super) const FLAGS: u64 = 1 << 62;

/// Those that every provider has to have.
pub(super) const STANDARD: u64 = sys::IBV_WC_STANDARD_FLAGS as u64;

/// What readers gave, as far as they were called.
#[derive(Debug, Default)]
pub struct Raw {
    pub(super) wc: sys::ibv_wc,
    pub(super) timestamp: u64,
    pub(super) wall_clock: u64,
}

impl Raw {
    /// Calls the readers in `reads`.
    ///
    /// # Safety
    ///
    /// `cq` stands at a completion, between `ibv_start_poll` and `ibv_end_poll`, and has these readers.
    #[inline(always)]
    pub(super) unsafe fn read(cq: *mut sys::ibv_cq_ex, reads: u64) -> Self {
        macro_rules! read {
            ($wc:expr, { $($bit:expr => $field:expr, $reader:ident;)* }) => {$(
                if reads & u64::from($bit) != 0 {
                    // SAFETY: by the caller's promise.
                    $field = unsafe { sys::$reader(cq) };
                }
            )*};
        }
        let (mut raw, mut slid) = (Self::default(), 0);
        read!(raw.wc, {
            OPCODE => raw.wc.opcode, ibv_wc_read_opcode;
            FLAGS => raw.wc.wc_flags, ibv_wc_read_wc_flags;
            sys::IBV_WC_EX_WITH_BYTE_LEN => raw.wc.byte_len, ibv_wc_read_byte_len;
            // the same reader gives the key that was invalidated
            sys::IBV_WC_EX_WITH_IMM => raw.wc.u1.imm_data, ibv_wc_read_imm_data;
            sys::IBV_WC_EX_WITH_QP_NUM => raw.wc.qp_num, ibv_wc_read_qp_num;
            sys::IBV_WC_EX_WITH_SRC_QP => raw.wc.src_qp, ibv_wc_read_src_qp;
            sys::IBV_WC_EX_WITH_SLID => slid, ibv_wc_read_slid;
            sys::IBV_WC_EX_WITH_SL => raw.wc.sl, ibv_wc_read_sl;
            sys::IBV_WC_EX_WITH_DLID_PATH_BITS => raw.wc.dlid_path_bits, ibv_wc_read_dlid_path_bits;
            sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP => raw.timestamp, ibv_wc_read_completion_ts;
            sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK =>
                raw.wall_clock, ibv_wc_read_completion_wallclock_ns;
        });
        // 32 bits for the sake of OmniPath; a LID of InfiniBand has 16
        raw.wc.slid = slid as u16;
        raw
    }
}

/// What is copied out of a completion.
pub(super) trait Record {
    /// # Safety
    ///
    /// `cq` stands at a completion, and has the readers that this calls.
    unsafe fn read(&mut self, cq: *mut sys::ibv_cq_ex);
}

/// What became of a request, as far as a [`Poller`](crate::Poller) for `F` reads it.
#[derive(Clone, Copy)]
#[must_use = "a completion may be an error"]
pub struct ExtendedCompletion<F: WcFields> {
    id: u64,
    status: sys::ibv_wc_status,
    /// Of an error, as the next one.
    qp_num: u32,
    vendor_err: u32,
    /// There after a success.
    fields: MaybeUninit<F>,
}

impl<F: WcFields> Default for ExtendedCompletion<F> {
    /// One that no poll has filled: an error, so that it is never taken for a success.
    fn default() -> Self {
        let fields = MaybeUninit::uninit();
        Self { id: 0, status: sys::IBV_WC_GENERAL_ERR, qp_num: 0, vendor_err: 0, fields }
    }
}

impl<F: WcFields> ExtendedCompletion<F> {
    /// The id that the request was posted with.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Success, or what went wrong.
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.status)
    }

    /// What was read of it, which means something only if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`WcError`] with the status otherwise.
    #[inline(always)]
    pub fn result(&self) -> Result<F, WcError> {
        if self.status == sys::IBV_WC_SUCCESS {
            // SAFETY: `read` writes them before it says that this is a success.
            Ok(unsafe { self.fields.assume_init() })
        } else {
            Err(self.error())
        }
    }

    #[cold]
    fn error(&self) -> WcError {
        let Self { id, qp_num, vendor_err, .. } = *self;
        WcError { id, status: self.status(), qp_num, vendor_err }
    }
}

impl<F: WcFields> Record for ExtendedCompletion<F> {
    #[inline(always)]
    unsafe fn read(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise; these two fields are the completion's.
        let (id, status) = unsafe { ((*cq).wr_id, (*cq).status) };
        self.id = id;
        self.status = status;
        if status == sys::IBV_WC_SUCCESS {
            // SAFETY: by the caller's promise.
            self.fields = MaybeUninit::new(F::of(&unsafe { Raw::read(cq, F::READS) }));
        } else {
            // SAFETY: all queues have these two.
            (self.qp_num, self.vendor_err) = unsafe { read_failed(cq) };
        }
    }
}

impl Record for WorkCompletion {
    #[inline(always)]
    unsafe fn read(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise; these two fields are the completion's.
        let (wr_id, status) = unsafe { ((*cq).wr_id, (*cq).status) };
        let rest = if status == sys::IBV_WC_SUCCESS {
            // SAFETY: all queues have the standard fields.
            unsafe { Raw::read(cq, STANDARD | OPCODE | FLAGS) }.wc
        } else {
            // SAFETY: all queues have these two.
            let (qp_num, vendor_err) = unsafe { read_failed(cq) };
            sys::ibv_wc { qp_num, vendor_err, ..Default::default() }
        };
        *self = Self::from_c(sys::ibv_wc { wr_id, status, ..rest });
    }
}

/// What a failed completion has: queue pair number and vendor error.
///
/// # Safety
///
/// `cq` stands at a completion, and has both readers.
#[cold]
unsafe fn read_failed(cq: *mut sys::ibv_cq_ex) -> (u32, u32) {
    // SAFETY: by the caller's promise.
    unsafe { (sys::ibv_wc_read_qp_num(cq), sys::ibv_wc_read_vendor_err(cq)) }
}

impl<F: WcFields> fmt::Debug for ExtendedCompletion<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedCompletion").field("id", &self.id).field("result", &self.result()).finish()
    }
}
