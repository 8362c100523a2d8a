//! Errors with the statuses, counts and states that the specification says, and those of injected faults.

use ibv::{Connection, Inline, QpState, QueuePair, Rc, WcStatus, read, recv, send, write};

use crate::rig::{
    Parts, connect_with, contents, failure, hca, is_stepped, next_of, pattern, quiet, scenario, success,
};

/// Both queue pairs' states.
fn states(pair: [&QueuePair<'_, Rc>; 2]) -> [QpState; 2] {
    pair.map(|qp| qp.query().unwrap().state())
}

/// A connected pair with other retries than usual.
fn pair_with<'p>(parts: &'p Parts<'p>, change: impl Fn(Connection) -> Connection) -> [QueuePair<'p, Rc>; 2] {
    let [a, b] = parts.inits::<Rc>();
    connect_with(&parts.local, a, b, change).into()
}

#[test]
fn too_long_a_message_is_an_error_of_length_and_an_invalid_request() {
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(100, 1), parts.zeros(100));
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(to.slice(..99).unwrap()).id(1)).unwrap();
        b.post_recv(recv(to.slice(..).unwrap()).id(2)).unwrap();
        a.post(send(from.slice(..).unwrap()).id(3)).unwrap();
        assert_eq!(failure(&parts.b_cq, 1), WcStatus::LOC_LEN_ERR);
        assert_eq!(failure(&parts.a_cq, 3), WcStatus::REM_INV_REQ_ERR);
        assert_eq!(failure(&parts.b_cq, 2), WcStatus::WR_FLUSH_ERR);
        assert_eq!(states([&a, &b]), [QpState::ERROR; 2]);
        a.post(send(Inline(b"late")).id(4)).unwrap();
        assert_eq!(failure(&parts.a_cq, 4), WcStatus::WR_FLUSH_ERR);
    });
}

#[test]
fn a_refused_access_ends_both_sides() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.filled(64, 1), parts.open(64));
        let right = theirs.remote_region();
        let wrong = ibv::RemoteRegion { rkey: right.rkey ^ 1, ..right }.slice(..64).unwrap();
        for request in 0..2 {
            let [a, b] = parts.pair::<Rc>();
            b.post_recv(recv(ibv::Empty).id(1)).unwrap();
            let here = ours.slice(..).unwrap();
            match request {
                0 => a.post(write(here, wrong).id(2)),
                _ => a.post(read(here, wrong).id(2)),
            }
            .unwrap();
            assert_eq!(failure(&parts.a_cq, 2), WcStatus::REM_ACCESS_ERR);
            assert_eq!(failure(&parts.b_cq, 1), WcStatus::WR_FLUSH_ERR);
            assert_eq!(states([&a, &b]), [QpState::ERROR; 2]);
        }
        assert_eq!((contents(&ours), contents(&theirs)), (pattern(64, 1), vec![0; 64]));
    });
}

#[test]
fn memory_of_another_domain_is_protected_on_either_side() {
    scenario(|rig| {
        let other = rig.ctx.alloc_pd().unwrap();
        let foreign = other.alloc_local(64).unwrap();
        let parts = rig.parts();
        let [a, b] = parts.pair::<Rc>();
        a.post(send(foreign.slice(..).unwrap()).id(1)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::LOC_PROT_ERR);
        assert_eq!(states([&a, &b]), [QpState::ERROR, QpState::RTS], "the peer saw nothing of it");
        drop((a, b));

        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(foreign.slice(..).unwrap()).id(2)).unwrap();
        a.post(send(Inline(b"not there")).id(3)).unwrap();
        assert_eq!(failure(&parts.b_cq, 2), WcStatus::LOC_PROT_ERR);
        assert_eq!(failure(&parts.a_cq, 3), WcStatus::REM_OP_ERR);
        assert_eq!(states([&a, &b]), [QpState::ERROR; 2]);
        assert_eq!(contents(&foreign), [0; 64]);
    });
}

#[test]
fn a_missing_receive_is_waited_for_as_often_as_asked() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = pair_with(&parts, |connection| connection.rnr_retry(2).min_rnr_timer(1));
        let before = hca().stats().rnr_naks;
        a.post(send(Inline(b"anybody?")).id(1)).unwrap();
        a.post(send(Inline(b"anybody else?")).id(2)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::RNR_RETRY_EXC_ERR);
        assert_eq!(failure(&parts.a_cq, 2), WcStatus::WR_FLUSH_ERR);
        assert_eq!(hca().stats().rnr_naks - before, 3, "once, and twice again");
        assert_eq!(states([&a, &b]), [QpState::ERROR, QpState::RTS]);
    });
}

#[test]
fn a_receive_that_comes_late_is_in_time() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(8);
        let [a, b] = pair_with(&parts, |connection| connection.rnr_retry(7).min_rnr_timer(1));
        a.post(send(Inline(b"at last!")).signaled().id(1)).unwrap();
        quiet(&parts.a_cq);
        b.post_recv(recv(to.slice(..).unwrap()).id(2)).unwrap();
        success(&parts.a_cq, 1);
        success(&parts.b_cq, 2);
        assert_eq!(&contents(&to), b"at last!");
    });
}

#[test]
fn a_lost_message_is_sent_again_and_a_dead_network_given_up() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let quick = |connection: Connection| connection.timeout(8).retry_cnt(3);
        let [a, b] = pair_with(&parts, quick);
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        let before = hca().stats().retries;
        hca().drop_message(1);
        a.post(send(Inline(b"twice")).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        quiet(&parts.b_cq);
        assert_eq!(&contents(&to)[..5], b"twice");
        assert_eq!(hca().stats().retries - before, 1);

        hca().lose_messages(1_000_000, 1);
        a.post(send(Inline(b"never")).id(3)).unwrap();
        a.post(send(Inline(b"ever")).id(4)).unwrap();
        let status = failure(&parts.a_cq, 3);
        hca().lose_messages(0, 1);
        assert_eq!(status, WcStatus::RETRY_EXC_ERR);
        assert_eq!(failure(&parts.a_cq, 4), WcStatus::WR_FLUSH_ERR);
        if is_stepped() {
            assert_eq!(hca().stats().retries - before, 1 + 3);
        }
        assert_eq!(states([&a, &b]), [QpState::ERROR, QpState::RTS]);
    });
}

#[test]
fn a_lossy_network_loses_nothing_for_good() {
    const COUNT: usize = 200;
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(512, 1), parts.open(512));
        let [a, b] = pair_with(&parts, |connection| connection.timeout(6).retry_cnt(7));
        let before = hca().stats().faults;
        hca().lose_messages(100_000, 7);
        for id in 0..COUNT {
            let part = id..id + 50;
            b.post_recv(recv(to.slice(part.clone()).unwrap()).id(id as u64)).unwrap();
            a.post(send(from.slice(part.clone()).unwrap()).signaled().id(id as u64)).unwrap();
            success(&parts.a_cq, id as u64);
            success(&parts.b_cq, id as u64);
        }
        hca().lose_messages(0, 0);
        assert!(hca().stats().faults > before);
        assert_eq!(contents(&to)[..COUNT + 49], pattern(512, 1)[..COUNT + 49]);
    });
}

#[test]
fn a_device_that_gives_up_a_queue_pair_flushes_it() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, _b] = parts.pair::<Rc>();
        for id in 0..3 {
            a.post_recv(recv(ibv::Empty).id(id)).unwrap();
        }
        hca().fail_qp(a.qp_num());
        let wcs = next_of(&parts.a_cq, 3);
        assert!(wcs.iter().all(|wc| wc.status() == WcStatus::WR_FLUSH_ERR), "{wcs:?}");
        assert_eq!(a.query().unwrap().state(), QpState::ERROR);
    });
}

#[test]
fn a_failing_verb_gives_its_errno_and_leaves_nothing() {
    scenario(|rig| {
        let parts = rig.parts();
        for (name, make) in [
            ("ibv_reg_mr", &(|| parts.pd.alloc_local(64).map(drop)) as &dyn Fn() -> ibv::Result<()>),
            ("ibv_create_cq", &|| rig.ctx.create_cq(16).map(drop)),
            ("ibv_alloc_pd", &|| rig.ctx.alloc_pd().map(drop)),
        ] {
            hca().fail_verb(1, libc::ENOMEM);
            let error = make().unwrap_err();
            assert_eq!(error.errno(), Some(libc::ENOMEM), "{error}");
            assert!(error.to_string().contains(name), "{error}");
            make().unwrap();
        }
    });
}
