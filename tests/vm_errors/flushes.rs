//! Requests that are flushed, and queue pairs that have died.

use ibv::state::CanFail;
use ibv::{Inline, QpState, QueuePair, Rc, Uc, Ud, WcStatus, recv, send};

use crate::rig::{QKEY, connect, failure, next_of, quiet, scenario, success};

/// The ids that were flushed, of `count` completions.
fn flushed(cq: &ibv::CompletionQueue<'_>, count: usize) -> Vec<u64> {
    let wcs = next_of(cq, count);
    assert!(wcs.iter().all(|wc| wc.status() == WcStatus::WR_FLUSH_ERR), "{wcs:?}");
    wcs.iter().map(|wc| wc.id()).collect()
}

#[test]
fn everything_outstanding_is_flushed() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let [a, b] = parts.pair::<Rc>();
        for id in 0..4 {
            a.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
        }
        // the peer has no receive: these wait for ever
        for id in 10..13 {
            a.post(send(Inline(b"waits")).id(id)).unwrap();
        }
        let a = a.into_error().unwrap();
        assert_eq!(a.query().unwrap().state(), QpState::ERROR);
        let mut ids = flushed(&parts.a_cq, 7);
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 10, 11, 12], "errors complete visibly, signaled or not");
        // a receive that comes later is flushed as well
        // (by rxe only when something makes it look)
        a.post_recv(recv(to.slice(..).unwrap()).id(20)).unwrap();
        let a = a.into_error().unwrap();
        assert_eq!(flushed(&parts.a_cq, 1), [20]);
        quiet(&parts.a_cq);
        drop(a);
        drop(b);
    });
}

#[test]
fn receives_of_all_transports_are_flushed() {
    fn check<S: ibv::state::State + ibv::state::CanPostRecv + CanFail, T: ibv::OwnReceives>(
        parts: &crate::rig::Parts<'_>,
        qp: QueuePair<'_, T, S>,
    ) {
        for id in 0..3 {
            qp.post_recv(recv(ibv::Empty).id(id)).unwrap();
        }
        let qp = qp.into_error().unwrap();
        assert_eq!(flushed(&parts.a_cq, 3), [0, 1, 2]);
        drop(qp);
    }
    scenario(|rig| {
        let parts = rig.parts();
        let [rc, _] = parts.pair::<Rc>();
        check(&parts, rc);
        let [uc, _] = parts.pair::<Uc>();
        check(&parts, uc);
        let [ud, _] = parts.datagrams();
        check(&parts, ud);
    });
}

#[test]
fn a_reset_forgets_without_completing() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let [a, b] = parts.pair::<Rc>();
        a.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"waits")).signaled().id(2)).unwrap();
        let a = a.reset().unwrap();
        quiet(&parts.a_cq);
        // both start anew
        let b = b.reset().unwrap();
        let [a, b] = [a, b].map(|qp| qp.init(crate::rig::open_init(&rig.local)).unwrap());
        let [a, b] = connect(&rig.local, [a, b]);
        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        a.post(send(Inline(b"anew")).signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
        quiet(&parts.b_cq);
    });
}

#[test]
fn a_queue_pair_recovers_from_an_error() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.open(64);
        let [a, b] = parts.pair::<Rc>();
        let right = to.remote_region();
        let wrong = ibv::RemoteRegion { rkey: !right.rkey, ..right };
        a.post(ibv::write(Inline(b"?"), wrong.slice(..1).unwrap()).id(1)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::REM_ACCESS_ERR);
        let inits = [a, b].map(|qp| qp.reset().unwrap().init(crate::rig::open_init(&rig.local)).unwrap());
        let [a, b] = connect(&rig.local, inits);
        b.post_recv(recv(to.slice(..).unwrap()).id(2)).unwrap();
        a.post(send(Inline(b"back")).signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        success(&parts.b_cq, 2);
    });
}

#[test]
fn a_lossy_connection_drops_what_nobody_takes() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.pair::<Uc>();
        a.post(send(Inline(b"anybody?")).signaled().id(1)).unwrap();
        success(&parts.a_cq, 1);
        quiet(&parts.b_cq);
        b.post_recv(recv(ibv::Empty).id(2)).unwrap();
        a.post(send(Inline(b"")).signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        success(&parts.b_cq, 2);
    });
}

#[test]
fn a_datagram_to_nobody_is_no_error() {
    scenario(|rig| {
        let parts = rig.parts();
        let path = ibv::AddressVector::global(
            rig.local.port,
            ibv::Grh::new(rig.local.gid, rig.local.gid_index.unwrap()),
        );
        let ah = parts.pd.create_ah(&path).unwrap();
        let [a, _b] = parts.datagrams();
        a.post(send(Inline(b"?")).to(&ah, 0xff_fff0, QKEY).signaled().id(1)).unwrap();
        success(&parts.a_cq, 1);
        let _: &QueuePair<'_, Ud> = &a;
    });
}
