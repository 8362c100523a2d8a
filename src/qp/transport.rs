//! The transports, and what each can carry.

use std::convert::Infallible;
use std::marker::PhantomData;

use ibv_sys as sys;

use super::attr::{
    Attr, Connection, InitAttr, InitModifyAttr, RcModifyAttr, RcRtrAttr, RcRtsAttr, RcSqdAttr, UcModifyAttr,
    UcRtrAttr, UcRtsAttr, UcSqdAttr, UdInitAttr, UdInitModifyAttr, UdModifyAttr, UdRtrAttr, UdRtsAttr,
    UdSqdAttr,
};
use crate::error::Result;

/// A queue pair's transport: [`Rc`], [`Uc`] or [`Ud`]. It decides which requests exist, and what each step of the
/// state machine asks for.
pub trait Transport: sealed::Sealed + Send + Sync + 'static {
    /// Its name.
    const NAME: &'static str;
    #[doc(hidden)]
    const QP_TYPE: sys::ibv_qp_type;
    #[doc(hidden)]
    const SEND_OPS: u32;
    /// Those that not every device has.
    #[doc(hidden)]
    const OPTIONAL_OPS: u32;
    #[doc(hidden)]
    const DATAGRAM: bool;

    /// What [`init`](crate::QueuePair::init) asks for.
    type Init: Attr;
    /// What can be changed in `Init`.
    type InitModify: Attr;
    /// What [`rtr`](crate::QueuePair::rtr) asks for.
    type Rtr: Attr;
    /// What [`rts`](crate::QueuePair::rts) asks for.
    type Rts: Attr;
    /// What can be changed in `Rts`, and on the way back from `Sqd`.
    type RtsModify: Attr;
    /// What can be changed in `Sqd`.
    type SqdModify: Attr;
}

/// A transport with one peer per queue pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no peer of their own",
    label = "a UD send needs its destination: `send(..).to(&ah, qpn, qkey)`; and UD goes to `Rts` by `qp.activate(psn)?`"
)]
pub trait Connected: Transport {
    #[doc(hidden)]
    fn rtr(connection: &Connection) -> Result<Self::Rtr>;
    #[doc(hidden)]
    fn rts(connection: &Connection) -> Self::Rts;
}

/// A transport whose sends name their destination.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs are connected to one peer, and cannot send elsewhere",
    label = "leave out `.to(..)`; datagrams need a `QueuePair<Ud>`, which goes to `Rts` by `activate`"
)]
pub trait Datagram: Transport {
    #[doc(hidden)]
    fn rtr() -> Self::Rtr;
    #[doc(hidden)]
    fn rts(psn: u32) -> Self::Rts;
}

/// A transport with RDMA WRITE.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no RDMA WRITE",
    label = "use a `QueuePair<Rc>` or `QueuePair<Uc>`, or send the data"
)]
pub trait RdmaWrite: Transport {}

/// A transport with RDMA READ.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no RDMA READ",
    label = "use a `QueuePair<Rc>`, or let the peer send or write the data"
)]
pub trait RdmaRead: Transport {}

/// A transport with atomic operations.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no atomic operations",
    label = "use a `QueuePair<Rc>`"
)]
pub trait Atomics: Transport {}

/// A transport with SEND with invalidate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no SEND with invalidate",
    label = "use a `QueuePair<Rc>`, or send plainly and let the peer invalidate its window by `local_inv`"
)]
pub trait SendInvalidate: Transport {}

/// A transport whose peers can be given memory windows.
#[diagnostic::on_unimplemented(
    message = "`{Self}` queue pairs have no memory windows",
    label = "use a `QueuePair<Rc>` or `QueuePair<Uc>`"
)]
pub trait Windows: Transport {}

/// A transport whose queue pairs have receives of their own: all but [`WithSrq`].
#[diagnostic::on_unimplemented(
    message = "a queue pair of `{Self}` has no receives of its own",
    label = "post them on the `SharedReceiveQueue` that it was made with"
)]
pub trait OwnReceives: Transport {}

impl OwnReceives for Rc {}
impl OwnReceives for Uc {}
impl OwnReceives for Ud {}

/// A transport on which a failed send stops the send queue alone (state SQE).
#[diagnostic::on_unimplemented(
    message = "a failed send moves `{Self}` queue pairs to the error state, not to SQE",
    label = "lead it back by `qp.reset()?` and onwards"
)]
pub trait Unreliable: Transport {}

impl Unreliable for Uc {}
impl Unreliable for Ud {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Rc {}
    impl Sealed for super::Uc {}
    impl Sealed for super::Ud {}
    impl<T: super::OwnReceives> Sealed for super::WithSrq<T> {}
}

/// Reliable connection: each message arrives once and in order, or fails visibly. SEND, WRITE, READ, atomics, memory
/// windows.
#[derive(Debug, Clone, Copy)]
pub enum Rc {}

/// Unreliable connection: messages arrive in order, or are lost in silence. SEND, WRITE, memory windows.
#[derive(Debug, Clone, Copy)]
pub enum Uc {}

/// Unreliable datagram: messages of at most one MTU to any peer, or lost in silence. SEND.
#[derive(Debug, Clone, Copy)]
pub enum Ud {}

const SENDS: u32 = sys::IBV_QP_EX_WITH_SEND | sys::IBV_QP_EX_WITH_SEND_WITH_IMM;
const WRITES: u32 = sys::IBV_QP_EX_WITH_RDMA_WRITE | sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const WINDOWS: u32 = sys::IBV_QP_EX_WITH_BIND_MW | sys::IBV_QP_EX_WITH_LOCAL_INV;
const READS: u32 = sys::IBV_QP_EX_WITH_RDMA_READ;
pub(super) const ATOMICS: u32 =
    sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

impl Transport for Rc {
    const NAME: &'static str = "RC";
    const QP_TYPE: sys::ibv_qp_type = sys::IBV_QPT_RC;
    const SEND_OPS: u32 = SENDS | WRITES | READS | ATOMICS;
    const OPTIONAL_OPS: u32 = WINDOWS | sys::IBV_QP_EX_WITH_SEND_WITH_INV;
    const DATAGRAM: bool = false;
    type Init = InitAttr;
    type InitModify = InitModifyAttr;
    type Rtr = RcRtrAttr;
    type Rts = RcRtsAttr;
    type RtsModify = RcModifyAttr;
    type SqdModify = RcSqdAttr;
}

impl Connected for Rc {
    fn rtr(connection: &Connection) -> Result<RcRtrAttr> {
        connection.rc_rtr()
    }

    fn rts(connection: &Connection) -> RcRtsAttr {
        connection.rc_rts()
    }
}

impl RdmaWrite for Rc {}
impl RdmaRead for Rc {}
impl Atomics for Rc {}
impl SendInvalidate for Rc {}
impl Windows for Rc {}

impl Transport for Uc {
    const NAME: &'static str = "UC";
    const QP_TYPE: sys::ibv_qp_type = sys::IBV_QPT_UC;
    const SEND_OPS: u32 = SENDS | WRITES;
    const OPTIONAL_OPS: u32 = WINDOWS;
    const DATAGRAM: bool = false;
    type Init = InitAttr;
    type InitModify = InitModifyAttr;
    type Rtr = UcRtrAttr;
    type Rts = UcRtsAttr;
    type RtsModify = UcModifyAttr;
    type SqdModify = UcSqdAttr;
}

impl Connected for Uc {
    fn rtr(connection: &Connection) -> Result<UcRtrAttr> {
        connection.uc_rtr()
    }

    fn rts(connection: &Connection) -> UcRtsAttr {
        connection.uc_rts()
    }
}

impl RdmaWrite for Uc {}
impl Windows for Uc {}

impl Transport for Ud {
    const NAME: &'static str = "UD";
    const QP_TYPE: sys::ibv_qp_type = sys::IBV_QPT_UD;
    const SEND_OPS: u32 = SENDS;
    const OPTIONAL_OPS: u32 = 0;
    const DATAGRAM: bool = true;
    type Init = UdInitAttr;
    type InitModify = UdInitModifyAttr;
    type Rtr = UdRtrAttr;
    type Rts = UdRtsAttr;
    type RtsModify = UdModifyAttr;
    type SqdModify = UdSqdAttr;
}

impl Datagram for Ud {
    fn rtr() -> UdRtrAttr {
        UdRtrAttr::new()
    }

    fn rts(psn: u32) -> UdRtsAttr {
        UdRtsAttr::new(psn)
    }
}

/// Transport `T`, with receives from a [`SharedReceiveQueue`](crate::SharedReceiveQueue): made by
/// [`QueuePairBuilder::srq`](crate::QueuePairBuilder::srq).
///
/// # Examples
///
/// ```no_run
/// # use ibv::{MrSlice, PostError, QueuePair, Rc, WithSrq, send};
/// # fn f<'a>(qp: &QueuePair<'a, WithSrq<Rc>>, data: MrSlice<'a>) -> Result<(), PostError> {
/// qp.post(send(data).signaled()) // sends are as on `Rc`
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct WithSrq<T>(PhantomData<T>, Infallible);

impl<T: OwnReceives> Transport for WithSrq<T> {
    const NAME: &'static str = T::NAME;
    const QP_TYPE: sys::ibv_qp_type = T::QP_TYPE;
    const SEND_OPS: u32 = T::SEND_OPS;
    const OPTIONAL_OPS: u32 = T::OPTIONAL_OPS;
    const DATAGRAM: bool = T::DATAGRAM;
    type Init = T::Init;
    type InitModify = T::InitModify;
    type Rtr = T::Rtr;
    type Rts = T::Rts;
    type RtsModify = T::RtsModify;
    type SqdModify = T::SqdModify;
}

impl<T: OwnReceives + Connected> Connected for WithSrq<T> {
    fn rtr(connection: &Connection) -> Result<T::Rtr> {
        T::rtr(connection)
    }

    fn rts(connection: &Connection) -> T::Rts {
        T::rts(connection)
    }
}

impl<T: OwnReceives + Datagram> Datagram for WithSrq<T> {
    fn rtr() -> T::Rtr {
        T::rtr()
    }

    fn rts(psn: u32) -> T::Rts {
        T::rts(psn)
    }
}

macro_rules! as_without_srq {
    ($($what:ident)*) => {$(
        impl<T: OwnReceives + $what> $what for WithSrq<T> {}
    )*};
}

as_without_srq! { RdmaWrite RdmaRead Atomics SendInvalidate Windows Unreliable }
