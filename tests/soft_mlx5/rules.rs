//! Each way in which the direct path tells the device something, a few times: with the device checking every store,
//! none breaks a rule, and all of it has its effect. (`cargo xtask mutants` runs this on the direct path with a mistake
//! in it, and wants it to fail.)

use std::sync::Arc;

use super::rig::{Qp, Rig, drain_direct};
use ibv::mlx5::Poller;
use ibv::{Arm, CompletionChannel, CompletionQueue, Direct, Inline, Rc, WcStatus, recv, send, write};

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
            let number = qp.qp_num();
            rig.up(qp, number)
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
