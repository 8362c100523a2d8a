//! Every request on the extended backend, against the calls of `ibv_wr_*` that it should be.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::sys::{IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_qp_ex};
use ibv::{
    AddressVector, Empty, Error, Grh, Inline, MemoryRegion, PostError, Rc, Transport, Uc, Ud, cmp_swp,
    fetch_add, read, recv, send, send_imm, write, write_imm,
};
use nullhca::WrCall::{self, Complete, SetInline, SetSge, SetSgeList, Start};
use nullhca::{Atomic, Remote, Sge, UdTo, hca};
use support_null::*;

const IMM: u32 = 0x0102_0304;
const WIRE: [u8; 4] = [1, 2, 3, 4];

fn sge(mr: &MemoryRegion<'_>, at: u64, length: u32) -> Sge {
    Sge { addr: mr.memory().as_ptr() as u64 + at, length, lkey: mr.lkey() }
}

#[track_caller]
fn expect(calls: &[WrCall]) {
    assert_eq!(hca().take_wr_calls(), calls);
}

#[test]
fn each_operation_has_its_calls() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let data = mr.slice(16..80).unwrap();
    let to = REMOTE.slice(100..200).unwrap();
    let remote = Remote { addr: REMOTE.addr + 100, rkey: REMOTE.rkey };
    let element = SetSge(sge(&mr, 16, 64));
    let (word, at) = (mr.u64_at(8).unwrap(), REMOTE.u64_at(24).unwrap());
    let atomic = Atomic { addr: REMOTE.addr + 24, rkey: REMOTE.rkey, compare_add: 5, swap: 0 };
    let signaled = IBV_SEND_SIGNALED;

    qp.post(send(data).id(1)).unwrap();
    expect(&[Start, WrCall::Send { id: 1, flags: 0 }, element.clone(), Complete]);
    qp.post(send_imm(data, IMM).id(2).signaled()).unwrap();
    expect(&[Start, WrCall::SendImm { id: 2, flags: signaled, imm: WIRE }, element.clone(), Complete]);
    qp.post(write(data, to).id(3).fence().solicited()).unwrap();
    let flags = IBV_SEND_FENCE | IBV_SEND_SOLICITED;
    expect(&[Start, WrCall::Write { id: 3, flags, to: remote }, element.clone(), Complete]);
    qp.post(write_imm(data, to, IMM).id(4)).unwrap();
    expect(&[Start, WrCall::WriteImm { id: 4, flags: 0, to: remote, imm: WIRE }, element.clone(), Complete]);
    qp.post(read(data, to).id(5).signaled()).unwrap();
    expect(&[Start, WrCall::Read { id: 5, flags: signaled, from: remote }, element, Complete]);
    let element = SetSge(sge(&mr, 8, 8));
    qp.post(cmp_swp(word, at, 5, 6).id(6)).unwrap();
    let swaps = Atomic { swap: 6, ..atomic };
    expect(&[Start, WrCall::CmpSwp { id: 6, flags: 0, atomic: swaps }, element.clone(), Complete]);
    qp.post(fetch_add(word, at, 5).id(7)).unwrap();
    expect(&[Start, WrCall::FetchAdd { id: 7, flags: 0, atomic }, element, Complete]);
}

#[test]
fn data_can_be_none_one_several_or_inline() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let part = |range| mr.slice(range).unwrap();
    let head = |id, flags| WrCall::Send { id, flags };
    qp.post(send(Empty)).unwrap();
    expect(&[Start, head(0, 0), SetSge(Sge::default()), Complete]);
    qp.post(send([part(0..8)])).unwrap();
    expect(&[Start, head(0, 0), SetSge(sge(&mr, 0, 8)), Complete]);
    qp.post(send([part(0..8), part(9..10)])).unwrap();
    expect(&[Start, head(0, 0), SetSgeList(vec![sge(&mr, 0, 8), sge(&mr, 9, 1)]), Complete]);
    qp.post(send(Inline(b"abc")).signaled()).unwrap();
    // the flag is there before the operation is called: libmlx5 picks its segments by it
    let flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    expect(&[Start, head(0, flags), SetInline(b"abc".to_vec()), Complete]);
}

#[test]
fn a_list_is_started_and_completed_once() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let data = mr.slice(..8).unwrap();
    qp.post_list(&[send(data).id(1), send(data).id(2).signaled()]).unwrap();
    let element = SetSge(sge(&mr, 0, 8));
    let (first, last) = (WrCall::Send { id: 1, flags: 0 }, WrCall::Send { id: 2, flags: IBV_SEND_SIGNALED });
    expect(&[Start, first, element.clone(), last, element.clone(), Complete]);

    // some of which have immediate data
    let (to, remote) = (REMOTE.slice(..8).unwrap(), Remote { addr: REMOTE.addr, rkey: REMOTE.rkey });
    qp.post_list(&[write_imm(data, to, None).id(1), write_imm(data, to, Some(IMM)).id(2)]).unwrap();
    let first = WrCall::Write { id: 1, flags: 0, to: remote };
    let last = WrCall::WriteImm { id: 2, flags: 0, to: remote, imm: WIRE };
    expect(&[Start, first, element.clone(), last, element, Complete]);
}

#[test]
fn a_datagram_carries_its_address() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let ah = pd.create_ah(&AddressVector::global(1, Grh::new(peer().gid, 3))).unwrap();
    let mut qp = ud_extended(&pd, &cq);
    let to = UdTo { ah: hca().id(ah.as_ptr()).unwrap(), qpn: 3, qkey: 4 };
    qp.post(send(mr.slice(..8).unwrap()).to(&ah, 3, 4).id(1)).unwrap();
    let send = WrCall::Send { id: 1, flags: 0 };
    expect(&[Start, send, WrCall::SetUdAddr(to), SetSge(sge(&mr, 0, 8)), Complete]);
}

#[test]
fn a_refused_request_stops_the_list_before_it_starts() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let data = mr.slice(..8).unwrap();
    let short = REMOTE.slice(..7).unwrap();
    let enough = REMOTE.slice(..8).unwrap();
    let refused = qp.post_list(&[write(data, enough), write(data, short)]).unwrap_err();
    assert_eq!((refused, refused.accepted()), (PostError::RemoteTooShort, Some(0)));
    // whatever the data is, and wherever in the list
    let too_short = Err(PostError::RemoteTooShort);
    let (less, more) = (REMOTE.slice(..15).unwrap(), REMOTE.slice(..16).unwrap());
    assert_eq!(qp.post_list(&[write([data; 2], less), write([data; 2], more)]), too_short);
    assert_eq!(qp.post_list(&[write(&[data; 2][..], more), write(&[data; 2][..], less)]), too_short);
    assert_eq!(qp.post_list(&[write(&data, enough), write(&data, short)]), too_short);
    assert_eq!(qp.post_list(&[read(data, short), read(data, enough)]), too_short);
    assert_eq!(qp.post_list(&[read(&data, enough), read(&data, short)]), too_short);
    let bytes = Inline(&[0; 8]);
    assert_eq!(qp.post_list(&[write(bytes, enough), write(bytes, short), write(bytes, enough)]), too_short);
    assert_eq!(qp.post_list(&[write_imm(data, enough, Some(1)), write_imm(data, short, None)]), too_short);
    assert_eq!(qp.post(write([data; 2], less)), too_short);
    assert_eq!(qp.post(send([data; 5])), Err(PostError::TooManySges { max: 4 }));
    expect(&[]);
    // and the queue pair goes on
    qp.post_list(&[write(Empty, REMOTE.slice(..0).unwrap()); 2]).unwrap();
    qp.post_list(&[write(&[data; 2][..], more); 2]).unwrap();
    qp.post(send(data)).unwrap();
}

/// The provider looks at its length, where its `ibv_wr_*` are called.
#[test]
fn inline_data_without_room_is_found_when_the_list_is_complete() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let too_long = PostError::InlineTooLong { max: 64 };
    assert_eq!(too_long.accepted(), Some(0));
    assert_eq!(qp.post(send(Inline(&[0; 65]))), Err(too_long));
    assert_eq!(hca().take_wr_calls().last(), Some(&Complete));
    for nth in 0..3 {
        let mut requests = [send(Inline(&[1; 64])); 3];
        requests[nth] = send(Inline(&[0; 65]));
        assert_eq!(qp.post_list(&requests), Err(too_long));
    }
    qp.post_list(&[send(Inline(&[1; 64])); 3]).unwrap();
    qp.post(send(mr.slice(..8).unwrap())).unwrap();
    // another failure is none of the data's
    hca().fail("ibv_wr_complete", libc::EINVAL);
    let error = qp.post(send(Inline(&[1; 64]))).unwrap_err();
    assert_eq!(error, PostError::Device { errno: libc::EINVAL, accepted: None });
}

#[test]
fn a_failing_complete_says_nothing_of_what_is_in_flight() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    hca().fail("ibv_wr_complete", libc::ENOSPC);
    let error = qp.post(send(mr.slice(..8).unwrap())).unwrap_err();
    assert_eq!(error, PostError::Device { errno: libc::ENOSPC, accepted: None });
    assert!(error.is_queue_full() && error.accepted().is_none());
    qp.post(send(mr.slice(..8).unwrap())).unwrap();
}

#[test]
fn a_device_without_the_operations_is_refused_when_the_queue_pair_is_made() {
    hca().configure(|config| config.extended = false);
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let error = trusted(pd.create_qp::<Rc>(&cq, &cq).extended()).build().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
    assert_eq!(hca().live().qps, 0);
}

#[test]
fn a_missing_operation_is_found_when_the_queue_pair_is_made() {
    /// Whether a queue pair of that transport cannot be made when `omit` takes pointers away.
    fn is_refused<T: Transport>(omit: fn(&mut ibv_qp_ex)) -> bool {
        let ctx = open();
        let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
        hca().configure(|config| config.edit_qp = omit);
        let made = trusted(pd.create_qp::<T>(&cq, &cq).extended()).build();
        hca().configure(|config| config.edit_qp = |_| {});
        let refused = match made {
            Ok(_) => return false,
            Err(error) => error,
        };
        assert!(matches!(&refused, Error::Verb(verb) if verb.errno() == libc::EOPNOTSUPP), "{refused}");
        assert_eq!(hca().live().qps, 0, "what was made is destroyed");
        // its room is given back
        pd.create_qp::<T>(&cq, &cq).send_depth(120).recv_depth(120).build().unwrap();
        true
    }
    let common: [fn(&mut ibv_qp_ex); 8] = [
        |qp| qp.wr_start = None,
        |qp| qp.wr_complete = None,
        |qp| qp.wr_abort = None,
        |qp| qp.wr_set_sge = None,
        |qp| qp.wr_set_sge_list = None,
        |qp| qp.wr_set_inline_data = None,
        |qp| qp.wr_send = None,
        |qp| qp.wr_send_imm = None,
    ];
    for omit in common {
        assert!(is_refused::<Rc>(omit) && is_refused::<Uc>(omit) && is_refused::<Ud>(omit));
    }
    let writes: [fn(&mut ibv_qp_ex); 2] = [|qp| qp.wr_rdma_write = None, |qp| qp.wr_rdma_write_imm = None];
    for omit in writes {
        assert!(is_refused::<Rc>(omit) && is_refused::<Uc>(omit) && !is_refused::<Ud>(omit));
    }
    let reads: [fn(&mut ibv_qp_ex); 3] =
        [|qp| qp.wr_rdma_read = None, |qp| qp.wr_atomic_cmp_swp = None, |qp| qp.wr_atomic_fetch_add = None];
    for omit in reads {
        assert!(is_refused::<Rc>(omit) && !is_refused::<Uc>(omit) && !is_refused::<Ud>(omit));
    }
    assert!(is_refused::<Ud>(|qp| qp.wr_set_ud_addr = None));
    assert!(!is_refused::<Rc>(|qp| qp.wr_set_ud_addr = None));
}

#[test]
fn rxe_has_one_element_there() {
    // its ibv_wr_set_sge_list sends wrong lengths
    hca().configure(|config| config.device.vendor_id = 0x00ff_ffff);
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let mut qp = rc_extended(&pd, &cq);
    let part = mr.slice(..8).unwrap();
    assert_eq!(qp.post(send([part; 2])), Err(PostError::TooManySges { max: 1 }));
    qp.post(send([part; 1])).unwrap();
    qp.post_recv(recv([part; 1])).unwrap();
    let basic = rc(&pd, &cq);
    basic.post(send([part; 2])).unwrap();
}
