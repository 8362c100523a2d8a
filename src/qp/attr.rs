//! What each step of the state machine asks for (`struct ibv_qp_attr` with its mask), by transport.
//!
//! Required attributes are arguments of `new`, optional ones are methods. Which are which is the kernel's table
//! (`ib_core`, InfiniBand specification 10.3.1); a test holds every mask made here against it.
//!
//! Values are as in C: times are codes, whose meaning each method says; a value out of its range is an
//! [`Error::Limit`](crate::Error::Limit) of the transition that it is given to.
//!
//! # Examples
//!
//! ```no_run
//! # use ibv::{AddressVector, Mtu, QueuePair, Rc, state::Reset};
//! use ibv::qp::attr::{InitAttr, RcRtrAttr, RcRtsAttr};
//!
//! # fn f<'a>(
//! #     qp: QueuePair<'a, Rc, Reset>, path: AddressVector, qpn: u32, their_psn: u32, our_psn: u32,
//! # ) -> Result<QueuePair<'a>, ibv::Error> {
//! let qp = qp.init(InitAttr::new(1).pkey_index(0))?;
//! let qp = qp.rtr(RcRtrAttr::new(&path, Mtu::B1024, qpn, their_psn).max_dest_rd_atomic(4))?;
//! let qp = qp.rts(RcRtsAttr::new(our_psn).timeout(14).retry_cnt(3).max_rd_atomic(4))?;
//! # Ok(qp)
//! # }
//! ```

use std::fmt;

use ibv_sys as sys;

use super::change::Change;
use crate::addr::{AddressVector, Endpoint, LocalPort, Mtu};
use crate::error::Result;
use crate::mr::RemoteAccess;

// What is not said is what the `ibv_*_pingpong` programs have, but for the retry count: rxe takes 7 to mean for ever.
const RD_ATOMIC: u8 = 1;
const MIN_RNR_TIMER: u8 = 12;
const TIMEOUT: u8 = 14;
const RETRY_CNT: u8 = 6;
const RNR_RETRY: u8 = 7;

/// The attributes of one step.
pub trait Attr: sealed::IntoChange {}

mod sealed {
    pub trait IntoChange {
        fn change(&self) -> &super::Change;
    }
}

pub(crate) fn change_of(attr: &impl Attr) -> Change {
    *attr.change()
}

macro_rules! setter {
    (access) => {
        /// What the peer may do through this queue pair with the memory that its region allows it; nothing if not said.
        pub fn access(mut self, access: RemoteAccess) -> Self {
            self.0.access(access);
            self
        }
    };
    (pkey_index) => {
        /// Index into the port's P_Key table; 0 if not said.
        pub fn pkey_index(mut self, index: u16) -> Self {
            self.0.pkey_index(index);
            self
        }
    };
    (port) => {
        /// The port, from 1.
        pub fn port(mut self, port: u8) -> Self {
            self.0.port(port);
            self
        }
    };
    (qkey) => {
        /// The Q_Key that datagrams must carry to be accepted.
        pub fn qkey(mut self, qkey: u32) -> Self {
            self.0.qkey(qkey);
            self
        }
    };
    (address) => {
        /// Another path to the peer.
        pub fn address(mut self, path: &AddressVector) -> Self {
            self.0.address(path);
            self
        }
    };
    (max_dest_rd_atomic) => {
        /// READs and atomics of the peer that are answered at once; 1 if not said.
        pub fn max_dest_rd_atomic(mut self, count: u8) -> Self {
            self.0.max_dest_rd_atomic(count);
            self
        }
    };
    (max_rd_atomic) => {
        /// READs and atomics under way at once, at most the peer's `max_dest_rd_atomic`; 1 if not said.
        pub fn max_rd_atomic(mut self, count: u8) -> Self {
            self.0.max_rd_atomic(count);
            self
        }
    };
    (min_rnr_timer) => {
        /// How long the peer waits before it tries again when no receive was posted: a code from 1 (0.01 ms) to 31
        /// (491 ms), 0 being 655 ms; 12 (0.64 ms) if not said.
        pub fn min_rnr_timer(mut self, code: u8) -> Self {
            self.0.min_rnr_timer(code);
            self
        }
    };
    (timeout) => {
        /// How long to wait for an acknowledgement before sending again: 4.096 µs · 2^code, 0 for ever, at most 31;
        /// 14 (67 ms) if not said. Devices may take up to four times as long.
        pub fn timeout(mut self, code: u8) -> Self {
            self.0.timeout(code);
            self
        }
    };
    (retry_cnt) => {
        /// How often to send again what was not acknowledged before giving up, at most 7; 6 if not said, since
        /// Soft-RoCE takes 7 to mean for ever, where the specification means 7 times. Then the request fails with
        /// [`WcStatus::RETRY_EXC_ERR`](crate::WcStatus::RETRY_EXC_ERR).
        pub fn retry_cnt(mut self, count: u8) -> Self {
            self.0.retry_cnt(count);
            self
        }
    };
    (rnr_retry) => {
        /// How often to try again when the peer has no receive posted, each time after its `min_rnr_timer`; 7 means for
        /// ever, and is what it is if not said. With less, the request fails with
        /// [`WcStatus::RNR_RETRY_EXC_ERR`](crate::WcStatus::RNR_RETRY_EXC_ERR) in the end.
        pub fn rnr_retry(mut self, count: u8) -> Self {
            self.0.rnr_retry(count);
            self
        }
    };
    (alt_path) => {
        /// The path that is taken when the first one fails, where the device can change over; `timeout` is a code as
        /// that of [`RcRtsAttr::timeout`].
        pub fn alt_path(mut self, path: &AddressVector, pkey_index: u16, timeout: u8) -> Self {
            self.0.alt_path(path, pkey_index, timeout);
            self
        }
    };
    (path_mig_state) => {
        /// State of path migration.
        pub fn path_mig_state(mut self, state: PathMigState) -> Self {
            self.0.path_mig_state(state.0);
            self
        }
    };
}

macro_rules! attrs {
    ($($(#[doc = $doc:literal])+ $name:ident($($arg:ident: $type:ty => $set:ident),*) { $($default:ident($value:expr)),* }
        $($setter:ident)*;)*) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy)]
        #[must_use]
        pub struct $name(Change);

        impl $name {
            #[doc = concat!("`struct ibv_qp_attr`—With the required attributes (", stringify!($($arg),*), "), if there are any.")]
            #[allow(clippy::new_without_default, reason = "some have no required attribute")]
            pub fn new($($arg: $type),*) -> Self {
                #[allow(unused_mut, reason = "some have no attribute")]
                let mut change = Change::default();
                $(change.$set($arg);)*
                $(change.$default($value);)*
                Self(change)
            }

            $(setter!($setter);)*
        }

        impl Attr for $name {}

        impl sealed::IntoChange for $name {
            fn change(&self) -> &Change {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), self.0)
            }
        }
    )*};
}

attrs! {
    /// RC and UC, Reset → Init.
    InitAttr(port: u8 => port) { pkey_index(0), access(RemoteAccess::empty()) }
        access pkey_index;
    /// UD, Reset → Init.
    UdInitAttr(port: u8 => port, qkey: u32 => qkey) { pkey_index(0) }
        pkey_index;
    /// RC and UC, changes in Init.
    InitModifyAttr() {}
        access pkey_index port;
    /// UD, changes in Init.
    UdInitModifyAttr() {}
        pkey_index port qkey;
    /// RC, Init → Rtr.
    RcRtrAttr(path: &AddressVector => address, mtu: Mtu => path_mtu, dest_qpn: u32 => dest_qpn, rq_psn: u32 => rq_psn)
        { max_dest_rd_atomic(RD_ATOMIC), min_rnr_timer(MIN_RNR_TIMER) }
        max_dest_rd_atomic min_rnr_timer access pkey_index alt_path;
    /// UC, Init → Rtr.
    UcRtrAttr(path: &AddressVector => address, mtu: Mtu => path_mtu, dest_qpn: u32 => dest_qpn, rq_psn: u32 => rq_psn) {}
        access pkey_index alt_path;
    /// UD, Init → Rtr.
    UdRtrAttr() {}
        pkey_index qkey;
    /// RC, Rtr → Rts.
    RcRtsAttr(sq_psn: u32 => sq_psn) { timeout(TIMEOUT), retry_cnt(RETRY_CNT), rnr_retry(RNR_RETRY), max_rd_atomic(RD_ATOMIC) }
        timeout retry_cnt rnr_retry max_rd_atomic access min_rnr_timer alt_path path_mig_state;
    /// UC, Rtr → Rts.
    UcRtsAttr(sq_psn: u32 => sq_psn) {}
        access alt_path path_mig_state;
    /// UD, Rtr → Rts.
    UdRtsAttr(sq_psn: u32 => sq_psn) {}
        qkey;
    /// RC, changes in Rts, and Sqd → Rts.
    RcModifyAttr() {}
        access min_rnr_timer alt_path path_mig_state;
    /// UC, changes in Rts, and Sqd → Rts.
    UcModifyAttr() {}
        access alt_path path_mig_state;
    /// UD, changes in Rts, and Sqd → Rts.
    UdModifyAttr() {}
        qkey;
    /// RC, changes in Sqd.
    RcSqdAttr() {}
        port address timeout retry_cnt rnr_retry max_rd_atomic max_dest_rd_atomic access pkey_index min_rnr_timer
        alt_path path_mig_state;
    /// UC, changes in Sqd.
    UcSqdAttr() {}
        address access pkey_index alt_path path_mig_state;
    /// UD, changes in Sqd.
    UdSqdAttr() {}
        pkey_index qkey;
}

/// State of path migration (`enum ibv_mig_state`).
#[doc(alias = "ibv_mig_state")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathMigState(pub sys::ibv_mig_state);

impl PathMigState {
    /// On the path that counts.
    pub const MIGRATED: Self = Self(sys::IBV_MIG_MIGRATED);
    /// Asks for the alternate path to be made ready.
    pub const REARM: Self = Self(sys::IBV_MIG_REARM);
    /// Ready to change over.
    pub const ARMED: Self = Self(sys::IBV_MIG_ARMED);
}

/// All that takes an RC or UC queue pair from `Init` to `Rts`; see [`QueuePair::connect`](crate::QueuePair::connect).
///
/// What is not said is as the `ibv_*_pingpong` programs have it, but for the MTU, which is the port's own, the hop
/// limit, which is that of [`Grh::new`](crate::Grh::new), and the retry count, which is 6.
///
/// # When a request has to wait
///
/// Requests of a queue pair are done in order, so one that waits holds up all that come after it.
///
/// * **A message that finds no receive waits for ever**, unless [`rnr_retry`](Self::rnr_retry) is made less than 7: a
///   SEND, or a WRITE with immediate data, to a peer that has posted no receive, or not enough. It does not complete,
///   nor fail; it is tried again and again until the peer posts one. A program that seems to hang, without an error,
///   has often forgotten that. Post receives before the peer can send, which is before `connect`: `Init` is enough.
/// * A peer that does not answer is given up after [`retry_cnt`](Self::retry_cnt) tries more, a
///   [`timeout`](Self::timeout) apart: (6 + 1) · 67 ms is about half a second if nothing is said, up to four times as
///   long on some devices. Then the request fails with [`WcStatus::RETRY_EXC_ERR`](crate::WcStatus::RETRY_EXC_ERR), the
///   queue pair goes to the error state, and all other requests are flushed. A timeout of 0 waits for ever. An address,
///   a queue pair number or a PSN that is wrong looks like a peer that does not answer, since such packets are dropped;
///   so does a peer that is not yet connected itself.
/// * None of this is for UC, which acknowledges nothing: what finds no receive, or is lost, is gone, and the sender's
///   completion says success.
///
/// # Examples
///
/// ```no_run
/// # use ibv::{Connection, Endpoint, LocalPort, Mtu};
/// # fn f(local: LocalPort, psn: u32, peer: Endpoint) -> Connection {
/// Connection::new(local, psn, peer).mtu(Mtu::B1024).max_rd_atomic(4).max_dest_rd_atomic(4).timeout(18)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Connection {
    local: LocalPort,
    psn: u32,
    peer: Endpoint,
    mtu: Mtu,
    sl: u8,
    max_dest_rd_atomic: u8,
    max_rd_atomic: u8,
    min_rnr_timer: u8,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
}

impl Connection {
    /// From `local`, with `psn` for our first packet (the peer was told it in our [`Endpoint`]), to `peer`.
    pub fn new(local: LocalPort, psn: u32, peer: Endpoint) -> Self {
        Self {
            local,
            psn,
            peer,
            mtu: local.mtu,
            sl: 0,
            max_dest_rd_atomic: RD_ATOMIC,
            max_rd_atomic: RD_ATOMIC,
            min_rnr_timer: MIN_RNR_TIMER,
            timeout: TIMEOUT,
            retry_cnt: RETRY_CNT,
            rnr_retry: RNR_RETRY,
        }
    }

    /// The path MTU, which both sides must agree on; that of the local port if not said.
    pub fn mtu(mut self, mtu: Mtu) -> Self {
        self.mtu = mtu;
        self
    }

    /// Service level, 0 to 15; 0 if not said.
    pub fn sl(mut self, sl: u8) -> Self {
        self.sl = sl;
        self
    }

    /// As [`RcRtsAttr::max_rd_atomic`].
    pub fn max_rd_atomic(mut self, count: u8) -> Self {
        self.max_rd_atomic = count;
        self
    }

    /// As [`RcRtrAttr::max_dest_rd_atomic`].
    pub fn max_dest_rd_atomic(mut self, count: u8) -> Self {
        self.max_dest_rd_atomic = count;
        self
    }

    /// As [`RcRtrAttr::min_rnr_timer`].
    pub fn min_rnr_timer(mut self, code: u8) -> Self {
        self.min_rnr_timer = code;
        self
    }

    /// As [`RcRtsAttr::timeout`].
    pub fn timeout(mut self, code: u8) -> Self {
        self.timeout = code;
        self
    }

    /// As [`RcRtsAttr::retry_cnt`].
    pub fn retry_cnt(mut self, count: u8) -> Self {
        self.retry_cnt = count;
        self
    }

    /// As [`RcRtsAttr::rnr_retry`].
    pub fn rnr_retry(mut self, count: u8) -> Self {
        self.rnr_retry = count;
        self
    }

    fn path(&self) -> Result<AddressVector> {
        Ok(AddressVector::to_peer(&self.local, &self.peer)?.sl(self.sl))
    }

    pub(super) fn rc_rtr(&self) -> Result<RcRtrAttr> {
        Ok(RcRtrAttr::new(&self.path()?, self.mtu, self.peer.qpn, self.peer.psn)
            .max_dest_rd_atomic(self.max_dest_rd_atomic)
            .min_rnr_timer(self.min_rnr_timer))
    }

    pub(super) fn uc_rtr(&self) -> Result<UcRtrAttr> {
        Ok(UcRtrAttr::new(&self.path()?, self.mtu, self.peer.qpn, self.peer.psn))
    }

    pub(super) fn rc_rts(&self) -> RcRtsAttr {
        RcRtsAttr::new(self.psn)
            .timeout(self.timeout)
            .retry_cnt(self.retry_cnt)
            .rnr_retry(self.rnr_retry)
            .max_rd_atomic(self.max_rd_atomic)
    }

    pub(super) fn uc_rts(&self) -> UcRtsAttr {
        UcRtsAttr::new(self.psn)
    }
}
