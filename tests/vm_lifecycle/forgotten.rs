//! `mem::forget` is safe: what is forgotten goes on, and must find no memory that is somebody else's by then.

use std::mem::forget;
use std::ptr::NonNull;

use ibv::{Connection, Local, MemoryRegion, QueuePair, Rc, Remote, WcStatus, read, recv, send, write};

use crate::child::leaking;
use crate::rig::{
    Parts, Rig, all_access, connect_with, contents, failure, open_init, pattern, quiet, scenario, success,
};

/// Below what `malloc` maps apart.
const LEN: usize = 64 << 10;

/// A sender and a receiver made from different parts.
fn pair<'a, 'b>(near: &'a Parts<'a>, far: &'b Parts<'b>) -> (QueuePair<'a, Rc>, QueuePair<'b, Rc>) {
    let a = near.a_builder().build().unwrap().init(open_init(&near.local)).unwrap();
    let b = far.b_builder().build().unwrap().init(open_init(&far.local)).unwrap();
    connect_with(&near.local, a, b, |connection| connection.retry_cnt(7).rnr_retry(2))
}

/// A region on the heap, whose pages stay where they are when it is freed.
fn on_the_heap<'a>(parts: &'a Parts<'_>) -> MemoryRegion<'a, Local, Vec<u8>> {
    MemoryRegion::local(&parts.pd, vec![0; LEN]).unwrap()
}

/// Ordinary memory at the address that was just freed, as far as the allocator is as predictable as it usually is.
struct Reused {
    memory: Vec<Vec<u8>>,
}

impl Reused {
    fn at(freed: NonNull<u8>) -> Self {
        let memory: Vec<_> = (0..8).map(|_| pattern(LEN, 42)).collect();
        let again = memory.iter().any(|bytes| bytes.as_ptr() == freed.as_ptr());
        println!("the same address again: {again}");
        Self { memory }
    }

    fn check(&self) {
        assert!(self.memory.iter().all(|bytes| bytes[..] == pattern(LEN, 42)), "memory was overwritten");
    }
}

#[test]
fn a_receive_of_a_forgotten_queue_pair() {
    leaking(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let from = near.filled(LEN, 1);
        let mr = on_the_heap(&far);
        let (a, b) = pair(&near, &far);
        b.post_recv(recv(mr.slice(..).unwrap()).id(1)).unwrap();
        forget(b);
        let freed = mr.memory();
        drop(mr);
        let reused = Reused::at(freed);
        a.post(send(from.slice(..).unwrap()).id(2)).unwrap();
        let _ = failure(&near.a_cq, 2);
        reused.check();
        let _ = failure(&far.b_cq, 1);
        quiet(&far.b_cq);
        reused.check();
    });
}

#[test]
fn a_receive_of_a_forgotten_queue_pair_and_the_buffer_taken_back() {
    leaking(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let from = near.filled(LEN, 1);
        let mr = MemoryRegion::local(&far.pd, pattern(LEN, 7)).unwrap();
        let (a, b) = pair(&near, &far);
        b.post_recv(recv(mr.slice(..).unwrap()).id(1)).unwrap();
        forget(b);
        // from here on there may be references to it
        let buffer = mr.into_buffer().unwrap();
        let view = &buffer[..];
        a.post(send(from.slice(..).unwrap()).id(2)).unwrap();
        let _ = failure(&near.a_cq, 2);
        assert!(view == pattern(LEN, 7));
    });
}

/// Data as short as this may have come beside the ring's entries, to be copied when they are polled.
#[test]
fn a_short_message_of_a_forgotten_queue_pair_that_nobody_has_polled_yet() {
    leaking(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let from = near.filled(32, 1);
        let mr = on_the_heap(&far);
        let (a, b) = pair(&near, &far);
        b.post_recv(recv(mr.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(..).unwrap()).signaled().id(2)).unwrap();
        success(&near.a_cq, 2);
        forget(b);
        let freed = mr.memory();
        drop(mr);
        let reused = Reused::at(freed);
        success(&far.b_cq, 1);
        reused.check();
    });
}

#[test]
fn a_peer_writes_to_a_region_that_is_gone() {
    leaking(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let from = near.filled(LEN, 1);
        let (a, b) = pair(&near, &far);
        // the queue pair is alive and well, a forgotten one too
        let (c, d) = pair(&near, &far);
        forget(d);
        let mr = MemoryRegion::remote(&far.pd, vec![0; LEN], all_access()).unwrap();
        let remote = mr.remote_region();
        a.post(write(from.slice(..).unwrap(), remote.slice(..).unwrap()).signaled().id(1)).unwrap();
        success(&near.a_cq, 1);
        assert!(contents(&mr) == pattern(LEN, 1));
        let freed = mr.memory();
        drop(mr);
        let reused = Reused::at(freed);
        for (qp, id) in [(&a, 2), (&c, 3)] {
            qp.post(write(from.slice(..).unwrap(), remote.slice(..).unwrap()).id(id)).unwrap();
            assert_eq!(failure(&near.a_cq, id), WcStatus::REM_ACCESS_ERR);
            reused.check();
        }
        drop(b);
    });
}

#[test]
fn detached_slices_of_a_region_that_is_gone() {
    scenario(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let from = near.filled(LEN, 1);
        let (a, b) = pair(&near, &far);
        let mr = on_the_heap(&far);
        b.post_recv(recv(mr.slice(..).unwrap().detach()).id(1)).unwrap();
        let freed = mr.memory();
        drop(mr);
        let reused = Reused::at(freed);
        a.post(send(from.slice(..).unwrap()).id(2)).unwrap();
        let _ = (failure(&near.a_cq, 2), failure(&far.b_cq, 1));
        reused.check();
    });
}

#[test]
fn what_is_freed_is_not_sent() {
    scenario(|rig| {
        let (near, far) = (rig.parts(), rig.parts());
        let (into, answer) = (near.zeros(8), far.open(8));
        let to = far.zeros(LEN);
        let [a, b] = [near.a_builder::<Rc>(), far.b_builder()]
            .map(|builder| builder.build().unwrap().init(open_init(&rig.local)).unwrap());
        b.post_recv(recv(to.slice(..).unwrap()).id(3)).unwrap();
        let ends = [a.endpoint(&rig.local, 1), b.endpoint(&rig.local, 2)];
        let a = a.connect(&Connection::new(rig.local, 1, ends[1]).timeout(18)).unwrap();
        // this is answered only when the peer is ready, and the message waits behind it
        let place = answer.remote_region().slice(..).unwrap();
        a.post(read(into.slice(..).unwrap(), place).signaled().id(1)).unwrap();
        let mr = on_the_heap(&near);
        mr.write(0, &pattern(LEN, 1)).unwrap();
        a.post(send(mr.slice(..).unwrap().detach()).fence().id(2)).unwrap();
        let freed = mr.memory();
        drop(mr);
        let reused = Reused::at(freed);
        let b = b.connect(&Connection::new(rig.local, 2, ends[0])).unwrap();
        success(&near.a_cq, 1);
        let _ = failure(&near.a_cq, 2);
        quiet(&far.b_cq);
        assert!(contents(&to).iter().all(|&byte| byte == 0), "what others keep there was sent");
        reused.check();
        drop(b);
    });
}

#[test]
fn one_object_after_the_other() {
    leaking(|_| {
        for forgotten in 0..5 {
            let rig = Rig::open();
            let parts = rig.parts();
            let Parts { pd, a_cq, b_cq, .. } = &parts;
            let mr: MemoryRegion<'_, Local> = pd.alloc_local(LEN).unwrap();
            let remote: MemoryRegion<'_, Remote> = parts.open(LEN);
            let qp = pd.create_qp::<Rc>(a_cq, b_cq).build().unwrap().init(open_init(&rig.local)).unwrap();
            match forgotten {
                0 => forget(qp),
                1 => forget(mr),
                2 => forget(remote),
                3 => {
                    drop((qp, mr, remote));
                    forget(parts);
                }
                _ => drop(rig.ctx.create_comp_channel().map(forget)),
            }
            // the rest is dropped here; the context's end takes what is left
        }
    });
}

#[test]
fn parents_of_forgotten_children_say_so() {
    leaking(|_| {
        let rig = Rig::open();
        let pd = rig.ctx.alloc_pd().unwrap();
        let cq = rig.ctx.create_cq(64).unwrap();
        forget(pd.create_qp::<Rc>(&cq, &cq).build().unwrap());
        // both come back alive
        let (pd, error) = pd.close().unwrap_err().into_parts();
        assert_eq!(error.errno(), Some(libc::EBUSY), "{error}");
        let (cq, error) = cq.close().unwrap_err().into_parts();
        assert_eq!(error.errno(), Some(libc::EBUSY), "{error}");
        let (pd, cq) = (pd.unwrap(), cq.unwrap());
        let mr = pd.alloc_local(64).unwrap();
        pd.create_qp::<Rc>(&cq, &cq).send_depth(1).recv_depth(1).build().unwrap();
        forget(mr);
        drop((pd, cq));
        rig.ctx.close().unwrap();
    });
}
