//! Full queues, sharing between threads, and the room of completion queues.

use std::thread;

use ibv::{
    BatchStorage, CompletionQueue, Error, InitAttr, Inline, PostError, PostSend, Rc, RecvStorage, recv, send,
};

use crate::rig::{connect, contents, next_of, open_init, pattern, quiet, scenario, success};

const DEPTH: u32 = 8;

/// Posts, with ids from 0 on, until the queue is full: how many, and what was said of the next.
fn fill<'a>(queue: &mut impl PostSend<'a, Transport = Rc>) -> (u64, PostError) {
    for posted in 0..1000 {
        if let Err(refused) = queue.post(send(Inline(&[posted as u8])).signaled().id(posted)) {
            assert!(refused.is_queue_full(), "{refused}");
            return (posted, refused);
        }
    }
    panic!("the queue is never full");
}

#[test]
fn a_full_send_queue_says_so_and_recovers() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let [a, b] = connect(
            &rig.local,
            [parts.a_builder::<Rc>(), parts.b_builder()].map(|builder| {
                builder.send_depth(DEPTH).recv_depth(64).build().unwrap().init(open_init(&rig.local)).unwrap()
            }),
        );
        // the peer has no receive posted, so nothing completes
        let (posted, refused) = fill(&mut &a);
        assert_eq!(refused.accepted(), Some(0));
        assert!(posted >= u64::from(DEPTH), "{posted}");
        for id in 0..posted {
            b.post_recv(recv(to.slice(..).unwrap()).id(id)).unwrap();
        }
        for cq in [&parts.a_cq, &parts.b_cq] {
            let wcs = next_of(cq, posted as usize);
            assert!(wcs.iter().enumerate().all(|(id, wc)| wc.id() == id as u64 && wc.result().is_ok()));
        }
        quiet(&parts.b_cq);

        // a batch that is too long for it is taken in part
        let mut storage = BatchStorage::<64>::new();
        let mut batch = a.batch(&mut storage);
        for id in 0..64 {
            batch.push(send(Inline(b"batch")).signaled().id(id)).unwrap();
        }
        let refused = batch.submit().unwrap_err();
        assert!(refused.is_queue_full(), "{refused}");
        let accepted = refused.accepted().expect("rxe tells") as usize;
        assert!((DEPTH as usize..64).contains(&accepted), "{refused:?}");
        for id in 0..accepted {
            b.post_recv(recv(to.slice(..).unwrap()).id(id as u64)).unwrap();
        }
        next_of(&parts.a_cq, accepted);
        next_of(&parts.b_cq, accepted);
        quiet(&parts.b_cq);

        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"room again")).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(&contents(&to)[..10], b"room again");
    });
}

#[test]
fn a_full_receive_queue_says_so_and_recovers() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let [a, b] = [parts.a_builder::<Rc>(), parts.b_builder()]
            .map(|builder| builder.recv_depth(DEPTH).build().unwrap().init(open_init(&rig.local)).unwrap());
        let mut storage = RecvStorage::<64>::new();
        let mut batch = b.recv_batch(&mut storage);
        for id in 0..64 {
            batch.push(recv(to.slice(..).unwrap()).id(id)).unwrap();
        }
        let refused = batch.submit().unwrap_err();
        assert!(refused.is_queue_full(), "{refused}");
        let accepted = refused.accepted().expect("rxe tells");
        assert!((DEPTH..64).contains(&accepted), "{refused:?}");
        let refused = b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap_err();
        assert!(refused.is_queue_full() && refused.accepted() == Some(0), "{refused:?}");

        let [a, b] = connect(&rig.local, [a, b]);
        for id in 0..u64::from(accepted) {
            a.post(send(Inline(&[id as u8])).signaled().id(id)).unwrap();
            success(&parts.a_cq, id);
            success(&parts.b_cq, id);
            assert_eq!(contents(&to)[0], id as u8);
        }
        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        a.post(send(Inline(b"again")).signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
    });
}

#[test]
fn a_full_queue_of_the_extended_backend() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(128);
        let [mut a, b] = connect(
            &rig.local,
            [parts.a_builder::<Rc>(), parts.b_builder()].map(|builder| {
                let builder = builder.extended().send_depth(DEPTH).recv_depth(64);
                builder.build().unwrap().init(open_init(&rig.local)).unwrap()
            }),
        );
        let (posted, refused) = fill(&mut a);
        let accepted = refused.accepted();
        assert!(
            matches!(accepted, None | Some(0)),
            "{accepted:?}: a failing `ibv_wr_complete` tells nothing"
        );
        for id in 0..posted {
            b.post_recv(recv(to.slice(id as usize..=id as usize).unwrap()).id(id)).unwrap();
        }
        next_of(&parts.a_cq, posted as usize);
        next_of(&parts.b_cq, posted as usize);
        let sent: Vec<_> = (0..posted as u8).collect();
        assert_eq!(contents(&to)[..sent.len()], sent, "what was refused has left them alone");
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(Inline(b"again")).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
    });
}

#[test]
fn threads_share_a_queue_pair() {
    const THREADS: usize = 4;
    const EACH: usize = 30;
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(256, 1), parts.zeros(16 * 64));
        let [a, b] = parts.pair::<Rc>();
        let slot = |at: usize| to.slice(at * 64..at * 64 + 64).unwrap();
        for at in 0..16 {
            b.post_recv(recv(slot(at)).id(at as u64)).unwrap();
        }
        let (a, parts, from) = (&a, &parts, &from);
        let mut seen = [0; THREADS];
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for nth in 0..EACH {
                        let head = Inline(&[thread as u8, nth as u8]).0.to_vec();
                        let request = send(Inline(&head)).signaled().id((thread * EACH + nth) as u64);
                        // both kinds of data, and full queues now and then
                        while let Err(refused) = a.post(request) {
                            assert!(refused.is_queue_full(), "{refused}");
                            thread::yield_now();
                        }
                        let long = send(from.slice(thread..thread + 60).unwrap());
                        while let Err(refused) = a.post(long) {
                            assert!(refused.is_queue_full(), "{refused}");
                            thread::yield_now();
                        }
                    }
                });
            }
            scope.spawn(move || {
                let mut ids: Vec<u64> =
                    next_of(&parts.a_cq, THREADS * EACH).iter().map(|wc| wc.id()).collect();
                ids.sort_unstable();
                assert!(ids.iter().copied().eq(0..(THREADS * EACH) as u64));
            });
            for _ in 0..2 * THREADS * EACH {
                let wc = next_of(&parts.b_cq, 1)[0];
                let len = wc.result().unwrap().byte_len().unwrap() as usize;
                let at = wc.id() as usize;
                let mut bytes = vec![0; len];
                to.read(at * 64, &mut bytes).unwrap();
                match bytes[..] {
                    [thread, nth] => {
                        assert_eq!(seen[thread as usize], nth, "a thread's messages stay in order");
                        seen[thread as usize] += 1;
                    }
                    _ => assert!((0..THREADS).any(|thread| bytes == pattern(256, 1)[thread..thread + 60])),
                }
                b.post_recv(recv(slot(at)).id(at as u64)).unwrap();
            }
        });
        assert_eq!(seen, [EACH as u8; THREADS]);
    });
}

#[test]
fn completion_queues_are_not_promised_twice() {
    scenario(|rig| {
        let pd = rig.ctx.alloc_pd().unwrap();
        let cq = rig.ctx.create_cq(63).unwrap();
        let make = || {
            let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(15).recv_depth(15).build()?;
            Ok::<_, Error>(qp.init(InitAttr::new(rig.local.port))?)
        };
        let fits = cq.capacity() / (2 * CompletionQueue::entries_for(15));
        let qps: Vec<_> = (0..fits).map(|_| make().unwrap()).collect();
        assert!(matches!(make(), Err(Error::CqRoom { .. })));
        drop(qps);
        // their completions may still be there, until the queue was seen empty
        assert!(make().is_err());
        quiet(&cq);
        make().unwrap();
    });
}

#[test]
fn sizes_beyond_the_device_are_refused_in_its_terms() {
    scenario(|rig| {
        let parts = rig.parts();
        let attr = rig.ctx.device_attr();
        let limit = |result: ibv::Result<()>| match result {
            Err(Error::Limit { asked, limit, .. }) => assert_eq!(asked, limit + 1),
            other => panic!("{other:?}"),
        };
        limit(parts.a_builder::<Rc>().send_depth(attr.max_qp_wr() + 1).build().map(drop));
        limit(parts.a_builder::<Rc>().recv_depth(attr.max_qp_wr() + 1).build().map(drop));
        limit(parts.a_builder::<Rc>().send_sges(attr.max_sge() + 1).build().map(drop));
        limit(parts.a_builder::<Rc>().recv_sges(attr.max_sge() + 1).build().map(drop));
        limit(rig.ctx.create_cq(attr.max_cqe() + 1).map(drop));
        assert!(matches!(rig.ctx.create_cq(0), Err(Error::Invalid { .. })));
        assert!(matches!(parts.a_builder::<Rc>().recv_sges(0).build(), Err(Error::Invalid { .. })));
        let inline = parts.a_builder::<Rc>().inline(1 << 20).build().unwrap_err();
        assert_eq!(inline.errno(), Some(libc::EINVAL), "{inline}");
        // a refused queue pair holds no room
        for _ in 0..40 {
            parts.a_builder::<Rc>().inline(1 << 20).build().unwrap_err();
        }
        parts.a_builder::<Rc>().build().unwrap();
    });
}
