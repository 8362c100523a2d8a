//! Extended completion queues.

use std::time::Duration;

use ibv::fields::{ByteLen, HasGrh, Imm, InvalidatedRkey, QpNum, SrcQp, Timestamp, WallClock};
use ibv::{
    AddressHandle, AddressVector, Arm, CompletionChannel, CompletionQueue, Empty, Error, Extended,
    ExtendedCompletion, GRH_LEN, Grh, Inline, PollCq, Poller, QueuePair, Rc, RemoteAccess, Type2, Ud,
    UdInitAttr, WcFields, WcOpcode, WcStatus, WorkCompletion, bind_mw, read, recv, send, send_imm, send_inv,
    write, write_imm,
};

use crate::rig::{
    Parts, QKEY, Rig, connect, contents, gather, next_from, open_init, pattern, roomy, scenario,
};

const EVENT: Duration = Duration::from_secs(10);

pub(crate) fn queue<F: WcFields>(rig: &Rig) -> CompletionQueue<'_, Extended> {
    CompletionQueue::builder(&rig.ctx, 256).build_extended::<F>().unwrap()
}

/// Two connected queue pairs, each with its completion queue.
pub(crate) fn pair<'p>(
    parts: &'p Parts<'p>,
    a_cq: &'p CompletionQueue<'p, Extended>,
    b_cq: &'p CompletionQueue<'p, Extended>,
) -> [QueuePair<'p>; 2] {
    let make = |cq| roomy(parts.pd.create_qp::<Rc>(cq, cq)).build().unwrap();
    connect(&parts.local, [a_cq, b_cq].map(|cq| make(cq).init(open_init(&parts.local)).unwrap()))
}

/// The next completions, so many, and no more: there is room for others.
fn next_of<F: WcFields>(poller: &mut Poller<'_, F>, count: usize) -> Vec<ExtendedCompletion<F>> {
    let mut wcs = [ExtendedCompletion::default(); 16];
    let found = gather(count, |_| poller.poll(&mut wcs).unwrap().to_vec());
    assert_eq!(found.len(), count, "{found:?}");
    found
}

/// What was read of the next completion, which must be that of request `id`, and a success.
pub(crate) fn done<F: WcFields>(poller: &mut Poller<'_, F>, id: u64) -> F {
    let wc = gather(1, |_| poller.poll_one().unwrap().into_iter().collect())[0];
    assert_eq!((wc.id(), wc.status()), (id, WcStatus::SUCCESS), "{wc:?}");
    wc.result().unwrap()
}

#[test]
fn each_operation_says_what_it_has() {
    type Fields = (WcOpcode, ByteLen, Imm, QpNum);
    scenario(|rig| {
        let (parts, a_cq, b_cq) = (rig.parts(), queue::<Fields>(rig), queue::<Fields>(rig));
        let (from, to, far) = (parts.filled(200, 1), parts.zeros(300), parts.open(300));
        let [a, b] = pair(&parts, &a_cq, &b_cq);
        let (a_qpn, b_qpn) = (QpNum(a.qp_num()), QpNum(b.qp_num()));
        let mut at_a = Poller::<Fields>::new(&a_cq).unwrap();
        let mut at_b = Poller::<Fields>::new(&b_cq).unwrap();
        let (data, far) = (from.slice(..).unwrap(), far.remote_region().slice(..200).unwrap());
        let nothing = (ByteLen(None), Imm(None), a_qpn);

        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(data).signaled().id(2)).unwrap();
        assert_eq!(done(&mut at_a, 2), (WcOpcode::SEND, nothing.0, nothing.1, nothing.2));
        assert_eq!(done(&mut at_b, 1), (WcOpcode::RECV, ByteLen(Some(200)), Imm(None), b_qpn));
        assert_eq!(contents(&to)[..200], pattern(200, 1));

        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        a.post(send_imm(Inline(b"four"), 0xa1b2_c3d4).signaled().id(4)).unwrap();
        assert_eq!(done(&mut at_a, 4), (WcOpcode::SEND, nothing.0, nothing.1, nothing.2));
        let imm = Imm(Some(0xa1b2_c3d4));
        assert_eq!(done(&mut at_b, 3), (WcOpcode::RECV, ByteLen(Some(4)), imm, b_qpn));

        b.post_recv(recv(Empty).id(5)).unwrap();
        a.post(write_imm(data, far, 7).signaled().id(6)).unwrap();
        assert_eq!(done(&mut at_a, 6).0, WcOpcode::RDMA_WRITE);
        let (opcode, _, imm, qp) = done(&mut at_b, 5);
        assert_eq!((opcode, imm, qp), (WcOpcode::RECV_RDMA_WITH_IMM, Imm(Some(7)), b_qpn));

        a.post(read(to.slice(..200).unwrap(), far).signaled().id(7)).unwrap();
        assert_eq!(done(&mut at_a, 7), (WcOpcode::RDMA_READ, ByteLen(Some(200)), Imm(None), a_qpn));
        assert!(at_a.poll_one().unwrap().is_none() && at_b.poll_one().unwrap().is_none());
    });
}

#[test]
fn an_invalidated_key_is_told() {
    scenario(|rig| {
        let (parts, cq) = (rig.parts(), queue::<()>(rig));
        let far = parts.pd.alloc_remote(64, RemoteAccess::MW_BIND).unwrap();
        let [a, b] = pair(&parts, &cq, &cq);
        let mut poller = Poller::<(WcOpcode, InvalidatedRkey, Imm)>::new(&cq).unwrap();
        let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
        a.post_recv(recv(Empty).id(1)).unwrap();
        let bind = bind_mw(&mut window, &far, .., RemoteAccess::WRITE).unwrap().signaled().id(2);
        let part = bind.remote_region();
        a.post(bind).unwrap();
        assert_eq!(done(&mut poller, 2).0, WcOpcode::BIND_MW);
        b.post(send_inv(Empty, part.rkey).id(3)).unwrap();
        // Soft-RoCE does not tell; see `windows.rs`
        let tells = rig.ctx.device_attr().vendor_id() != 0x00ff_ffff;
        let expected = (WcOpcode::RECV, InvalidatedRkey(tells.then_some(part.rkey)), Imm(None));
        assert_eq!(done(&mut poller, 1), expected);
        assert!(window.was_invalidated(part.rkey));
    });
}

#[test]
fn runs_that_come_to_the_end_of_the_queue() {
    scenario(|rig| {
        let (parts, a_cq, b_cq) = (rig.parts(), queue::<()>(rig), queue::<()>(rig));
        let to = parts.zeros(64);
        let [a, b] = pair(&parts, &a_cq, &b_cq);
        let mut at_a = Poller::<()>::new(&a_cq).unwrap();
        let mut at_b = Poller::<ByteLen>::new(&b_cq).unwrap();
        let mut next = 0;
        // round the ring several times
        for round in 0..60 {
            let ids = next..next + 1 + round % 13;
            for id in ids.clone() {
                b.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
                a.post(send(Inline(&[id as u8])).signaled().id(id)).unwrap();
            }
            next = ids.end;
            let count = ids.clone().count();
            let sent: Vec<_> = next_of(&mut at_a, count).iter().map(|wc| wc.id()).collect();
            assert!(sent.iter().copied().eq(ids.clone()), "{sent:?}");
            let received = next_of(&mut at_b, count);
            assert!(received.iter().all(|wc| wc.result().unwrap() == ByteLen(Some(1))), "{received:?}");
            assert!(received.iter().map(|wc| wc.id()).eq(ids));
            assert!(at_a.poll(&mut [ExtendedCompletion::default(); 16]).unwrap().is_empty());
            assert!(at_b.poll(&mut [ExtendedCompletion::default(); 16]).unwrap().is_empty());
        }
    });
}

#[test]
fn errors_and_flushes_say_why() {
    scenario(|rig| {
        let (parts, cq) = (rig.parts(), queue::<()>(rig));
        let (from, far) = (parts.filled(64, 1), parts.open(64));
        let [a, b] = pair(&parts, &cq, &cq);
        let mut poller = Poller::<(WcOpcode, ByteLen)>::new(&cq).unwrap();
        let mut closed = far.remote_region();
        closed.rkey ^= 0x55;
        a.post_recv(recv(Empty).id(1)).unwrap();
        let to = closed.slice(..64).unwrap();
        a.post(write(from.slice(..).unwrap(), to).id(2)).unwrap();
        a.post(send(Empty).id(3)).unwrap();
        // what is flushed may come in any order
        let mut failed = next_of(&mut poller, 3);
        let first = failed[0].result().unwrap_err();
        assert_eq!((first.id, first.status), (2, WcStatus::REM_ACCESS_ERR));
        assert_eq!(first.qp_num, a.qp_num());
        failed.sort_unstable_by_key(ExtendedCompletion::id);
        for (wc, id) in [(failed[0], 1), (failed[2], 3)] {
            assert_eq!((wc.id(), wc.status()), (id, WcStatus::WR_FLUSH_ERR));
        }
        drop(b.into_error().unwrap());
    });
}

#[test]
fn polls_of_both_kinds_take_turns() {
    scenario(|rig| {
        let (parts, cq) = (rig.parts(), queue::<WcOpcode>(rig));
        let (to, far) = (parts.zeros(64), parts.open(64));
        let [a, b] = pair(&parts, &cq, &cq);
        let mut poller = Poller::<WcOpcode>::new(&cq).unwrap();
        let mut closed = far.remote_region();
        closed.rkey ^= 0x55;
        for id in 1..=3 {
            b.post_recv(recv(to.slice(..).unwrap()).id(10 + id)).unwrap();
            a.post(send(Inline(&[1; 9])).signaled().id(id)).unwrap();
        }
        a.post(write(Inline(&[1]), closed.slice(..1).unwrap()).id(4)).unwrap();
        a.post(send(Empty).id(5)).unwrap();
        let (mut wcs, mut extended) =
            ([WorkCompletion::default(); 2], [ExtendedCompletion::<WcOpcode>::default(); 2]);
        let mut turn = 0;
        let mut found = gather(8, |_| {
            turn += 1;
            match turn % 3 {
                0 => poller.poll_one().unwrap().iter().map(what).collect(),
                1 => poller.poll(&mut extended).unwrap().iter().map(what).collect(),
                _ => {
                    let done = poller.poll_into(&mut wcs).unwrap().iter();
                    done.map(|wc| (wc.id(), wc.result().map(|done| done.opcode()).map_err(|e| e.status)))
                        .collect::<Vec<_>>()
                }
            }
        });
        found.sort_unstable_by_key(|(id, _)| *id);
        let sent = [1, 2, 3].map(|id| (id, Ok(WcOpcode::SEND)));
        let failed = [(4, Err(WcStatus::REM_ACCESS_ERR)), (5, Err(WcStatus::WR_FLUSH_ERR))];
        let received = [11, 12, 13].map(|id| (id, Ok(WcOpcode::RECV)));
        assert!(found.iter().copied().eq(sent.into_iter().chain(failed).chain(received)), "{found:?}");
        assert!(poller.poll_into(&mut wcs).unwrap().is_empty());
    });

    fn what(wc: &ExtendedCompletion<WcOpcode>) -> (u64, Result<WcOpcode, WcStatus>) {
        (wc.id(), wc.result().map_err(|error| error.status))
    }
}

#[test]
fn code_for_every_kind_answers_a_datagram() {
    scenario(|rig| {
        let (parts, cq) = (rig.parts(), queue::<()>(rig));
        let ah = AddressHandle::new(&parts.pd, &to_ourselves(rig)).unwrap();
        let (to, peers) = (parts.zeros(300), ibv::Peers::new());
        let [a, b] = [(); 2].map(|()| {
            let qp = roomy(parts.pd.create_qp::<Ud>(&cq, &cq)).build().unwrap();
            qp.init(UdInitAttr::new(rig.local.port, QKEY)).unwrap().activate(1).unwrap()
        });
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"ping")).to(&ah, b.qp_num(), QKEY)).unwrap();
        let mut poller = Poller::<(SrcQp, HasGrh, ByteLen)>::new(&cq).unwrap();
        // read in full, whatever the poller is for
        let wc = next_from(&mut poller, 1)[0];
        let got = wc.result().unwrap();
        assert_eq!((wc.id(), wc.qp_num(), got.src_qp()), (1, b.qp_num(), Some(a.qp_num())));
        let bytes = contents(&to);
        let grh: &[u8; GRH_LEN] = bytes[..GRH_LEN].try_into().unwrap();
        let back = AddressHandle::from_datagram(&parts.pd, &got, grh, rig.local.port).unwrap();
        let back = peers.add(back);
        a.post_recv(recv(to.slice(..).unwrap()).id(2)).unwrap();
        b.post(send(Inline(b"pong!")).to(back, a.qp_num(), QKEY)).unwrap();
        let expected = (SrcQp(Some(b.qp_num())), HasGrh(got.has_grh()), ByteLen(Some(GRH_LEN as u32 + 5)));
        assert_eq!(done(&mut poller, 2), expected);
    });
}

fn to_ourselves(rig: &Rig) -> AddressVector {
    match rig.local.gid_index {
        Some(index) => AddressVector::global(rig.local.port, Grh::new(rig.local.gid, index)),
        None => AddressVector::lid(rig.local.port, rig.local.lid),
    }
}

#[test]
fn an_armed_queue_raises_an_event() {
    scenario(|rig| {
        let parts = rig.parts();
        let channel = CompletionChannel::new(&rig.ctx).unwrap();
        let builder = CompletionQueue::builder(&rig.ctx, 256).channel(&channel);
        let cq = builder.build_extended::<()>().unwrap();
        let other = queue::<()>(rig);
        let to = parts.zeros(64);
        let [a, b] = pair(&parts, &other, &cq);
        let mut poller = Poller::<()>::new(&cq).unwrap();
        for id in 0..5 {
            poller.arm(Arm::Any).unwrap();
            assert!(poller.poll_one().unwrap().is_none());
            b.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
            a.post(send(Inline(b"wake up")).signaled().id(id)).unwrap();
            done(&mut Poller::<()>::new(&other).unwrap(), id);
            assert_eq!(channel.wait_timeout(EVENT).unwrap(), Some(cq.id()));
            done(&mut poller, id);
        }
    });
}

#[test]
fn completions_of_a_queue_pair_that_is_gone() {
    scenario(|rig| {
        let parts = rig.parts();
        let cq = CompletionQueue::builder(&rig.ctx, 255).build_extended::<()>().unwrap();
        let make = || {
            let builder = parts.pd.create_qp::<Rc>(&cq, &cq).send_depth(31).recv_depth(31);
            Ok::<_, Error>(builder.build()?.init(open_init(&rig.local))?)
        };
        let mut poller = Poller::<()>::new(&cq).unwrap();
        let [a, b] = connect(&rig.local, [make().unwrap(), make().unwrap()]);
        let mut others = Vec::new();
        let full = loop {
            match make() {
                Ok(qp) => others.push(qp),
                Err(full) => break full,
            }
        };
        assert!(matches!(full, Error::CqRoom { .. }), "{full}");
        for id in 0..4 {
            b.post_recv(recv(Empty).id(id)).unwrap();
            a.post(send(Empty).signaled().id(id)).unwrap();
        }
        drop((a, b));
        assert!(matches!(make(), Err(Error::CqRoom { .. })));
        while poller.poll_one().unwrap().is_some() {}
        drop((make().unwrap(), make().unwrap()));
    });
}

#[test]
fn completions_have_their_time_where_the_device_tells() {
    type Times = (Timestamp, WallClock);
    scenario(|rig| {
        let build = || CompletionQueue::builder(&rig.ctx, 256).build_extended::<Times>();
        if rig.ctx.device_attr().completion_timestamp_mask() == 0 {
            assert_eq!(build().unwrap_err().errno(), Some(libc::EOPNOTSUPP));
            return;
        }
        let (parts, cq) = (rig.parts(), build().unwrap());
        let [a, b] = pair(&parts, &cq, &cq);
        let mut poller = Poller::<Times>::new(&cq).unwrap();
        let mut last = (Timestamp(0), WallClock(0));
        for id in 0..6 {
            b.post_recv(recv(Empty).id(id)).unwrap();
            a.post(send(Empty).signaled().id(id)).unwrap();
            for wc in next_of(&mut poller, 2) {
                let now = wc.result().unwrap();
                assert!(now.0.0 >= last.0.0 && now.1.0 >= last.1.0, "{now:?} after {last:?}");
                last = now;
            }
        }
    });
}
