//! A device that completes what is not outstanding makes no room by that. (It could as well say that of what is
//! outstanding, against which nothing helps.)

use super::memory::Entries;
use super::rig::{BLOCKS, INLINE, Qp, Rig, drain_direct, rounds};
use super::shared::{set_wqe, wqe};
use ibv::mlx5::Poller;
use ibv::{Direct, Empty, Inline, MemoryRegion, PostError, Rc, Remote, recv, send, write};
use std::sync::Arc;

/// A queue pair that is connected to itself, and the entries that the device writes for its poller.
fn start() -> (Rig, Arc<MemoryRegion<'static, Remote>>, Poller<'static>, Entries, Qp<Rc, Direct>) {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(256));
    let poller = Poller::new(&cq).unwrap();
    let qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
    (rig, mr, poller, Entries::of(&cq), qp)
}

#[test]
fn sends_that_are_not_outstanding_make_no_room() {
    let (rig, mr, mut poller, entries, mut qp) = start();
    let to = mr.remote_region().slice(4096..).unwrap();
    // each block remembers a request of the first lap; those of later ones take four, and three of them go on
    // remembering
    for _ in 0..BLOCKS {
        qp.post(write(Empty, to).signaled()).unwrap();
    }
    rig.hca.run_until_idle();
    assert_eq!(drain_direct(&mut poller).len(), BLOCKS);
    let long = write(Inline(&[1; INLINE as usize]), to).signaled();
    let mut polled = BLOCKS;
    let many = BLOCKS as u16;
    for block in (0..many).take(rounds(16, BLOCKS)) {
        if block % 4 == 0 {
            continue; // it is outstanding
        }
        for wrong in [block, block + many, block.wrapping_sub(many)] {
            for _ in 0..BLOCKS / 4 {
                qp.post(long).unwrap();
            }
            rig.hca.run_until_idle();
            assert_eq!(qp.post(long), Err(PostError::QueueFull));
            set_wqe(&entries, polled, wrong);
            assert!(poller.poll().is_some());
            for _ in 0..3 {
                assert_eq!(qp.post(long), Err(PostError::QueueFull), "after the completion of {wrong}");
            }
            // the right ones that come after it have the last word
            assert_eq!(drain_direct(&mut poller).len(), BLOCKS / 4 - 1);
            polled += BLOCKS / 4;
        }
    }
    rig.no_violations();
}

#[test]
fn receives_that_are_not_outstanding_make_no_room() {
    let (rig, mr, mut poller, entries, mut qp) = start();
    let into = mr.slice(4096..4160).unwrap().detach();
    let (mut polled, mut right) = (0, 0u16);
    for wrong in [1, 2, 127, 128, 129, 255, 0x7fff, 0x8000, 0x8001, 0xff00, 0xff7f] {
        for id in 0..128 {
            qp.post_recv(recv(into).id(id)).unwrap();
        }
        assert_eq!(qp.post_recv(recv(into)), Err(PostError::QueueFull));
        // of a request before the oldest, or after the last
        qp.post(send(Empty)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(wqe(&entries, polled), right);
        set_wqe(&entries, polled, right.wrapping_sub(wrong));
        assert!(poller.poll().is_some());
        for _ in 0..3 {
            assert_eq!(qp.post_recv(recv(into)), Err(PostError::QueueFull), "{right} - {wrong}");
        }
        for _ in 0..127 {
            qp.post(send(Empty).signaled().id(1000)).unwrap();
            rig.hca.run_until_idle();
            assert_eq!(drain_direct(&mut poller).len(), 2);
        }
        (polled, right) = (polled + 255, right.wrapping_add(128));
    }
    rig.no_violations();
}
