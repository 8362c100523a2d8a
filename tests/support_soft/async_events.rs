//! Asynchronous events that only a device raises which does as it is told.

use std::time::Duration;

use ibv::qp::attr::RcRtrAttr;
use ibv::{
    AddressVector, AsyncEventKind as Of, AsyncEvents, AsyncSubject as Subject, Connection, Inline, Rc,
    SharedReceiveQueue, recv, send,
};

use crate::rig::{Rig, hca, open_init, roomy, scenario, success};

const SOON: Duration = Duration::from_secs(10);

fn expect(events: &AsyncEvents<'_>, kind: Of, subject: Subject) {
    let event = events.wait_timeout(SOON).unwrap().unwrap();
    assert_eq!((event.kind(), event.subject()), (kind, subject));
}

#[test]
fn a_port_goes_down_and_comes_up() {
    scenario(|rig| {
        let (events, others) = (rig.ctx.async_events().unwrap(), Rig::open());
        let theirs = others.ctx.async_events().unwrap();
        hca().set_link(0, false);
        hca().set_link(0, true);
        for events in [&events, &theirs] {
            expect(events, Of::PORT_ERR, Subject::Port(1));
            expect(events, Of::PORT_ACTIVE, Subject::Port(1));
            assert_eq!(events.try_event().unwrap(), None);
        }
    });
}

#[test]
fn a_queue_pair_fails() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let [a, b] = parts.pair::<Rc>();
        hca().fail_qp(a.qp_num());
        expect(&events, Of::QP_FATAL, Subject::Qp(a.id()));
        assert_eq!(events.try_event().unwrap(), None);
        assert_ne!(a.id(), b.id());
        // one that is gone leaves no event behind
        hca().fail_qp(b.qp_num());
        drop(b);
        assert_eq!(events.try_event().unwrap(), None);
    });
}

#[test]
fn a_queue_pair_with_a_shared_queue_takes_no_more() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let srq = SharedReceiveQueue::new(&parts.pd, 16, 1).unwrap();
        let builder = roomy(parts.pd.create_qp::<Rc>(&parts.a_cq, &parts.a_cq)).srq(&srq);
        let qp = builder.build().unwrap().init(open_init(&rig.local)).unwrap();
        let id = qp.id();
        let qp = qp.into_error().unwrap();
        expect(&events, Of::QP_LAST_WQE_REACHED, Subject::Qp(id));
        drop(qp);
    });
}

#[test]
fn the_first_message_comes_before_the_queue_pair_can_send() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let to = parts.zeros(64);
        let [a, b] = parts.inits::<Rc>();
        let (a_end, b_end) = (a.endpoint(&rig.local, 1), b.endpoint(&rig.local, 2));
        let path = AddressVector::to_peer(&rig.local, &a_end).unwrap();
        let b = b.rtr(RcRtrAttr::new(&path, rig.local.mtu, a_end.qpn, a_end.psn)).unwrap();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        let a = a.connect(&Connection::new(rig.local, 1, b_end)).unwrap();
        assert_eq!(events.try_event().unwrap(), None);
        a.post(send(Inline(b"hello")).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        expect(&events, Of::COMM_EST, Subject::Qp(b.id()));
        assert_eq!(events.try_event().unwrap(), None);
    });
}
