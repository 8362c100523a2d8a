//! Datagrams: the GRH area, address handles, replies.

use ibv::{
    AddressHandle, AddressVector, GRH_LEN, Gid, Grh, Inline, Peers, PostRecv, PostSend, QueuePair, Ud,
    UdInitAttr, WcOpcode, recv, send, send_imm,
};

use crate::rig::{
    Parts, QKEY, Rig, completed, contents, next, pattern, quiet, roomy_extended, scenario, success,
};

fn to_ourselves(rig: &Rig) -> AddressVector {
    AddressVector::global(rig.local.port, Grh::new(rig.local.gid, rig.local.gid_index.unwrap()))
}

/// A datagram there, and one back to where it came from.
fn there_and_back<'p, 'pd: 'p, Q>(
    parts: &'pd Parts<'pd>,
    ah: &'p AddressHandle<'p>,
    peers: &'p Peers<'pd>,
    b_qpn: u32,
    [mut a, mut b]: [Q; 2],
    [ours, theirs]: [&'p ibv::MemoryRegion<'p>; 2],
) where
    Q: PostSend<'p, Transport = Ud> + PostRecv<'p>,
{
    b.post_recv(recv(theirs.slice(..).unwrap()).id(1)).unwrap();
    a.post(send_imm(ours.slice(..64).unwrap(), 0xabcd).to(ah, b_qpn, QKEY).signaled().id(2)).unwrap();
    assert_eq!(completed(&parts.a_cq, 2).result().unwrap().opcode(), WcOpcode::SEND);
    let wc = completed(&parts.b_cq, 1);
    let got = wc.result().unwrap();
    assert_eq!((got.opcode(), got.byte_len()), (WcOpcode::RECV, Some((GRH_LEN + 64) as u32)));
    assert_eq!(got.imm(), Some(0xabcd));
    assert!(got.has_grh());
    let bytes = contents(theirs);
    assert_eq!(bytes[GRH_LEN..GRH_LEN + 64], pattern(64, 1));

    // back to the sender, known by the datagram alone
    let grh: &[u8; GRH_LEN] = bytes[..GRH_LEN].try_into().unwrap();
    let back = peers.add(AddressHandle::from_datagram(&parts.pd, &got, grh, parts.local.port).unwrap());
    a.post_recv(recv(ours.slice(100..).unwrap()).id(3)).unwrap();
    b.post(send(Inline(b"pong")).to(back, got.src_qp().unwrap(), QKEY).signaled().id(4)).unwrap();
    success(&parts.b_cq, 4);
    let wc = completed(&parts.a_cq, 3);
    assert_eq!(wc.result().unwrap().src_qp(), Some(b_qpn));
    assert_eq!(&contents(ours)[100 + GRH_LEN..][..4], b"pong");
}

#[test]
fn a_datagram_and_its_answer() {
    scenario(|rig| {
        let parts = rig.parts();
        let ah = parts.pd.create_ah(&to_ourselves(rig)).unwrap();
        let (ours, theirs, peers) = (parts.filled(300, 1), parts.zeros(300), Peers::new());
        let [a, b] = parts.datagrams();
        let (a_qpn, b_qpn) = (a.qp_num(), b.qp_num());
        there_and_back(&parts, &ah, &peers, b_qpn, [&a, &b], [&ours, &theirs]);
        assert_eq!(peers.len(), 1);
        assert_ne!(a_qpn, b_qpn);
    });
}

#[test]
fn a_datagram_and_its_answer_extended() {
    scenario(|rig| {
        let parts = rig.parts();
        let ah = parts.pd.create_ah(&to_ourselves(rig)).unwrap();
        let (ours, theirs, peers) = (parts.filled(300, 1), parts.zeros(300), Peers::new());
        let qps = [parts.a_builder::<Ud>(), parts.b_builder()].map(|builder| {
            let qp = roomy_extended(builder).build().unwrap();
            qp.init(UdInitAttr::new(rig.local.port, QKEY)).unwrap().activate(1).unwrap()
        });
        let b_qpn = qps[1].qp_num();
        there_and_back(&parts, &ah, &peers, b_qpn, qps, [&ours, &theirs]);
    });
}

#[test]
fn what_nobody_takes_is_lost_in_silence() {
    scenario(|rig| {
        let parts = rig.parts();
        let ah = parts.pd.create_ah(&to_ourselves(rig)).unwrap();
        let to = parts.zeros(200);
        let [a, b] = parts.datagrams();
        let ping = |qkey, id| {
            a.post(send(Inline(b"ping")).to(&ah, b.qp_num(), qkey).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
        };
        ping(QKEY, 1); // no receive
        quiet(&parts.b_cq);
        b.post_recv(recv(to.slice(..).unwrap()).id(7)).unwrap();
        ping(QKEY + 1, 2); // not its Q_Key
        quiet(&parts.b_cq);
        assert!(contents(&to).iter().all(|&byte| byte == 0));
        ping(QKEY, 3);
        success(&parts.b_cq, 7);
    });
}

#[test]
fn a_longer_datagram_than_the_mtu_never_arrives() {
    scenario(|rig| {
        let parts = rig.parts();
        let len = rig.local.mtu.bytes() as usize + 1;
        let ah = parts.pd.create_ah(&to_ourselves(rig)).unwrap();
        let (from, to) = (parts.filled(len, 1), parts.zeros(len + GRH_LEN));
        let [a, b] = parts.datagrams();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(..len - 1).unwrap()).to(&ah, b.qp_num(), QKEY).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(contents(&to)[GRH_LEN..][..len - 1], pattern(len, 1)[..len - 1]);

        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        // providers refuse it, fail it, or drop it in silence (rxe)
        if a.post(send(from.slice(..).unwrap()).to(&ah, b.qp_num(), QKEY).signaled().id(4)).is_ok() {
            assert_eq!(next(&parts.a_cq).id(), 4);
        }
        quiet(&parts.b_cq);
    });
}

#[test]
fn many_peers_while_running() {
    scenario(|rig| {
        let parts = rig.parts();
        let (to, peers) = (parts.zeros(200), Peers::new());
        let [a, b] = parts.datagrams();
        let first: &QueuePair<'_, Ud> = &a;
        for id in 0..20 {
            let ah = peers.add(parts.pd.create_ah(&to_ourselves(rig)).unwrap());
            b.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
            first.post(send(Inline(&[id as u8])).to(ah, b.qp_num(), QKEY).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
            success(&parts.b_cq, id);
            assert_eq!(contents(&to)[GRH_LEN], id as u8);
        }
        assert_eq!(peers.len(), 20);
    });
}

#[test]
fn a_reply_needs_a_received_datagram() {
    scenario(|rig| {
        let parts = rig.parts();
        let ah = parts.pd.create_ah(&to_ourselves(rig)).unwrap();
        let to = parts.zeros(200);
        let [a, b] = parts.datagrams();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"x")).to(&ah, b.qp_num(), QKEY).signaled().id(2)).unwrap();
        let (sent, got) = (completed(&parts.a_cq, 2), completed(&parts.b_cq, 1));
        let grh: [u8; GRH_LEN] = contents(&to)[..GRH_LEN].try_into().unwrap();
        let reply = |wc: &ibv::WorkCompletion, grh| {
            AddressHandle::from_datagram(&parts.pd, &wc.result().unwrap(), grh, rig.local.port).map(drop)
        };
        reply(&got, &grh).unwrap();
        assert!(matches!(reply(&sent, &grh), Err(ibv::Error::Invalid { .. })));
        assert!(reply(&got, &[0; GRH_LEN]).unwrap_err().errno().is_some(), "no GRH");
        // a destination that is not ours
        let mut forged = grh;
        forged[36..].copy_from_slice(&[192, 0, 2, 1]);
        assert!(reply(&got, &forged).is_err());
        assert_ne!(rig.local.gid, Gid::ZERO);
    });
}
