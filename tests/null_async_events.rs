//! Asynchronous events: read, copied, acknowledged, waited for.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ibv::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED,
};
use ibv::{
    AsyncEventKind as Of, AsyncEvents, AsyncSubject as Subject, Context, InitAttr, Rc, SharedReceiveQueue,
};
use nullhca::hca;
use support_null::*;

#[test]
fn each_event_names_what_it_is_of() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let srq = SharedReceiveQueue::new(&pd, 16, 1).unwrap();
    let (qp, other) = (rc(&pd, &cq), rc_extended(&pd, &cq));
    let events = ctx.async_events().unwrap();
    assert_eq!(events.try_event().unwrap(), None);
    let notify = |kind, element| hca().notify(ctx.as_ptr(), kind, element);
    notify(IBV_EVENT_CQ_ERR, cq.as_ptr().addr());
    notify(IBV_EVENT_QP_FATAL, qp.as_ptr().addr());
    notify(IBV_EVENT_QP_LAST_WQE_REACHED, other.as_ptr().addr());
    notify(IBV_EVENT_SRQ_LIMIT_REACHED, srq.as_ptr().addr());
    notify(IBV_EVENT_PORT_ERR, 1);
    notify(IBV_EVENT_DEVICE_FATAL, 0);
    // a kind that is not known yet is not followed
    notify(99, 1);
    let expected = [
        (Of::CQ_ERR, Subject::Cq(cq.id())),
        (Of::QP_FATAL, Subject::Qp(qp.id())),
        (Of::QP_LAST_WQE_REACHED, Subject::Qp(other.id())),
        (Of::SRQ_LIMIT_REACHED, Subject::Srq(srq.id())),
        (Of::PORT_ERR, Subject::Port(1)),
        (Of::DEVICE_FATAL, Subject::Device),
        (Of(99), Subject::Device),
    ];
    for (kind, subject) in expected {
        let event = events.wait().unwrap();
        assert_eq!((event.kind(), event.subject()), (kind, subject));
    }
    assert_eq!(events.try_event().unwrap(), None);
    assert_eq!(
        (format!("{:?}", Of::PORT_ERR), format!("{:?}", Of(99))),
        ("PORT_ERR".into(), "AsyncEventKind(99)".into())
    );
    // all are acknowledged: the null provider stops the program at the destruction otherwise
    drop((qp, other, srq));
    cq.close().unwrap();
}

#[test]
fn what_waits_of_an_object_goes_with_it() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let events = ctx.async_events().unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap().init(InitAttr::new(1)).unwrap();
    hca().notify(ctx.as_ptr(), IBV_EVENT_QP_FATAL, qp.as_ptr().addr());
    hca().notify(ctx.as_ptr(), IBV_EVENT_PORT_ERR, 1);
    drop(qp);
    assert_eq!(events.try_event().unwrap().unwrap().kind(), Of::PORT_ERR);
    assert_eq!(events.try_event().unwrap(), None);
}

#[test]
fn waiting_ends_with_an_event_or_in_time() {
    let ctx = Arc::new(Context::open("null0").unwrap());
    let events = AsyncEvents::new(&ctx).unwrap();
    let start = Instant::now();
    assert_eq!(events.wait_timeout(Duration::from_millis(30)).unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(30));
    let waiting = thread::spawn(move || events.wait().unwrap());
    thread::sleep(Duration::from_millis(20));
    hca().notify(ctx.as_ptr(), IBV_EVENT_PORT_ERR, 1);
    assert_eq!(waiting.join().unwrap().subject(), Subject::Port(1));
}

#[test]
fn others_can_wait_but_not_read() {
    let ctx = open();
    let events = ctx.async_events().unwrap();
    let readable = || {
        let mut fd = libc::pollfd { fd: events.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        #[expect(unsafe_code, reason = "poll(2)")]
        let ready = unsafe { libc::poll(&raw mut fd, 1, 0) };
        ready == 1
    };
    assert!(!readable());
    hca().notify(ctx.as_ptr(), IBV_EVENT_PORT_ERR, 1);
    assert!(readable());
    let mut file = std::fs::File::from(events.as_fd().try_clone_to_owned().unwrap());
    file.read(&mut [0; 64]).unwrap_err();
    assert!(events.try_event().unwrap().is_some());
    assert!(!readable());
}

#[test]
fn errors_are_told_and_interruptions_are_not() {
    let ctx = open();
    let events = ctx.async_events().unwrap();
    hca().script("ibv_get_async_event", &[libc::EINTR, libc::EINTR, libc::EIO]);
    let error = events.try_event().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EIO));
    assert!(error.to_string().contains("ibv_get_async_event"), "{error}");
    hca().script("ibv_get_async_event", &[libc::EINTR]);
    hca().notify(ctx.as_ptr(), IBV_EVENT_PORT_ERR, 1);
    assert!(events.try_event().unwrap().is_some());
}
