//! The states of a queue pair (InfiniBand specification 10.3.1).

use std::fmt;

use ibv_sys as sys;

/// A queue pair's state as a value (`enum ibv_qp_state`), as the device reports it.
#[doc(alias = "ibv_qp_state")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpState(pub sys::ibv_qp_state);

impl QpState {
    /// New, or emptied: nothing can be posted.
    pub const RESET: Self = Self(sys::IBV_QPS_RESET);
    /// Bound to a port: receives can be posted, nothing arrives yet.
    pub const INIT: Self = Self(sys::IBV_QPS_INIT);
    /// Ready to receive.
    pub const RTR: Self = Self(sys::IBV_QPS_RTR);
    /// Ready to send.
    pub const RTS: Self = Self(sys::IBV_QPS_RTS);
    /// Its send queue is draining, or drained.
    pub const SQD: Self = Self(sys::IBV_QPS_SQD);
    /// A send failed (UC and UD): receives go on.
    pub const SQE: Self = Self(sys::IBV_QPS_SQE);
    /// Everything outstanding is flushed.
    pub const ERROR: Self = Self(sys::IBV_QPS_ERR);
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::RESET => "RESET",
            Self::INIT => "INIT",
            Self::RTR => "RTR",
            Self::RTS => "RTS",
            Self::SQD => "SQD",
            Self::SQE => "SQE",
            Self::ERROR => "ERR",
            _ => "unknown",
        })
    }
}

impl fmt::Debug for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A queue pair's state as a type.
pub trait State: sealed::Sealed + Send + Sync + 'static {
    /// The same as a value.
    const STATE: QpState;
}

/// A state in which receives can be posted: all but [`Reset`].
#[diagnostic::on_unimplemented(
    message = "a queue pair in state `{Self}` cannot post receives",
    label = "bring it to `Init` first: `qp.init(..)?`"
)]
pub trait CanPostRecv: State {}

/// The state in which sends can be posted: [`Rts`].
#[diagnostic::on_unimplemented(
    message = "a queue pair in state `{Self}` cannot post sends",
    label = "bring it to `Rts` first: from `Init` by `qp.connect(..)?` (on UD: `qp.activate(..)?`), from `Sqd` by `qp.resume(..)?`, from `Error` by `qp.reset()?` and onwards"
)]
pub trait CanPostSend: State {}

/// A state from which a queue pair can be moved to [`Error`]: all but [`Reset`].
#[diagnostic::on_unimplemented(
    message = "a queue pair in state `{Self}` cannot be moved to `Error`",
    label = "nothing is outstanding in `Reset`: drop the queue pair, or bring it to `Init` first"
)]
pub trait CanFail: State {}

/// The state `Target` itself: what a transition starts from.
#[diagnostic::on_unimplemented(
    message = "this step starts from state `{Target}`, and the queue pair is in `{Self}`",
    label = "bring it to `{Target}` first; `qp.reset()?` leads back to `Reset` from every state"
)]
pub trait Is<Target: State>: State {}

macro_rules! states {
    ($($(#[doc = $doc:literal])+ $state:ident = $value:ident: $($can:ident),*;)*) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, Copy)]
            pub enum $state {}

            impl State for $state {
                const STATE: QpState = QpState::$value;
            }

            impl sealed::Sealed for $state {}
            impl Is<$state> for $state {}

            $(impl $can for $state {})*
        )*
    };
}

mod sealed {
    pub trait Sealed {}
}

states! {
    /// New, or emptied: nothing can be posted.
    Reset = RESET: ;
    /// Bound to a port: receives can be posted, nothing arrives yet.
    Init = INIT: CanPostRecv, CanFail;
    /// Ready to receive.
    Rtr = RTR: CanPostRecv, CanFail;
    /// Ready to send. (The device may have moved the queue pair to the error state on its own: then posts succeed and
    /// complete with [`WcStatus::WR_FLUSH_ERR`](crate::WcStatus::WR_FLUSH_ERR), or are refused.)
    Rts = RTS: CanPostRecv, CanPostSend, CanFail;
    /// Its send queue is drained, or draining.
    Sqd = SQD: CanPostRecv, CanFail;
    /// Everything outstanding is flushed.
    Error = ERROR: CanPostRecv, CanFail;
}
