//! Shared receive queues.

use std::time::Duration;

use ibv::state::{Init, Rts};
use ibv::{
    AddressVector, AsyncEventKind, AsyncSubject, GRH_LEN, Grh, Inline, MemoryRegion, OwnReceives, QueuePair,
    Rc, RecvStorage, SharedReceiveQueue, Transport, Ud, UdInitAttr, WithSrq, recv, send,
};

use crate::rig::{
    Parts, QKEY, connect_with, contents, next, next_of, open_init, quiet, roomy, scenario, success,
};

const DEPTH: u32 = 16;
const ROOM: usize = 64;
const EVENT: Duration = Duration::from_secs(10);

fn at(mr: &MemoryRegion<'_>, slot: u64) -> Vec<u8> {
    let mut bytes = vec![0; ROOM];
    mr.read(slot as usize * ROOM, &mut bytes).unwrap();
    bytes
}

/// Posts receives `ids` in a list, each with a slot of its own.
fn post<'p>(srq: &SharedReceiveQueue<'p>, mr: &'p MemoryRegion<'p>, ids: std::ops::Range<u64>) {
    let mut storage = RecvStorage::<32>::new();
    let mut batch = srq.recv_batch(&mut storage);
    for id in ids {
        let at = id as usize * ROOM;
        batch.push(recv(mr.slice(at..at + ROOM).unwrap()).id(id)).unwrap();
    }
    batch.submit().unwrap();
}

fn receiver<'p, T: Transport + OwnReceives>(
    parts: &'p Parts<'p>,
    srq: &SharedReceiveQueue<'p>,
    init: T::Init,
) -> QueuePair<'p, WithSrq<T>, Init> {
    let builder = roomy(parts.pd.create_qp::<T>(&parts.b_cq, &parts.b_cq)).srq(srq);
    builder.build().unwrap().init(init).unwrap()
}

/// A queue pair, connected with one that receives from `srq`.
fn connected<'p>(
    parts: &'p Parts<'p>,
    srq: &SharedReceiveQueue<'p>,
) -> (QueuePair<'p>, QueuePair<'p, WithSrq<Rc>, Rts>) {
    let a = parts.a_builder::<Rc>().build().unwrap().init(open_init(&parts.local)).unwrap();
    let b = receiver::<Rc>(parts, srq, open_init(&parts.local));
    connect_with(&parts.local, a, b, |connection| connection)
}

#[test]
fn several_queue_pairs_take_from_one_queue() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.zeros(DEPTH as usize * ROOM);
        let srq = SharedReceiveQueue::new(&parts.pd, DEPTH, 1).unwrap();
        let pairs = [0; 3].map(|_| connected(&parts, &srq));
        post(&srq, &mr, 0..8);
        // in the order in which the messages come
        for id in 0..8 {
            let (a, b) = &pairs[id as usize % 3];
            a.post(send(Inline(&[id as u8; 9])).signaled().id(100 + id)).unwrap();
            success(&parts.a_cq, 100 + id);
            let wc = next(&parts.b_cq);
            assert_eq!((wc.id(), wc.qp_num()), (id, b.qp_num()));
            assert_eq!(wc.result().unwrap().byte_len(), Some(9));
            assert_eq!((&at(&mr, id)[..9], at(&mr, id)[9]), (&[id as u8; 9][..], 0));
        }
        // one that is waited for
        pairs[0].0.post(send(Inline(b"early")).signaled().id(200)).unwrap();
        quiet(&parts.b_cq);
        srq.post_recv(recv(mr.slice(..ROOM).unwrap()).id(9)).unwrap();
        success(&parts.a_cq, 200);
        success(&parts.b_cq, 9);
        assert_eq!(&contents(&mr)[..5], b"early");
    });
}

#[test]
fn an_error_of_one_is_none_of_the_others() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.zeros(DEPTH as usize * ROOM);
        let srq = SharedReceiveQueue::new(&parts.pd, DEPTH, 1).unwrap();
        let (dying, (a, b)) = (connected(&parts, &srq), connected(&parts, &srq));
        post(&srq, &mr, 0..4);
        let dead = dying.1.into_error().unwrap();
        // the receives are not its own, and stay
        quiet(&parts.b_cq);
        a.post(send(Inline(b"still here")).signaled().id(10)).unwrap();
        success(&parts.a_cq, 10);
        let wc = next(&parts.b_cq);
        assert_eq!((wc.id(), wc.qp_num()), (0, b.qp_num()));
        drop(dead);
        a.post(send(Inline(b"and here")).signaled().id(11)).unwrap();
        success(&parts.a_cq, 11);
        success(&parts.b_cq, 1);
        assert_eq!(&at(&mr, 1)[..8], b"and here");
    });
}

#[test]
fn datagrams_share_it_too() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = Grh::new(rig.local.gid, rig.local.gid_index.unwrap());
        let ah = parts.pd.create_ah(&AddressVector::global(rig.local.port, to)).unwrap();
        let mr = parts.zeros(DEPTH as usize * ROOM);
        let srq = SharedReceiveQueue::new(&parts.pd, DEPTH, 1).unwrap();
        let init = || UdInitAttr::new(rig.local.port, QKEY);
        let [first, second] = [0; 2].map(|_| receiver::<Ud>(&parts, &srq, init()).activate(1).unwrap());
        let a = parts.a_builder::<Ud>().build().unwrap().init(init()).unwrap().activate(1).unwrap();
        post(&srq, &mr, 0..2);
        for (id, b) in [&first, &second].into_iter().enumerate() {
            a.post(send(Inline(b"to both")).to(&ah, b.qp_num(), QKEY).signaled().id(7)).unwrap();
            success(&parts.a_cq, 7);
            let wc = next(&parts.b_cq);
            assert_eq!((wc.id(), wc.qp_num()), (id as u64, b.qp_num()));
            assert_eq!(&at(&mr, id as u64)[GRH_LEN..][..7], b"to both");
        }
    });
}

#[test]
fn it_says_when_it_runs_low() {
    scenario(|rig| {
        let parts = rig.parts();
        let events = rig.ctx.async_events().unwrap();
        let mr = parts.zeros(DEPTH as usize * ROOM);
        let srq = SharedReceiveQueue::new(&parts.pd, DEPTH, 2).unwrap();
        let attr = srq.query().unwrap();
        assert!(attr.depth >= DEPTH && attr.sges >= 2 && attr.limit == 0, "{attr:?}");
        let (a, _b) = connected(&parts, &srq);
        post(&srq, &mr, 0..6);
        srq.set_limit(4).unwrap();
        assert_eq!(srq.query().unwrap().limit, 4);
        for id in 0..3 {
            assert_eq!(events.try_event().unwrap(), None, "{id} of 6 are taken");
            a.post(send(Inline(b"one less")).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
            success(&parts.b_cq, id);
        }
        let event = events.wait_timeout(EVENT).unwrap().unwrap();
        assert_eq!(event.kind(), AsyncEventKind::SRQ_LIMIT_REACHED);
        assert_eq!(event.subject(), AsyncSubject::Srq(srq.id()));
        // once
        assert_eq!(srq.query().unwrap().limit, 0);
        a.post(send(Inline(b"one less")).signaled().id(9)).unwrap();
        success(&parts.a_cq, 9);
        success(&parts.b_cq, 3);
        assert_eq!(events.try_event().unwrap(), None);
    });
}

#[test]
fn it_can_be_full() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.zeros(ROOM);
        let srq = SharedReceiveQueue::new(&parts.pd, DEPTH, 1).unwrap();
        let (a, _b) = connected(&parts, &srq);
        let mut posted = 0;
        let refused = loop {
            match srq.post_recv(recv(mr.as_slice().unwrap()).id(posted)) {
                Ok(()) => posted += 1,
                Err(refused) => break refused,
            }
            assert!(posted < 1000);
        };
        assert!(refused.is_queue_full() && posted >= u64::from(DEPTH), "{refused:?} after {posted}");
        for id in 0..posted {
            a.post(send(Inline(b"x")).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
        }
        let wcs = next_of(&parts.b_cq, posted as usize);
        assert!(wcs.iter().enumerate().all(|(id, wc)| wc.id() == id as u64 && wc.result().is_ok()));
        srq.post_recv(recv(mr.as_slice().unwrap())).unwrap();
    });
}
