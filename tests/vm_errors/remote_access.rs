//! Access to a peer's memory that it does not allow, and to one's own that cannot be.

use ibv::qp::attr::{RcModifyAttr, RcRtrAttr, RcRtsAttr};
use ibv::{
    AddressVector, InitAttr, Inline, Mtu, QpState, Rc, RemoteAccess, RemoteRegion, WcStatus, cmp_swp,
    fetch_add, read, recv, send, write,
};

use crate::rig::{
    Parts, Rig, connect, connect_with, contents, failure, next, open_init, pattern, scenario, success,
};

/// Writes to `remote`, which the peer must refuse, and leaves its memory as it was.
fn refused_write(parts: &Parts<'_>, remote: RemoteRegion) {
    let from = parts.filled(64, 1);
    let [a, b] = parts.pair::<Rc>();
    a.post(write(from.slice(..).unwrap(), remote.slice(..64).unwrap()).signaled().id(1)).unwrap();
    assert_eq!(failure(&parts.a_cq, 1), WcStatus::REM_ACCESS_ERR);
    assert_eq!(a.query().unwrap().state(), QpState::ERROR, "the device moved it");
    assert_eq!(a.state(), QpState::RTS, "which its type cannot know");
    // what is posted now is flushed, or refused
    if a.post(send(Inline(b"late")).id(2)).is_ok() {
        assert_eq!(failure(&parts.a_cq, 2), WcStatus::WR_FLUSH_ERR);
    }
    drop(b);
}

#[test]
fn a_wrong_rkey() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.open(64);
        let right = mr.remote_region();
        refused_write(&parts, RemoteRegion { rkey: right.rkey ^ 0xff, ..right });
        assert_eq!(contents(&mr), [0; 64]);
        // the error says what to look at
        assert!(WcStatus::REM_ACCESS_ERR.hint().unwrap().contains("rkey"));
    });
}

#[test]
fn out_of_range() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.open(4096);
        let right = mr.remote_region();
        refused_write(&parts, RemoteRegion { addr: right.addr + 4096 - 63, ..right });
        refused_write(&parts, RemoteRegion { addr: right.addr - 1, ..right });
        refused_write(&parts, RemoteRegion { addr: 0, ..right });
        assert_eq!(contents(&mr), [0; 4096]);
    });
}

#[test]
fn a_region_without_the_permission() {
    scenario(|rig| {
        let parts = rig.parts();
        let read_only = parts.pd.alloc_remote(64, RemoteAccess::READ).unwrap();
        let write_only = parts.pd.alloc_remote(64, RemoteAccess::WRITE).unwrap();
        read_only.write(0, &[7; 64]).unwrap();
        refused_write(&parts, read_only.remote_region());
        assert_eq!(contents(&read_only), [7; 64]);
        let into = parts.zeros(64);
        let word = || into.u64_at(0).unwrap();
        let (place, at) = (write_only.remote_region(), write_only.remote_region().u64_at(0).unwrap());
        for operation in 0..3 {
            let [a, _b] = parts.pair::<Rc>();
            match operation {
                0 => a.post(read(into.slice(..).unwrap(), place.slice(..).unwrap()).id(1)),
                1 => a.post(cmp_swp(word(), at, 0, 1).id(1)),
                _ => a.post(fetch_add(word(), at, 1).id(1)),
            }
            .unwrap();
            assert_eq!(failure(&parts.a_cq, 1), WcStatus::REM_ACCESS_ERR, "operation {operation}");
        }
        assert_eq!((contents(&into), contents(&write_only)), (vec![0; 64], vec![0; 64]));
    });
}

/// A connected pair whose second queue pair lets its peer do nothing.
fn closed_pair<'p>(parts: &'p Parts<'p>) -> [ibv::QueuePair<'p, Rc>; 2] {
    let a = parts.a_builder().build().unwrap().init(open_init(&parts.local)).unwrap();
    let b = parts.b_builder().build().unwrap().init(InitAttr::new(parts.local.port)).unwrap();
    connect(&parts.local, [a, b])
}

#[test]
fn a_queue_pair_without_the_permission() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.open(64);
        let place = mr.remote_region().slice(..4).unwrap();
        let [a, b] = closed_pair(&parts);
        a.post(write(Inline(b"shut"), place).id(1)).unwrap();
        let status = failure(&parts.a_cq, 1);
        assert_ne!(status, WcStatus::SUCCESS);
        assert_eq!(contents(&mr), [0; 64]);
        drop((a, b));

        // permitted later on, in Rts
        let [a, mut b] = closed_pair(&parts);
        b.modify(&RcModifyAttr::new().access(RemoteAccess::WRITE)).unwrap();
        a.post(write(Inline(b"open"), place).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        assert_eq!(&contents(&mr)[..4], b"open");
    });
}

#[test]
fn a_region_of_another_domain() {
    scenario(|rig| {
        let parts = rig.parts();
        let other = rig.ctx.alloc_pd().unwrap();
        let remote = other.alloc_remote(64, RemoteAccess::WRITE).unwrap();
        let local = other.alloc_local(64).unwrap();
        local.write(0, &pattern(64, 1)).unwrap();
        refused_write(&parts, remote.remote_region());
        assert_eq!(contents(&remote), [0; 64]);
        let to = parts.zeros(64);
        {
            let [a, b] = parts.pair::<Rc>();
            b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
            a.post(send(local.slice(..).unwrap()).id(2)).unwrap();
            let _ = failure(&parts.a_cq, 2); // LOC_PROT_ERR by the specification; rxe says other things
            assert_eq!(contents(&to), [0; 64]);
        }
        let _ = (parts.a_cq.poll(&mut []), parts.b_cq.poll(&mut []));
        let parts = rig.parts();
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(local.slice(..).unwrap()).id(3)).unwrap();
        a.post(send(Inline(b"not there")).id(4)).unwrap();
        let _ = (failure(&parts.b_cq, 3), failure(&parts.a_cq, 4));
        assert_eq!(contents(&local), pattern(64, 1));
    });
}

#[test]
fn more_reads_than_the_peer_answers_still_work() {
    // the limit is kept by the device, not by errors
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(1024), parts.open(1024));
        theirs.write(0, &pattern(1024, 1)).unwrap();
        let [a, _b] = parts.pair::<Rc>();
        for id in 0..12 {
            let part = id * 64..id * 64 + 64;
            let from = theirs.remote_region().slice(part.clone()).unwrap();
            a.post(read(ours.slice(part).unwrap(), from).signaled().id(id as u64)).unwrap();
        }
        for id in 0..12 {
            success(&parts.a_cq, id);
        }
        assert_eq!(contents(&ours)[..768], pattern(1024, 1)[..768]);
    });
}

#[test]
fn too_long_a_message_fails_on_both_sides() {
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(100, 1), parts.zeros(100));
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(to.slice(..50).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(..).unwrap()).id(2)).unwrap();
        let (receiver, sender) = (failure(&parts.b_cq, 1), failure(&parts.a_cq, 2));
        for status in [receiver, sender] {
            assert!(![WcStatus::SUCCESS, WcStatus::RETRY_EXC_ERR].contains(&status), "{status:?}");
        }
        assert_eq!(contents(&to)[50..], [0; 50], "nothing past the receive's end");
    });
}

#[test]
fn a_missing_receive_is_given_up() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.inits::<Rc>();
        let (a, b) = connect_with(&rig.local, a, b, |connection| connection.retry_cnt(7).rnr_retry(0));
        a.post(send(Inline(b"anybody?")).id(1)).unwrap();
        let wc = next(&parts.a_cq);
        let error = wc.result().unwrap_err();
        assert_eq!((error.id, error.status), (1, WcStatus::RNR_RETRY_EXC_ERR));
        assert_eq!(error.qp_num, a.qp_num());
        assert!(error.to_string().contains("post receives before the peer sends"), "{error}");
        assert_eq!(b.query().unwrap().state(), QpState::RTS, "the peer goes on");
    });
}

#[test]
fn a_small_path_mtu_step_by_step() {
    scenario(|rig: &Rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(1000, 1), parts.zeros(1000));
        let [a, b] = parts.inits::<Rc>();
        let (a_qpn, b_qpn) = (a.qp_num(), b.qp_num());
        let [a, b] = [(a, b_qpn), (b, a_qpn)].map(|(qp, peer)| {
            let end = ibv::Endpoint { lid: rig.local.lid, qpn: peer, psn: 7, gid: rig.local.gid };
            let path = AddressVector::to_peer(&rig.local, &end).unwrap();
            let rtr = RcRtrAttr::new(&path, Mtu::B256, peer, 7).max_dest_rd_atomic(2).min_rnr_timer(1);
            let qp = qp.rtr(rtr).unwrap().rts(RcRtsAttr::new(7).max_rd_atomic(2).timeout(10)).unwrap();
            assert_eq!((qp.query().unwrap().path_mtu(), qp.query().unwrap().dest_qpn()), (Mtu::B256, peer));
            qp
        });
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(..).unwrap()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(contents(&to), pattern(1000, 1));
    });
}
