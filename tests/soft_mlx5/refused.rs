//! What a request that a full queue refuses leaves alone, on each backend: libmlx5's `ibv_wr_*` write it over the
//! request that was posted last, so that they are not called unless the program promises that there is room.

use std::ptr::null_mut;

use ibv::{
    BatchStorage, Empty, Inline, MemoryRegion, MemoryWindow, PostError, PostSend, QueuePairBuilder, Rc,
    Remote, RemoteAccess, Type2, WcOpcode, WcStatus, bind_mw, cmp_swp, fetch_add, read, recv, send, send_imm,
    write, write_imm,
};

use super::rig::{Rig, drain};

/// Fills the queue with WRITEs of 8 bytes each, and has it refuse one of every kind. Gives how many it took.
fn fill(qp: &mut impl PostSend<'static, Transport = Rc>, mr: &MemoryRegion<'static, Remote>) -> usize {
    let to = |at: usize| mr.remote_region().slice(at..at + 8).unwrap();
    let mut posted = 0;
    let full = loop {
        let bytes = [posted as u8 + 1; 8];
        match qp.post(write(Inline(&bytes), to(4096 + 8 * posted)).signaled().id(posted as u64)) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
    };
    assert!(full.is_queue_full(), "{full:?}");
    let elsewhere = mr.slice(2048..2056).unwrap().detach();
    let (word, at) =
        (mr.u64_at(2048).unwrap().detach(), mr.remote_region().u64_at(4096 + 8 * posted).unwrap());
    let bytes = [0xee; 60];
    let refused = [
        qp.post(send(Inline(&bytes))),
        qp.post(send_imm(elsewhere, 7)),
        qp.post(write(elsewhere, to(4096))),
        qp.post(write_imm(Inline(&bytes[..8]), to(4096), 7)),
        qp.post(read(elsewhere, to(4096))),
        qp.post(cmp_swp(word, at, 0, 1)),
        qp.post(fetch_add(word, at, 1)),
        qp.post(write(Inline(&bytes[..8]), to(4096 + 8 * posted))),
    ];
    assert_eq!(refused, [Err(full); 8]);
    posted
}

#[test]
fn a_full_queue_keeps_what_it_has() {
    let rig = Rig::new();
    for is_extended in [false, true] {
        let (mr, cq) = (rig.region(8192), rig.bare(1024));
        let builder = QueuePairBuilder::<Rc>::new(&rig.pd, &cq, &cq).send_depth(16).inline(60);
        let mut basic = rig.to_itself(builder.build().unwrap());
        let builder = QueuePairBuilder::<Rc>::new(&rig.pd, &cq, &cq).send_depth(16).inline(60);
        let mut extended = rig.to_itself(builder.extended().build().unwrap());
        for round in 0..3 {
            let posted = if is_extended { fill(&mut extended, &mr) } else { fill(&mut basic, &mr) };
            assert!(posted >= 16);
            rig.hca.run_until_idle();
            let ids: Vec<_> = drain(&cq).iter().map(|wc| (wc.id(), wc.status())).collect();
            let all: Vec<_> = (0..posted as u64).map(|id| (id, WcStatus::SUCCESS)).collect();
            assert_eq!(ids, all, "round {round}");
            for at in 0..posted {
                let mut bytes = [0; 8];
                mr.read(4096 + 8 * at, &mut bytes).unwrap();
                assert_eq!(bytes, [at as u8 + 1; 8], "{at} of {posted}, round {round}, {is_extended}");
            }
            assert_eq!(mr.load_u64(4096 + 8 * posted).unwrap(), 0, "what was refused");
            mr.write(4096, &vec![0; 8 * posted]).unwrap();
        }
    }
    rig.no_violations();
}

/// What libmlx5 refuses when it has begun to write it: it then rings for that, and not for those that it took.
#[test]
fn what_would_end_a_list_never_gets_there() {
    let rig = Rig::without_atomics();
    let (mr, cq) = (rig.region(1 << 31 | 4096), rig.bare(1024));
    let builder = || QueuePairBuilder::<Rc>::new(&rig.pd, &cq, &cq).send_depth(16).inline(60);
    let qp = rig.to_itself(builder().build().unwrap());
    let mut extended = rig.to_itself(builder().extended().build().unwrap());
    let mut window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
    let to = mr.remote_region();
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(write(Inline(&[1; 8]), to.slice(..8).unwrap()).signaled()).unwrap();
    let too_long = bind_mw(&mut window, &mr, ..1 + (1 << 31), RemoteAccess::READ).unwrap_err();
    assert!(too_long.to_string().contains("2147483648"), "{too_long}");
    let word = mr.u64_at(8).unwrap().detach();
    let add = fetch_add(word, to.u64_at(0).unwrap(), 1);
    assert_eq!(batch.push(add), Err(PostError::Unsupported));
    assert_eq!(extended.post(add), Err(PostError::Unsupported));
    assert_eq!(qp.post(cmp_swp(word, to.u64_at(0).unwrap(), 0, 1)), Err(PostError::Unsupported));
    batch.push(bind_mw(&mut window, &mr, ..1 << 31, RemoteAccess::READ).unwrap().signaled()).unwrap();
    batch.submit().unwrap();
    rig.hca.run_until_idle();
    let done: Vec<_> = drain(&cq).iter().map(|wc| wc.result().unwrap().opcode()).collect();
    assert_eq!(done, [WcOpcode::RDMA_WRITE, WcOpcode::BIND_MW]);
    assert_eq!(mr.load_u64(0).unwrap(), u64::from_ne_bytes([1; 8]));
    rig.no_violations();
}

/// Data whose length has a lower half that would fit.
#[test]
fn a_length_is_looked_at_in_full() {
    #[expect(unsafe_code, reason = "a mapping that takes no memory")]
    // SAFETY: a new mapping, never unmapped, of zeros.
    let bytes: &'static [u8] = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = (1 << 32) + 8;
        let start = libc::mmap(null_mut(), len, libc::PROT_READ, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        std::slice::from_raw_parts(start.cast(), len)
    };
    let rig = Rig::new();
    let (mr, cq, direct_cq) = (rig.region(4096), rig.bare(1024), rig.direct(256));
    let check = |number: u64, post: &mut dyn FnMut(Inline<'_>) -> Result<(), PostError>| {
        assert!(matches!(post(Inline(bytes)), Err(PostError::InlineTooLong { max: 60.. })), "{number}");
        post(Inline(&number.to_ne_bytes())).unwrap();
        rig.hca.run_until_idle();
        assert_eq!(mr.load_u64(0).unwrap(), number);
    };
    let builder = || QueuePairBuilder::<Rc>::new(&rig.pd, &cq, &cq).inline(60);
    #[expect(unsafe_code, reason = "trusting the provider is")]
    // SAFETY: few requests are posted.
    let trusted = unsafe { builder().extended().trust_wr() };
    let direct = QueuePairBuilder::<Rc, _>::direct(&rig.pd, &direct_cq, &direct_cq).inline(60);
    let basic = rig.to_itself(builder().build().unwrap());
    let mut extended = rig.to_itself(builder().extended().build().unwrap());
    let mut trusted = rig.to_itself(trusted.build().unwrap());
    let mut direct = rig.to_itself(direct.build().unwrap());
    let room = || recv(mr.slice(..8).unwrap().detach());
    basic.post_recv(room()).unwrap();
    extended.post_recv(room()).unwrap();
    trusted.post_recv(recv(Empty)).unwrap();
    trusted.post_recv(room()).unwrap();
    direct.post_recv(room()).unwrap();
    check(1, &mut |data| basic.post(send(data)));
    check(2, &mut |data| extended.post(send(data)));
    check(3, &mut |data| trusted.post_list(&[send(Inline(&[])), send(data)]));
    check(4, &mut |data| direct.post(send(data)));
    rig.no_violations();
}
