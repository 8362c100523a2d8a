//! Objects of two contexts do not mix: the kernel would look up one's number in the other's table, and a provider take
//! one's `ibv_ah` for its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support_null;

use ibv::{
    AddressVector, BatchStorage, CompletionQueue, Empty, Error, InitAttr, Inline, PostError, Rc, send,
};
use nullhca::hca;
use support_null::*;

#[track_caller]
fn is_other<T>(made: Result<T, Error>, expected: &str) {
    match made.map(drop) {
        Err(Error::OtherContext { what }) => assert_eq!(what, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parents_of_one_object_are_of_one_context() {
    // two devices, and one device opened twice
    for other in [open_other(), open()] {
        let ctx = open();
        let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
        let foreign_cq = other.create_cq(1024).unwrap();
        let foreign_channel = other.create_comp_channel().unwrap();
        let before = hca().calls().len();
        is_other(pd.create_qp::<Rc>(&foreign_cq, &cq).build(), "send completion queue");
        is_other(pd.create_qp::<Rc>(&cq, &foreign_cq).build(), "receive completion queue");
        is_other(pd.create_qp::<Rc>(&foreign_cq, &foreign_cq).extended().build(), "send completion queue");
        is_other(CompletionQueue::builder(&ctx, 16).channel(&foreign_channel).build(), "completion channel");
        assert_eq!(hca().calls().len(), before, "nothing reached a device");
        // no room was taken for what was refused
        pd.create_qp::<Rc>(&cq, &cq).send_depth(120).recv_depth(120).build().unwrap();
        other.alloc_pd().unwrap().create_qp::<Rc>(&foreign_cq, &foreign_cq).build().unwrap();
    }
}

#[test]
fn an_address_handle_of_another_context_is_not_posted() {
    let (ctx, other) = (open(), open_other());
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(512).unwrap());
    let foreign_pd = other.alloc_pd().unwrap();
    let second_pd = ctx.alloc_pd().unwrap();
    let address = AddressVector::lid(1, 2);
    let own = pd.create_ah(&address).unwrap();
    let foreign = foreign_pd.create_ah(&address).unwrap();
    let sibling = second_pd.create_ah(&address).unwrap();
    let qp = ud(&pd, &cq);
    let mut extended = ud_extended(&pd, &cq);
    let refused = Err(PostError::OtherContext);
    assert_eq!(qp.post(send(Empty).to(&foreign, 1, 2)), refused);
    assert_eq!(extended.post(send(Empty).to(&foreign, 1, 2)), refused);
    assert_eq!(extended.post_list(&[send(Empty).to(&own, 1, 2), send(Empty).to(&foreign, 1, 2)]), refused);
    let mut storage = BatchStorage::<2>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(send(Empty).to(&own, 1, 2)).unwrap();
    assert_eq!(batch.push(send(Empty).to(&foreign, 1, 2)), refused);
    batch.submit().unwrap();
    assert_eq!(qp.prepare(send(Empty).to(&foreign, 1, 2)).map(drop), refused);
    assert_eq!(hca().take_sends().iter().map(Vec::len).collect::<Vec<_>>(), [1]);
    assert!(!hca().take_wr_calls().contains(&nullhca::WrCall::Complete));
    // another domain of the same context is for the device to refuse, by a completion
    qp.post(send(Empty).to(&sibling, 1, 2)).unwrap();
    extended.post(send(Empty).to(&own, 1, 2)).unwrap();
}

#[test]
fn a_prepared_request_is_posted_by_its_own_queue_pair_alone() {
    let (ctx, other) = (open(), open_other());
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let (foreign_pd, foreign_cq) = (other.alloc_pd().unwrap(), other.create_cq(1024).unwrap());
    let ah = pd.create_ah(&AddressVector::lid(1, 2)).unwrap();
    let qp = ud(&pd, &cq);
    let sibling = ud(&pd, &cq);
    let foreign = ud(&foreign_pd, &foreign_cq);
    let prepared = qp.prepare(send(Empty).to(&ah, 1, 2)).unwrap();
    assert_eq!(foreign.post_prepared(&prepared), Err(PostError::OtherQueuePair));
    assert_eq!(sibling.post_prepared(&prepared), Err(PostError::OtherQueuePair));
    assert!(hca().take_sends().is_empty());
    qp.post_prepared(&prepared).unwrap();
    // a sibling may have been made for less
    let (here, there) = (rc(&pd, &cq), rc(&foreign_pd, &foreign_cq));
    assert_eq!(there.post_prepared(&here.prepare(send(Empty)).unwrap()), Err(PostError::OtherQueuePair));
    assert_eq!(hca().take_sends().len(), 1);
    // so may one that lies where its own one did
    let place = here.as_ptr();
    let prepared = here.prepare(send(Inline(&[1; 64]))).unwrap();
    drop(here);
    let mut others = Vec::new();
    let later = loop {
        let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(1).recv_depth(1).build().unwrap();
        if qp.as_ptr() == place {
            break qp;
        }
        others.push(qp);
        assert!(others.len() < 100, "no queue pair comes to lie there");
    };
    let later = later.init(InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap();
    assert_eq!(later.post_prepared(&prepared), Err(PostError::OtherQueuePair));
    assert!(hca().take_sends().is_empty());
}
