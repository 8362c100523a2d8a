//! Each way in which the direct path tells the device something, a few times: with the device checking every store,
//! none breaks a rule, and all of it has its effect. (`cargo xtask mutants` runs this on the direct path with a mistake
//! in it, and wants it to fail.)

use std::sync::Arc;

use super::rig::{Qp, Rig, drain_direct};
use ibv::mlx5::Poller;
use ibv::{
    Arm, CompletionChannel, CompletionQueue, Direct, Empty, Inline, PostError, QueuePairBuilder, Rc,
    SharedReceiveQueue, WcStatus, WithSrq, recv, send, write,
};

#[test]
fn every_way_to_tell_the_device_keeps_the_rules() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let channel = Arc::new(CompletionChannel::new(&rig.ctx).unwrap());
    let cq = Arc::new(CompletionQueue::builder(&rig.ctx, 512).channel(&channel).build_direct().unwrap());
    let mut poller = Poller::new(&cq).unwrap();
    // several, so that they have registers on several pages
    let mut queues: Vec<Qp<Rc, Direct>> = (0..2)
        .map(|_| {
            let qp = rig.direct_qp::<Rc>(&cq, &cq);
            rig.to_itself(qp)
        })
        .collect();
    let (data, into) = (mr.slice(..64).unwrap().detach(), mr.slice(4096..4160).unwrap().detach());
    let to = mr.remote_region().slice(4096..).unwrap();
    let (mut posted, mut done) = (0, Vec::new());
    // more than go into the ring of the completion queue
    for round in 0..90 {
        poller.arm(Arm::Any).unwrap();
        for qp in &mut queues {
            qp.post_recv(recv(into).id(1000)).unwrap();
            qp.post_recv_list(&[recv(into).id(1001), recv(into).id(1002)]).unwrap();
            for _ in 0..2 {
                qp.post(write(data, to).signaled().id(round)).unwrap();
                qp.post(write(Inline(&[1; 8]), to).signaled().id(round)).unwrap();
                qp.post(write(Inline(&[1; 100]), to).signaled().id(round)).unwrap();
                qp.post_list(&[write(data, to).signaled().id(round); 3]).unwrap();
            }
            for _ in 0..3 {
                qp.post(send(data).id(round)).unwrap();
            }
            posted += 12 + 3;
        }
        let (count, texts) = rig.hca.take_violations();
        assert_eq!(count, 0, "rules were broken: {texts:#?}");
        rig.hca.run_until_idle();
        done.extend(drain_direct(&mut poller));
        assert_eq!(done.len(), posted, "requests complete");
        assert_eq!(channel.try_event().unwrap(), Some(cq.id()), "events are raised");
    }
    assert!(done.iter().all(|wc| wc.status() == WcStatus::SUCCESS), "requests succeed");
    assert!(done.len() > 2 * cq.capacity() as usize);
    let received = done.iter().filter(|wc| wc.id() >= 1000).count();
    assert_eq!(received, 90 * 2 * 3, "messages are received");
}

#[test]
fn shared_receives_keep_the_rules() {
    let rig = Rig::new();
    let (mr, cq) = (rig.region(8192), rig.direct(512));
    let mut poller = Poller::new(&cq).unwrap();
    let mut srq = SharedReceiveQueue::direct(&rig.pd, &cq, 31, 2).unwrap();
    let mut queues: Vec<Qp<WithSrq<Rc>, Direct>> = (0..2)
        .map(|_| {
            let qp = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(64).srq(&srq);
            let qp = qp.build().unwrap();
            rig.to_itself(qp)
        })
        .collect();
    let into = mr.slice(4096..4160).unwrap().detach();
    let (mut next, mut done) = (0, 0);
    for round in 0..40 {
        let mut posted = 0;
        while srq.post_recv(recv(into).id(next)) != Err(PostError::QueueFull) {
            (next, posted) = (next + 1, posted + 1);
            assert!(posted < 100, "receives are posted as long as there is room");
        }
        assert_eq!(next - done, 31, "so many receives are outstanding as there is room for");
        let (count, texts) = rig.hca.take_violations();
        assert_eq!(count, 0, "rules were broken: {texts:#?}");
        for number in 0..round % 31 {
            queues[number as usize % 2].post(send(Empty).id(u64::MAX)).unwrap();
            rig.hca.run_until_idle();
            let got = drain_direct(&mut poller);
            let ids: Vec<_> = got.iter().map(ibv::WorkCompletion::id).collect();
            assert_eq!(ids, [done], "receives complete in their order");
            done += 1;
        }
        // one more, of a queue pair that is reset before its completion is read
        if round % 2 == 1 {
            let mut qp = queues.remove(0);
            qp.post(send(Empty)).unwrap();
            rig.hca.run_until_idle();
            let (number, in_reset) = (qp.qp_num(), qp.reset().unwrap());
            queues.push(rig.up(in_reset, number));
            assert_eq!(drain_direct(&mut poller).len(), 0, "what came before a reset is nobody's");
            done += 1;
        }
        // the sends are unsignaled: now and then one that is not makes room for more
        for qp in &mut queues {
            qp.post(write(Empty, mr.remote_region().slice(..).unwrap()).signaled()).unwrap();
        }
        rig.hca.run_until_idle();
        assert_eq!(drain_direct(&mut poller).len(), 2, "requests complete");
        // one list is all or nothing
        assert_eq!(srq.post_recv_list(&[recv(into); 32]), Err(PostError::QueueFull));
    }
    assert_eq!(done, (0..40).map(|round| round % 31).sum::<u64>() + 20, "messages are received");
}
