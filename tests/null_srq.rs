//! Shared receive queues: what reaches the provider, who keeps what alive, and what completion queues promise.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::sync::Arc;

use ibv::{
    CompletionQueue, Context, DynQueuePair, Error, InitAttr, PostError, PostRecv, ProtectionDomain,
    QueuePair, QueuePairBuilder, Rc, RecvStorage, SharedReceiveQueue, Ud, UdInitAttr, WithSrq,
    WorkCompletion, recv, send, state::Init,
};
use nullhca::Kind::{self, Cq, Pd, Qp, Srq};
use nullhca::{Bad, Live, PostFault, RecvWr, Sge, hca};
use support_null::*;

fn init<'a>(
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
    srq: &SharedReceiveQueue<'a>,
) -> Result<QueuePair<'a, WithSrq<Rc>, Init>, Error> {
    Ok(pd.create_qp::<Rc>(cq, cq).send_depth(7).srq(srq).build()?.init(InitAttr::new(1))?)
}

#[test]
fn receives_reach_the_shared_queue() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let mr = pd.alloc_local(4096).unwrap();
    let srq = SharedReceiveQueue::new(&pd, 16, 2).unwrap();
    let sge = |at: u64, length| Sge { addr: mr.memory().as_ptr() as u64 + at, length, lkey: mr.lkey() };
    srq.post_recv(recv(mr.slice(..64).unwrap()).id(1)).unwrap();
    let parts = [mr.slice(64..96).unwrap(), mr.slice(128..192).unwrap()];
    PostRecv::post_recv(&mut &srq, recv(parts).id(2)).unwrap();
    let mut storage = RecvStorage::<4, 2>::new();
    let mut batch = srq.recv_batch(&mut storage);
    batch.push(recv(parts).id(3)).unwrap();
    batch.push(recv(parts[1]).id(4)).unwrap();
    batch.submit().unwrap();
    let two = vec![sge(64, 32), sge(128, 64)];
    let expected = [
        vec![RecvWr { wr_id: 1, sges: vec![sge(0, 64)] }],
        vec![RecvWr { wr_id: 2, sges: two.clone() }],
        vec![RecvWr { wr_id: 3, sges: two }, RecvWr { wr_id: 4, sges: vec![sge(128, 64)] }],
    ];
    assert_eq!(hca().take_recvs(), expected);

    assert_eq!(srq.post_recv(recv([parts[0]; 3])), Err(PostError::TooManySges { max: 2 }));
    hca().refuse_post(PostFault { accept: 0, errno: libc::ENOMEM, bad: Bad::Nth });
    let full = srq.post_recv(recv(parts)).unwrap_err();
    assert!(full.is_queue_full() && full.accepted() == Some(0), "{full:?}");
}

#[test]
fn queue_pairs_are_made_with_it() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let srq = SharedReceiveQueue::new(&pd, 16, 1).unwrap();
    let qp = init(&pd, &cq, &srq).unwrap().connect(&connection(&ctx)).unwrap();
    qp.post(send(ibv::Empty)).unwrap();
    let mut extended = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).extended().build().unwrap();
    extended = extended.init(InitAttr::new(1)).unwrap().reset().unwrap();
    // what it says of receives of its own does not count
    let ud = pd.create_qp::<Ud>(&cq, &cq).recv_depth(u32::MAX).recv_sges(0).extended().srq(&srq);
    let ud = ud.build().unwrap();
    let ud = ud.init(UdInitAttr::new(1, 7)).unwrap().activate(1).unwrap();
    let dynamic = DynQueuePair::from(ud);
    for qp in [qp.as_ptr(), extended.as_ptr()] {
        // SAFETY: alive.
        #[expect(unsafe_code, reason = "what it was made with")]
        unsafe {
            assert_eq!((*qp).srq, srq.as_ptr());
        }
    }
    assert_ne!(qp.id(), extended.id());
    drop(dynamic);
    let other = open_other();
    let (other_pd, other_cq) = (other.alloc_pd().unwrap(), other.create_cq(64).unwrap());
    let error = other_pd.create_qp::<Rc>(&other_cq, &other_cq).srq(&srq).build().unwrap_err();
    assert!(matches!(error, Error::OtherContext { what: "shared receive queue" }), "{error}");
}

#[test]
fn it_is_asked_and_limited() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    hca().configure(|config| config.grant_srq = |asked| asked + 15);
    let srq = SharedReceiveQueue::new(&pd, 16, 2).unwrap();
    srq.set_limit(5).unwrap();
    let attr = srq.query().unwrap();
    assert_eq!((attr.depth, attr.sges, attr.limit), (31, 2, 5));
    hca().fail("ibv_modify_srq", libc::EINVAL);
    assert!(srq.set_limit(99).unwrap_err().to_string().contains("limit 99"));
    hca().fail("ibv_query_srq", libc::EIO);
    assert_eq!(srq.query().unwrap_err().errno(), Some(libc::EIO));

    let refused = |depth, sges| SharedReceiveQueue::new(&pd, depth, sges).unwrap_err();
    assert!(matches!(refused(0, 1), Error::Invalid { .. }));
    assert!(matches!(refused(1, 0), Error::Invalid { .. }));
    assert!(matches!(refused(32769, 1), Error::Limit { limit: 32768, .. }));
    assert!(matches!(refused(1, 32), Error::Limit { limit: 31, .. }));
    hca().fail("ibv_create_srq", libc::EOPNOTSUPP);
    assert_eq!(refused(1, 1).errno(), Some(libc::EOPNOTSUPP));
}

#[test]
fn it_goes_after_its_queue_pairs() {
    {
        let ctx = Arc::new(Context::open("null0").unwrap());
        let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
        let cq = Arc::new(CompletionQueue::new(&ctx, 256).unwrap());
        let srq = SharedReceiveQueue::new(&pd, 16, 1).unwrap();
        let qp = QueuePairBuilder::<Rc>::new(&pd, &cq, &cq).srq(&srq).build().unwrap();
        // it says no while a queue pair is there
        let refused = srq.close().unwrap_err();
        assert_eq!(refused.error().errno(), Some(libc::EBUSY));
        let srq = refused.into_object().unwrap();
        assert_eq!(hca().count("ibv_destroy_srq"), 0);
        drop(srq);
        assert_eq!(hca().live().srqs, 1);
        std::thread::spawn(move || drop(qp)).join().unwrap();
        assert_eq!(hca().live().srqs, 0);
        SharedReceiveQueue::new(&pd, 16, 1).unwrap().close().unwrap();
    }
    let order: Vec<Kind> = hca().destroyed().into_iter().map(|id| id.kind).collect();
    assert_eq!(order[..2], [Qp, Srq]);
    assert!(order.contains(&Cq) && order.contains(&Pd));
    assert_eq!(hca().live(), Live::default());
    assert!(hca().calls().iter().all(|call| call.errno == 0));
}

#[test]
fn a_leaked_queue_pair_keeps_it() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let srq = SharedReceiveQueue::new(&pd, 16, 1).unwrap();
    let qp = init(&pd, &cq, &srq).unwrap();
    hca().fail("ibv_destroy_qp", libc::EBUSY);
    drop(qp);
    // the device says no then, and nothing is freed
    let refused = srq.close().unwrap_err();
    assert_eq!(refused.error().errno(), Some(libc::EBUSY));
    drop(refused);
    assert_eq!(hca().live().srqs, 1);
}

#[test]
fn completion_queues_promise_their_room_once() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    // 32 entries for the receives, and 8 for the sends of each
    let (cq, other) = (ctx.create_cq(48).unwrap(), ctx.create_cq(40).unwrap());
    let small = ctx.create_cq(40).unwrap();
    let srq = SharedReceiveQueue::new(&pd, 31, 1).unwrap();
    let (first, second) = (init(&pd, &cq, &srq).unwrap(), init(&pd, &cq, &srq).unwrap());
    assert!(matches!(init(&pd, &cq, &srq), Err(Error::CqRoom { needed: 8, free: 0, .. })));
    let elsewhere = init(&pd, &other, &srq).unwrap();

    // what is left behind is free when the queue was seen empty
    let empty = |cq: &CompletionQueue<'_>| {
        assert!(cq.poll(&mut [WorkCompletion::default(); 4]).unwrap().is_empty());
    };
    drop(first);
    empty(&cq);
    let third = init(&pd, &cq, &srq).unwrap();
    drop((second, third));
    let own = || pd.create_qp::<Rc>(&cq, &cq).send_depth(23).recv_depth(15).build();
    assert!(matches!(own(), Err(Error::CqRoom { needed: 48, free: 0, .. })));
    empty(&cq);
    let own = own().unwrap();
    // and is promised again, in whole
    drop(elsewhere);
    empty(&other);
    let unused = pd.create_qp::<Rc>(&other, &other).send_depth(7).srq(&srq).build().unwrap();
    drop(own);
    // one that never left RESET completes nothing
    drop(unused);
    let _again = init(&pd, &other, &srq).unwrap();
    // a queue pair that was refused promises nothing
    hca().fail("ibv_create_qp", libc::ENOMEM);
    init(&pd, &small, &srq).unwrap_err();
    let _now = init(&pd, &small, &srq).unwrap();
}
