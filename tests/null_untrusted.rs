//! Extended queue pairs on a provider whose `ibv_wr_*` are not known to be sound: only `ibv_post_send` is called.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::state::Rts;
use ibv::sys::{IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND};
use ibv::{
    AddressVector, CompletionQueue, Extended, Grh, InitAttr, Inline, Pages, PostError, ProtectionDomain,
    QueuePair, QueuePairBuilder, Rc, RemoteAccess, Type2, Ud, UdInitAttr, bind_mw, cmp_swp, fetch_add,
    local_inv, read, send, send_imm, send_inv, write, write_imm,
};
use nullhca::{Bad, PostFault, SendWr, WrCall, hca};
use support_null::*;

fn builder<'a>(
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
) -> QueuePairBuilder<'a, Rc, Extended> {
    pd.create_qp::<Rc>(cq, cq).send_depth(64).send_sges(4).inline(64).extended()
}

fn made<'a>(pd: &'a ProtectionDomain<'a>, cq: &'a CompletionQueue<'a>) -> QueuePair<'a, Rc, Rts, Extended> {
    let qp = builder(pd, cq).build().unwrap().init(InitAttr::new(1)).unwrap();
    qp.connect(&connection(pd.context())).unwrap()
}

/// The lists that were posted, and nothing by `ibv_wr_*`.
fn lists() -> Vec<Vec<SendWr>> {
    assert_eq!(hca().take_wr_calls(), []);
    hca().take_sends()
}

fn ids(list: &[SendWr]) -> Vec<u64> {
    list.iter().map(|wr| wr.wr_id).collect()
}

#[test]
fn every_request_is_what_it_is_on_a_basic_queue_pair() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let (mut extended, basic) = (made(&pd, &cq), rc(&pd, &cq));
    let (data, parts) = (mr.slice(16..80).unwrap(), [mr.slice(..8).unwrap(); 4]);
    let (to, at) = (REMOTE.slice(100..200).unwrap(), REMOTE.u64_at(24).unwrap());
    let word = mr.u64_at(8).unwrap();
    macro_rules! same {
        ($($request:expr),+ $(,)?) => {$(
            extended.post($request).unwrap();
            basic.post($request).unwrap();
            let posted = lists();
            assert_eq!(posted.len(), 2);
            assert_eq!(posted[0], posted[1], stringify!($request));
        )+};
    }
    same!(
        send(data).id(1).signaled(),
        send(&parts[..]).fence(),
        send_imm(ibv::Empty, 7).solicited(),
        send(Inline(b"inline")),
        send_inv(data, 9),
        write(parts, to).id(u64::MAX),
        write_imm(data, to, Some(5)),
        write_imm(data, to, None),
        read(parts, to),
        cmp_swp(word, at, 5, 6),
        fetch_add(word, at, 7).signaled(),
    );
}

#[test]
fn a_list_goes_by_one_call() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = made(&pd, &cq);
    let parts = [mr.slice(..8).unwrap(), mr.slice(8..24).unwrap(), mr.slice(24..24).unwrap()];
    let requests: Vec<_> = (0..40).map(|id| send(parts).id(id)).collect();
    for count in [40, 3, 0, 1, 40] {
        qp.post_list(&requests[..count]).unwrap();
        let posted = lists().concat();
        assert_eq!(ids(&posted), (0..count as u64).collect::<Vec<_>>());
        for wr in posted {
            assert_eq!((wr.opcode, wr.send_flags), (IBV_WR_SEND, 0));
            assert_eq!(wr.sges.iter().map(|sge| sge.length).collect::<Vec<_>>(), [8, 16, 0]);
        }
    }
    // each has an element, or bytes, of its own
    let requests: Vec<_> = (0..20).map(|at| send(mr.slice(at..2 * at + 1).unwrap())).collect();
    qp.post_list(&requests).unwrap();
    for (wr, at) in lists().concat().iter().zip(0..) {
        let sge = &wr.sges[0];
        assert_eq!((sge.addr - mr.memory().as_ptr() as u64, sge.length), (at, at as u32 + 1));
    }
    let bytes: Vec<[u8; 2]> = (0..20).map(|id| [id, id + 1]).collect();
    let requests: Vec<_> = bytes.iter().map(|bytes| send(Inline(bytes)).signaled()).collect();
    qp.post_list(&requests).unwrap();
    for (wr, bytes) in lists().concat().iter().zip(&bytes) {
        assert_eq!((&wr.inline[..], wr.send_flags), (&bytes[..], IBV_SEND_INLINE | IBV_SEND_SIGNALED));
    }
}

#[test]
fn how_many_were_accepted_is_told() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = made(&pd, &cq);
    let requests: Vec<_> = (0..40).map(|id| send(mr.slice(..8).unwrap()).id(id)).collect();
    for (bad, accepted) in
        [(Bad::Nth, Some(5)), (Bad::Null, None), (Bad::Foreign, None), (Bad::Untouched, None)]
    {
        hca().refuse_post(PostFault { accept: 5, errno: libc::ENOMEM, bad });
        let full = qp.post_list(&requests).unwrap_err();
        assert_eq!(full, PostError::Device { errno: libc::ENOMEM, accepted });
        assert_eq!(lists().concat().len(), 5);
    }
    hca().refuse_post(PostFault { accept: 0, errno: libc::EINVAL, bad: Bad::Nth });
    let refused = qp.post(send(Inline(b""))).unwrap_err();
    assert_eq!(refused, PostError::Device { errno: libc::EINVAL, accepted: Some(0) });
    qp.post(send(Inline(b""))).unwrap();
    assert_eq!(lists().concat().len(), 1);
}

#[test]
fn what_does_not_fit_posts_nothing() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = made(&pd, &cq);
    let data = mr.slice(..8).unwrap();
    let too_long = Err(PostError::InlineTooLong { max: 64 });
    assert_eq!(qp.post(send(Inline(&[0; 65]))), too_long);
    let mut requests = [send(Inline(&[0; 64])); 20];
    requests[19] = send(Inline(&[0; 65]));
    assert_eq!(qp.post_list(&requests), too_long);
    assert_eq!(qp.post(send([data; 5])), Err(PostError::TooManySges { max: 4 }));
    assert_eq!(qp.post(write(data, REMOTE.slice(..7).unwrap())), Err(PostError::RemoteTooShort));
    assert_eq!(lists().len(), 0);
    // nor does a queue pair that is in no state for it
    hca().set_state(qp.as_ptr(), ibv::sys::IBV_QPS_RESET);
    assert_eq!(qp.post(send(data)).unwrap_err().errno(), Some(libc::EINVAL));
}

#[test]
fn datagrams_and_windows() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let ah = pd.create_ah(&AddressVector::global(1, Grh::new(peer().gid, 3))).unwrap();
    let ud = pd.create_qp::<Ud>(&cq, &cq).extended().build().unwrap();
    let mut ud = ud.init(UdInitAttr::new(1, 0x11)).unwrap().activate(1).unwrap();
    ud.post(send(mr.slice(..8).unwrap()).to(&ah, 3, 4).id(1)).unwrap();
    let to = lists()[0][0].ud.unwrap();
    assert_eq!((Some(to.ah), to.qpn, to.qkey), (hca().id(ah.as_ptr()), 3, 4));

    let all = RemoteAccess::READ | RemoteAccess::MW_BIND;
    let open = ibv::MemoryRegion::remote(&pd, Pages::new(4096).unwrap(), all).unwrap();
    let mut qp = made(&pd, &cq);
    let mut window = pd.alloc_mw::<Type2>().unwrap();
    hca().refuse_post(PostFault { accept: 0, errno: libc::ENOMEM, bad: Bad::Nth });
    let full = qp.post(bind_mw(&mut window, &open, .., RemoteAccess::READ).unwrap()).unwrap_err();
    assert!(full.is_queue_full() && local_inv(&mut window).is_err(), "it was not posted");
    lists();
    qp.post(bind_mw(&mut window, &open, .., RemoteAccess::READ).unwrap()).unwrap();
    qp.post(local_inv(&mut window).unwrap()).unwrap();
    let posted = lists().concat();
    assert_eq!((posted[0].opcode, posted[1].opcode), (IBV_WR_BIND_MW, IBV_WR_LOCAL_INV));
    assert_eq!(posted[0].bind.map(|bind| bind.rkey), posted[1].invalidate);
    assert!(local_inv(&mut window).is_err(), "it was posted");
}

#[test]
fn those_of_rxe_are_trusted_by_themselves() {
    hca().configure(|config| config.device.vendor_id = 0x00ff_ffff);
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mut qp = made(&pd, &cq);
    qp.post(send(Inline(b"data"))).unwrap();
    assert_eq!(hca().take_wr_calls().last(), Some(&WrCall::Complete));
    assert_eq!(lists().len(), 0);
}

#[test]
fn a_provider_without_them_will_do() {
    hca().configure(|config| config.extended = false);
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mut qp = made(&pd, &cq);
    qp.post(send(Inline(b"data"))).unwrap();
    assert_eq!(lists().len(), 1);
    assert_eq!(hca().count("ibv_create_qp_ex"), 0);
    // but if they are to be called, they must be there
    let error = trusted(builder(&pd, &cq)).build().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
}
