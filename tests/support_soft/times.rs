//! When requests were completed, in virtual time.

use std::time::Duration;

use ibv::fields::{Timestamp, WallClock};
use ibv::{Empty, Poller, recv, send};

use super::polled::{done, pair, queue};
use crate::rig::{hca, scenario};

#[test]
fn completions_are_of_the_device_s_time() {
    type Times = (Timestamp, WallClock);
    scenario(|rig| {
        assert_eq!(rig.ctx.device_attr().hca_core_clock_khz(), 1_000_000);
        let (parts, a_cq, b_cq) = (rig.parts(), queue::<Times>(rig), queue::<Times>(rig));
        let [a, b] = pair(&parts, &a_cq, &b_cq);
        let mut at_a = Poller::<Times>::new(&a_cq).unwrap();
        let mut at_b = Poller::<Times>::new(&b_cq).unwrap();
        for id in 0..4 {
            b.post_recv(recv(Empty).id(id)).unwrap();
            hca().advance(Duration::from_millis(3));
            a.post(send(Empty).signaled().id(id)).unwrap();
            hca().run_until_idle();
            let now = u64::try_from(hca().now().as_nanos()).unwrap();
            // a cycle of its clock is a nanosecond of the machine's
            let expected = (Timestamp(now), WallClock(now));
            hca().advance(Duration::from_millis(1));
            assert_eq!(done(&mut at_a, id), expected);
            assert_eq!(done(&mut at_b, id), expected);
        }
    });
}
