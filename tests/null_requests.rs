//! Every request on the basic backend, against the `ibv_send_wr` and `ibv_recv_wr` that it should be.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};
use ibv::{
    AddressVector, Batch, BatchStorage, Empty, Grh, Inline, MemoryRegion, MrSlice, PostError, PostRecv,
    PostSend, Rc, RecvStorage, Transport, cmp_swp, fetch_add, read, recv, send, send_imm, write, write_imm,
};
use nullhca::{Atomic, RecvWr, Remote, SendWr, Sge, UdTo, hca};
use support_null::*;

const IMM: u32 = 0x0102_0304;
const IMM_WIRE: [u8; 4] = [1, 2, 3, 4];

fn sge(mr: &MemoryRegion<'_>, at: u64, length: u32) -> Sge {
    Sge { addr: mr.memory().as_ptr() as u64 + at, length, lkey: mr.lkey() }
}

/// The one request of the one call since last time.
fn posted() -> SendWr {
    let [call] = hca().take_sends().try_into().unwrap();
    let [wr] = call.try_into().unwrap();
    wr
}

#[test]
fn each_operation_has_its_fields() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc(&pd, &cq);
    let data = mr.slice(16..80).unwrap();
    let to = REMOTE.slice(100..200).unwrap();
    let remote = Some(Remote { addr: REMOTE.addr + 100, rkey: REMOTE.rkey });
    let sges = vec![sge(&mr, 16, 64)];
    let word = mr.u64_at(8).unwrap();
    let at = REMOTE.u64_at(24).unwrap();
    let word_sges = vec![sge(&mr, 8, 8)];
    let atomic = Atomic { addr: REMOTE.addr + 24, rkey: REMOTE.rkey, compare_add: 5, swap: 0 };

    qp.post(send(data).id(1)).unwrap();
    assert_eq!(posted(), SendWr { wr_id: 1, opcode: IBV_WR_SEND, sges: sges.clone(), ..Default::default() });
    qp.post(send_imm(data, IMM).id(2)).unwrap();
    let expected =
        SendWr { wr_id: 2, opcode: IBV_WR_SEND_WITH_IMM, imm_data: IMM_WIRE, ..Default::default() };
    assert_eq!(posted(), SendWr { sges: sges.clone(), ..expected });
    qp.post(write(data, to).id(3)).unwrap();
    let expected = SendWr { wr_id: 3, opcode: IBV_WR_RDMA_WRITE, remote, ..Default::default() };
    assert_eq!(posted(), SendWr { sges: sges.clone(), ..expected });
    qp.post(write_imm(data, to, IMM).id(4)).unwrap();
    let expected = SendWr {
        wr_id: 4,
        opcode: IBV_WR_RDMA_WRITE_WITH_IMM,
        remote,
        imm_data: IMM_WIRE,
        ..Default::default()
    };
    assert_eq!(posted(), SendWr { sges: sges.clone(), ..expected });
    qp.post(read(data, to).id(5)).unwrap();
    let expected = SendWr { wr_id: 5, opcode: IBV_WR_RDMA_READ, remote, ..Default::default() };
    assert_eq!(posted(), SendWr { sges, ..expected });
    qp.post(cmp_swp(word, at, 5, 6).id(6)).unwrap();
    let expected = SendWr {
        wr_id: 6,
        opcode: IBV_WR_ATOMIC_CMP_AND_SWP,
        sges: word_sges.clone(),
        atomic: Some(Atomic { swap: 6, ..atomic }),
        ..Default::default()
    };
    assert_eq!(posted(), expected);
    qp.post(fetch_add(word, at, 5).id(7)).unwrap();
    let expected = SendWr {
        wr_id: 7,
        opcode: IBV_WR_ATOMIC_FETCH_AND_ADD,
        sges: word_sges,
        atomic: Some(atomic),
        ..Default::default()
    };
    assert_eq!(posted(), expected);
}

#[test]
fn each_flag_has_its_bit() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc(&pd, &cq);
    let data = mr.slice(..64).unwrap();
    let to = REMOTE.slice(..64).unwrap();
    let (word, at) = (mr.u64_at(0).unwrap(), REMOTE.u64_at(0).unwrap());
    let all = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
    let flags = || posted().send_flags;

    qp.post(send(data)).unwrap();
    assert_eq!(flags(), 0);
    qp.post(send(data).signaled()).unwrap();
    assert_eq!(flags(), IBV_SEND_SIGNALED);
    qp.post(send(data).solicited()).unwrap();
    assert_eq!(flags(), IBV_SEND_SOLICITED);
    qp.post(send(data).fence()).unwrap();
    assert_eq!(flags(), IBV_SEND_FENCE);
    qp.post(send_imm(data, 0).fence().signaled().solicited()).unwrap();
    assert_eq!(flags(), all);
    qp.post(write(data, to).fence().signaled().solicited()).unwrap();
    assert_eq!(flags(), all);
    qp.post(write_imm(data, to, 0).fence().signaled().solicited()).unwrap();
    assert_eq!(flags(), all);
    qp.post(read(data, to).fence().signaled()).unwrap();
    assert_eq!(flags(), IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    qp.post(cmp_swp(word, at, 0, 0).fence().signaled()).unwrap();
    assert_eq!(flags(), IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    qp.post(fetch_add(word, at, 0).fence().signaled()).unwrap();
    assert_eq!(flags(), IBV_SEND_SIGNALED | IBV_SEND_FENCE);
    qp.post(send(Inline(b"x"))).unwrap();
    assert_eq!(flags(), IBV_SEND_INLINE);
    qp.post(write_imm(Inline(b"x"), to, 1).fence().signaled().solicited()).unwrap();
    assert_eq!(flags(), IBV_SEND_INLINE | all);
}

#[test]
fn data_can_be_none_one_several_or_inline() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = uc(&pd, &cq);
    let part = |range| mr.slice(range).unwrap();
    let to = REMOTE.slice(..).unwrap();

    qp.post(send(Empty)).unwrap();
    assert_eq!(posted().sges, []);
    qp.post(send(part(7..7))).unwrap();
    assert_eq!(posted().sges, [sge(&mr, 7, 0)]);
    qp.post(write([part(0..1), part(8..10), part(100..4096)], to)).unwrap();
    let three = [sge(&mr, 0, 1), sge(&mr, 8, 2), sge(&mr, 100, 3996)];
    assert_eq!(posted().sges, three);
    let list: Vec<MrSlice<'_>> = vec![part(0..1), part(8..10), part(100..4096)];
    qp.post(write(list.as_slice(), to)).unwrap();
    assert_eq!(posted().sges, three);
    qp.post(write(&list[..0], to)).unwrap();
    assert_eq!(posted().sges, []);
    // by reference, to whatever it is
    qp.post(write(&part(8..10), to)).unwrap();
    assert_eq!(posted().sges, [sge(&mr, 8, 2)]);
    qp.post(write(&&[part(0..1), part(8..10), part(100..4096)], to)).unwrap();
    assert_eq!(posted().sges, three);
    qp.post(send(&Empty)).unwrap();
    assert_eq!(posted().sges, []);
    qp.post(write(&Inline(b"x"), to)).unwrap();
    let wr = posted();
    assert_eq!((wr.send_flags, &wr.inline[..]), (IBV_SEND_INLINE, &b"x"[..]));
    let short = REMOTE.slice(..1).unwrap();
    assert_eq!(qp.post(write(&part(8..10), short)), Err(PostError::RemoteTooShort));
    assert_eq!(qp.post(write(&Inline(b"xy"), short)), Err(PostError::RemoteTooShort));
    assert_eq!(qp.post(send(&[part(0..1); 5])), Err(PostError::TooManySges { max: 4 }));
    assert_eq!(qp.post_recv(recv(&[part(0..1); 5])), Err(PostError::TooManySges { max: 4 }));
    qp.post_recv(recv(&part(8..10)).id(3)).unwrap();
    let [call] = hca().take_recvs().try_into().unwrap();
    assert_eq!((call[0].wr_id, &call[0].sges[..]), (3, &[sge(&mr, 8, 2)][..]));

    let bytes = std::array::from_fn::<u8, 64, _>(|at| at as u8);
    for len in [0, 1, 63, 64] {
        qp.post(write(Inline(&bytes[..len]), to)).unwrap();
        let wr = posted();
        assert_eq!((wr.send_flags, &wr.inline[..]), (IBV_SEND_INLINE, &bytes[..len]));
        assert_eq!(wr.sges, [Sge { length: len as u32, ..Sge::default() }]);
    }
}

#[test]
fn a_datagram_carries_its_address() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let ah = pd.create_ah(&AddressVector::global(1, Grh::new(peer().gid, 3))).unwrap();
    let qp = ud(&pd, &cq);
    let ud = Some(UdTo { ah: hca().id(ah.as_ptr()).unwrap(), qpn: 0x77, qkey: 0x1234_5678 });
    qp.post(send(mr.slice(..100).unwrap()).to(&ah, 0x77, 0x1234_5678).id(9).signaled().solicited()).unwrap();
    let expected = SendWr {
        wr_id: 9,
        opcode: IBV_WR_SEND,
        send_flags: IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
        sges: vec![sge(&mr, 0, 100)],
        ud,
        ..Default::default()
    };
    assert_eq!(posted(), expected);
    qp.post(send_imm(Inline(b"abc"), IMM).signaled().id(3).to(&ah, 0x77, 0x1234_5678)).unwrap();
    let expected = SendWr {
        wr_id: 3,
        opcode: IBV_WR_SEND_WITH_IMM,
        send_flags: IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        imm_data: IMM_WIRE,
        sges: vec![Sge { length: 3, ..Sge::default() }],
        inline: b"abc".to_vec(),
        ud,
        ..Default::default()
    };
    assert_eq!(posted(), expected);
}

#[test]
fn a_batch_is_one_call_with_its_requests_in_order() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let bytes = *b"inline";
    let qp = rc(&pd, &cq);
    let (data, to) = (mr.slice(..64).unwrap(), REMOTE.slice(..64).unwrap());
    let mut storage = BatchStorage::<5, 3>::new();
    let mut batch = qp.batch(&mut storage);
    assert!(batch.is_empty());
    batch.push(write(data, to).id(1)).unwrap();
    batch.push(send(Inline(&bytes)).id(2)).unwrap();
    batch.push(read([data; 3].map(|_| mr.slice(..8).unwrap()), to).id(3)).unwrap();
    batch.push(fetch_add(mr.u64_at(0).unwrap(), REMOTE.u64_at(0).unwrap(), 1).id(4)).unwrap();
    batch.push(send(Empty).id(5).signaled()).unwrap();
    assert_eq!(batch.len(), 5);
    assert_eq!(batch.push(send(Empty)), Err(PostError::BatchFull));
    assert_eq!(batch.len(), 5);
    batch.submit().unwrap();
    let [call] = hca().take_sends().try_into().unwrap();
    let ids: Vec<u64> = call.iter().map(|wr| wr.wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    assert_eq!(call[0].sges, [sge(&mr, 0, 64)]);
    assert_eq!(call[1].inline, b"inline");
    assert_eq!(call[2].sges, vec![sge(&mr, 0, 8); 3]);
    assert_eq!(call[3].opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
    assert_eq!((call[4].sges.len(), call[4].send_flags), (0, IBV_SEND_SIGNALED));

    // the storage is used again, with fewer requests: the list is cut
    let mut batch = qp.batch(&mut storage);
    batch.push(write(data, to).id(6)).unwrap();
    batch.submit().unwrap();
    let [call] = hca().take_sends().try_into().unwrap();
    assert_eq!(call.len(), 1);
    assert_eq!(call[0].wr_id, 6);

    // an empty batch, or one that is dropped, calls nobody
    qp.batch(&mut storage).submit().unwrap();
    let mut dropped = qp.batch(&mut storage);
    dropped.push(write(data, to)).unwrap();
    drop(dropped);
    assert_eq!(hca().take_sends(), Vec::<Vec<SendWr>>::new());
}

#[test]
fn a_refused_push_leaves_the_batch_as_it_was() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let (qp, long) = (rc(&pd, &cq), [0; 65]);
    let part = mr.slice(..8).unwrap();
    let mut storage = BatchStorage::<3, 2>::new();
    let mut batch: Batch<'_, '_, Rc, 2> = qp.batch(&mut storage);
    batch.push(send(part).id(1)).unwrap();
    assert_eq!(batch.push(send([part; 3])), Err(PostError::CellTooNarrow { max: 2 }));
    assert_eq!(batch.push(send([part; 5])), Err(PostError::TooManySges { max: 4 }));
    assert_eq!(batch.push(send(Inline(&long))), Err(PostError::InlineTooLong { max: 64 }));
    let short = REMOTE.slice(..7).unwrap();
    assert_eq!(batch.push(write(part, short)), Err(PostError::RemoteTooShort));
    batch.push(send(part).id(2)).unwrap();
    batch.submit().unwrap();
    let [call] = hca().take_sends().try_into().unwrap();
    assert_eq!(call.iter().map(|wr| wr.wr_id).collect::<Vec<_>>(), [1, 2]);
    assert!(call.iter().all(|wr| wr.sges == [sge(&mr, 0, 8)]));
}

#[test]
fn a_prepared_request_is_posted_as_it_was_made() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc(&pd, &cq);
    let to = REMOTE.slice(..64).unwrap();
    let several = [mr.slice(..8).unwrap(), mr.slice(8..9).unwrap()];
    let mut prepared = qp.prepare(write(several, to).signaled().id(1)).unwrap();
    let mut bytes = *b"before";
    let inline = qp.prepare(send_imm(Inline(&bytes), IMM).id(5)).unwrap();
    bytes = *b"after.";
    for id in 2..5 {
        qp.post_prepared(&prepared).unwrap();
        prepared.set_id(id);
        qp.post_prepared(&inline).unwrap();
    }
    qp.post_prepared(&prepared).unwrap();
    let calls: Vec<SendWr> = hca().take_sends().into_iter().flatten().collect();
    assert_eq!(calls.len(), 7);
    let expected = SendWr {
        opcode: IBV_WR_RDMA_WRITE,
        send_flags: IBV_SEND_SIGNALED,
        sges: vec![sge(&mr, 0, 8), sge(&mr, 8, 1)],
        remote: Some(Remote { addr: REMOTE.addr, rkey: REMOTE.rkey }),
        ..Default::default()
    };
    for (at, wr_id) in [(0, 1), (2, 2), (4, 3), (6, 4)] {
        assert_eq!(calls[at], SendWr { wr_id, ..expected.clone() });
    }
    let expected = SendWr {
        wr_id: 5,
        opcode: IBV_WR_SEND_WITH_IMM,
        send_flags: IBV_SEND_INLINE,
        imm_data: IMM_WIRE,
        sges: vec![Sge { length: 6, ..Sge::default() }],
        inline: b"before".to_vec(),
        ..Default::default()
    };
    assert!([1, 3, 5].into_iter().all(|at| calls[at] == expected));
    assert_eq!(&bytes, b"after.");
}

#[test]
fn a_prepared_request_moves_between_threads() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc(&pd, &cq);
    let prepared = Box::new(qp.prepare(send(mr.slice(..3).unwrap())).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| qp.post_prepared(&prepared).unwrap());
    });
    assert_eq!(posted().sges, [sge(&mr, 0, 3)]);
}

#[test]
fn receives_carry_their_elements() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc_init(&pd, &cq);
    let part = |range| mr.slice(range).unwrap();
    qp.post_recv(recv(part(0..100)).id(1)).unwrap();
    qp.post_recv(recv([part(0..1), part(2..4)]).id(2)).unwrap();
    qp.post_recv(recv(Empty).id(3)).unwrap();
    let list = [part(0..1), part(2..4)];
    qp.post_recv(recv(&list[..1]).id(4)).unwrap();
    qp.post_recv(recv(mr.slice(16..24).unwrap())).unwrap();
    let expected = [
        RecvWr { wr_id: 1, sges: vec![sge(&mr, 0, 100)] },
        RecvWr { wr_id: 2, sges: vec![sge(&mr, 0, 1), sge(&mr, 2, 2)] },
        RecvWr { wr_id: 3, sges: vec![] },
        RecvWr { wr_id: 4, sges: vec![sge(&mr, 0, 1)] },
        RecvWr { wr_id: 0, sges: vec![sge(&mr, 16, 8)] },
    ];
    assert_eq!(hca().take_recvs(), expected.clone().map(|wr| vec![wr]));

    let mut storage = RecvStorage::<3, 2>::new();
    let mut batch = qp.recv_batch(&mut storage);
    assert!(batch.is_empty());
    batch.push(recv(part(0..100)).id(1)).unwrap();
    batch.push(recv([part(0..1), part(2..4)]).id(2)).unwrap();
    assert_eq!(batch.push(recv([part(0..1); 3])), Err(PostError::CellTooNarrow { max: 2 }));
    assert_eq!(batch.push(recv([part(0..1); 5])), Err(PostError::TooManySges { max: 4 }));
    batch.push(recv(Empty).id(3)).unwrap();
    assert_eq!(batch.push(recv(Empty)), Err(PostError::BatchFull));
    assert_eq!(batch.len(), 3);
    batch.submit().unwrap();
    let [call] = hca().take_recvs().try_into().unwrap();
    assert_eq!(call, expected[..3]);
    qp.recv_batch(&mut storage).submit().unwrap();
    assert!(hca().take_recvs().is_empty());
}

#[test]
fn receives_can_be_posted_in_every_state_but_reset() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let part = mr.slice(..).unwrap();
    let qp = rc_init(&pd, &cq);
    qp.post_recv(recv(part)).unwrap();
    let qp = qp.connect(&connection(&ctx)).unwrap();
    qp.post_recv(recv(part)).unwrap();
    let qp = qp.sqd(false).unwrap();
    qp.post_recv(recv(part)).unwrap();
    let qp = qp.into_error().unwrap();
    qp.post_recv(recv(part)).unwrap();
    assert_eq!(hca().take_recvs().len(), 4);
}

#[test]
fn limits_are_checked_before_the_device_sees_anything() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let qp = rc(&pd, &cq);
    let part = mr.slice(..8).unwrap();
    let refused = |result: Result<(), PostError>, expected| {
        assert_eq!(result, Err(expected));
        assert_eq!((expected.accepted(), expected.errno()), (Some(0), None));
    };
    refused(qp.post(send([part; 5])), PostError::TooManySges { max: 4 });
    refused(qp.post(send(Inline(&[0; 65]))), PostError::InlineTooLong { max: 64 });
    refused(qp.post_recv(recv([part; 5])), PostError::TooManySges { max: 4 });
    refused(qp.post(write(part, REMOTE.slice(..7).unwrap())), PostError::RemoteTooShort);
    refused(qp.post(write([part; 2], REMOTE.slice(..15).unwrap())), PostError::RemoteTooShort);
    refused(qp.post(write(Inline(&[0; 9]), REMOTE.slice(..8).unwrap())), PostError::RemoteTooShort);
    refused(qp.post(read(part, REMOTE.slice(..7).unwrap())), PostError::RemoteTooShort);
    refused(qp.prepare(send([part; 5])).map(drop), PostError::TooManySges { max: 4 });
    refused(qp.prepare(send(Inline(&[0; 65]))).map(drop), PostError::InlineTooLong { max: 64 });
    assert!(hca().take_sends().is_empty() && hca().take_recvs().is_empty());
}

#[test]
fn one_function_posts_on_every_backend() {
    fn store<'a, T: Transport + ibv::qp::RdmaWrite>(
        queue: &mut impl PostSend<'a, Transport = T>,
        from: MrSlice<'a>,
    ) -> Result<(), PostError> {
        queue.post(write(from, REMOTE.slice(..64).unwrap()).signaled())
    }
    fn fetch<'a>(queue: &mut impl PostRecv<'a>, into: MrSlice<'a>) -> Result<(), PostError> {
        queue.post_recv(recv(into))
    }
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(512).unwrap());
    let mr = pd.alloc_local(4096).unwrap();
    let from = mr.slice(..64).unwrap();
    let mut basic = rc(&pd, &cq);
    store(&mut basic, from).unwrap();
    store(&mut &basic, from).unwrap();
    store(&mut uc(&pd, &cq), from).unwrap();
    let mut extended = rc_extended(&pd, &cq);
    store(&mut extended, from).unwrap();
    fetch(&mut extended, from).unwrap();
    fetch(&mut &extended, from).unwrap();
    fetch(&mut &basic, from).unwrap();
    assert_eq!(hca().take_sends().len(), 3);
    assert_eq!(hca().take_wr_calls().len(), 4);
    assert_eq!(hca().take_recvs().len(), 3);
}
