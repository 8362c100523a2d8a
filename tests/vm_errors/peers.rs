//! Peers that are not there, or no longer.

use ibv::{Connection, Empty, Endpoint, Inline, QpState, Rc, WcStatus, random_psn, recv, send};

use crate::child::{Child, is_child, listen, tell};
use crate::leaks::Counts;
use crate::rig::{Rig, checked, failure, open_init, scenario, success};

#[test]
fn a_peer_that_is_not_ready() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.inits::<Rc>();
        let peer = b.endpoint(&rig.local, 0);
        let connection = Connection::new(rig.local, 0, peer).timeout(12).retry_cnt(1).rnr_retry(7);
        let a = a.connect(&connection).unwrap();
        a.post(send(Inline(b"ready?")).id(1)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::RETRY_EXC_ERR);
        assert_eq!(a.query().unwrap().state(), QpState::ERROR);
        assert_eq!(b.query().unwrap().state(), QpState::INIT);
    });
}

#[test]
fn a_peer_that_was_dropped() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = crate::rig::connect_impatiently(&rig.local, parts.inits::<Rc>());
        drop(b);
        a.post(send(Inline(b"hello?")).id(1)).unwrap();
        a.post(send(Inline(b"hello??")).id(2)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::RETRY_EXC_ERR);
        assert_eq!(failure(&parts.a_cq, 2), WcStatus::WR_FLUSH_ERR);
    });
}

fn endpoint_of(text: &str) -> Endpoint {
    let mut wire = [0; Endpoint::WIRE_LEN];
    wire[..text.len()].copy_from_slice(text.as_bytes());
    Endpoint::from_wire(&wire).unwrap()
}

fn text_of(endpoint: &Endpoint) -> String {
    let wire = endpoint.to_wire();
    String::from_utf8(wire.to_vec()).unwrap().trim_end_matches('\0').to_owned()
}

/// The peer that gets killed: takes messages until then.
fn victim() {
    let rig = Rig::open();
    let parts = rig.parts();
    let qp = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
    for _ in 0..16 {
        qp.post_recv(recv(Empty)).unwrap();
    }
    let psn = random_psn();
    tell(&text_of(&qp.endpoint(&rig.local, psn)));
    let _qp = qp.connect(&Connection::new(rig.local, psn, endpoint_of(&listen()))).unwrap();
    tell("connected");
    listen();
}

#[test]
fn a_killed_peer() {
    if is_child() {
        return victim();
    }
    checked(|| {
        let alone = Counts::now();
        let mut peer = Child::start(&[]);
        let end = endpoint_of(&peer.listen());
        let rig = Rig::open();
        let parts = rig.parts();
        let qp = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let psn = random_psn();
        peer.tell(&text_of(&qp.endpoint(&rig.local, psn)));
        let qp =
            qp.connect(&Connection::new(rig.local, psn, end).timeout(15).retry_cnt(3).rnr_retry(7)).unwrap();
        assert_eq!(peer.listen(), "connected");
        qp.post(send(Empty).signaled().id(1)).unwrap();
        success(&parts.a_cq, 1);
        let both = Counts::now();
        assert_eq!((both.of("ctx"), both.of("qp")), (alone.of("ctx") + 2, alone.of("qp") + 2));

        peer.kill();
        qp.post(send(Empty).signaled().id(2)).unwrap();
        assert_eq!(failure(&parts.a_cq, 2), WcStatus::RETRY_EXC_ERR);
        drop((qp, peer));
        drop(parts);
        drop(rig);
        // nothing is left of the killed one either
        alone.expect_again();
    });
}
