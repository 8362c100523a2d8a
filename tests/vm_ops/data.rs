//! Each operation, on each transport and backend that has it.

use ibv::qp::{Atomics, Connected, RdmaRead, RdmaWrite};
use ibv::state::Init;
use ibv::{
    Backend, DynQueuePair, Empty, Extended, InitAttr, Inline, MemoryRegion, PostRecv, PostSend, QueuePair,
    Rc, Remote, Transport, Uc, WcOpcode, cmp_swp, fetch_add, read, recv, send, send_imm, write, write_imm,
};

use crate::rig::{
    Parts, completed, connect, contents, next_of, open_init, pattern, quiet, roomy_extended, scenario,
    success,
};

const LEN: usize = 300;

/// Two ends, each with a region that the other may use.
struct Ends<'p, Q> {
    parts: &'p Parts<'p>,
    a: Q,
    b: Q,
    ours: &'p MemoryRegion<'p, Remote>,
    theirs: &'p MemoryRegion<'p, Remote>,
}

impl<'p, Q: PostSend<'p> + PostRecv<'p>> Ends<'p, Q> {
    /// Both regions get contents of their own, from `seed`.
    fn fill(&self, seed: u8) {
        self.ours.write(0, &pattern(LEN, seed)).unwrap();
        self.theirs.write(0, &pattern(LEN, seed ^ 0x80)).unwrap();
    }

    fn messages(&mut self)
    where
        Q::Transport: Connected,
    {
        let Ends { parts, ours, theirs, .. } = *self;
        self.fill(1);
        self.b.post_recv(recv(theirs.slice(..).unwrap()).id(1)).unwrap();
        self.a.post(send(ours.slice(..LEN).unwrap()).signaled().id(2)).unwrap();
        assert_eq!(completed(&parts.a_cq, 2).result().unwrap().opcode(), WcOpcode::SEND);
        let wc = completed(&parts.b_cq, 1);
        let got = wc.result().unwrap();
        assert_eq!((got.opcode(), got.byte_len(), got.imm()), (WcOpcode::RECV, Some(LEN as u32), None));
        assert_eq!(contents(theirs), pattern(LEN, 1));

        // the other way round, with immediate data
        self.fill(2);
        self.a.post_recv(recv(ours.slice(..).unwrap()).id(3)).unwrap();
        self.b.post(send_imm(theirs.slice(10..20).unwrap(), 0x1234_5678).signaled().id(4)).unwrap();
        success(&parts.b_cq, 4);
        let wc = completed(&parts.a_cq, 3);
        let got = wc.result().unwrap();
        assert_eq!((got.byte_len(), got.imm()), (Some(10), Some(0x1234_5678)));
        assert_eq!(contents(ours)[..10], pattern(LEN, 2 ^ 0x80)[10..20]);
        assert_eq!(contents(ours)[10..], pattern(LEN, 2)[10..]);

        // inline: the bytes may change at once
        let mut bytes = *b"inline data";
        self.b.post_recv(recv(theirs.slice(..).unwrap()).id(5)).unwrap();
        self.a.post(send(Inline(&bytes)).signaled().id(6)).unwrap();
        bytes.fill(0);
        success(&parts.a_cq, 6);
        success(&parts.b_cq, 5);
        assert_eq!(&contents(theirs)[..bytes.len()], b"inline data");

        // nothing at all
        self.b.post_recv(recv(Empty).id(7)).unwrap();
        self.b.post_recv(recv(theirs.slice(..4).unwrap()).id(8)).unwrap();
        self.a.post(send(Empty).id(9)).unwrap();
        self.a.post(send_imm(Inline(&[]), 7).signaled().id(10)).unwrap();
        success(&parts.a_cq, 10);
        assert_eq!(completed(&parts.b_cq, 7).result().unwrap().byte_len(), Some(0));
        let wc = completed(&parts.b_cq, 8);
        assert_eq!(wc.result().unwrap().byte_len(), Some(0));
        assert_eq!(wc.result().unwrap().imm(), Some(7));
    }

    fn writes(&mut self)
    where
        Q::Transport: RdmaWrite,
    {
        let Ends { parts, ours, theirs, .. } = *self;
        let remote = theirs.remote_region();
        self.fill(3);
        self.a.post(write(ours.slice(..100).unwrap(), remote.slice(50..).unwrap()).signaled().id(1)).unwrap();
        // a WRITE shows at the peer only by what comes after it
        self.b.post_recv(recv(Empty).id(2)).unwrap();
        let second = write_imm(ours.slice(100..LEN).unwrap(), remote.slice(100..LEN).unwrap(), 0xfeed_beef);
        self.a.post(second.signaled().id(3)).unwrap();
        let wcs = next_of(&parts.a_cq, 2);
        assert_eq!(wcs.iter().map(|wc| wc.id()).collect::<Vec<_>>(), [1, 3]);
        assert!(wcs.iter().all(|wc| wc.result().unwrap().opcode() == WcOpcode::RDMA_WRITE));
        let wc = completed(&parts.b_cq, 2);
        let got = wc.result().unwrap();
        assert_eq!((got.opcode(), got.imm()), (WcOpcode::RECV_RDMA_WITH_IMM, Some(0xfeed_beef)));
        assert_eq!(got.byte_len(), Some(LEN as u32 - 100));
        let mut expected = pattern(LEN, 3 ^ 0x80);
        expected[50..100].copy_from_slice(&pattern(LEN, 3)[..50]);
        expected[100..].copy_from_slice(&pattern(LEN, 3)[100..]);
        assert_eq!(contents(theirs), expected);

        // inline, and of no length
        self.b.post_recv(recv(Empty).id(4)).unwrap();
        self.a.post(write(Inline(b"abc"), remote.slice(7..10).unwrap()).id(5)).unwrap();
        self.a.post(write_imm(Empty, remote.slice(0..0).unwrap(), 9).signaled().id(6)).unwrap();
        success(&parts.a_cq, 6);
        assert_eq!(completed(&parts.b_cq, 4).result().unwrap().imm(), Some(9));
        assert_eq!(&contents(theirs)[7..10], b"abc");
    }

    fn reads(&mut self)
    where
        Q::Transport: RdmaRead,
    {
        let Ends { parts, ours, theirs, .. } = *self;
        self.fill(4);
        let from = theirs.remote_region().slice(20..LEN).unwrap();
        self.a.post(read(ours.slice(10..LEN - 10).unwrap(), from).signaled().id(1)).unwrap();
        let wc = completed(&parts.a_cq, 1);
        assert_eq!(wc.result().unwrap().opcode(), WcOpcode::RDMA_READ);
        let mut expected = pattern(LEN, 4);
        expected[10..LEN - 10].copy_from_slice(&pattern(LEN, 4 ^ 0x80)[20..]);
        assert_eq!(contents(ours), expected);
        assert_eq!(contents(theirs), pattern(LEN, 4 ^ 0x80), "reading changes nothing");
    }

    fn atomics(&mut self)
    where
        Q::Transport: Atomics,
    {
        let Ends { parts, ours, theirs, .. } = *self;
        let at = theirs.remote_region().u64_at(16).unwrap();
        let result = || ours.u64_at(8).unwrap();
        let theirs_is = |value: u64| assert_eq!(theirs.load_u64(16).unwrap(), value);
        let found = |value: u64| assert_eq!(ours.load_u64(8).unwrap(), value);
        theirs.store_u64(16, 5).unwrap();

        self.a.post(cmp_swp(result(), at, 4, 77).signaled().id(1)).unwrap();
        assert_eq!(completed(&parts.a_cq, 1).result().unwrap().opcode(), WcOpcode::COMP_SWAP);
        found(5);
        theirs_is(5);

        self.a.post(cmp_swp(result(), at, 5, u64::MAX - 1).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        found(5);
        theirs_is(u64::MAX - 1);

        self.a.post(fetch_add(result(), at, 3).signaled().id(3)).unwrap();
        assert_eq!(completed(&parts.a_cq, 3).result().unwrap().opcode(), WcOpcode::FETCH_ADD);
        found(u64::MAX - 1);
        theirs_is(1);
    }
}

/// Two queue pairs of the extended backend.
fn extended<'p, T: Transport<Init = InitAttr>>(
    parts: &'p Parts<'p>,
) -> [QueuePair<'p, T, Init, Extended>; 2] {
    [parts.a_builder(), parts.b_builder()]
        .map(|builder| roomy_extended(builder).build().unwrap().init(open_init(&parts.local)).unwrap())
}

fn on_rc<'p, Q: PostSend<'p, Transport = Rc> + PostRecv<'p>>(mut ends: Ends<'p, Q>) {
    ends.messages();
    ends.writes();
    ends.reads();
    ends.atomics();
    quiet(&ends.parts.a_cq);
    quiet(&ends.parts.b_cq);
}

fn on_uc<'p, Q: PostSend<'p, Transport = Uc> + PostRecv<'p>>(mut ends: Ends<'p, Q>) {
    ends.messages();
    ends.writes();
    quiet(&ends.parts.a_cq);
    quiet(&ends.parts.b_cq);
}

#[test]
fn rc() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = parts.pair::<Rc>();
        on_rc(Ends { parts: &parts, a, b, ours: &ours, theirs: &theirs });
    });
}

#[test]
fn rc_through_shared_references() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = parts.pair::<Rc>();
        on_rc(Ends { parts: &parts, a: &a, b: &b, ours: &ours, theirs: &theirs });
    });
}

#[test]
fn rc_extended() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = connect(&rig.local, extended::<Rc>(&parts));
        on_rc(Ends { parts: &parts, a, b, ours: &ours, theirs: &theirs });
    });
}

#[test]
fn uc() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = parts.pair::<Uc>();
        on_uc(Ends { parts: &parts, a, b, ours: &ours, theirs: &theirs });
    });
}

#[test]
fn uc_extended() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = connect(&rig.local, extended::<Uc>(&parts));
        on_uc(Ends { parts: &parts, a, b, ours: &ours, theirs: &theirs });
    });
}

#[test]
fn several_elements() {
    scenario(|rig| {
        let parts = rig.parts();
        let (ours, theirs) = (parts.open(LEN), parts.open(LEN));
        let [a, b] = parts.pair::<Rc>();
        let bytes = pattern(LEN, 9);
        ours.write(0, &bytes).unwrap();
        let from = |range| ours.slice(range).unwrap();
        let to = |range| theirs.slice(range).unwrap();

        // 10 + 0 + 30 + 5 bytes arrive in 20 + 25; arrays and slices alike
        b.post_recv(recv([to(0..20), to(100..200)]).id(1)).unwrap();
        let elements = [from(0..10), from(50..50), from(100..130), from(200..205)];
        a.post(send(&elements[..]).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        assert_eq!(completed(&parts.b_cq, 1).result().unwrap().byte_len(), Some(45));
        let sent = [&bytes[0..10], &bytes[100..130], &bytes[200..205]].concat();
        let got = contents(&theirs);
        assert_eq!((&got[..20], &got[100..125]), (&sent[..20], &sent[20..]));

        // gathered into one place by WRITE, scattered from one place by READ
        let place = theirs.remote_region().slice(30..75).unwrap();
        a.post(write(elements, place).id(3)).unwrap();
        a.post(read([from(250..270), from(220..245)], place).fence().signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        let got = contents(&ours);
        assert_eq!((&got[250..270], &got[220..245]), (&sent[..20], &sent[20..]));
    });
}

#[test]
fn messages_of_many_packets() {
    scenario(|rig| {
        let parts = rig.parts();
        let mtu = rig.local.mtu.bytes() as usize;
        let longest = 1 << 20;
        let (ours, theirs) = (parts.open(longest), parts.open(longest));
        let [a, b] = parts.pair::<Rc>();
        let remote = theirs.remote_region();
        for (seed, len) in [(1, mtu), (2, mtu + 1), (3, 5 * mtu - 1), (4, longest)] {
            let bytes = pattern(len, seed);
            ours.write(0, &bytes).unwrap();
            b.post_recv(recv(theirs.slice(..).unwrap()).id(1)).unwrap();
            a.post(send(ours.slice(..len).unwrap()).signaled().id(2)).unwrap();
            success(&parts.a_cq, 2);
            assert_eq!(completed(&parts.b_cq, 1).result().unwrap().byte_len(), Some(len as u32));
            assert!(contents(&theirs)[..len] == bytes, "SEND of {len} bytes");

            theirs.write(0, &vec![0; len]).unwrap();
            a.post(write(ours.slice(..len).unwrap(), remote.slice(..len).unwrap()).signaled().id(3)).unwrap();
            success(&parts.a_cq, 3);
            assert!(contents(&theirs)[..len] == bytes, "WRITE of {len} bytes");

            ours.write(0, &vec![0; len]).unwrap();
            a.post(read(ours.slice(..len).unwrap(), remote.slice(..len).unwrap()).signaled().id(4)).unwrap();
            success(&parts.a_cq, 4);
            assert!(contents(&ours)[..len] == bytes, "READ of {len} bytes");
        }
    });
}

#[test]
fn uc_messages_of_many_packets() {
    scenario(|rig| {
        let parts = rig.parts();
        let len = 3 * rig.local.mtu.bytes() as usize + 5;
        let (from, to) = (parts.filled(len, 5), parts.zeros(len));
        let [a, b] = parts.pair::<Uc>();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(from.slice(..).unwrap()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert!(contents(&to) == pattern(len, 5));
    });
}

#[test]
fn a_fenced_send_waits_for_the_read_before_it() {
    scenario(|rig| {
        let parts = rig.parts();
        let len = 100_000;
        let (ours, theirs, answer) = (parts.open(len), parts.open(len), parts.zeros(len));
        theirs.write(0, &pattern(len, 1)).unwrap();
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(answer.slice(..).unwrap()).id(1)).unwrap();
        a.post(read(ours.slice(..).unwrap(), theirs.remote_region().slice(..).unwrap()).id(2)).unwrap();
        a.post(send(ours.slice(..).unwrap()).fence().signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        success(&parts.b_cq, 1);
        assert!(contents(&answer) == pattern(len, 1), "it sends what was read");
    });
}

#[test]
fn receives_are_posted_before_the_connection() {
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(64, 7), parts.zeros(64));
        let [a, b] = parts.inits::<Rc>();
        b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
        let [a, _b] = connect(&rig.local, [a, b]);
        a.post(send(from.slice(..).unwrap()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert_eq!(contents(&to), pattern(64, 7));
    });
}

#[test]
fn a_state_as_a_value_reconnects() {
    fn again<'p, B: Backend>(parts: &Parts<'_>, qps: [&mut DynQueuePair<'p, Rc, B>; 2]) {
        let (a_psn, b_psn) = (ibv::random_psn(), ibv::random_psn());
        let [a, b] = qps;
        let end = |qpn, psn| ibv::Endpoint { lid: parts.local.lid, qpn, psn, gid: parts.local.gid };
        let (a_end, b_end) = (end(a.qp_num(), a_psn), end(b.qp_num(), b_psn));
        a.connect(&ibv::Connection::new(parts.local, a_psn, b_end)).unwrap();
        b.connect(&ibv::Connection::new(parts.local, b_psn, a_end)).unwrap();
    }
    scenario(|rig| {
        let parts = rig.parts();
        let (from, to) = (parts.filled(64, 1), parts.zeros(64));
        let [mut a, mut b] = parts.inits::<Rc>().map(DynQueuePair::from);
        again(&parts, [&mut a, &mut b]);
        for round in 1..=3 {
            from.write(0, &pattern(64, round)).unwrap();
            b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
            a.post(send(from.slice(..).unwrap()).signaled().id(2)).unwrap();
            success(&parts.a_cq, 2);
            success(&parts.b_cq, 1);
            assert_eq!(contents(&to), pattern(64, round));

            // a receive that is forgotten with the reset must not get the next round's message
            b.post_recv(recv(to.slice(..).unwrap()).id(99)).unwrap();
            for qp in [&mut a, &mut b] {
                qp.reset().unwrap();
                let refused = qp.post_recv(recv(to.slice(..).unwrap())).unwrap_err();
                assert_eq!(refused, ibv::PostError::WrongState { state: ibv::QpState::RESET });
                qp.init(open_init(&rig.local)).unwrap();
                assert!(qp.init(open_init(&rig.local)).is_err(), "not from INIT");
                assert!(qp.post(send(from.slice(..).unwrap())).is_err(), "not in INIT");
            }
            again(&parts, [&mut a, &mut b]);
        }
        let a = a.into_typed::<ibv::state::Rts>().expect("it is in RTS");
        assert_eq!(a.query().unwrap().state(), ibv::QpState::RTS);
    });
}
