//! Completions: the same entries of the same ring, read by `ibv_poll_cq` and by us, say the same.
//!
//! # Safety
//!
//! `ibv_poll_cq` is called behind the poller's back, which is not done outside of tests: libmlx5 keeps an index of its
//! own.
#![expect(unsafe_code, reason = "the Safety section above")]

use super::rig::{Cq, Random, Rig, drain, drain_direct};
use ibv::mlx5::{Delivery, Poller};
use ibv::sys;
use ibv::{
    AddressHandle, AddressVector, Direct, Empty, Endpoint, GRH_LEN, Rc, Ud, UdInitAttr, WcStatus,
    WorkCompletion, cmp_swp, fetch_add, read, recv, send, send_imm, write, write_imm,
};
use softhca::Syndrome;

/// What libmlx5 makes of the ring that we read: it keeps its own index into it.
pub(super) fn stock<V: Delivery>(cq: &Cq<Direct<V>>) -> Vec<sys::ibv_wc> {
    let mut all = Vec::new();
    loop {
        let mut wc = sys::ibv_wc::default();
        // SAFETY: the queue is there, and the room is for one. libmlx5 only reads the ring, in which nobody writes now.
        match unsafe { sys::ibv_poll_cq(cq.as_ptr(), 1, &raw mut wc) } {
            0 => return all,
            1 => all.push(wc),
            error => panic!("ibv_poll_cq: {error}"),
        }
    }
}

/// All but the id, which stock does not know.
pub(super) fn compare(ours: &[WorkCompletion], stock: &[sys::ibv_wc]) {
    assert_eq!(ours.len(), stock.len());
    for (ours, stock) in ours.iter().zip(stock) {
        assert_eq!((ours.qp_num(), ours.status().0), (stock.qp_num, stock.status));
        let done = match ours.result() {
            Ok(done) => done,
            Err(error) => {
                assert_eq!(error.vendor_err, stock.vendor_err);
                continue;
            }
        };
        assert_eq!(done.opcode().0, stock.opcode);
        if let Some(len) = done.byte_len() {
            assert_eq!(len, stock.byte_len, "{ours:?}");
        }
        let flags = stock.wc_flags;
        // SAFETY: both members of the union are 32-bit integers.
        let data = unsafe { stock.u1.imm_data };
        if done.is_recv() {
            let imm = (flags & sys::IBV_WC_WITH_IMM != 0).then(|| u32::from_be(data));
            let key = (flags & sys::IBV_WC_WITH_INV != 0).then_some(data);
            assert_eq!((done.imm(), done.invalidated_rkey()), (imm, key));
            assert_eq!(done.has_grh(), flags & sys::IBV_WC_GRH != 0);
            assert_eq!((done.src_qp(), done.sl()), (Some(stock.src_qp), Some(stock.sl)));
            assert_eq!(done.slid(), Some(stock.slid));
        }
    }
}

/// Holds what we read against what libmlx5 makes of the same entries; not under valgrind, which sees that it looks for
/// ids where it was never given any.
pub(super) fn agree(ours: &[WorkCompletion], cq: &Cq<Direct>) {
    if std::env::var_os("SOFTHCA_UNDER_VALGRIND").is_none() {
        compare(ours, &stock(cq));
    }
}

#[test]
fn rc_completions_say_what_libmlx5_says() {
    let rig = Rig::new();
    rc_completions(&rig, &rig.direct(1024));
}

#[test]
fn wide_rc_completions_say_what_libmlx5_says() {
    let rig = Rig::new();
    rc_completions(&rig, &rig.direct_wide(1024));
}

fn rc_completions(rig: &Rig, cq: &Cq<Direct>) {
    let mr = rig.region(8192);
    let peer_cq = rig.bare(1024);
    let mut poller = Poller::new(cq).unwrap();
    let (ours, peer) = (rig.direct_qp::<Rc>(cq, cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
    let (a, b) = (ours.qp_num(), peer.qp_num());
    let (mut ours, mut peer) = (rig.up(ours, b), rig.up(peer, a));
    let mut random = Random::new(5);
    let (mut seen, mut failed) = (0, 0);
    let to = mr.remote_region().slice(4096..).unwrap();
    let word = mr.remote_region().u64_at(4096).unwrap();
    let into = mr.u64_at(0).unwrap().detach();
    let syndromes = [
        (Syndrome::LocalLength, WcStatus::LOC_LEN_ERR),
        (Syndrome::LocalQpOp, WcStatus::LOC_QP_OP_ERR),
        (Syndrome::LocalProtection, WcStatus::LOC_PROT_ERR),
        (Syndrome::MwBind, WcStatus::MW_BIND_ERR),
        (Syndrome::BadResponse, WcStatus::BAD_RESP_ERR),
        (Syndrome::LocalAccess, WcStatus::LOC_ACCESS_ERR),
        (Syndrome::RemoteInvalidRequest, WcStatus::REM_INV_REQ_ERR),
        (Syndrome::RemoteAccess, WcStatus::REM_ACCESS_ERR),
        (Syndrome::RemoteOperation, WcStatus::REM_OP_ERR),
    ];
    let rounds = super::rig::rounds(4000, 20_000);
    for number in 0..rounds {
        let len = random.below(200);
        let data = mr.slice(..len).unwrap().detach();
        let (id, imm) = (random.word(), random.word() as u32);
        let expected = if number % 400 == 399 {
            let (syndrome, status) = syndromes[number / 400 % syndromes.len()];
            rig.hca.fail_next_completion(syndrome);
            Some(status)
        } else {
            None
        };
        match random.below(9) {
            0 => ours.post(write(data, to).signaled().id(id)).unwrap(),
            1 => ours.post(read(data, to).signaled().id(id)).unwrap(),
            2 => ours.post(cmp_swp(into, word, 0, 1).signaled().id(id)).unwrap(),
            3 => ours.post(fetch_add(into, word, 1).signaled().id(id)).unwrap(),
            4 | 5 => {
                peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap();
                if imm & 1 == 0 {
                    ours.post(send(data).signaled().id(id)).unwrap();
                } else {
                    ours.post(write_imm(data, to, imm).signaled().id(id)).unwrap();
                }
            }
            kind => {
                ours.post(write(Empty, to).signaled().id(id)).unwrap();
                ours.post_recv(recv(mr.slice(4096..).unwrap().detach()).id(!id)).unwrap();
                match kind {
                    6 => peer.post(send(data).signaled()).unwrap(),
                    7 => peer.post(send_imm(data, imm).signaled()).unwrap(),
                    _ => peer.post(write_imm(data, to, imm).signaled()).unwrap(),
                }
            }
        }
        rig.hca.run_until_idle();
        drain(&peer_cq);
        let (got, said) = (drain_direct(&mut poller), stock(cq));
        compare(&got, &said);
        seen += got.len();
        assert!(got.iter().all(|wc| wc.id() == id || wc.id() == !id), "{got:?}");
        let Some(status) = expected else { continue };
        assert!(got.iter().any(|wc| wc.status() == status), "{status:?}: {got:?}");
        // the rest of both is flushed
        ours.post(write(Empty, to).id(1)).unwrap();
        ours.post_recv(recv(Empty).id(2)).unwrap();
        rig.hca.run_until_idle();
        let (got, said) = (drain_direct(&mut poller), stock(cq));
        compare(&got, &said);
        failed += got.iter().filter(|wc| wc.status() == WcStatus::WR_FLUSH_ERR).count();
        let (in_reset, peer_in_reset) = (ours.reset().unwrap(), peer.reset().unwrap());
        (ours, peer) = (rig.up(in_reset, b), rig.up(peer_in_reset, a));
        drain(&peer_cq);
    }
    assert!(seen > rounds && failed >= rounds / 200, "{seen} {failed}");
    rig.no_violations();
}

#[test]
fn datagrams_say_what_libmlx5_says_and_who_sent_them() {
    let rig = Rig::new();
    datagrams(&rig, &rig.direct(1024));
}

#[test]
fn wide_completions_of_datagrams_say_what_libmlx5_says() {
    let rig = Rig::new();
    datagrams(&rig, &rig.direct_wide(1024));
}

fn datagrams(rig: &Rig, cq: &Cq<Direct>) {
    const QKEY: u32 = 0x77;
    let mr = rig.region(8192);
    let mut poller = Poller::new(cq).unwrap();
    let attr = UdInitAttr::new(1, QKEY);
    let make = || rig.direct_qp::<Ud>(cq, cq).init(attr).unwrap().activate(0).unwrap();
    let (mut a, mut b) = (make(), make());
    let address = |qpn| Endpoint { lid: rig.local.lid, qpn, psn: 0, gid: rig.local.gid };
    let to_b = AddressVector::to_peer(&rig.local, &address(b.qp_num())).unwrap().sl(3);
    let to_b: &'static AddressHandle<'static> =
        Box::leak(Box::new(AddressHandle::new(&rig.pd, &to_b).unwrap()));
    for round in 0..2000u32 {
        b.post_recv(recv(mr.slice(4096..).unwrap().detach()).id(2)).unwrap();
        let data = mr.slice(..round as usize % 100).unwrap().detach();
        a.post(send_imm(data, round).to(to_b, b.qp_num(), QKEY).signaled().id(1)).unwrap();
        rig.hca.run_until_idle();
        let (got, said) = (drain_direct(&mut poller), stock(cq));
        compare(&got, &said);
        let received = got.iter().find(|wc| wc.id() == 2).unwrap();
        let received = received.result().unwrap();
        assert_eq!((received.src_qp(), received.imm()), (Some(a.qp_num()), Some(round)));
        assert_eq!(received.byte_len(), Some(round % 100 + GRH_LEN as u32));
        if round % 500 == 0 {
            let mut grh = [0; GRH_LEN];
            mr.read(4096, &mut grh).unwrap();
            let back = AddressHandle::from_datagram(&rig.pd, &received, &grh, 1).unwrap();
            let back: &'static AddressHandle<'static> = Box::leak(Box::new(back));
            a.post_recv(recv(mr.slice(4096..).unwrap().detach()).id(4)).unwrap();
            b.post(send(Empty).to(back, a.qp_num(), QKEY).signaled().id(3)).unwrap();
            rig.hca.run_until_idle();
            let (got, said) = (drain_direct(&mut poller), stock(cq));
            compare(&got, &said);
            assert_eq!(got.len(), 2);
        }
    }
    rig.no_violations();
}
