//! Addressing by LID alone, as inside an InfiniBand subnet.

use ibv::{AddressHandle, AddressVector, GRH_LEN, Inline, LinkLayer, Rc, WcOpcode, recv, send, send_imm};

use crate::rig::{QKEY, completed, contents, pattern, quiet, scenario, success};

#[test]
fn a_connection_has_no_global_route() {
    scenario(|rig| {
        let port = rig.ctx.query_port(1).unwrap();
        assert_eq!(port.link_layer(), LinkLayer::INFINIBAND);
        assert_eq!(rig.local.gid_index, None);
        assert_ne!(rig.local.lid, 0);
        let parts = rig.parts();
        let [a, _b] = parts.pair::<Rc>();
        let end = a.endpoint(&rig.local, 0);
        assert_eq!((end.lid, end.gid), (rig.local.lid, ibv::Gid::ZERO));
    });
}

#[test]
fn datagrams_have_no_grh() {
    scenario(|rig| {
        let parts = rig.parts();
        let ah = parts.pd.create_ah(&AddressVector::lid(rig.local.port, rig.local.lid)).unwrap();
        let (ours, theirs, peers) = (parts.filled(300, 1), parts.zeros(300), ibv::Peers::new());
        let [a, b] = parts.datagrams();
        b.post_recv(recv(theirs.slice(..).unwrap()).id(1)).unwrap();
        a.post(send_imm(ours.slice(..64).unwrap(), 0xabcd).to(&ah, b.qp_num(), QKEY).signaled().id(2))
            .unwrap();
        success(&parts.a_cq, 2);
        let wc = completed(&parts.b_cq, 1);
        let got = wc.result().unwrap();
        assert_eq!((got.opcode(), got.byte_len()), (WcOpcode::RECV, Some((GRH_LEN + 64) as u32)));
        assert_eq!((got.imm(), got.src_qp()), (Some(0xabcd), Some(a.qp_num())));
        assert!(!got.has_grh());
        let bytes = contents(&theirs);
        assert_eq!(bytes[GRH_LEN..GRH_LEN + 64], pattern(64, 1), "its place is left free");

        let grh: &[u8; GRH_LEN] = bytes[..GRH_LEN].try_into().unwrap();
        let back = AddressHandle::from_datagram(&parts.pd, &got, grh, rig.local.port).unwrap();
        let back = peers.add(back);
        a.post_recv(recv(ours.slice(100..).unwrap()).id(3)).unwrap();
        b.post(send(Inline(b"pong")).to(back, got.src_qp().unwrap(), QKEY).signaled().id(4)).unwrap();
        success(&parts.b_cq, 4);
        success(&parts.a_cq, 3);
        assert_eq!(&contents(&ours)[100 + GRH_LEN..][..4], b"pong");

        // to a LID that nobody has
        let nobody = peers.add(parts.pd.create_ah(&AddressVector::lid(rig.local.port, 0x1234)).unwrap());
        a.post(send(Inline(b"?")).to(nobody, b.qp_num(), QKEY).signaled().id(5)).unwrap();
        success(&parts.a_cq, 5);
        quiet(&parts.b_cq);
    });
}
