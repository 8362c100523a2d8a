//! Transitions that fail, multi-step ones above all, and the queue pair whose state is a value.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::sys::{IBV_QPS_RESET, IBV_QPS_RTR};
use ibv::{DynQueuePair, Empty, Error, InitAttr, PostError, QpState, Rc, Ud, UdInitAttr, recv, send, state};
use nullhca::hca;
use support_null::*;

#[test]
fn a_connect_that_fails_at_either_step_gives_back_a_reset_queue_pair() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    for outcomes in [&[libc::ETIMEDOUT][..], &[0, libc::ETIMEDOUT]] {
        let qp = rc_init(&pd, &cq);
        hca().take_modifies();
        hca().script("ibv_modify_qp", outcomes);
        let refused = qp.connect(&connection(&ctx)).unwrap_err();
        assert_eq!(refused.error().errno(), Some(libc::ETIMEDOUT));
        let qp = refused.into_object().unwrap();
        assert_eq!((qp.state(), qp.query().unwrap().state()), (QpState::RESET, QpState::RESET));
        let modifies = hca().take_modifies();
        assert_eq!(modifies.len(), outcomes.len() + 1);
        assert_eq!(modifies.last().unwrap().attr.qp_state, IBV_QPS_RESET);
        // and it can be used again
        let qp = qp.init(InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap();
        qp.post(send(Empty)).unwrap();
    }
    let qp = ud_init(&pd, &cq);
    hca().script("ibv_modify_qp", &[0, libc::EINVAL]);
    assert_eq!(qp.activate(1).unwrap_err().into_object().unwrap().state(), QpState::RESET);
    // a value out of range is found before the first step, and ends in the same state
    let refused = rc_init(&pd, &cq).connect(&connection(&ctx).timeout(32)).unwrap_err();
    assert!(matches!(refused.error(), Error::Limit { .. }));
    assert_eq!(refused.into_object().unwrap().state(), QpState::RESET);
}

#[test]
fn a_queue_pair_that_cannot_even_be_reset_is_lost() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let qp = rc_init(&pd, &cq);
    hca().script("ibv_modify_qp", &[0, libc::EIO, libc::ENODEV]);
    let (qp, error) = qp.connect(&connection(&ctx)).unwrap_err().into_parts();
    assert!(qp.is_none());
    // the reason is the first one
    assert_eq!(error.errno(), Some(libc::EIO));
    assert_eq!(hca().live().qps, 0);
}

#[test]
fn a_single_step_that_fails_gives_back_the_queue_pair_as_it_was() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let fails = || hca().fail("ibv_modify_qp", libc::EINVAL);
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    fails();
    let qp = qp.init(InitAttr::new(1)).unwrap_err().into_object().unwrap();
    assert_eq!(qp.state(), QpState::RESET);
    let mut qp = qp.init(InitAttr::new(1)).unwrap();
    fails();
    qp.modify_init(&ibv::qp::attr::InitModifyAttr::new()).unwrap_err();
    fails();
    let qp = qp.reset().unwrap_err().into_object().unwrap();
    fails();
    let qp = qp.into_error().unwrap_err().into_object().unwrap();
    let qp = qp.connect(&connection(&ctx)).unwrap();
    fails();
    let refused = qp.sqd(true).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("ibv_modify_qp") && text.contains("RTS to SQD"), "{text}");
    refused.into_object().unwrap().post(send(Empty)).unwrap();
    // what does not want the queue pair passes the reason on, although it borrows
    fn question_mark(qp: ibv::QueuePair<'_, Rc>) -> Result<(), Box<dyn std::error::Error>> {
        qp.reset()?;
        Ok(())
    }
    let qp = rc(&pd, &cq);
    fails();
    assert!(question_mark(qp).unwrap_err().to_string().contains("RTS to RESET"));
}

#[test]
fn a_dynamic_queue_pair_goes_through_its_states() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mut qp: DynQueuePair<'_, Rc> = pd.create_qp::<Rc>(&cq, &cq).build().unwrap().into();
    let wrong = |state| Err(PostError::WrongState { state });
    assert_eq!(qp.state(), QpState::RESET);
    assert_eq!(qp.post_recv(recv(Empty)), wrong(QpState::RESET));
    assert_eq!(qp.post(send(Empty)), wrong(QpState::RESET));
    assert!(matches!(qp.connect(&connection(&ctx)), Err(Error::Invalid { .. })));
    assert!(matches!(qp.into_error(), Err(Error::Invalid { .. })));
    qp.init(InitAttr::new(1)).unwrap();
    assert!(matches!(qp.init(InitAttr::new(1)), Err(Error::Invalid { .. })));
    qp.post_recv(recv(Empty)).unwrap();
    let refused = qp.post(send(Empty)).unwrap_err();
    assert_eq!((refused, refused.accepted()), (PostError::WrongState { state: QpState::INIT }, Some(0)));
    assert!(refused.to_string().contains("INIT"));
    qp.connect(&connection(&ctx)).unwrap();
    qp.post(send(Empty)).unwrap();
    qp.into_error().unwrap();
    assert_eq!(qp.post(send(Empty)), wrong(QpState::ERROR));
    qp.post_recv(recv(Empty)).unwrap();
    qp.reset().unwrap();
    qp.init(InitAttr::new(1)).unwrap();
    qp.connect(&connection(&ctx)).unwrap();
    assert_eq!((qp.state(), qp.query().unwrap().state()), (QpState::RTS, QpState::RTS));
    qp.close().unwrap();

    let mut qp: DynQueuePair<'_, Ud> = pd.create_qp::<Ud>(&cq, &cq).build().unwrap().into();
    assert!(matches!(qp.activate(1), Err(Error::Invalid { .. })));
    qp.init(UdInitAttr::new(1, 2)).unwrap();
    qp.activate(1).unwrap();
    assert_eq!(qp.state(), QpState::RTS);
}

#[test]
fn a_dynamic_queue_pair_says_where_a_failure_left_it() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mut qp = DynQueuePair::from(rc_init(&pd, &cq));
    // first step: nothing has changed
    hca().fail("ibv_modify_qp", libc::EINVAL);
    qp.connect(&connection(&ctx)).unwrap_err();
    let real = |qp: &DynQueuePair<'_, Rc>| qp.query().unwrap().state();
    assert!([QpState::INIT, QpState::RESET].contains(&qp.state()));
    assert_eq!(qp.state(), real(&qp));
    if qp.state() == QpState::RESET {
        qp.init(InitAttr::new(1)).unwrap();
    }
    // second step: RESET
    hca().script("ibv_modify_qp", &[0, libc::EINVAL]);
    qp.connect(&connection(&ctx)).unwrap_err();
    assert_eq!((qp.state(), real(&qp)), (QpState::RESET, QpState::RESET));
    qp.init(InitAttr::new(1)).unwrap();
    // and if it can't be reset, what it is
    hca().script("ibv_modify_qp", &[0, libc::EINVAL, libc::EIO]);
    assert_eq!(qp.connect(&connection(&ctx)).unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!((qp.state(), real(&qp)), (QpState::RTR, QpState(IBV_QPS_RTR)));
    assert_eq!(qp.post(send(Empty)), Err(PostError::WrongState { state: QpState::RTR }));
    qp.reset().unwrap();
    hca().fail("ibv_destroy_qp", libc::EBUSY);
    let qp = qp.close().unwrap_err().into_object().unwrap();
    assert_eq!(qp.state(), QpState::RESET);
    qp.close().unwrap();
}

#[test]
fn typed_and_dynamic_are_the_same_queue_pair() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let qp = rc(&pd, &cq);
    let number = qp.qp_num();
    let dynamic = DynQueuePair::from(qp);
    let dynamic = dynamic.into_typed::<state::Init>().unwrap_err();
    let typed = dynamic.into_typed::<state::Rts>().unwrap();
    assert_eq!(typed.qp_num(), number);
    typed.post(send(Empty)).unwrap();
    let mut dynamic = DynQueuePair::from(typed.sqd(false).unwrap());
    assert_eq!((dynamic.state(), dynamic.qp_num()), (QpState::SQD, number));
    dynamic.reset().unwrap();
    let typed = dynamic.into_typed::<state::Reset>().unwrap();
    typed.init(InitAttr::new(1)).unwrap();
    // extended
    let mut extended = DynQueuePair::from(rc_extended(&pd, &cq));
    extended.post(send(Empty)).unwrap();
    extended.reset().unwrap();
    assert_eq!(extended.post(send(Empty)), Err(PostError::WrongState { state: QpState::RESET }));
    let _extended = extended.into_typed::<state::Reset>().unwrap();
    assert_eq!(hca().live().qps, 1);
}

#[test]
fn a_query_tells_what_was_set() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let builder = pd.create_qp::<Rc>(&cq, &cq).send_depth(5).recv_depth(6).send_sges(2).recv_sges(3);
    let qp = builder.inline(44).signal_all(true).build().unwrap().init(InitAttr::new(1)).unwrap();
    let qp = qp.connect(&connection(&ctx).retry_cnt(3).rnr_retry(4)).unwrap();
    let attr = qp.query().unwrap();
    let caps = attr.caps();
    assert_eq!((caps.send_depth, caps.recv_depth, caps.send_sges), (5, 6, 2));
    assert_eq!((caps.recv_sges, caps.inline, attr.signals_all()), (3, 44, true));
    assert_eq!((attr.dest_qpn(), attr.port(), attr.retry_cnt(), attr.rnr_retry()), (0x1234, 1, 3, 4));
    assert_eq!(attr.path_mtu(), ibv::Mtu::B1024);
    hca().fail("ibv_query_qp", libc::EIO);
    assert_eq!(qp.query().unwrap_err().errno(), Some(libc::EIO));
}
