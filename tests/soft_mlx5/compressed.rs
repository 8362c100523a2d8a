//! Completion queues that the device compresses, of entries of both sizes: what we read of them, and put into the ring
//! in full, `ibv_poll_cq` reads too, and it is what was asked for.

use std::sync::Arc;

use super::cqes::agree;
use super::memory::Entries;
use super::rig::{Cq, Random, Rig, drain, drain_direct};
use ibv::mlx5::Poller;
use ibv::{
    CompletionQueue, Direct, Empty, Error, Rc, WcStatus, fetch_add, read, recv, send, send_imm, write,
    write_imm,
};

fn queue(rig: &Rig, wide: bool, entries: u32) -> Cq<Direct> {
    let builder = CompletionQueue::builder(&rig.ctx, entries).compressed();
    Arc::new(if wide { builder.wide() } else { builder }.build_direct().unwrap())
}

#[test]
fn sessions_say_what_libmlx5_says() {
    let mut most = 0;
    for wide in [false, true] {
        let rig = Rig::new();
        let mr = rig.region(8192);
        let (cq, peer_cq) = (queue(&rig, wide, 512), rig.bare(1024));
        let mut poller = Poller::new(&cq).unwrap();
        let (ours, peer) = (rig.direct_qp::<Rc>(&cq, &cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
        let (a, b) = (ours.qp_num(), peer.qp_num());
        let (mut ours, mut peer) = (rig.up(ours, b), rig.up(peer, a));
        let to = mr.remote_region().slice(4096..).unwrap();
        let (word, into) = (mr.remote_region().u64_at(4096).unwrap(), mr.u64_at(0).unwrap().detach());
        let forged = {
            let mut region = mr.remote_region();
            region.rkey ^= 0x5500;
            region.slice(..).unwrap()
        };
        let mut random = Random::new(31);
        for round in 0..super::rig::rounds(60, 1500) {
            // ids in the order of the requests; the two queues' completions may stand in any order
            let (mut sent, mut received) = (Vec::new(), Vec::new());
            for _ in 0..random.below(6) {
                let kind = random.below(7);
                for _ in 0..random.below(20) {
                    let data = mr.slice(..random.below(200)).unwrap().detach();
                    let (id, imm) = (random.word(), random.below(2) as u32);
                    if sent.len() > 14 || received.len() > 14 {
                        break;
                    }
                    match kind {
                        0 => ours.post(write(data, to).signaled().id(id)).unwrap(),
                        1 => ours.post(read(data, to).signaled().id(id)).unwrap(),
                        2 => ours.post(fetch_add(into, word, 1).signaled().id(id)).unwrap(),
                        3 => {
                            peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap();
                            ours.post(send(data).signaled().id(id)).unwrap();
                        }
                        kind => {
                            ours.post_recv(recv(mr.slice(4096..).unwrap().detach()).id(id)).unwrap();
                            match kind {
                                4 => peer.post(send(data).signaled()).unwrap(),
                                5 => peer.post(send_imm(data, imm).signaled()).unwrap(),
                                _ => peer.post(write_imm(data, to, imm).signaled()).unwrap(),
                            }
                        }
                    }
                    if kind < 4 { &mut sent } else { &mut received }.push(id);
                }
            }
            let fails = round % 50 == 49;
            if fails {
                ours.post(write(mr.slice(..8).unwrap().detach(), forged).signaled().id(1)).unwrap();
                ours.post(write(Empty, to).id(2)).unwrap();
                sent.extend([1, 2]);
            }
            rig.hca.run_until_idle();
            let got = drain_direct(&mut poller);
            agree(&got, &cq);
            let good = |wc: &&ibv::WorkCompletion| {
                !fails || sent.contains(&wc.id()) || wc.status() == WcStatus::SUCCESS
            };
            let said: Vec<_> = got.iter().filter(good).map(ibv::WorkCompletion::id).collect();
            most = most.max(said.len());
            let of = |all: &[u64]| said.iter().copied().filter(|id| all.contains(id)).collect::<Vec<_>>();
            assert_eq!(of(&sent), sent, "round {round}");
            assert!(fails || of(&received) == received, "round {round}");
            assert!(fails || said.len() == sent.len() + received.len());
            drain(&peer_cq);
            if fails {
                let (in_reset, peer_in_reset) = (ours.reset().unwrap(), peer.reset().unwrap());
                (ours, peer) = (rig.up(in_reset, b), rig.up(peer_in_reset, a));
                drain(&peer_cq);
            }
        }
        rig.no_violations();
    }
    assert!(most > 16, "{most}");
}

/// Whole sessions stand in the ring when their queue pair is reset, or dropped: none of them is taken for a later
/// one's.
#[test]
fn sessions_of_before_are_passed_over_whole() {
    let rig = Rig::new();
    let mr = rig.region(4096);
    let cq = queue(&rig, false, 1024);
    let mut poller = Poller::new(&cq).unwrap();
    let to = mr.remote_region().slice(..).unwrap();
    let mut qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
    for round in 0..super::rig::rounds(400, 400) as u64 {
        for _ in 0..round % 3 {
            qp.post_list(&vec![write(Empty, to).signaled().id(u64::MAX); 1 + (round % 60) as usize][..])
                .unwrap_or_default();
            rig.hca.run_until_idle();
        }
        // some were read: the session is in the ring in full then
        for _ in 0..round % 4 {
            assert!(poller.poll().is_none_or(|wc| wc.id() == u64::MAX));
        }
        qp = if round % 5 == 0 {
            drop(qp);
            rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq))
        } else {
            rig.to_itself(qp.reset().unwrap())
        };
        if round % 2 == 0 {
            continue;
        }
        for id in 0..10 {
            qp.post(write(Empty, to).signaled().id(id)).unwrap();
        }
        rig.hca.run_until_idle();
        let got: Vec<_> = drain_direct(&mut poller).iter().map(ibv::WorkCompletion::id).collect();
        assert_eq!(got, (0..10).collect::<Vec<_>>(), "round {round}");
    }
    rig.no_violations();
}

#[test]
fn only_a_direct_queue_is_compressed_or_wide() {
    let rig = Rig::new();
    let builder = || CompletionQueue::builder(&rig.ctx, 64);
    for (refused, what) in [(builder().compressed(), "compressed"), (builder().wide(), "wide")] {
        let error = refused.build().unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(what), "{error}");
    }
    assert!(matches!(builder().wide().build_extended::<()>(), Err(Error::Invalid { .. })));
}

/// Titles as no device writes them lead from the first entry back to it, two laps on: who looks for the end of what was
/// written does not follow them for ever.
#[test]
fn titles_that_lead_round_are_not_followed_for_ever() {
    const TITLE: u8 = 3 << 2;
    let rig = Rig::new();
    let cq = queue(&rig, false, 512);
    let qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
    let ring = Entries::of(&cq);
    let entries = ring.count();
    for (slot, owner, count) in
        [(0, 0, entries / 4 * 3), (entries / 4 * 3, 0, entries / 4 * 3), (entries / 2, 1, entries / 2)]
    {
        ring.put(slot, 44, (count as u32).to_be_bytes());
        ring.put(slot, 63, [TITLE | owner]);
    }
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(qp.reset());
        done.send(()).unwrap();
    });
    wait.recv_timeout(std::time::Duration::from_secs(60)).expect("it came to an end");
    assert!(Poller::new(&cq).unwrap().poll().is_none());
}

/// A title as no device writes it is one entry to who reads it, and one to who looks for where the next one comes: what
/// follows it after a reset is not lost.
#[test]
fn a_title_that_makes_no_sense_is_one_entry_to_all() {
    const TITLE: u8 = 3 << 2;
    for part in [0, 1, 3] {
        let rig = Rig::new();
        let mr = rig.region(4096);
        let cq = queue(&rig, false, 512);
        let mut poller = Poller::new(&cq).unwrap();
        let to = mr.remote_region().slice(..).unwrap();
        let mut qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
        qp.post(write(Empty, to).signaled().id(1)).unwrap();
        rig.hca.run_until_idle();
        let ring = Entries::of(&cq);
        // none, more than half, all but a quarter
        let count = [0, ring.count() / 2 + 1, 0, ring.count() / 4 * 3][part];
        ring.put(0, 44, (count as u32).to_be_bytes());
        let [last] = ring.get(0, 63);
        ring.put(0, 63, [last | TITLE]);
        let mut qp = rig.to_itself(qp.reset().unwrap());
        for id in 2..5 {
            qp.post(write(Empty, to).signaled().id(id)).unwrap();
            rig.hca.run_until_idle();
        }
        let got: Vec<_> = drain_direct(&mut poller).iter().map(ibv::WorkCompletion::id).collect();
        assert_eq!(got, [2, 3, 4], "{count}");
    }
}
