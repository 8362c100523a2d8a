//! Memory windows and invalidation: what reaches the provider, what never does, and who keeps what alive.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::sync::Arc;

use ibv::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
    IBV_SEND_FENCE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
    IBV_WR_SEND_WITH_INV,
};
use ibv::{
    BatchStorage, Context, Empty, Error, InitAttr, MemoryRegion, MemoryWindow, Pages, PostError, PostSend,
    ProtectionDomain, Rc, Remote, RemoteAccess, RemoteRegion, Type1, Type2, Uc, bind_mw, local_inv, send,
    send_inv,
};
use nullhca::Kind::{self, Mr, Mw, Pd};
use nullhca::{Bad, Bind, Id, Live, PostFault, SendWr, WrCall, hca};
use support_null::*;

const READ: RemoteAccess = RemoteAccess::READ;

fn for_windows<'a>(pd: &'a ProtectionDomain<'a>) -> MemoryRegion<'a, Remote> {
    pd.alloc_remote(4096, RemoteAccess::MW_BIND).unwrap()
}

/// The requests since last time, each of a call of its own.
fn posted() -> Vec<SendWr> {
    let calls = hca().take_sends();
    calls.into_iter().flat_map(|call| <[SendWr; 1]>::try_from(call).unwrap()).collect()
}

fn id(kind: Kind) -> Id {
    Id { kind, number: 1 }
}

/// The bind of the first window over the first region, to the `count`th key after the one that it was made with.
fn bound(mr: &MemoryRegion<'_, Remote>, made_with: u32, count: u32, at: u64, length: u64) -> Bind {
    let key = |count: u32| made_with & !0xff | (made_with + count) & 0xff;
    Bind {
        mw: id(Mw),
        old_rkey: key(count - 1),
        rkey: key(count),
        mr: id(Mr),
        addr: mr.memory().as_ptr() as u64 + at,
        length,
        access: IBV_ACCESS_REMOTE_READ,
    }
}

fn rkey(window: &MemoryWindow<'_, impl ibv::WindowType>) -> u32 {
    // SAFETY: alive.
    #[expect(unsafe_code, reason = "the key that the device gave it")]
    unsafe {
        (*window.as_ptr()).rkey
    }
}

#[test]
fn regions_for_windows_are_registered_for_that() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let _mr = for_windows(&pd);
    let [registration] = hca().registrations().try_into().unwrap();
    assert_eq!(registration.access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    // a queue pair has no such right
    let cq = ctx.create_cq(256).unwrap();
    let access = RemoteAccess::WRITE | RemoteAccess::MW_BIND;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap().init(InitAttr::new(1).access(access)).unwrap();
    let [modify] = hca().take_modifies().try_into().unwrap();
    assert_eq!(modify.attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
    drop(qp);
}

#[test]
fn requests_have_their_fields() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let qp = rc(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let made_with = rkey(&window);

    let bind = bind_mw(&mut window, &mr, 64..192, READ).unwrap().id(1).signaled().fence();
    let key = made_with + 1;
    assert_eq!(
        bind.remote_region(),
        RemoteRegion { addr: mr.memory().as_ptr() as u64 + 64, len: 128, rkey: key }
    );
    qp.post(bind).unwrap();
    qp.post(local_inv(&mut window).unwrap().id(2).fence()).unwrap();
    qp.post(send_inv(Empty, 0x1234_5678).id(3).solicited()).unwrap();
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    let of = |wr_id, opcode, send_flags| SendWr { wr_id, opcode, send_flags, ..SendWr::default() };
    let expected = [
        SendWr {
            bind: Some(bound(&mr, made_with, 1, 64, 128)),
            ..of(1, IBV_WR_BIND_MW, IBV_SEND_SIGNALED | IBV_SEND_FENCE)
        },
        SendWr { invalidate: Some(key), ..of(2, IBV_WR_LOCAL_INV, IBV_SEND_FENCE) },
        SendWr { invalidate: Some(0x1234_5678), ..of(3, IBV_WR_SEND_WITH_INV, IBV_SEND_SOLICITED) },
        SendWr { bind: Some(bound(&mr, made_with, 2, 0, 4096)), ..of(0, IBV_WR_BIND_MW, 0) },
    ];
    assert_eq!(posted(), expected);
}

#[test]
fn the_extended_backend_has_their_calls() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let mut qp = rc_extended(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let made_with = rkey(&window);
    qp.post(bind_mw(&mut window, &mr, ..8, READ).unwrap().id(1)).unwrap();
    qp.post(local_inv(&mut window).unwrap().id(2).signaled()).unwrap();
    qp.post(send_inv(Empty, 7).id(3)).unwrap();
    qp.post(bind_mw(&mut window, &mr, ..8, READ).unwrap()).unwrap();
    let one = |call| [WrCall::Start, call, WrCall::Complete];
    let flags = IBV_SEND_SIGNALED;
    let mut expected = Vec::new();
    expected.extend(one(WrCall::BindMw { id: 1, flags: 0, bind: bound(&mr, made_with, 1, 0, 8) }));
    expected.extend(one(WrCall::LocalInv { id: 2, flags, rkey: made_with + 1 }));
    let nothing = WrCall::SetSge(nullhca::Sge::default());
    expected.extend([WrCall::Start, WrCall::SendInv { id: 3, flags: 0, rkey: 7 }, nothing, WrCall::Complete]);
    expected.extend(one(WrCall::BindMw { id: 0, flags: 0, bind: bound(&mr, made_with, 2, 0, 8) }));
    assert_eq!(hca().take_wr_calls(), expected);
}

/// Soft-RoCE can fail after it has published requests, and takes its machine down if a key is invalidated twice.
#[test]
fn what_ibv_post_send_may_have_invalidated_is_not_invalidated_again() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let basic = rc(&pd, &cq);
    let untrusted = pd.create_qp::<Rc>(&cq, &cq).extended().build().unwrap();
    let untrusted = untrusted.init(InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap();
    fn is_kept<'a>(
        mut qp: impl PostSend<'a, Transport = Rc>,
        window: &mut MemoryWindow<'a>,
        mr: &'a MemoryRegion<'a, Remote>,
        errno: i32,
    ) {
        let unknown = PostFault { accept: 0, errno, bad: Bad::Null };
        hca().refuse_post(unknown);
        qp.post(bind_mw(window, mr, ..8, READ).unwrap()).unwrap_err();
        hca().refuse_post(unknown);
        qp.post(local_inv(window).unwrap()).unwrap_err();
        assert!(matches!(local_inv(window), Err(Error::Invalid { .. })));
        hca().refuse_post(PostFault { bad: Bad::Nth, ..unknown });
        qp.post(bind_mw(window, mr, ..8, READ).unwrap()).unwrap_err();
        assert!(matches!(local_inv(window), Err(Error::Invalid { .. })), "nothing was posted");
    }
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    is_kept(&basic, &mut window, &mr, libc::EINVAL);
    is_kept(&basic, &mut window, &mr, libc::ENOMEM);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    is_kept(untrusted, &mut window, &mr, libc::ENOMEM);
}

/// As above, by `ibv_wr_*`.
#[test]
fn what_may_have_been_invalidated_is_not_invalidated_again() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let mut qp = rc_extended(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    qp.post(bind_mw(&mut window, &mr, ..8, READ).unwrap()).unwrap();
    hca().fail("ibv_wr_complete", libc::ENOSPC);
    assert!(qp.post(local_inv(&mut window).unwrap()).unwrap_err().is_queue_full());
    hca().fail("ibv_wr_complete", libc::EINVAL);
    qp.post(local_inv(&mut window).unwrap()).unwrap_err();
    assert!(matches!(local_inv(&mut window), Err(Error::Invalid { .. })));
    // and a bind that found the queue full is tried again with the key that the window has
    hca().fail("ibv_wr_complete", libc::ENOSPC);
    let refused = bind_mw(&mut window, &mr, ..8, READ).unwrap();
    qp.post(refused).unwrap_err();
    assert!(matches!(local_inv(&mut window), Err(Error::Invalid { .. })));
    qp.post(bind_mw(&mut window, &mr, ..8, READ).unwrap()).unwrap();
    qp.post(local_inv(&mut window).unwrap()).unwrap();
}

#[test]
fn a_batch_takes_each_window_once() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let qp = uc(&pd, &cq);
    let (mut first, mut second) = (pd.alloc_mw::<Type2>().unwrap(), pd.alloc_mw::<Type2>().unwrap());
    let made_with = rkey(&first);
    for count in [1, 2] {
        let mut storage = BatchStorage::<4>::new();
        let mut batch = qp.batch(&mut storage);
        batch.push(bind_mw(&mut first, &mr, ..8, READ).unwrap()).unwrap();
        batch.push(bind_mw(&mut second, &mr, 8..16, READ).unwrap()).unwrap();
        batch.push(send(Empty)).unwrap();
        batch.submit().unwrap();
        let [call] = hca().take_sends().try_into().unwrap();
        let [one, other, _] = call.try_into().unwrap();
        assert_eq!(one.bind, Some(bound(&mr, made_with, count, 0, 8)));
        assert_ne!(other.bind.unwrap().mw, one.bind.unwrap().mw);
    }
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(local_inv(&mut first).unwrap()).unwrap();
    batch.push(local_inv(&mut second).unwrap()).unwrap();
    batch.submit().unwrap();
}

#[test]
fn a_refused_bind_costs_no_key_and_a_refused_invalidate_is_none() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let qp = rc(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let made_with = rkey(&window);
    let full = PostFault { accept: 0, errno: libc::ENOMEM, bad: Bad::Nth };
    hca().refuse_post(full);
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap_err();
    assert!(matches!(local_inv(&mut window), Err(Error::Invalid { .. })), "not bound");
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    hca().refuse_post(full);
    qp.post(local_inv(&mut window).unwrap()).unwrap_err();
    qp.post(local_inv(&mut window).unwrap()).unwrap();
    let posted: Vec<_> = hca().take_sends().into_iter().flatten().collect();
    assert_eq!(posted.len(), 2);
    assert_eq!(posted[0].bind, Some(bound(&mr, made_with, 1, 0, 4096)));
    assert_eq!(posted[1].invalidate, Some(made_with + 1));
}

#[test]
fn keys_go_round_in_their_low_byte() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let qp = rc(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let made_with = rkey(&window);
    for count in 1..=600 {
        qp.post(bind_mw(&mut window, &mr, ..1, READ).unwrap()).unwrap();
        assert_eq!(posted()[0].bind, Some(bound(&mr, made_with, count, 0, 1)));
        // also when it is the one that the window was made with
        drop(local_inv(&mut window).unwrap());
    }
}

#[test]
fn one_bind_is_invalidated_once() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let qp = rc(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    assert!(local_inv(&mut window).unwrap_err().to_string().contains("not bound"));
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    qp.post(local_inv(&mut window).unwrap()).unwrap();
    assert!(local_inv(&mut window).unwrap_err().to_string().contains("invalidated already"));

    // the peer may do it too
    let bind = bind_mw(&mut window, &mr, .., READ).unwrap();
    let rkey = bind.remote_region().rkey;
    qp.post(bind).unwrap();
    assert!(!window.was_invalidated(rkey.wrapping_sub(1)), "an old key");
    drop(local_inv(&mut window).unwrap());
    assert!(window.was_invalidated(rkey));
    local_inv(&mut window).unwrap_err();
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    qp.post(local_inv(&mut window).unwrap()).unwrap();
}

#[test]
fn binds_that_cannot_be_are_refused_before_the_device() {
    let ctx = open();
    let (pd, other_pd) = (ctx.alloc_pd().unwrap(), ctx.alloc_pd().unwrap());
    let mr = for_windows(&pd);
    let closed = pd.alloc_remote(64, RemoteAccess::all() - RemoteAccess::MW_BIND).unwrap();
    let elsewhere = for_windows(&other_pd);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let mut refused = |mr, range, access| bind_mw(&mut window, mr, range, access).unwrap_err().to_string();
    assert!(refused(&closed, 0..8, READ).contains("RemoteAccess::MW_BIND"));
    assert!(refused(&elsewhere, 0..8, READ).contains("protection domain"));
    assert!(refused(&mr, 8..8, READ).contains("at least 1 byte"));
    assert!(refused(&mr, 0..4097, READ).contains("past the end"));
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let backwards = 9..8;
    assert!(refused(&mr, backwards, READ).contains("ends before"));
    assert!(refused(&mr, 0..8, RemoteAccess::empty()).contains("some of READ"));
    assert!(refused(&mr, 0..8, READ | RemoteAccess::MW_BIND).contains("some of READ"));
    drop(bind_mw(&mut window, &mr, 4095..4096, READ).unwrap());
}

#[test]
fn a_window_of_another_context_reaches_no_provider() {
    let (ctx, other) = (open(), open_other());
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let other_pd = other.alloc_pd().unwrap();
    let (mr, other_cq) = (for_windows(&other_pd), other.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    let mut window = other_pd.alloc_mw::<Type2>().unwrap();
    let bind = bind_mw(&mut window, &mr, .., READ).unwrap();
    assert_eq!(qp.post(bind), Err(PostError::OtherContext));
    rc(&other_pd, &other_cq).post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    assert_eq!(qp.post(local_inv(&mut window).unwrap()), Err(PostError::OtherContext));
    let mut window = other_pd.alloc_mw::<Type1>().unwrap();
    let bind = bind_mw(&mut window, &mr, .., READ).unwrap();
    assert_eq!(qp.bind_mw(bind), Err(PostError::OtherContext));
    assert_eq!(posted().len(), 1);
}

#[test]
fn windows_of_type_1_are_bound_by_the_verb() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = for_windows(&pd);
    let (qp, extended) = (rc(&pd, &cq), rc_extended(&pd, &cq));
    let mut window = pd.alloc_mw::<Type1>().unwrap();
    let made_with = rkey(&window);
    let at = mr.memory().as_ptr() as u64;
    let bind = bind_mw(&mut window, &mr, 8..16, READ).unwrap().id(1).signaled();
    let region = qp.bind_mw(bind).unwrap();
    assert_eq!(region, RemoteRegion { addr: at + 8, len: 8, rkey: made_with + 1 });
    // again without an invalidate, and by another queue pair of the domain; then to nothing
    extended.bind_mw(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    let region = qp.bind_mw(bind_mw(&mut window, &mr, 0..0, READ).unwrap()).unwrap();
    assert_eq!((region.len, region.rkey), (0, made_with + 3));
    let posted = posted();
    let flags = |at: usize| (posted[at].wr_id, posted[at].send_flags);
    assert_eq!((flags(0), flags(1)), ((1, IBV_SEND_SIGNALED), (0, 0)));
    assert_eq!(posted[0].bind, Some(bound(&mr, made_with, 1, 8, 8)));
    assert_eq!(posted[1].bind, Some(bound(&mr, made_with, 2, 0, 4096)));
    assert_eq!(posted[2].bind, Some(bound(&mr, made_with, 3, 0, 0)));

    hca().fail("ibv_bind_mw", libc::ENOMEM);
    let refused = qp.bind_mw(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap_err();
    assert!(refused.is_queue_full() && refused.accepted().is_none(), "{refused:?}");
}

#[test]
fn a_device_without_them_is_asked_for_the_rest() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = for_windows(&pd);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    let connected = || {
        let builder = trusted(pd.create_qp::<Rc>(&cq, &cq).extended());
        builder.build().map(|qp| qp.init(InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap())
    };
    let basic = rc(&pd, &cq);
    basic.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();

    hca().fail("ibv_create_qp_ex", libc::EOPNOTSUPP);
    let mut qp = connected().unwrap();
    assert_eq!(qp.post(local_inv(&mut window).unwrap()), Err(PostError::Unsupported));
    assert_eq!(qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()), Err(PostError::Unsupported));
    assert_eq!(qp.post(send_inv(Empty, 1)), Err(PostError::Unsupported));
    qp.post(send(Empty)).unwrap();
    // the provider was never asked, or has pointers for them all the same
    hca().configure(|config| {
        config.edit_qp = |qp| {
            qp.wr_send_inv = None;
            qp.wr_bind_mw = None;
        }
    });
    let mut qp = connected().unwrap();
    assert_eq!(qp.post(send_inv(Empty, 1)), Err(PostError::Unsupported));
    qp.post(local_inv(&mut window).unwrap()).unwrap();
    // every other reason is one
    hca().fail("ibv_create_qp_ex", libc::ENOMEM);
    assert_eq!(connected().unwrap_err().errno(), Some(libc::ENOMEM));
    let uc = trusted(pd.create_qp::<Uc>(&cq, &cq).extended()).build();
    drop(uc.unwrap());
}

#[test]
fn windows_go_before_what_they_are_bound_to() {
    {
        let ctx = open();
        let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
        let mr = for_windows(&pd);
        let mut window = pd.alloc_mw::<Type2>().unwrap();
        let qp = rc(&pd, &cq);
        qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    }
    let order: Vec<_> = hca().destroyed().into_iter().map(|id| id.kind).collect();
    let place = |kind| order.iter().position(|&of| of == kind).unwrap();
    assert!(place(Mw) < place(Mr) && place(Mr) < place(Pd), "{order:?}");
    assert_eq!(hca().live(), Live::default());
}

#[test]
fn shared_regions_stay_while_their_windows_may_lead_there() {
    let ctx = Arc::new(Context::open("null0").unwrap());
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let region = || {
        let pages = Pages::new(64).unwrap();
        Arc::new(MemoryRegion::remote(&pd, pages, RemoteAccess::MW_BIND).unwrap())
    };
    let cq = ctx.create_cq(256).unwrap();
    let qp = rc(&pd, &cq);
    let mut window: MemoryWindow<'static> = MemoryWindow::new(&pd).unwrap();
    let live = || hca().live().mrs;
    // whether a bind was posted or not, or to what the window was bound since
    for expected in [1, 2, 3] {
        let mr = region();
        drop(bind_mw(&mut window, &mr, .., READ).unwrap());
        qp.post(bind_mw(&mut window, mr, .., READ).unwrap()).unwrap();
        assert_eq!(live(), expected);
    }
    // one that is refused keeps nothing
    let closed = MemoryRegion::remote(&pd, Pages::new(64).unwrap(), READ).unwrap();
    bind_mw(&mut window, Arc::new(closed), .., READ).unwrap_err();
    assert_eq!(live(), 3);
    std::thread::spawn(move || window.close().unwrap()).join().unwrap();
    assert_eq!((live(), hca().live().mws), (0, 0));
}

#[test]
fn a_region_under_a_bound_window_is_leaked_or_given_back() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    // the device says so, of windows that are none of ours
    let mr = for_windows(&pd);
    hca().fail("ibv_dereg_mr", libc::EINVAL);
    let mr = mr.into_buffer().unwrap_err().into_object().unwrap();

    // nor does a device that says nothing get to free it: the forgotten window still leads there
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    std::mem::forget(window);
    let calls = hca().count("ibv_dereg_mr");
    let refused = mr.into_buffer().unwrap_err();
    assert_eq!(refused.error().errno(), Some(libc::EBUSY));
    assert!(refused.to_string().contains("window"), "{refused}");
    let mr = refused.into_object().unwrap();
    mr.write(0, b"still there").unwrap();
    let start = mr.memory();
    drop(mr);
    assert_eq!((hca().live().mrs, hca().count("ibv_dereg_mr")), (1, calls));
    assert!(hca().device_writes(start.as_ptr() as u64, b"a late peer"), "registered, and mapped");
}

#[test]
fn a_window_that_cannot_be_deallocated_keeps_its_region() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    let (mr, other) = (for_windows(&pd), for_windows(&pd));
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    qp.post(bind_mw(&mut window, &mr, .., READ).unwrap()).unwrap();
    hca().fail("ibv_dealloc_mw", libc::EIO);
    drop(window);
    mr.into_buffer().unwrap_err();
    // one that was deallocated keeps none
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    qp.post(bind_mw(&mut window, &other, .., READ).unwrap()).unwrap();
    window.close().unwrap();
    other.into_buffer().unwrap();
}

#[test]
fn windows_that_the_device_does_not_have() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    hca().fail("ibv_alloc_mw", libc::EOPNOTSUPP);
    let refused = pd.alloc_mw::<Type2>().unwrap_err();
    assert!(refused.to_string().contains("type 2"), "{refused}");
    assert!(refused.to_string().contains("does not support it"), "{refused}");
    hca().fail("ibv_dealloc_mw", libc::EIO);
    let refused = pd.alloc_mw::<Type1>().unwrap().close().unwrap_err();
    refused.into_object().unwrap().close().unwrap();
    assert_eq!(hca().live().mws, 0);
}
