//! What the tests on the null provider have in common.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test")]

use ibv::state::Init;
use ibv::{
    Basic, CompletionQueue, Connection, Context, Endpoint, Extended, Gid, InitAttr, ProtectionDomain,
    QueuePair, QueuePairBuilder, Rc, RemoteRegion, Transport, Uc, Ud, UdInitAttr,
};

/// The first of this thread's devices.
pub(crate) fn open() -> Context {
    Context::open("null0").unwrap()
}

/// The other one.
pub(crate) fn open_other() -> Context {
    Context::open("null1").unwrap()
}

/// A peer on RoCE.
pub(crate) fn peer() -> Endpoint {
    let gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]);
    Endpoint { lid: 0, qpn: 0x1234, psn: 0xabcdef, gid }
}

/// A connection to it.
pub(crate) fn connection(ctx: &Context) -> Connection {
    Connection::new(ctx.local_port(1).unwrap(), 0x123456, peer())
}

/// A region of the peer's.
pub(crate) const REMOTE: RemoteRegion = RemoteRegion { addr: 0x7000_0000_0000, len: 4096, rkey: 0x55aa };

macro_rules! queue_pairs {
    ($($name:ident: $transport:ident, $init:expr;)*) => {$(
        /// A queue pair of that transport in `Init`: 64 deep, 4 elements, 64 bytes inline.
        pub(crate) fn $name<'a>(
            pd: &'a ProtectionDomain<'a>,
            cq: &'a CompletionQueue<'a>,
        ) -> QueuePair<'a, $transport, Init> {
            let builder = pd.create_qp::<$transport>(cq, cq).send_depth(32).recv_depth(32);
            builder.send_sges(4).recv_sges(4).inline(64).build().unwrap().init($init).unwrap()
        }
    )*};
}

queue_pairs! {
    rc_init: Rc, InitAttr::new(1);
    uc_init: Uc, InitAttr::new(1);
    ud_init: Ud, UdInitAttr::new(1, 0x1111_1111);
}

pub(crate) fn rc<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) -> QueuePair<'a, Rc> {
    rc_init(pd, cq).connect(&connection(pd.context())).unwrap()
}

pub(crate) fn uc<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) -> QueuePair<'a, Uc> {
    uc_init(pd, cq).connect(&connection(pd.context())).unwrap()
}

pub(crate) fn ud<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) -> QueuePair<'a, Ud> {
    ud_init(pd, cq).activate(0x42).unwrap()
}

/// Posts go by `ibv_wr_*`, which are not known to be sound here.
#[expect(unsafe_code, reason = "trusting them is")]
pub(crate) fn trusted<T: Transport>(
    builder: QueuePairBuilder<'_, T, Extended>,
) -> QueuePairBuilder<'_, T, Extended> {
    // SAFETY: they do nothing but note it.
    unsafe { builder.trust_wr() }
}

pub(crate) fn rc_extended<'a>(
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
) -> QueuePair<'a, Rc, ibv::state::Rts, Extended> {
    let builder = trusted(pd.create_qp::<Rc>(cq, cq).send_sges(4).inline(64).extended());
    let qp = builder.build().unwrap().init(InitAttr::new(1)).unwrap();
    qp.connect(&connection(pd.context())).unwrap()
}

pub(crate) fn ud_extended<'a>(
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
) -> QueuePair<'a, Ud, ibv::state::Rts, Extended> {
    let builder = trusted(pd.create_qp::<Ud>(cq, cq).inline(64).extended());
    builder.build().unwrap().init(UdInitAttr::new(1, 0x11)).unwrap().activate(1).unwrap()
}

/// The basic backend is what a queue pair has if nothing is said.
pub(crate) fn is_basic<T: ibv::Transport, S: ibv::state::State>(_: &QueuePair<'_, T, S, Basic>) {}
