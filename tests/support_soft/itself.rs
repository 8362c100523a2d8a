//! The rig would notice.

#![expect(unsafe_code, reason = "tries an unsafe call")]

use ibv::{Inline, Rc, recv, send, write};
use softhca::Mode;

use crate::leaks::Counts;
use crate::rig::{connect, contents, hca, open_init, quiet, scenario, success};

#[test]
fn what_is_left_behind() {
    scenario(|rig| {
        let before = Counts::now();
        let pd = rig.ctx.alloc_pd().unwrap();
        let with_pd = Counts::now();
        let mr = pd.alloc_local(8).unwrap();
        let with_both = Counts::now();
        assert!(before != with_pd && with_pd != with_both && with_both != before);
        drop(mr);
        drop(pd);
        before.expect_again();
    });
}

#[test]
fn a_device_access_to_what_the_cpu_owns() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = parts.open(8);
        let [a, _b] = parts.pair::<Rc>();
        let remote = mr.remote_region();
        hca().cpu_owns(remote.addr as usize, 8);
        a.post(write(Inline(b"8 bytes!"), remote.slice(..).unwrap()).signaled().id(1)).unwrap();
        quiet(&parts.b_cq);
        hca().cpu_releases(remote.addr as usize);
        let (count, texts) = hca().take_violations();
        assert!(count > 0, "{texts:?}");
    });
}

#[test]
fn data_that_is_copied_when_its_completion_is_polled() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(32);
        let made = [parts.a_builder::<Rc>(), parts.b_builder()].map(|builder| {
            // SAFETY: the region outlives the queue pairs, and no other thread has it.
            let builder = unsafe { builder.allow_late_copies() };
            builder.build().unwrap().init(open_init(&parts.local)).unwrap()
        });
        let [a, b] = connect(&parts.local, made);
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(&[7; 32])).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        quiet(&parts.a_cq);
        assert_eq!(contents(&to), [0; 32]);
        success(&parts.b_cq, 1);
        assert_eq!(contents(&to), [7; 32]);
    });
}

#[test]
fn a_store_to_a_doorbell() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.pair::<Rc>();
        let before = hca().stats();
        for id in 0..10 {
            b.post_recv(ibv::recv(ibv::Empty)).unwrap();
            a.post(send(Inline(b"")).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
        }
        let after = hca().stats();
        assert_eq!(after.doorbells - before.doorbells, 10);
        let (stores, records) =
            (after.checked_stores - before.checked_stores, after.checked_records - before.checked_records);
        match crate::MODE {
            // each send rings a register, after its record; each receive has a record
            Mode::Trap => assert!(stores >= 10 && records >= 20, "{stores}, {records}"),
            _ => assert_eq!((stores, records), (0, 0)),
        }
    });
}
