//! What the device has delivered is where it shall be, or nowhere: when its completion is polled, nothing is copied any
//! more to memory that was taken back before.

use ibv::qp::Connected;
use ibv::{
    CompletionQueue, InitAttr, Local, MemoryRegion, OwnReceives, PostSend, Rc, SharedReceiveQueue, Transport,
    Uc, fetch_add, read, recv, send,
};

use crate::rig::{Parts, connect, connect_with, open_init, quiet, roomy_extended, scenario, success};

/// From what fits into a completion of 64 bytes to what does not fit into one of 128.
const LENGTHS: [usize; 7] = [1, 8, 31, 32, 33, 64, 65];

/// A region that is taken back with its completion unpolled.
fn target<'p>(parts: &'p Parts<'_>) -> MemoryRegion<'p, Local, Vec<u8>> {
    MemoryRegion::local(&parts.pd, vec![0; 128]).unwrap()
}

/// Takes `mr` back, and then polls the completion of request 1, with which nothing must come there.
fn polled_after(mr: MemoryRegion<'_, Local, Vec<u8>>, cq: &CompletionQueue<'_>) {
    let mut buffer = mr.into_buffer().unwrap();
    buffer.fill(0xee);
    success(cq, 1);
    assert!(buffer.iter().all(|&byte| byte == 0xee), "{buffer:x?}");
}

/// Messages from `a` to `b`, of which `post` posts the receives.
fn messages<'p, Q: PostSend<'p>>(
    parts: &'p Parts<'p>,
    mut a: Q,
    mut post: impl FnMut(&MemoryRegion<'_, Local, Vec<u8>>, usize),
) where
    Q::Transport: Connected,
{
    let from = parts.filled(128, 3);
    for len in LENGTHS {
        let mr = target(parts);
        post(&mr, len);
        a.post(send(from.slice(..len).unwrap().detach()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        // and the other side has it too
        quiet(&parts.a_cq);
        polled_after(mr, &parts.b_cq);
    }
}

fn receives<T: Connected + OwnReceives + Transport<Init = InitAttr>>() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = parts.pair::<T>();
        messages(&parts, &a, |mr, len| b.post_recv(recv(mr.slice(..len).unwrap().detach()).id(1)).unwrap());
    });
}

#[test]
fn of_receives() {
    receives::<Rc>();
    receives::<Uc>();
}

#[test]
fn of_receives_of_the_extended_backend() {
    scenario(|rig| {
        let parts = rig.parts();
        let [a, b] = connect(
            &parts.local,
            [parts.a_builder::<Rc>(), parts.b_builder()].map(|builder| {
                roomy_extended(builder).build().unwrap().init(open_init(&parts.local)).unwrap()
            }),
        );
        messages(&parts, a, |mr, len| b.post_recv(recv(mr.slice(..len).unwrap().detach()).id(1)).unwrap());
    });
}

#[test]
fn of_shared_receives() {
    scenario(|rig| {
        let parts = rig.parts();
        let srq = SharedReceiveQueue::new(&parts.pd, 16, 1).unwrap();
        let a = parts.a_builder::<Rc>().build().unwrap().init(open_init(&parts.local)).unwrap();
        let b = parts.b_builder::<Rc>().srq(&srq).build().unwrap().init(open_init(&parts.local)).unwrap();
        let (a, _b) = connect_with(&parts.local, a, b, |connection| connection);
        messages(&parts, &a, |mr, len| {
            srq.post_recv(recv(mr.slice(..len).unwrap().detach()).id(1)).unwrap();
        });
    });
}

fn answers<'p>(parts: &Parts<'_>, mut qp: impl PostSend<'p, Transport = Rc>) {
    let there = parts.open(128);
    let remote = there.remote_region();
    for len in LENGTHS {
        let mr = target(parts);
        let into = mr.slice(..len).unwrap().detach();
        qp.post(read(into, remote.slice(..len).unwrap()).id(1)).unwrap();
        quiet(&parts.b_cq);
        polled_after(mr, &parts.a_cq);
    }
    let mr = target(parts);
    let into = mr.u64_at(8).unwrap().detach();
    qp.post(fetch_add(into, remote.u64_at(8).unwrap(), 5).id(1)).unwrap();
    quiet(&parts.b_cq);
    polled_after(mr, &parts.a_cq);
}

/// Some devices have answers come beside the ring if each request is signaled.
#[test]
fn of_answers() {
    scenario(|rig| {
        let parts = rig.parts();
        let builders =
            || [parts.a_builder::<Rc>(), parts.b_builder()].map(|builder| builder.signal_all(true));
        let basic = builders().map(|builder| builder.build().unwrap().init(open_init(&parts.local)).unwrap());
        let [a, _b] = connect(&parts.local, basic);
        answers(&parts, &a);
        let extended = builders()
            .map(|builder| roomy_extended(builder).build().unwrap().init(open_init(&parts.local)).unwrap());
        let [a, _b] = connect(&parts.local, extended);
        answers(&parts, a);
    });
}
