//! Asynchronous events that every device raises.

use std::time::Duration;

use ibv::{
    AsyncEventKind as Of, AsyncSubject as Subject, CompletionQueue, Inline, Rc, RecvStorage,
    qp::attr::RcModifyAttr, recv, send,
};

use crate::rig::{connect_with, next_of, open_init, quiet, roomy, scenario, success};

const EVENT: Duration = Duration::from_secs(10);

#[test]
fn a_send_queue_runs_dry() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let to = parts.zeros(64);
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"before")).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(events.try_event().unwrap(), None);
        let a = a.sqd(true).unwrap();
        quiet(&parts.a_cq);
        let event = events.wait_timeout(EVENT).unwrap().unwrap();
        assert_eq!((event.kind(), event.subject()), (Of::SQ_DRAINED, Subject::Qp(a.id())));
        let a = a.resume(RcModifyAttr::new()).unwrap();
        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        a.post(send(Inline(b"after")).signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
        assert_eq!(events.try_event().unwrap(), None);
    });
}

#[test]
fn an_overrun_completion_queue_says_so() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let to = parts.zeros(64);
        let small = CompletionQueue::builder(&rig.ctx, 3).overcommit().build().unwrap();
        let a = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let b = roomy(parts.pd.create_qp::<Rc>(&parts.b_cq, &small)).recv_depth(64).build().unwrap();
        let b = b.init(open_init(&rig.local)).unwrap();
        let (a, b) = connect_with(&rig.local, a, b, |connection| connection);
        // more than any provider makes of 3 entries, and none is polled
        let mut storage = RecvStorage::<32>::new();
        let mut batch = b.recv_batch(&mut storage);
        for id in 0..32 {
            batch.push(recv(to.slice(..).unwrap()).id(id)).unwrap();
        }
        batch.submit().unwrap();
        for id in 0..32 {
            a.post(send(Inline(b"x")).signaled().id(id)).unwrap();
            let wc = &next_of(&parts.a_cq, 1)[0];
            if wc.result().is_err() {
                break;
            }
        }
        let event = events.wait_timeout(EVENT).unwrap().unwrap();
        assert_eq!((event.kind(), event.subject()), (Of::CQ_ERR, Subject::Cq(small.id())));
        // the queue is of no more use, and goes in good order
        drop((a, b));
        small.close().unwrap();
    });
}
