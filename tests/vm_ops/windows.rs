//! Memory windows: what the peer gets by them, and what it loses.

use ibv::{
    BatchStorage, Empty, Inline, MemoryRegion, PostRecv, PostSend, QueuePair, Rc, Remote, RemoteAccess,
    RemoteRegion, Type1, Type2, WcOpcode, WcStatus, bind_mw, local_inv, read, recv, send, send_inv, write,
};

use crate::rig::{
    Parts, completed, connect, connect_impatiently, contents, failure, open_init, pattern, roomy_extended,
    scenario, success,
};

const LEN: usize = 4096;
const READ: RemoteAccess = RemoteAccess::READ;
const WRITE: RemoteAccess = RemoteAccess::WRITE;

/// A region that peers reach by windows alone.
fn closed<'p>(parts: &'p Parts<'_>) -> MemoryRegion<'p, Remote> {
    let mr = parts.pd.alloc_remote(LEN, RemoteAccess::MW_BIND).unwrap();
    mr.write(0, &pattern(LEN, 1)).unwrap();
    mr
}

/// Who is given windows: the end `b` of a connection.
struct Peer<'p, 'q> {
    parts: &'p Parts<'p>,
    b: &'q QueuePair<'p>,
    data: &'p MemoryRegion<'p>,
}

impl Peer<'_, '_> {
    fn reads(&self, from: RemoteRegion) -> Vec<u8> {
        let to = self.data.slice(..from.len as usize).unwrap();
        self.b.post(read(to, from.slice(..).unwrap()).signaled().id(70)).unwrap();
        success(&self.parts.b_cq, 70);
        contents(self.data)[..from.len as usize].to_vec()
    }

    fn writes(&self, to: RemoteRegion, bytes: &[u8]) {
        self.b.post(write(Inline(bytes), to.slice(..bytes.len()).unwrap()).signaled().id(71)).unwrap();
        success(&self.parts.b_cq, 71);
    }

    /// It can't write a byte; which ends the connection.
    fn is_kept_out(&self, of: RemoteRegion) {
        self.b.post(write(Inline(b"!"), of.slice(..1).unwrap()).id(72)).unwrap();
        assert_eq!(failure(&self.parts.b_cq, 72), WcStatus::REM_ACCESS_ERR);
    }
}

/// Runs `run` with a connection that it may break. It drops its windows before the queue pairs go (see `MemoryWindow`).
fn connection<'p>(
    parts: &'p Parts<'p>,
    data: &'p MemoryRegion<'p>,
    run: impl FnOnce(&QueuePair<'p>, Peer<'p, '_>),
) {
    let [a, b] = connect_impatiently::<Rc>(&parts.local, parts.inits());
    run(&a, Peer { parts, b: &b, data });
    drop((a, b));
    parts.sweep();
}

/// The completion says which key the peer has invalidated; on Soft-RoCE, it does not.
fn expect_told(parts: &Parts<'_>, told: Option<u32>, rkey: u32) {
    const RXE: u32 = 0x00ff_ffff;
    let tells = parts.pd.context().device_attr().vendor_id() != RXE;
    assert_eq!(told, tells.then_some(rkey));
}

#[test]
fn a_window_gives_its_own_rights() {
    scenario(|rig| {
        let parts = rig.parts();
        let (mr, data) = (closed(&parts), parts.zeros(LEN));
        connection(&parts, &data, |a, peer| {
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            let bind = bind_mw(&mut window, &mr, 100..300, READ | WRITE).unwrap().signaled().id(1);
            let part = bind.remote_region();
            a.post(bind).unwrap();
            assert_eq!(completed(&parts.a_cq, 1).result().unwrap().opcode(), WcOpcode::BIND_MW);
            assert_eq!(peer.reads(part), pattern(LEN, 1)[100..300]);
            peer.writes(part, b"by the window");
            assert_eq!(&contents(&mr)[100..113], b"by the window");
        });
        connection(&parts, &data, |a, peer| {
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            let bind = bind_mw(&mut window, &mr, 200..300, READ).unwrap().signaled().id(1);
            let part = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 1);
            peer.reads(part);
            peer.is_kept_out(part);
        });
        // the region's own key gives nothing
        connection(&parts, &data, |_, peer| peer.is_kept_out(mr.remote_region()));
        assert_eq!(contents(&mr)[113..], pattern(LEN, 1)[113..]);
    });
}

#[test]
fn what_is_invalidated_is_lost() {
    scenario(|rig| {
        let parts = rig.parts();
        let (mr, data) = (closed(&parts), parts.zeros(LEN));
        // by us, in a list; then bound again, with another key
        connection(&parts, &data, |a, peer| {
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            let bind = bind_mw(&mut window, &mr, ..64, READ | WRITE).unwrap();
            let first = bind.remote_region();
            a.post(bind).unwrap();
            a.post(local_inv(&mut window).unwrap().signaled().id(1)).unwrap();
            let wc = completed(&parts.a_cq, 1);
            assert_eq!(wc.result().unwrap().opcode(), WcOpcode::LOCAL_INV);
            let bind = bind_mw(&mut window, &mr, 64..128, READ).unwrap().signaled().id(2);
            let second = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 2);
            assert_ne!(first.rkey, second.rkey);
            assert_eq!(peer.reads(second), pattern(LEN, 1)[64..128]);
            peer.is_kept_out(first);
        });
        // by the peer
        connection(&parts, &data, |a, peer| {
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            a.post_recv(recv(data.slice(..64).unwrap()).id(1)).unwrap();
            let bind = bind_mw(&mut window, &mr, ..64, WRITE).unwrap().signaled().id(2);
            let part = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 2);
            peer.writes(part, b"last words");
            peer.b.post(send_inv(Inline(b"done"), part.rkey).signaled().id(3)).unwrap();
            let wc = completed(&parts.b_cq, 3);
            assert_eq!(wc.result().unwrap().opcode(), WcOpcode::SEND);
            let wc = completed(&parts.a_cq, 1);
            let got = wc.result().unwrap();
            assert_eq!((got.opcode(), got.byte_len(), got.imm()), (WcOpcode::RECV, Some(4), None));
            expect_told(&parts, got.invalidated_rkey(), part.rkey);
            assert!(window.was_invalidated(part.rkey));
            assert!(local_inv(&mut window).is_err());
            let bind = bind_mw(&mut window, &mr, ..64, READ).unwrap().signaled().id(4);
            let again = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 4);
            assert_eq!(&peer.reads(again)[..10], b"last words");
            peer.is_kept_out(part);
        });
        // an end like any other: the window is gone
        connection(&parts, &data, |a, peer| {
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            let bind = bind_mw(&mut window, &mr, ..64, WRITE).unwrap().signaled().id(1);
            let part = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 1);
            window.close().unwrap();
            peer.is_kept_out(part);
        });
        // nothing of them holds the region
        assert_eq!(&mr.into_buffer().unwrap()[..10], b"last words");
    });
}

#[test]
fn a_list_binds_and_tells() {
    scenario(|rig| {
        let parts = rig.parts();
        let (mr, data) = (closed(&parts), parts.zeros(LEN));
        connection(&parts, &data, |a, peer| {
            let (mut window, mut other) =
                (parts.pd.alloc_mw::<Type2>().unwrap(), parts.pd.alloc_mw::<Type2>().unwrap());
            peer.b.post_recv(recv(data.slice(..64).unwrap()).id(1)).unwrap();
            let mut storage = BatchStorage::<4>::new();
            let mut batch = a.batch(&mut storage);
            let bind = bind_mw(&mut window, &mr, 10..20, READ).unwrap();
            let told = bind.remote_region().to_wire();
            batch.push(bind).unwrap();
            batch.push(bind_mw(&mut other, &mr, 20..30, READ).unwrap()).unwrap();
            batch.push(send(Inline(&told)).signaled().id(2)).unwrap();
            batch.submit().unwrap();
            success(&parts.a_cq, 2);
            success(&parts.b_cq, 1);
            let mut wire = [0; RemoteRegion::WIRE_LEN];
            data.read(0, &mut wire).unwrap();
            let part = RemoteRegion::from_wire(&wire).unwrap();
            assert_eq!(peer.reads(part), pattern(LEN, 1)[10..20]);
        });
    });
}

#[test]
fn windows_of_type_1_move_without_an_invalidate() {
    scenario(|rig| {
        let parts = rig.parts();
        let (mr, other, data) = (closed(&parts), closed(&parts), parts.zeros(LEN));
        other.write(0, b"the other region").unwrap();
        let mut window = parts.pd.alloc_mw::<Type1>().unwrap();
        connection(&parts, &data, |a, peer| {
            let bind = bind_mw(&mut window, &mr, 32..64, READ | WRITE).unwrap().signaled().id(1);
            let first = a.bind_mw(bind).unwrap();
            assert_eq!(completed(&parts.a_cq, 1).result().unwrap().opcode(), WcOpcode::BIND_MW);
            assert_eq!(peer.reads(first), pattern(LEN, 1)[32..64]);
            let bind = bind_mw(&mut window, &other, ..16, READ | WRITE).unwrap().signaled().id(2);
            let second = a.bind_mw(bind).unwrap();
            success(&parts.a_cq, 2);
            assert_eq!(peer.reads(second), b"the other region");
            peer.is_kept_out(first);
        });
        connection(&parts, &data, |a, peer| {
            let bound = a.bind_mw(bind_mw(&mut window, &mr, ..64, WRITE).unwrap()).unwrap();
            let unbind = bind_mw(&mut window, &mr, 0..0, WRITE).unwrap().signaled().id(1);
            a.bind_mw(unbind).unwrap();
            success(&parts.a_cq, 1);
            peer.is_kept_out(bound);
        });
    });
}

/// Binds, lets the peer invalidate, binds again and invalidates.
fn come_and_go<'p, Q>(parts: &'p Parts<'p>, mr: &'p MemoryRegion<'p, Remote>, [mut a, mut b]: [Q; 2])
where
    Q: PostSend<'p, Transport = Rc> + PostRecv<'p>,
{
    let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
    a.post_recv(recv(Empty).id(1)).unwrap();
    let bind = bind_mw(&mut window, mr, ..64, READ | WRITE).unwrap().signaled().id(2);
    let part = bind.remote_region();
    a.post(bind).unwrap();
    success(&parts.a_cq, 2);
    b.post(write(Inline(b"written"), part.slice(..7).unwrap())).unwrap();
    b.post(send_inv(Empty, part.rkey).signaled().id(3)).unwrap();
    success(&parts.b_cq, 3);
    expect_told(parts, completed(&parts.a_cq, 1).result().unwrap().invalidated_rkey(), part.rkey);
    assert_eq!(&contents(mr)[..7], b"written");
    a.post(bind_mw(&mut window, mr, ..64, READ).unwrap()).unwrap();
    a.post(local_inv(&mut window).unwrap().signaled().id(4)).unwrap();
    success(&parts.a_cq, 4);
}

#[test]
fn each_backend_has_them() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = closed(&parts);
        come_and_go(&parts, &mr, parts.pair::<Rc>());
        parts.sweep();
        mr.write(0, &[0; 64]).unwrap();
        let extended = [&parts.a_cq, &parts.b_cq].map(|cq| {
            let builder = roomy_extended(parts.pd.create_qp::<Rc>(cq, cq));
            builder.build().unwrap().init(open_init(&rig.local)).unwrap()
        });
        come_and_go(&parts, &mr, connect(&rig.local, extended));
    });
}
