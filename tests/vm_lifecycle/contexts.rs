//! Objects of two openings of one device do not mix.

use ibv::{
    AddressVector, CompletionQueue, Error, Grh, Inline, PostError, QueuePairBuilder, Rc, Ud, UdInitAttr, send,
};

use crate::rig::{QKEY, Rig, quiet, roomy, scenario};

fn refused<T: std::fmt::Debug>(result: ibv::Result<T>, what: &str) {
    match result {
        Err(Error::OtherContext { what: found }) => assert_eq!(found, what),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parents_of_two_contexts_are_refused() {
    scenario(|rig| {
        let other = Rig::open();
        let (pd, cq) = (rig.ctx.alloc_pd().unwrap(), rig.ctx.create_cq(64).unwrap());
        let (foreign_cq, foreign_pd) = (other.ctx.create_cq(64).unwrap(), other.ctx.alloc_pd().unwrap());
        let foreign_channel = other.ctx.create_comp_channel().unwrap();
        refused(pd.create_qp::<Rc>(&foreign_cq, &cq).build(), "send completion queue");
        refused(pd.create_qp::<Rc>(&cq, &foreign_cq).build(), "receive completion queue");
        refused(QueuePairBuilder::<Rc>::new(&foreign_pd, &cq, &cq).build(), "send completion queue");
        refused(pd.create_qp::<Rc>(&cq, &foreign_cq).extended().build(), "receive completion queue");
        refused(
            CompletionQueue::builder(&rig.ctx, 8).channel(&foreign_channel).build(),
            "completion channel",
        );
        // what was refused took no room
        pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
        foreign_pd.create_qp::<Rc>(&foreign_cq, &foreign_cq).build().unwrap();
    });
}

#[test]
fn address_handles_of_another_context_are_refused() {
    scenario(|rig| {
        let (parts, other) = (rig.parts(), Rig::open());
        let (foreign_pd, foreign_cq) = (other.ctx.alloc_pd().unwrap(), other.ctx.create_cq(64).unwrap());
        let path =
            AddressVector::global(rig.local.port, Grh::new(rig.local.gid, rig.local.gid_index.unwrap()));
        let foreign = foreign_pd.create_ah(&path).unwrap();
        let own = parts.pd.create_ah(&path).unwrap();
        let [a, b] = parts.datagrams();
        let datagram = |ah| send(Inline(b"x")).to(ah, b.qp_num(), QKEY).signaled();
        assert_eq!(a.post(datagram(&foreign)), Err(PostError::OtherContext));
        assert_eq!(a.prepare(datagram(&foreign)).map(drop), Err(PostError::OtherContext));
        let mut storage = ibv::BatchStorage::<2>::new();
        assert_eq!(a.batch(&mut storage).push(datagram(&foreign)), Err(PostError::OtherContext));
        quiet(&parts.a_cq);

        // prepared on one, posted on the other
        let init = UdInitAttr::new(rig.local.port, QKEY);
        let elsewhere = roomy(foreign_pd.create_qp::<Ud>(&foreign_cq, &foreign_cq)).build().unwrap();
        let elsewhere = elsewhere.init(init).unwrap().activate(1).unwrap();
        let prepared = a.prepare(datagram(&own)).unwrap();
        a.post_prepared(&prepared).unwrap();
        crate::rig::success(&parts.a_cq, 0);
        assert_eq!(elsewhere.post_prepared(&prepared), Err(PostError::OtherQueuePair));

        let builder = roomy(parts.a_builder::<Ud>().extended());
        let mut extended = builder.build().unwrap().init(init).unwrap().activate(1).unwrap();
        assert_eq!(extended.post(datagram(&foreign)), Err(PostError::OtherContext));
        // the abort gave the provider's lock back
        extended.post(datagram(&own)).unwrap();
        crate::rig::success(&parts.a_cq, 0);
    });
}
