//! Panics and early ends while requests are under way.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ibv::{Endpoint, Inline, Pages, Rc, recv, send, write};

use crate::rig::{Parts, connect, contents, open_init, pattern, scenario, success};

/// Runs it, and unwinds out of it without a message.
fn unwinds(run: impl FnOnce()) {
    let end = catch_unwind(AssertUnwindSafe(|| {
        run();
        resume_unwind(Box::new("planned"));
    }));
    assert_eq!(end.unwrap_err().downcast_ref(), Some(&"planned"));
}

#[test]
fn a_panic_between_post_and_poll() {
    scenario(|rig| {
        for _ in 0..5 {
            unwinds(|| {
                let parts = rig.parts();
                let (from, to) = (parts.filled(1 << 20, 1), parts.zeros(1 << 20));
                let [a, b] = parts.pair::<Rc>();
                b.post_recv(recv(to.slice(..).unwrap())).unwrap();
                a.post(send(from.slice(..).unwrap()).signaled()).unwrap();
                resume_unwind(Box::new("planned"));
            });
            // the memory is free again: nothing may still write it
            let mut memory: Vec<Pages> = (0..3).map(|_| Pages::new(1 << 20).unwrap()).collect();
            let mine = pattern(1 << 20, 9);
            for pages in &mut memory {
                pages.copy_from_slice(&mine);
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(memory.iter().all(|pages| pages[..] == mine[..]));
        }
    });
}

#[test]
fn the_other_side_outlives_a_panic() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.open(64);
        let a = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let mut a = Some(a);
        unwinds(|| {
            let other = rig.parts();
            let from = other.filled(64, 1);
            let b = other.b_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
            let (a, b) = crate::rig::connect_with(&rig.local, a.take().unwrap(), b, |connection| connection);
            b.post(write(from.slice(..).unwrap(), to.remote_region().slice(..).unwrap()).signaled().id(1))
                .unwrap();
            drop(a);
        });
        // its parts work on
        let [a, b] = connect(&rig.local, parts.inits::<Rc>());
        b.post_recv(recv(to.slice(..).unwrap()).id(2)).unwrap();
        a.post(send(Inline(b"still here")).signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        success(&parts.b_cq, 2);
        assert_eq!(&contents(&to)[..10], b"still here");
    });
}

#[test]
fn dropped_with_everything_under_way() {
    fn nobody(parts: &Parts<'_>) -> ibv::Connection {
        let peer = Endpoint { lid: parts.local.lid, qpn: 0xff_fff0, psn: 0, gid: parts.local.gid };
        ibv::Connection::new(parts.local, 0, peer)
    }
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(1 << 16, 1), parts.zeros(1 << 16));
        let qp = parts.a_builder::<Rc>().build().unwrap().init(open_init(&rig.local)).unwrap();
        let qp = qp.connect(&nobody(&parts)).unwrap();
        for id in 0..10 {
            qp.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
            qp.post(send(from.slice(..).unwrap()).signaled().id(id)).unwrap();
        }
        // still trying to reach somebody: the queue pair, the regions, the rest go now
    });
}
