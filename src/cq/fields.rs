//! What can be read of a completion in an [`Extended`](crate::Extended) completion queue.
//!
//! The type that a [`Poller`](crate::Poller) is made for says what it reads of each completion beside id and status:
//! one of the types here, a [`WcOpcode`], or a tuple of them. What is not named is not read, and costs nothing.
//!
//! ```no_run
//! use ibv::fields::{ByteLen, QpNum};
//! use ibv::{CompletionQueue, ExtendedCompletion, Poller, WcOpcode};
//!
//! type Fields = (WcOpcode, ByteLen, QpNum);
//!
//! # let ctx = ibv::Context::open("mlx5_0")?;
//! let cq = CompletionQueue::builder(&ctx, 128).build_extended::<Fields>()?;
//! let mut poller = Poller::<Fields>::new(&cq)?;
//! let mut wcs = [ExtendedCompletion::default(); 16];
//! for wc in poller.poll(&mut wcs)? {
//!     let (opcode, ByteLen(bytes), QpNum(qp)) = wc.result()?;
//!     println!("request {} on {qp:#x}: {opcode:?} of {bytes:?} bytes", wc.id());
//! }
//! # Ok::<(), ibv::Error>(())
//! ```

use std::fmt;

use ibv_sys as sys;

use super::record::{FLAGS, OPCODE, Raw};
use super::wc::{Completion, WcOpcode};

/// What is read of each completion: a type of [`fields`](self), [`WcOpcode`], a tuple of up to eight of them, or `()`
/// for id and status alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read of a completion",
    label = "name a type of `ibv::fields`, `WcOpcode`, or a tuple of up to eight of them"
)]
pub trait WcFields: Copy + fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The readers to be called: bits of `enum ibv_create_cq_wc_flags`, `OPCODE` and `FLAGS`.
    #[doc(hidden)]
    const READS: u64;
    /// Out of what they gave.
    #[doc(hidden)]
    fn of(raw: &Raw) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! fields {
    ($($(#[$meta:meta])* $name:ident($type:ty) = [$($reads:expr),*], |$raw:ident| $value:expr;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub $type);

        fields!(impl $name = [$($reads),*], |$raw| Self($value));
    )*};
    (impl $name:ty = [$($reads:expr),*], |$raw:ident| $value:expr) => {
        impl sealed::Sealed for $name {}

        impl WcFields for $name {
            const READS: u64 = 0 $(| $reads as u64)*;

            #[inline(always)]
            fn of($raw: &Raw) -> Self {
                $value
            }
        }
    };
}

fields!(impl () = [], |_raw| ());
fields!(impl WcOpcode = [OPCODE], |raw| Completion::of(&raw.wc).opcode());

fields! {
    /// `ibv_wc_read_byte_len`—As [`Completion::byte_len`], in bytes.
    #[doc(alias = "ibv_wc_read_byte_len")]
    ByteLen(Option<u32>) = [OPCODE, sys::IBV_WC_EX_WITH_BYTE_LEN], |raw| Completion::of(&raw.wc).byte_len();

    /// `ibv_wc_read_imm_data`—As [`Completion::imm`].
    #[doc(alias = "ibv_wc_read_imm_data")]
    Imm(Option<u32>) = [OPCODE, FLAGS, sys::IBV_WC_EX_WITH_IMM], |raw| Completion::of(&raw.wc).imm();

    /// `ibv_wc_read_invalidated_rkey`—As [`Completion::invalidated_rkey`].
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    InvalidatedRkey(Option<u32>) = [OPCODE, FLAGS, sys::IBV_WC_EX_WITH_IMM],
        |raw| Completion::of(&raw.wc).invalidated_rkey();

    /// `ibv_wc_read_qp_num`—The queue pair that the request was posted to (for a shared receive queue: that it came in
    /// by).
    #[doc(alias = "ibv_wc_read_qp_num")]
    QpNum(u32) = [sys::IBV_WC_EX_WITH_QP_NUM], |raw| raw.wc.qp_num;

    /// `ibv_wc_read_src_qp`—As [`Completion::src_qp`].
    #[doc(alias = "ibv_wc_read_src_qp")]
    SrcQp(Option<u32>) = [OPCODE, sys::IBV_WC_EX_WITH_SRC_QP], |raw| Completion::of(&raw.wc).src_qp();

    /// `ibv_wc_read_wc_flags`—As [`Completion::has_grh`].
    #[doc(alias = "ibv_wc_read_wc_flags")]
    HasGrh(bool) = [FLAGS], |raw| Completion::of(&raw.wc).has_grh();

    /// `ibv_wc_read_slid`—As [`Completion::slid`].
    #[doc(alias = "ibv_wc_read_slid")]
    Slid(Option<u16>) = [OPCODE, sys::IBV_WC_EX_WITH_SLID], |raw| Completion::of(&raw.wc).slid();

    /// `ibv_wc_read_sl`—As [`Completion::sl`].
    #[doc(alias = "ibv_wc_read_sl")]
    Sl(Option<u8>) = [OPCODE, sys::IBV_WC_EX_WITH_SL], |raw| Completion::of(&raw.wc).sl();

    /// `ibv_wc_read_dlid_path_bits`—As [`Completion::dlid_path_bits`].
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    DlidPathBits(Option<u8>) = [OPCODE, sys::IBV_WC_EX_WITH_DLID_PATH_BITS],
        |raw| Completion::of(&raw.wc).dlid_path_bits();

    /// `ibv_wc_read_completion_ts`—When the device completed it, in ticks of its clock
    /// ([`hca_core_clock_khz`](crate::DeviceAttr::hca_core_clock_khz)). Not every device has it.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[doc(alias = "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP")]
    Timestamp(u64) = [sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP], |raw| raw.timestamp;

    /// `ibv_wc_read_completion_wallclock_ns`—When the device completed it, in nanoseconds of the machine's clock: since
    /// 1970, as far as that is set. Not every device has it.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    #[doc(alias = "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK")]
    WallClock(u64) = [sys::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK], |raw| raw.wall_clock;
}

macro_rules! tuples {
    ($(($($field:ident)*))*) => {$(
        impl<$($field: WcFields),*> sealed::Sealed for ($($field,)*) {}

        impl<$($field: WcFields),*> WcFields for ($($field,)*) {
            const READS: u64 = 0 $(| $field::READS)*;

            #[inline(always)]
            fn of(raw: &Raw) -> Self {
                ($($field::of(raw),)*)
            }
        }
    )*};
}

tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }
