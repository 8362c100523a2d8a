//! Completions, copied out of an extended completion queue.
//!
//! # Safety
//!
//! A provider leaves the pointers of readers null that were not asked for. [`Raw::read`] is called at a completion, of
//! a queue that has the readers which it calls: one table says which those are, for the calls and for the check. What
//! an [`ExtendedCompletion`] holds beside its head is what its status says.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;

use ibv_sys as sys;

use super::fields::WcFields;
use super::wc::{WcError, WcStatus};

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

/// The readers: what asks for each, its pointer, its call, and where what it gives belongs.
macro_rules! readers {
    ($raw:ident, $($bit:expr => $pointer:ident, $call:ident, |$value:pat_param| $place:expr;)*) => {
        impl Raw {
            /// Calls the readers in `reads`. (The id is there without one.)
            ///
            /// # Safety
            ///
            /// `cq` stands at a completion, between `ibv_start_poll` and `ibv_end_poll`, and [`has_readers`] in
            /// `reads`.
            #[inline(always)]
            pub(super) unsafe fn read(cq: *mut sys::ibv_cq_ex, reads: u64) -> Self {
                let mut $raw = Self::default();
                // SAFETY: alive.
                $raw.wc.wr_id = unsafe { (*cq).wr_id };
                $(if reads & u64::from($bit) != 0 {
                    // SAFETY: by the caller's promise.
                    let $value = unsafe { sys::$call(cq) };
                    $place;
                })*
                $raw
            }
        }

        /// Whether the pointers are there that [`Raw::read`] calls for `reads`.
        ///
        /// # Safety
        ///
        /// `cq` is alive.
        pub(super) unsafe fn has_readers(cq: *const sys::ibv_cq_ex, reads: u64) -> bool {
            // SAFETY: by the caller's promise.
            let cq = unsafe { &*cq };
            true $(&& (reads & u64::from($bit) == 0 || cq.$pointer.is_some()))*
        }
    };
}

readers! { raw,
    OPCODE => read_opcode, ibv_wc_read_opcode, |opcode| raw.wc.opcode = opcode;
    FLAGS => read_wc_flags, ibv_wc_read_wc_flags, |flags| raw.wc.wc_flags = flags;
    sys::IBV_WC_EX_WITH_BYTE_LEN => read_byte_len, ibv_wc_read_byte_len, |bytes| raw.wc.byte_len = bytes;
    // the same reader gives the key that was invalidated
    sys::IBV_WC_EX_WITH_IMM => read_imm_data, ibv_wc_read_imm_data, |imm| raw.wc.u1.imm_data = imm;
    sys::IBV_WC_EX_WITH_QP_NUM => read_qp_num, ibv_wc_read_qp_num, |qp| raw.wc.qp_num = qp;
    sys::IBV_WC_EX_WITH_SRC_QP => read_src_qp, ibv_wc_read_src_qp, |qp| raw.wc.src_qp = qp;
    // 32 bits for the sake of OmniPath; a LID of InfiniBand has 16
    sys::IBV_WC_EX_WITH_SLID => read_slid, ibv_wc_read_slid, |lid| raw.wc.slid = lid as u16;
    sys::IBV_WC_EX_WITH_SL => read_sl, ibv_wc_read_sl, |level| raw.wc.sl = level;
    sys::IBV_WC_EX_WITH_DLID_PATH_BITS =>
        read_dlid_path_bits, ibv_wc_read_dlid_path_bits, |bits| raw.wc.dlid_path_bits = bits;
    sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP =>
        read_completion_ts, ibv_wc_read_completion_ts, |ticks| raw.timestamp = ticks;
    sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK =>
        read_completion_wallclock_ns, ibv_wc_read_completion_wallclock_ns, |time| raw.wall_clock = time;
}

/// What a completion queue says of every completion.
#[derive(Clone, Copy)]
struct Head {
    status: sys::ibv_wc_status,
    id: u64,
}

impl Head {
    /// Of a success, whose status is a constant: the caller has looked. (Both fields are not copied by one load, which
    /// would wait until the provider's stores to each are through.)
    ///
    /// # Safety
    ///
    /// `cq` is alive.
    #[inline(always)]
    unsafe fn of_success(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: alive.
        Self { status: sys::IBV_WC_SUCCESS, id: unsafe { (*cq).wr_id } }
    }
}

/// `ibv_cq_ex`—What became of a request, as far as a [`Poller`](crate::Poller) for `F` reads it; copied out, so that it
/// can be kept.
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
    /// It does, and has the readers of `F`.
    #[inline(always)]
    pub(super) unsafe fn of_success(cq: *mut sys::ibv_cq_ex) -> Self {
        // SAFETY: by the caller's promise.
        let (head, raw) = unsafe { (Head::of_success(cq), Raw::read(cq, F::READS)) };
        Self { head, rest: Rest { fields: F::of(&raw) } }
    }

    /// Becomes that. (In place: by value, it would go through memory twice.)
    ///
    /// # Safety
    ///
    /// As [`of_success`](Self::of_success).
    #[inline(always)]
    pub(super) unsafe fn succeed(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise.
        let raw = unsafe {
            self.head = Head::of_success(cq);
            Raw::read(cq, F::READS)
        };
        self.rest.fields = F::of(&raw);
    }

    /// Becomes that of the completion at which `cq` stands, whatever it is.
    ///
    /// # Safety
    ///
    /// As [`of_success`](Self::of_success).
    pub(super) unsafe fn become_any(&mut self, cq: *mut sys::ibv_cq_ex) {
        // SAFETY: by the caller's promise; all queues have the readers of failures.
        unsafe {
            if (*cq).status == sys::IBV_WC_SUCCESS {
                return self.succeed(cq);
            }
            self.head = Head { id: (*cq).wr_id, status: (*cq).status };
            let (qp_num, vendor_err) = (sys::ibv_wc_read_qp_num(cq), sys::ibv_wc_read_vendor_err(cq));
            self.rest.failure = Failure { qp_num, vendor_err };
        }
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
        // SAFETY: not of a success: `become_any` or `default` has made it.
        let Failure { qp_num, vendor_err } = unsafe { self.rest.failure };
        WcError { id: self.id(), status: self.status(), qp_num, vendor_err }
    }
}

impl<F: WcFields> fmt::Debug for ExtendedCompletion<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedCompletion").field("id", &self.id()).field("result", &self.result()).finish()
    }
}
