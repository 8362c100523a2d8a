//! Memory windows: what binds and invalidates write, and what they do.

use super::bytes::{Posted, Update, compare};
use super::memory::Memory;
use super::rig::{BLOCKS, Random, Rig, drain, drain_direct};
use ibv::mlx5::Poller;
use ibv::{
    Empty, Inline, MemoryWindow, PostError, QueuePairBuilder, Rc, RemoteAccess, Type2, WcOpcode, WcStatus,
    bind_mw, local_inv, read, recv, send_inv, write,
};

const RIGHTS: [RemoteAccess; 4] = [
    RemoteAccess::READ,
    RemoteAccess::WRITE,
    RemoteAccess::READ.union(RemoteAccess::WRITE),
    RemoteAccess::READ.union(RemoteAccess::WRITE).union(RemoteAccess::ATOMIC),
];

/// Binds, local invalidates, SENDs with invalidate and what comes after them, on both.
#[test]
fn window_requests_write_what_libmlx5_writes() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (stock_cq, our_cq, peer_cq) = (rig.bare(512), rig.direct(512), rig.bare(2048));
    let mut poller = Poller::new(&our_cq).unwrap();
    let (stock, ours) = (rig.basic_qp::<Rc>(&stock_cq, &stock_cq), rig.direct_qp::<Rc>(&our_cq, &our_cq));
    let [a, b] = [rig.basic_qp::<Rc>(&peer_cq, &peer_cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq)];
    let numbers = (stock.qp_num(), ours.qp_num(), a.qp_num(), b.qp_num());
    let (stock, mut ours) = (rig.up(stock, numbers.2), rig.up(ours, numbers.3));
    let peers = [rig.up(a, numbers.0), rig.up(b, numbers.1)];
    let window = || MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    // of each side, and of its peer
    let (mut windows, mut theirs) = ([window(), window()], [window(), window()]);
    let (memory, our_memory) = (Memory::of(&stock), Memory::of(&ours));
    memory.clear();
    our_memory.clear();
    let mut random = Random::new(21);
    let (mut at, mut half, mut bytes, mut bound) = (0, 0, 0, false);
    let (mut binds, mut after) = (0, 0);
    for number in 0..super::rig::rounds(600, 6000) {
        let mut posted = Posted { count: 1, ..Posted::default() };
        let (id, fence, to) = (random.word(), random.coin(), mr.remote_region().slice(..).unwrap());
        let opcode = match random.below(4) {
            0 if !bound => {
                let from = random.below(4096);
                let range = from..from + 1 + random.below(4096);
                let rights = RIGHTS[random.below(4)];
                let [one, other] = windows.each_mut();
                let one = bind_mw(one, &mr, range.clone(), rights).unwrap().signaled().id(id);
                let other = bind_mw(other, &mr, range, rights).unwrap().signaled().id(id);
                stock.post(if fence { one.fence() } else { one }).unwrap();
                ours.post(if fence { other.fence() } else { other }).unwrap();
                (posted.names_key, posted.update, bound) = (true, Some(Update::Bind), true);
                binds += 1;
                WcOpcode::BIND_MW
            }
            0 => {
                let [one, other] = windows.each_mut();
                let (one, other) = (local_inv(one).unwrap(), local_inv(other).unwrap());
                let (one, other) = (one.signaled().id(id), other.signaled().id(id));
                stock.post(if fence { one.fence() } else { one }).unwrap();
                ours.post(if fence { other.fence() } else { other }).unwrap();
                (posted.names_key, posted.update, bound) = (true, Some(Update::Invalidate), false);
                WcOpcode::LOCAL_INV
            }
            1 => {
                let mut keys = [0; 2];
                for ((peer, window), key) in peers.iter().zip(&mut theirs).zip(&mut keys) {
                    peer.post_recv(recv(mr.slice(4096..).unwrap().detach())).unwrap();
                    let bind = bind_mw(window, &mr, ..64, RemoteAccess::WRITE).unwrap();
                    *key = bind.remote_region().rkey;
                    peer.post(bind.signaled()).unwrap();
                }
                rig.hca.run_until_idle();
                let data = [7; 50];
                let len = random.below(50);
                posted.inline = Some(len);
                posted.names_key = true;
                let request = |key| send_inv(Inline(&data[..len]), key).signaled().id(id);
                let (one, other) = (request(keys[0]), request(keys[1]));
                stock.post(if fence { one.fence() } else { one }).unwrap();
                ours.post(if fence { other.fence() } else { other }).unwrap();
                WcOpcode::SEND
            }
            // the one after an update waits for it
            _ => {
                after += 1;
                let request = write(Empty, to).signaled().id(id);
                let request = if fence { request.fence() } else { request };
                stock.post(request).unwrap();
                ours.post(request).unwrap();
                WcOpcode::RDMA_WRITE
            }
        };
        let (next, compared) = compare(posted, 16, at, (&memory, &our_memory), half)
            .unwrap_or_else(|error| panic!("request {number}, {opcode:?}: {error}"));
        (at, bytes, half) = (next % BLOCKS, bytes + compared, half ^ 1);
        rig.hca.run_until_idle();
        for wcs in [drain(&stock_cq), drain_direct(&mut poller)] {
            let said: Vec<_> =
                wcs.iter().map(|wc| (wc.id(), wc.result().map(|done| done.opcode()))).collect();
            assert!(
                matches!(said[..], [(of, Ok(what))] if of == id && what == opcode),
                "{said:?} {opcode:?}"
            );
        }
        for wc in drain(&peer_cq) {
            if let Some(key) = wc.result().unwrap().invalidated_rkey() {
                let gone =
                    theirs.iter_mut().filter_map(|window| window.was_invalidated(key).then_some(())).count();
                assert_eq!(gone, 1);
            }
        }
    }
    println!("{binds} binds, {after} requests that may come after an update, {bytes} bytes equal");
    rig.no_violations();
}

#[test]
fn a_window_is_bound_used_and_taken_back() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let (cq, peer_cq) = (rig.direct(512), rig.bare(512));
    let mut poller = Poller::new(&cq).unwrap();
    let (ours, peer) = (rig.direct_qp::<Rc>(&cq, &cq), rig.basic_qp::<Rc>(&peer_cq, &peer_cq));
    let (a, b) = (ours.qp_num(), peer.qp_num());
    let (mut ours, mut peer) = (rig.up(ours, b), rig.up(peer, a));
    let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    mr.write(100, b"by the window").unwrap();
    let into = mr.slice(4096..4109).unwrap().detach();
    for round in 0..100 {
        // bind, and at once a list with the key of the next
        let bind = bind_mw(&mut window, &mr, 100..200, RemoteAccess::READ).unwrap().id(1);
        let part = bind.remote_region();
        if round % 2 == 0 {
            ours.post(bind).unwrap();
            ours.post(write(Empty, mr.remote_region().slice(..).unwrap()).signaled().id(2)).unwrap();
        } else {
            let mut batch = ours.batch();
            batch.push(bind).unwrap();
            batch.push(write(Empty, mr.remote_region().slice(..).unwrap()).signaled().id(2)).unwrap();
            batch.submit();
        }
        rig.hca.run_until_idle();
        assert_eq!(
            drain_direct(&mut poller).iter().map(|wc| (wc.id(), wc.status())).collect::<Vec<_>>(),
            [(2, WcStatus::SUCCESS)]
        );
        peer.post(read(into, part.slice(..13).unwrap()).signaled()).unwrap();
        rig.hca.run_until_idle();
        assert!(drain(&peer_cq)[0].result().is_ok());
        let mut bytes = [0; 13];
        mr.read(4096, &mut bytes).unwrap();
        assert_eq!(&bytes, b"by the window");
        mr.write(4096, &[0; 13]).unwrap();
        if round % 3 == 0 {
            // by the peer
            ours.post_recv(recv(Empty).id(3)).unwrap();
            peer.post(send_inv(Empty, part.rkey).signaled()).unwrap();
            rig.hca.run_until_idle();
            let wc = poller.poll().unwrap().copy();
            assert_eq!(wc.result().unwrap().invalidated_rkey(), Some(part.rkey));
            assert!(window.was_invalidated(part.rkey));
        } else {
            ours.post(local_inv(&mut window).unwrap().signaled().id(3)).unwrap();
            rig.hca.run_until_idle();
            let wc = poller.poll().unwrap();
            assert_eq!((wc.id(), wc.result().unwrap().opcode()), (3, WcOpcode::LOCAL_INV));
        }
        drain(&peer_cq);
        peer.post(read(into, part.slice(..13).unwrap()).signaled()).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(drain(&peer_cq)[0].status(), WcStatus::REM_ACCESS_ERR, "the key is dead");
        drain_direct(&mut poller);
        let (in_reset, peer_in_reset) = (ours.reset().unwrap(), peer.reset().unwrap());
        (ours, peer) = (rig.up(in_reset, b), rig.up(peer_in_reset, a));
    }
    rig.no_violations();
}

#[test]
fn a_bind_takes_its_room_and_none_if_there_is_none() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = rig.direct(512);
    let mut poller = Poller::new(&cq).unwrap();
    // one block is what was asked for; an update takes three
    let qp = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &cq, &cq).send_depth(1).build().unwrap();
    let mut qp = rig.to_itself(qp);
    let to = mr.remote_region().slice(..).unwrap();
    let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    for _ in 0..50 {
        qp.post(write(Empty, to).signaled().id(1)).unwrap();
        qp.post(bind_mw(&mut window, &mr, ..64, RemoteAccess::READ).unwrap().signaled().id(2)).unwrap();
        assert_eq!(qp.post(write(Empty, to)), Err(PostError::QueueFull));
        rig.hca.run_until_idle();
        assert_eq!(drain_direct(&mut poller).iter().map(ibv::WorkCompletion::id).collect::<Vec<_>>(), [1, 2]);
        // what was taken back leaves the fence to what comes
        let mut batch = qp.batch();
        batch.push(write(Empty, to)).unwrap();
        drop(batch);
        qp.post(write(Empty, to).signaled().id(3)).unwrap();
        let memory = Memory::of(&qp);
        let fenced = (0..memory.blocks).any(|block| {
            memory.send_byte(block * 64 + 3) == 8 && memory.send_byte(block * 64 + 11) & 0xe0 == 0x20
        });
        assert!(fenced, "a WRITE that waits for the update");
        qp.post(local_inv(&mut window).unwrap().signaled().id(4)).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(drain_direct(&mut poller).iter().map(ibv::WorkCompletion::id).collect::<Vec<_>>(), [3, 4]);
        memory.clear();
    }
    rig.no_violations();
}
