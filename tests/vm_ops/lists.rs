//! Lists of requests, prepared requests, and which requests complete visibly.

use ibv::{
    BatchStorage, Inline, PostError, Rc, RecvStorage, WcStatus, fetch_add, read, recv, send, send_imm, write,
    write_imm,
};

use crate::rig::{
    completed, connect, contents, next_of, open_init, pattern, quiet, roomy_extended, scenario, success,
};

#[test]
fn a_batch_of_all_kinds() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(256), parts.open(256));
        ours.write(0, &pattern(256, 1)).unwrap();
        let [a, b] = parts.pair::<Rc>();
        let remote = theirs.remote_region();
        let (mut receives, mut requests) = (RecvStorage::<4, 2>::new(), BatchStorage::<6, 2>::new());

        let mut batch = b.recv_batch(&mut receives);
        assert!(batch.is_empty());
        batch.push(recv([theirs.slice(0..10).unwrap(), theirs.slice(20..30).unwrap()]).id(1)).unwrap();
        batch.push(recv(theirs.slice(30..40).unwrap()).id(2)).unwrap();
        batch.push(recv(theirs.slice(40..44).unwrap()).id(3)).unwrap();
        assert_eq!(batch.len(), 3);
        batch.submit().unwrap();

        let mut batch = a.batch(&mut requests);
        batch.push(send([ours.slice(0..5).unwrap(), ours.slice(100..115).unwrap()]).id(1)).unwrap();
        batch.push(write(ours.slice(200..210).unwrap(), remote.slice(50..60).unwrap()).id(2)).unwrap();
        batch.push(send_imm(Inline(b"inline"), 6).signaled().id(3)).unwrap();
        batch.push(read(ours.slice(240..250).unwrap(), remote.slice(50..60).unwrap()).id(4)).unwrap();
        batch.push(fetch_add(ours.u64_at(232).unwrap(), remote.u64_at(64).unwrap(), 7).id(5)).unwrap();
        batch
            .push(write_imm(ours.slice(0..1).unwrap(), remote.slice(90..91).unwrap(), 8).signaled().id(6))
            .unwrap();
        assert_eq!(batch.push(send(Inline(b""))), Err(PostError::BatchFull));
        assert_eq!(batch.len(), 6);
        batch.submit().unwrap();

        let wcs = next_of(&parts.a_cq, 2);
        assert_eq!(wcs.iter().map(|wc| wc.id()).collect::<Vec<_>>(), [3, 6], "only signaled ones");
        let wcs = next_of(&parts.b_cq, 3);
        assert_eq!(wcs.iter().map(|wc| wc.id()).collect::<Vec<_>>(), [1, 2, 3]);
        let imms: Vec<_> = wcs.iter().map(|wc| wc.result().unwrap().imm()).collect();
        assert_eq!(imms, [None, Some(6), Some(8)]);
        let (ours, theirs) = (contents(&ours), contents(&theirs));
        let sent = pattern(256, 1);
        assert_eq!(theirs[..10], [&sent[0..5], &sent[100..105]].concat());
        assert_eq!(theirs[20..30], sent[105..115]);
        assert_eq!(&theirs[30..36], b"inline");
        assert_eq!(theirs[50..60], sent[200..210]);
        assert_eq!(ours[240..250], sent[200..210]);
        assert_eq!((theirs[64], theirs[90]), (7, sent[0]));
        assert_eq!(ours[232..240], [0; 8], "what the word was before");
    });
}

#[test]
fn an_unfinished_batch_posts_nothing() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        let mut storage = BatchStorage::<2>::new();
        let mut batch = a.batch(&mut storage);
        batch.push(send(Inline(b"lost")).signaled()).unwrap();
        drop(batch);
        a.batch(&mut storage).submit().unwrap();
        quiet(&parts.a_cq);
        quiet(&parts.b_cq);
        // a request that does not fit leaves the batch as it was
        let mut batch = a.batch(&mut storage);
        batch.push(send(Inline(b"first")).signaled().id(2)).unwrap();
        assert!(matches!(batch.push(send(Inline(&[0; 4096]))), Err(PostError::InlineTooLong { .. })));
        batch.submit().unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(&contents(&to)[..5], b"first");
    });
}

#[test]
fn a_prepared_request_again_and_again() {
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.zeros(64), parts.open(64));
        let [a, b] = parts.pair::<Rc>();
        let place = to.remote_region().slice(..16).unwrap();
        let two = [from.slice(0..8).unwrap(), from.slice(32..40).unwrap()];
        let mut gathered = a.prepare(write_imm(two, place, 3).signaled()).unwrap();
        let inline = a.prepare(send(Inline(b"prepared")).signaled().id(1)).unwrap();
        for round in 1..=20 {
            from.write(0, &pattern(64, round)).unwrap();
            b.post_recv(recv(to.slice(20..28).unwrap()).id(1)).unwrap();
            b.post_recv(recv(to.slice(20..28).unwrap()).id(2)).unwrap();
            gathered.set_id(1000 + u64::from(round));
            a.post_prepared(&gathered).unwrap();
            a.post_prepared(&inline).unwrap();
            success(&parts.a_cq, 1000 + u64::from(round));
            success(&parts.a_cq, 1);
            assert_eq!(completed(&parts.b_cq, 1).result().unwrap().imm(), Some(3));
            success(&parts.b_cq, 2);
            let (sent, got) = (pattern(64, round), contents(&to));
            assert_eq!(got[..16], [&sent[0..8], &sent[32..40]].concat());
            assert_eq!(&got[20..28], b"prepared");
        }
    });
}

#[test]
fn a_list_by_the_extended_backend() {
    scenario(|rig| {
        let parts = rig.parts();
        let to = parts.zeros(64);
        let inits = [parts.a_builder::<Rc>(), parts.b_builder()]
            .map(|builder| roomy_extended(builder).build().unwrap().init(open_init(&rig.local)).unwrap());
        let [mut a, b] = connect(&rig.local, inits);
        for id in 0..3 {
            b.post_recv(recv(to.slice(id * 8..id * 8 + 8).unwrap()).id(id as u64)).unwrap();
        }
        let requests =
            [b"first...", b"second..", b"third..."].map(|bytes| send(Inline(bytes)).signaled().id(5));
        a.post_list(&requests).unwrap();
        a.post_list::<ibv::Send<Inline<'_>>>(&[]).unwrap();
        for wc in next_of(&parts.a_cq, 3).iter().chain(&next_of(&parts.b_cq, 3)) {
            assert_eq!(wc.status(), WcStatus::SUCCESS);
        }
        assert_eq!(&contents(&to)[..24], b"first...second..third...");
        // one that does not fit takes the whole list with it
        let long = [0; 4096];
        let refused = a.post_list(&[send(Inline(b"short")), send(Inline(&long))]);
        assert!(matches!(refused, Err(PostError::InlineTooLong { .. })));
        quiet(&parts.a_cq);
    });
}

#[test]
fn all_sends_complete_visibly_if_asked_at_creation() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = [parts.a_builder::<Rc>(), parts.b_builder()]
            .map(|builder| builder.signal_all(true).build().unwrap().init(open_init(&rig.local)).unwrap());
        let [a, b] = connect(&rig.local, [a, b]);
        assert!(a.query().unwrap().signals_all());
        b.post_recv(recv(ibv::Empty).id(1)).unwrap();
        a.post(send(Inline(b"")).id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
    });
}

#[test]
fn what_does_not_fit_the_queue_pair_never_reaches_it() {
    scenario(|rig| {
        let parts = rig.parts();
        let (mr, small) = (parts.open(64), parts.open(8));
        let [a, b] = parts.pair::<Rc>();
        let slices = [mr.slice(..4).unwrap(); 33];
        let max = a.max_inline() as usize;
        let bytes = vec![0; max + 1];
        assert_eq!(a.post(send(Inline(&bytes))), Err(PostError::InlineTooLong { max: max as u32 }));
        assert!(matches!(a.post(send(&slices[..])), Err(PostError::TooManySges { max }) if max >= 4));
        assert!(matches!(b.post_recv(recv(&slices[..])), Err(PostError::TooManySges { max }) if max >= 4));
        let place = small.remote_region().slice(..).unwrap();
        assert_eq!(a.post(write(mr.slice(..9).unwrap(), place)), Err(PostError::RemoteTooShort));
        assert_eq!(a.post(read(mr.slice(..9).unwrap(), place)), Err(PostError::RemoteTooShort));
        assert!(small.remote_region().u64_at(4).is_err(), "atomics are aligned");
        assert!(mr.u64_at(1).is_err());
        quiet(&parts.a_cq);
        quiet(&parts.b_cq);
    });
}
