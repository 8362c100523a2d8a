//! Every legal transition, with what the device says of the state after each.

use std::thread;
use std::time::{Duration, Instant};

use ibv::qp::attr::{
    InitModifyAttr, PathMigState, RcModifyAttr, RcRtrAttr, RcRtsAttr, RcSqdAttr, UcModifyAttr, UcRtrAttr,
    UcRtsAttr, UcSqdAttr, UdInitModifyAttr, UdModifyAttr, UdRtrAttr, UdRtsAttr, UdSqdAttr,
};
use ibv::state::{Init, Reset, Rtr, Rts, Sqd, State};
use ibv::{
    AddressVector, Inline, LocalPort, Mtu, QpState, QueuePair, Rc, RemoteAccess, Transport, Uc, Ud,
    UdInitAttr, recv, send,
};

use crate::rig::{Parts, Rig, all_access, open_init, scenario, success};

/// What each step asks for, with all optional attributes but an alternate path: the kernel has that on InfiniBand
/// alone.
trait Steps: Transport {
    fn init(local: &LocalPort) -> Self::Init;
    fn init_modify(local: &LocalPort) -> Self::InitModify;
    fn rtr(local: &LocalPort, peer: u32) -> Self::Rtr;
    fn rts() -> Self::Rts;
    fn rts_modify() -> Self::RtsModify;
    fn sqd_modify(local: &LocalPort) -> Self::SqdModify;
}

fn path(local: &LocalPort) -> AddressVector {
    AddressVector::to_peer(local, &ibv::Endpoint { lid: local.lid, qpn: 0, psn: 0, gid: local.gid }).unwrap()
}

impl Steps for Rc {
    fn init(local: &LocalPort) -> ibv::InitAttr {
        open_init(local).pkey_index(0)
    }

    fn init_modify(local: &LocalPort) -> InitModifyAttr {
        InitModifyAttr::new().port(local.port).pkey_index(0).access(all_access())
    }

    fn rtr(local: &LocalPort, peer: u32) -> RcRtrAttr {
        let attr = RcRtrAttr::new(&path(local), Mtu::B1024, peer, 5).max_dest_rd_atomic(4).min_rnr_timer(3);
        attr.access(all_access()).pkey_index(0)
    }

    fn rts() -> RcRtsAttr {
        RcRtsAttr::new(5)
            .timeout(12)
            .retry_cnt(6)
            .rnr_retry(5)
            .max_rd_atomic(4)
            .access(all_access())
            .min_rnr_timer(4)
    }

    fn rts_modify() -> RcModifyAttr {
        RcModifyAttr::new().access(RemoteAccess::READ).min_rnr_timer(5)
    }

    fn sqd_modify(local: &LocalPort) -> RcSqdAttr {
        let attr =
            RcSqdAttr::new().address(&path(local)).port(local.port).timeout(13).retry_cnt(5).rnr_retry(4);
        let attr =
            attr.max_rd_atomic(2).max_dest_rd_atomic(2).access(all_access()).pkey_index(0).min_rnr_timer(6);
        attr.path_mig_state(PathMigState::REARM)
    }
}

impl Steps for Uc {
    fn init(local: &LocalPort) -> ibv::InitAttr {
        open_init(local)
    }

    fn init_modify(local: &LocalPort) -> InitModifyAttr {
        InitModifyAttr::new().port(local.port).pkey_index(0).access(RemoteAccess::WRITE)
    }

    fn rtr(local: &LocalPort, peer: u32) -> UcRtrAttr {
        let attr = UcRtrAttr::new(&path(local), Mtu::B1024, peer, 5);
        attr.access(all_access()).pkey_index(0)
    }

    fn rts() -> UcRtsAttr {
        UcRtsAttr::new(5).access(all_access()).path_mig_state(PathMigState::REARM)
    }

    fn rts_modify() -> UcModifyAttr {
        UcModifyAttr::new().access(RemoteAccess::WRITE)
    }

    fn sqd_modify(_: &LocalPort) -> UcSqdAttr {
        // no path: the kernel adds the port to that, which its own table does not allow on UC
        UcSqdAttr::new().access(all_access()).pkey_index(0).path_mig_state(PathMigState::MIGRATED)
    }
}

impl Steps for Ud {
    fn init(local: &LocalPort) -> UdInitAttr {
        UdInitAttr::new(local.port, 7).pkey_index(0)
    }

    fn init_modify(local: &LocalPort) -> UdInitModifyAttr {
        UdInitModifyAttr::new().port(local.port).pkey_index(0).qkey(8)
    }

    fn rtr(_: &LocalPort, _: u32) -> UdRtrAttr {
        UdRtrAttr::new().pkey_index(0).qkey(9)
    }

    fn rts() -> UdRtsAttr {
        UdRtsAttr::new(5).qkey(10)
    }

    fn rts_modify() -> UdModifyAttr {
        UdModifyAttr::new().qkey(11)
    }

    fn sqd_modify(_: &LocalPort) -> UdSqdAttr {
        UdSqdAttr::new().pkey_index(0).qkey(12)
    }
}

/// The device agrees with the type.
fn really<'p, T: Transport, S: State>(qp: QueuePair<'p, T, S>) -> QueuePair<'p, T, S> {
    assert_eq!((qp.state(), qp.query().unwrap().state()), (S::STATE, S::STATE), "{qp:?}");
    qp
}

/// Once the send queue has run dry.
fn drained<T: Transport>(qp: QueuePair<'_, T, Sqd>) -> QueuePair<'_, T, Sqd> {
    let start = Instant::now();
    while qp.query().unwrap().is_draining() {
        assert!(start.elapsed() < Duration::from_secs(10), "nothing is under way");
        thread::yield_now();
    }
    qp
}

/// Where each walk starts.
struct Start<'p>(&'p Parts<'p>);

impl<'p> Start<'p> {
    fn reset<T: Steps>(&self) -> QueuePair<'p, T, Reset> {
        self.0.sweep();
        really(self.0.a_builder().build().unwrap())
    }

    fn init<T: Steps>(&self) -> QueuePair<'p, T, Init> {
        really(self.reset().init(T::init(&self.0.local)).unwrap())
    }

    fn rtr<T: Steps>(&self) -> QueuePair<'p, T, Rtr> {
        let qp = self.init();
        let peer = qp.qp_num();
        really(qp.rtr(T::rtr(&self.0.local, peer)).unwrap())
    }

    fn rts<T: Steps>(&self) -> QueuePair<'p, T, Rts> {
        really(self.rtr().rts(T::rts()).unwrap())
    }

    fn sqd<T: Steps>(&self) -> QueuePair<'p, T, Sqd> {
        really(drained(self.rts().sqd(false).unwrap()))
    }
}

fn walk_all<T: Steps>(rig: &Rig) {
    let parts = rig.parts();
    let from = Start(&parts);
    let local = &rig.local;

    really(from.reset::<T>().reset().unwrap());

    let mut qp = from.init::<T>();
    qp.modify_init(&T::init_modify(local)).unwrap();
    let qp = really(really(qp).reset().unwrap());
    really(qp.init(T::init(local)).unwrap());
    let qp = really(from.init::<T>().into_error().unwrap());
    let qp = really(qp.into_error().unwrap());
    really(really(qp.reset().unwrap()).init(T::init(local)).unwrap());

    really(from.rtr::<T>().reset().unwrap());
    really(from.rtr::<T>().into_error().unwrap());

    let mut qp = from.rts::<T>();
    qp.modify(&T::rts_modify()).unwrap();
    really(really(qp).reset().unwrap());
    really(from.rts::<T>().into_error().unwrap());

    let mut qp = from.sqd::<T>();
    qp.modify_drained(&T::sqd_modify(local)).unwrap();
    // rxe of 6.12 takes a change for another request to drain
    let qp = really(drained(really(qp)).resume(T::rts_modify()).unwrap());
    let qp = really(qp.sqd(true).unwrap());
    really(really(qp.into_error().unwrap()).reset().unwrap());
    really(from.sqd::<T>().reset().unwrap());
}

#[test]
fn rc() {
    scenario(walk_all::<Rc>);
}

#[test]
fn uc() {
    scenario(walk_all::<Uc>);
}

#[test]
fn ud() {
    scenario(walk_all::<Ud>);
}

#[test]
fn what_was_set_is_what_is_there() {
    scenario(|rig| {
        let parts = rig.parts();
        let qp = Start(&parts).rts::<Rc>();
        let attr = qp.query().unwrap();
        assert_eq!(attr.path_mtu(), Mtu::B1024);
        assert_eq!(attr.dest_qpn(), qp.qp_num());
        assert_eq!(attr.port(), rig.local.port);
        assert_eq!((attr.retry_cnt(), attr.rnr_retry()), (6, 5));
        assert!(!attr.signals_all());
        let caps = attr.caps();
        assert!(caps.send_depth >= 16 && caps.recv_depth >= 16 && caps.inline >= 64, "{caps:?}");
        assert!(caps.send_sges >= 4 && caps.recv_sges >= 4, "{caps:?}");
    });
}

#[test]
fn a_drained_queue_pair_goes_on_where_it_was() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.pair::<Rc>();
        for id in 0..2 {
            b.post_recv(recv(ibv::Empty).id(id)).unwrap();
        }
        a.post(send(Inline(b"")).signaled().id(0)).unwrap();
        success(&parts.a_cq, 0);
        let a = really(drained(a.sqd(false).unwrap()));
        let a = really(a.resume(RcModifyAttr::new()).unwrap());
        a.post(send(Inline(b"")).signaled().id(1)).unwrap();
        success(&parts.a_cq, 1);
        success(&parts.b_cq, 0);
        success(&parts.b_cq, 1);
    });
}

#[test]
fn only_a_send_error_can_be_resumed_from() {
    fn refuses<T: Steps + ibv::Unreliable>(parts: &Parts<'_>) {
        let mut qp = Start(parts).rts::<T>();
        assert!(qp.resume_after_send_error().is_err(), "{}", T::NAME);
        really(qp);
    }
    scenario(|rig| {
        let parts = rig.parts();
        refuses::<Uc>(&parts);
        refuses::<Ud>(&parts);

        // nor from the error state, which a wrong claim would take rxe out of
        parts.sweep();
        let mut qp = Start(&parts).rts::<Uc>();
        into_error_behind_its_back(&qp);
        assert!(matches!(qp.resume_after_send_error(), Err(ibv::Error::Invalid { .. })));
        assert_eq!(qp.query().unwrap().state(), QpState::ERROR);
    });
}

/// As a device does it, though rxe has no reason to on UC: the type does not notice.
fn into_error_behind_its_back(qp: &QueuePair<'_, Uc>) {
    let mut attr = ibv::sys::ibv_qp_attr { qp_state: ibv::sys::IBV_QPS_ERR, ..Default::default() };
    #[expect(unsafe_code, reason = "the safe way changes the type as well")]
    // SAFETY: the queue pair is alive, and `attr` is only read.
    let result =
        unsafe { ibv::sys::ibv_modify_qp(qp.as_ptr(), &raw mut attr, ibv::sys::IBV_QP_STATE as i32) };
    assert_eq!(result, 0);
}
