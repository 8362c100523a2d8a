//! Completions, copied out of an extended completion queue.
//!
//! # Safety
//!
//! A provider leaves the pointers of readers null that were not asked for. A [`Record`] is made and [`Raw::read`] called at
//! a completion, of a queue that has the readers which they call. What an [`ExtendedCompletion`] holds beside its head is
//! what its status says.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;

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
pub(super) trait Record: Copy {
    /// Becomes that of a success. (In place: by value, it would go through memory twice.)
    ///
    /// # Safety
    ///
    /// `cq` stands at such a completion, and has the readers that this calls.
    unsafe fn succeed(&mut self, cq: *mut sys::ibv_cq_ex);

    /// Becomes that of a failure.
    ///
    /// # Safety
    ///
    /// `cq` stands at such a completion.
    unsafe fn fail(&mut self, cq: *mut sys::ibv_cq_ex);
}

/// What a completion queue says of every completion.
#[derive(Clone, Copy)]
struct Head {
    status: sys::ibv_wc_status,
    id: u64,
}

impl Head {
    /// Of a success, whose status is a constant: the caller has looked. (Both fields are not copied by one load, which would
    /// wait until the provider's stores to each are through.)
    ///
    /// # Safety
    ///
    /// `cq` is alive.
    #[inline(always)]
    unsafe fn of_success(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: alive.
        Self { status: sys::IBV_WC_SUCCESS, id: unsafe { (*cq).wr_id } }
    }

    /// # Safety
    ///
    /// `cq` is alive.
    unsafe fn of(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: alive.
        unsafe { Self { status: (*cq).status, id: (*cq).wr_id } }
    }
}

/// `ibv_cq_ex`—What became of a request, as far as a [`Poller`](crate::Poller) for `F` reads it; copied out, so that it can be
/// kept.
///
/// Make an array of them once, and let [`Poller::poll`](crate::Poller::poll) fill it: see [`fields`](crate::fields).
#[derive(Clone, Copy)]
#[must_use = "a completion may be an error"]
pub struct ExtendedCompletion<F: WcFields> {
    head: Head,
    rest: Rest<F>,
}

#[derive(Clone, Copy)]
union Rest<F: WcFields> {
    /// After a success.
    fields: F,
    /// Otherwise.
    failure: Failure,
}

/// What a failed completion has beside id and status.
#[derive(Clone, Copy)]
struct Failure {
    qp_num: u32,
    vendor_err: u32,
}

impl Failure {
    /// # Safety
    ///
    /// `cq` stands at a completion.
    unsafe fn of(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: by the caller's promise; all queues have both readers.
        unsafe { Self { qp_num: sys::ibv_wc_read_qp_num(cq), vendor_err: sys::ibv_wc_read_vendor_err(cq) } }
    }
}

impl<F: WcFields> Default for ExtendedCompletion<F> {
    /// One that no poll has filled: an error, so that it is never taken for a success.
    fn default() -> Self {
        let head = Head { status: sys::IBV_WC_GENERAL_ERR, id: 0 };
        Self { head, rest: Rest { failure: Failure { qp_num: 0, vendor_err: 0 } } }
    }
}

impl<F: WcFields> ExtendedCompletion<F> {
    /// The id that the request was posted with.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.head.id
    }

    /// That of the success at which `cq` stands.
    ///
    /// # Safety
    ///
    /// As [`Record::succeed`].
    #[inline(always)]
    pub(super) unsafe fn of_success(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: by the caller's promise.
        let (head, raw) = unsafe { (Head::of_success(cq), Raw::read(cq, F::READS)) };
        Self { head, rest: Rest { fields: F::of(&raw) } }
    }

    /// Success, or what went wrong.
    #[inline(always)]
    pub fn status(&self) -> WcStatus {
        WcStatus(self.head.status)
    }

    /// What was read of it, which means something only if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`WcError`] with the status otherwise.
    #[inline(always)]
    pub fn result(&self) -> Result<F, WcError> {
        if self.head.status == sys::IBV_WC_SUCCESS {
            // SAFETY: of a success; only `succeed` and `of_success` make one, with fields.
            Ok(unsafe { self.rest.fields })
        } else {
            Err(self.error())
        }
    }

    #[cold]
    fn error(&self) -> WcError {
        // SAFETY: not of a success: `fail` or `default` has made it.
        let Failure { qp_num, vendor_err } = unsafe { self.rest.failure };
        WcError { id: self.id(), status: self.status(), qp_num, vendor_err }
    }
}

impl<F: WcFields> Record for ExtendedCompletion<F> {
    #[inline(always)]
    unsafe fn succeed(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise.
        let raw = unsafe {
            self.head = Head::of_success(cq);
            Raw::read(cq, F::READS)
        };
        self.rest.fields = F::of(&raw);
    }

    #[cold]
    #[inline(never)]
    unsafe fn fail(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise.
        unsafe {
            self.head = Head::of(cq);
            self.rest.failure = Failure::of(cq);
        }
    }
}

impl Record for WorkCompletion {
    #[inline(always)]
    unsafe fn succeed(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise; all queues have the standard fields.
        let (head, raw) = unsafe { (Head::of_success(cq), Raw::read(cq, STANDARD | OPCODE | FLAGS)) };
        *self = Self::from_c(sys::ibv_wc { wr_id: head.id, status: head.status, ..raw.wc });
    }

    #[cold]
    #[inline(never)]
    unsafe fn fail(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise.
        let (Head { id, status }, failure) = unsafe { (Head::of(cq), Failure::of(cq)) };
        let Failure { qp_num, vendor_err } = failure;
        *self = Self::from_c(sys::ibv_wc { wr_id: id, status, qp_num, vendor_err, ..Default::default() });
    }
}

impl<F: WcFields> fmt::Debug for ExtendedCompletion<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedCompletion").field("id", &self.id()).field("result", &self.result()).finish()
    }
}
