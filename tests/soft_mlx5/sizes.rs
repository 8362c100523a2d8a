//! How large queues are is known before they are made.

use super::memory::Memory;
use super::rig::{Random, Rig, rounds};
use ibv::{QpCaps, QueuePairBuilder, Rc, SharedReceiveQueue, Transport, Uc, Ud, mlx5};

fn sizes<T: Transport>() {
    let rig = Rig::new();
    let mut random = Random::new(3);
    for _ in 0..rounds(20, 300) {
        let mut some = |end: usize| random.below(end) as u32;
        let caps = QpCaps {
            send_depth: some(100),
            recv_depth: some(100),
            send_sges: 1 + some(8),
            recv_sges: 1 + some(8),
            inline: some(300),
        };
        let (sends, receives) = mlx5::cq_entries::<T>(&caps);
        if sends + receives == 0 {
            continue;
        }
        let (send_cq, recv_cq) = (rig.direct(sends.max(1)), rig.direct(receives.max(1)));
        let qp = QueuePairBuilder::<T, _>::direct(&rig.pd, &send_cq, &recv_cq).caps(caps).build().unwrap();
        let memory = Memory::of(&qp);
        assert_eq!((memory.blocks as u32, memory.receives as u32), (sends, receives), "{caps:?}");
        // and that is what it has claimed: all, if that is all there is
        let one = QpCaps { send_depth: 1, recv_depth: 1, ..QpCaps::default() };
        let fits = QueuePairBuilder::<T, _>::direct(&rig.pd, &send_cq, &recv_cq).caps(one).build().is_ok();
        let (more_sends, more_receives) = mlx5::cq_entries::<T>(&one);
        let expected =
            sends + more_sends <= send_cq.capacity() && receives + more_receives <= recv_cq.capacity();
        assert_eq!(fits, expected, "{caps:?}");
    }
}

#[test]
fn what_queue_pairs_claim_is_what_their_rings_have() {
    sizes::<Rc>();
    sizes::<Uc>();
    sizes::<Ud>();
}

#[test]
fn receives_of_a_shared_queue_are_claimed_once() {
    let rig = Rig::new();
    let caps = QpCaps { send_depth: 16, recv_depth: 0, ..QpCaps::default() };
    let (sends, receives) = mlx5::cq_entries::<Rc>(&caps);
    assert_eq!((sends, receives), (16, 0));
    let entries = 12 * sends + SharedReceiveQueue::cq_entries(63);
    let cq = rig.direct(entries);
    assert_eq!(cq.capacity(), entries, "a power of two");
    let srq = SharedReceiveQueue::direct(&rig.pd, &cq, 63, 1).unwrap();
    let make = || QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).caps(caps).srq(&srq).build();
    let all: Vec<_> = (0..12).map(|_| make().unwrap()).collect();
    assert!(make().is_err());
    drop(all);
}
