//! Whatever the order in which things are dropped, and on whatever thread.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use ibv::state::Rts;
use ibv::{
    AddressHandle, AddressVector, CompletionChannel, CompletionQueue, Grh, MemoryRegion, Pages,
    ProtectionDomain, QueuePair, QueuePairBuilder, Rc, RemoteAccess, recv,
};

use crate::leaks::Counts;
use crate::rig::{Rig, all_access, checked, connect_with, open_init, scenario};

/// One of each, holding its parents by `Arc`. Two queue pairs, connected, with receives outstanding.
fn one_of_each() -> Vec<Box<dyn Any + Send>> {
    let Rig { ctx, local } = Rig::open();
    let ctx = Arc::new(ctx);
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let channel = Arc::new(CompletionChannel::new(&ctx).unwrap());
    let cq = Arc::new(CompletionQueue::builder(&ctx, 128).channel(&channel).build().unwrap());
    let mr = MemoryRegion::remote(&pd, Pages::new(4096).unwrap(), RemoteAccess::WRITE).unwrap();
    let route = Grh::new(local.gid, local.gid_index.unwrap());
    let ah = AddressHandle::new(&pd, &AddressVector::global(local.port, route)).unwrap();
    let init = || {
        let qp = QueuePairBuilder::<Rc>::new(&pd, &cq, &cq).build().unwrap();
        qp.init(open_init(&local)).unwrap()
    };
    let qps: (QueuePair<'static, Rc, Rts>, QueuePair<'static, Rc, Rts>) =
        connect_with(&local, init(), init(), |connection| connection);
    qps.1.post_recv(recv(ibv::Empty)).unwrap();
    vec![
        Box::new(ctx),
        Box::new(pd),
        Box::new(channel),
        Box::new(cq),
        Box::new(mr),
        Box::new(ah),
        Box::new(qps),
    ]
}

/// All orders of so many things: Heap's algorithm.
fn orders(count: usize) -> Vec<Vec<usize>> {
    fn permute(upto: usize, order: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) {
        if upto == 1 {
            return found.push(order.clone());
        }
        for at in 0..upto {
            permute(upto - 1, order, found);
            order.swap(if upto % 2 == 0 { at } else { 0 }, upto - 1);
        }
    }
    let mut found = Vec::new();
    permute(count, &mut (0..count).collect(), &mut found);
    found
}

#[test]
fn in_any_order() {
    checked(|| {
        let all = orders(7);
        assert_eq!(all.len(), 5040);
        // a stride that shares no factor with 5040 visits orders of all kinds
        for nth in 0..40 {
            let mut things: Vec<_> = one_of_each().into_iter().map(Some).collect();
            for &at in &all[nth * 1013 % all.len()] {
                things[at] = None;
            }
        }
    });
}

#[test]
fn each_on_a_thread_of_its_own() {
    checked(|| {
        for _ in 0..5 {
            let threads: Vec<_> =
                one_of_each().into_iter().map(|thing| thread::spawn(move || drop(thing))).collect();
            for thread in threads {
                thread.join().unwrap();
            }
        }
    });
}

#[test]
fn made_on_another_thread() {
    checked(|| {
        let things = thread::spawn(one_of_each).join().unwrap();
        drop(things);
    });
}

#[test]
fn each_object_goes_when_it_is_dropped() {
    scenario(|rig| {
        let kinds = ["ctx", "pd", "mr", "cq", "qp"];
        let counts = || {
            let now = Counts::now();
            kinds.map(|kind| now.of(kind))
        };
        let start = counts();
        let since = || {
            let now = counts();
            [0, 1, 2, 3, 4].map(|at| now[at] - start[at])
        };
        let pd = rig.ctx.alloc_pd().unwrap();
        let cq = rig.ctx.create_cq(64).unwrap();
        let mr = pd.alloc_remote(64, all_access()).unwrap();
        let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
        assert_eq!(since(), [0, 1, 1, 1, 1]);
        drop(qp);
        assert_eq!(since(), [0, 1, 1, 1, 0]);
        drop(mr);
        assert_eq!(since(), [0, 1, 0, 1, 0]);
        drop(cq);
        assert_eq!(since(), [0, 1, 0, 0, 0]);
        drop(pd);
        assert_eq!(since(), [0; 5]);
    });
}
