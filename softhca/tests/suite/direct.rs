//! A direct data path on the queues of the stock library (by `mlx5dv_init_obj`), correct and with planted errors.
//!
//! # Safety
//!
//! The addresses come from `mlx5dv_init_obj`; rings, records and registers are written as a driver writes them,
//! within their sizes.
#![expect(unsafe_code, reason = "drives a device")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use super::ring::{Ring, memory, shared_memory};
use crate::common::*;
use ibv_sys::*;
use std::sync::atomic::{Ordering, compiler_fence};

/// What is wrong with the sequence.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mutant {
    None,
    RecordAfterRegister,
    RecordMissing,
    WqeAfterRecord,
    WrongIndex,
    StaleWqe,
    WrongRegister,
    HalfWidth,
    NoRegister,
    CopyDiffers,
    SameRegister,
}

const MUTANTS: [Mutant; 10] = [
    Mutant::RecordAfterRegister,
    Mutant::RecordMissing,
    Mutant::WqeAfterRecord,
    Mutant::WrongIndex,
    Mutant::StaleWqe,
    Mutant::WrongRegister,
    Mutant::HalfWidth,
    Mutant::NoRegister,
    Mutant::CopyDiffers,
    Mutant::SameRegister,
];

struct Direct {
    dv: mlx5dv_qp,
    qpn: u32,
    index: u16,
    half: u32,
}

impl Direct {
    fn of(q: &Qp) -> Self {
        Self { dv: memory(q), qpn: q.num, index: 0, half: 0 }
    }

    fn block(&self, index: u16) -> *mut u32 {
        let n = u32::from(index) % self.dv.sq.wqe_cnt;
        // SAFETY: in the ring, which has `wqe_cnt` blocks of 64 bytes.
        unsafe { self.dv.sq.buf.cast::<u8>().add(n as usize * 64).cast() }
    }

    /// Posts a signaled, empty RDMA WRITE of one basic block.
    fn write(&mut self, raddr: u64, rkey: u32, mutant: Mutant, other: *mut u8) {
        let at = self.block(self.index);
        let next = self.index.wrapping_add(1);
        // SAFETY: a record has two words.
        let record = unsafe { self.dv.dbrec.add(1) };
        let named = if mutant == Mutant::StaleWqe { self.index.wrapping_sub(1) } else { self.index };
        let control = [u32::from(named) << 8 | 8, self.qpn << 8 | 2, 8, 0];
        let remote = [(raddr >> 32) as u32, raddr as u32, rkey, 0];
        // SAFETY: callers stay below 16, the words of a block.
        let store = |i: usize, v: u32| unsafe { at.add(i).write_volatile(v.to_be()) };
        // SAFETY: the send queue's word of the record.
        let set_record = || unsafe { record.write_volatile(u32::from(next).to_be()) };
        let fence = || compiler_fence(Ordering::SeqCst);
        if mutant == Mutant::WqeAfterRecord {
            set_record();
        }
        fence();
        for (i, v) in remote.into_iter().enumerate() {
            store(4 + i, v);
        }
        for (i, v) in control.into_iter().enumerate() {
            store(i, v);
        }
        fence();
        if !matches!(mutant, Mutant::RecordAfterRegister | Mutant::RecordMissing | Mutant::WqeAfterRecord) {
            set_record();
        }
        fence();
        // SAFETY: the block's first 8 bytes.
        let mut value = unsafe { at.cast::<u64>().read_volatile() };
        if mutant == Mutant::WrongIndex {
            value ^= u64::from(0x0100_u32.to_be());
        }
        let own = self.dv.bf.reg.cast::<u8>();
        let half = self.half as usize;
        let to = match mutant {
            Mutant::WrongRegister => other.wrapping_add(half),
            Mutant::NoRegister => own.wrapping_add(half).wrapping_sub(0x400),
            Mutant::SameRegister => own.wrapping_add(half ^ self.dv.bf.size as usize),
            _ => own.wrapping_add(half),
        };
        // SAFETY: 64 bytes of the block, and as many of a register's page, on which all of these lie: the registers are
        // at 0x800 and above.
        unsafe {
            if mutant == Mutant::HalfWidth {
                to.cast::<u32>().write_volatile(value as u32);
                to.cast::<u32>().add(1).write_volatile((value >> 32) as u32);
            } else {
                to.cast::<u64>().write_volatile(value);
            }
            // The rest of the block, as BlueFlame does.
            for i in 1..8 {
                let mut v = at.cast::<u64>().add(i).read_volatile();
                if mutant == Mutant::CopyDiffers && i == 2 {
                    v ^= 1;
                }
                to.cast::<u64>().add(i).write_volatile(v);
            }
        }
        fence();
        if mutant == Mutant::RecordAfterRegister {
            set_record();
        }
        self.half ^= self.dv.bf.size;
        self.index = next;
    }
}

#[test]
fn a_direct_path_works() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let mut x = Direct::of(&p.a);
    for _ in 0..100 {
        x.write(p.mb.addr, p.mb.rkey(), Mutant::None, std::ptr::null_mut());
        hca.step();
        assert_eq!(drain(p.ca).len(), 1);
    }
    assert_eq!(hca.take_violations().1, [""; 0]);
    p.close();
    d.close();
}

#[test]
fn planted_errors_are_caught() {
    let (_g, hca) = start();
    if !crate::MODE.traps() {
        return;
    }
    let d = Dev::open(0);
    for mutant in MUTANTS {
        let p = Pair::new(&d, RC);
        let (other, other2) = (d.qp(RC, p.ca, p.ca), d.qp(RC, p.ca, p.ca));
        let mut x = Direct::of(&p.a);
        let page = |q: &Direct| q.dv.bf.reg.addr() & !4095;
        let (y, z) = (Direct::of(&other), Direct::of(&other2));
        let far = if page(&y) == page(&x) { &z } else { &y };
        assert_ne!(page(far), page(&x));
        hca.take_violations();
        // Until the ring has been round, a stale WQE is zeros; after that it is an old WQE.
        for _ in 0..3 {
            x.write(p.mb.addr, p.mb.rkey(), Mutant::None, std::ptr::null_mut());
            hca.step();
        }
        assert_eq!(hca.take_violations().1, [""; 0], "before {mutant:?}");
        x.write(p.mb.addr, p.mb.rkey(), mutant, far.dv.bf.reg.cast());
        let (n, found) = hca.take_violations();
        assert!(n > 0, "{mutant:?} not caught");
        println!("{mutant:?}: {}", found[0]);
        hca.run_until_idle();
        hca.take_violations();
        drain(p.ca);
        other.destroy();
        other2.destroy();
        p.close();
    }
    d.close();
}

/// A receive that is written after it was counted is found in any queue and in any WQE.
#[test]
fn shared_queues_are_checked_however_many_and_long_they_are() {
    let (_g, hca) = start();
    if !crate::MODE.traps() {
        return;
    }
    let d = Dev::open(0);
    let mut mem = vec![0u8; 64];
    let m = d.mr(&mut mem, ALL);
    let small: Vec<_> = (0..40).map(|_| d.srq(3)).collect();
    let long = d.srq(3000);
    let cq = d.cq(64);
    let sender = d.qp(RC, cq, cq);
    for (srq, taken) in [(small[20], 0), (small[39], 2), (long, 900), (long, 1500)] {
        let receiver = d.qp_with(RC, cq, cq, srq, 0, 16);
        sender.up(receiver.num, &d, &d, Path::default());
        receiver.up(sender.num, &d, &d, Path::default());
        for i in 0..taken {
            assert_eq!(srq_recv(srq, i, &mut [m.sge(0, 8)]), 0);
        }
        let dv = shared_memory(srq);
        assert_eq!(srq_recv(srq, taken, &mut [m.sge(0, 8)]), 0);
        let (stride, head) = (dv.stride as usize, dv.head as usize);
        // SAFETY: the last word of the WQE that was posted last, in the ring, before it is taken.
        unsafe {
            let word = dv.buf.cast::<u8>().add((head + 1) * stride - 8).cast::<u64>();
            word.write_volatile(word.read_volatile() ^ 1);
        }
        hca.take_violations();
        for _ in 0..=taken {
            sender.send(wr(IBV_WR_SEND, 1, &mut [m.sge(0, 0)]));
            hca.run_until_idle();
            drain(cq);
        }
        let (n, found) = hca.take_violations();
        assert_eq!(n, 1, "{taken}: {found:?}");
        assert!(found[0].contains("is not what it was when the doorbell record counted it"), "{found:?}");
        assert_eq!(sender.to(IBV_QPS_RESET), 0);
        receiver.destroy();
    }
    sender.destroy();
    free_cq(cq);
    small.into_iter().chain([long]).for_each(free_srq);
    m.dereg();
    d.close();
}

/// The record counts more receives than the chain has: it leads out of the ring.
#[test]
fn a_shared_queue_that_leads_out_of_its_ring() {
    let (_g, hca) = start();
    if !crate::MODE.traps() {
        return;
    }
    let d = Dev::open(0);
    let srq = d.srq(7);
    let dv = shared_memory(srq);
    hca.take_violations();
    // (libmlx5 makes it of twice as many.)
    // SAFETY: the link of the first WQE, and the record. Nothing is posted by libmlx5, which would follow the link.
    unsafe {
        dv.buf.cast::<u16>().add(1).write_volatile(16u16.to_be());
        dv.dbrec.write_volatile(3u32.to_be());
    }
    let (n, found) = hca.take_violations();
    assert_eq!(n, 1, "{found:?}");
    assert!(
        found[0].contains("counted receive 1, which would be in WQE 16, of which there is none"),
        "{found:?}"
    );
    free_srq(srq);
    d.close();
}

#[test]
fn stock_breaks_no_rule() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let n: u64 = if crate::MODE.traps() { 30_000 } else { 3_000 };
    let before = hca.stats();
    for i in 0..n {
        p.b.recv(i, &mut [p.mb.sge(0, 4096)]);
        let mut s = [p.ma.sge(0, (i % 60) as u32 + 1), p.ma.sge(100, (i % 3) as u32)];
        let mut w = match i % 4 {
            0 => wr(IBV_WR_SEND, i, &mut s),
            1 => rdma(IBV_WR_RDMA_WRITE_WITH_IMM, i, &mut s, p.mb.addr, p.mb.rkey()),
            2 => wr(IBV_WR_SEND_WITH_IMM, i, &mut s),
            _ => rdma(IBV_WR_RDMA_WRITE, i, &mut s, p.mb.addr, p.mb.rkey()),
        };
        if i % 5 == 0 {
            w.send_flags |= IBV_SEND_INLINE as u32;
        }
        p.a.send(w);
        hca.step();
        one(p.ca);
        if i % 4 == 3 {
            // Nothing took the receive: use it.
            p.a.send(wr(IBV_WR_SEND, i, &mut []));
            hca.step();
            one(p.ca);
        }
        one(p.cb);
    }
    let after = hca.stats();
    assert!(after.doorbells - before.doorbells >= n);
    if crate::MODE.traps() {
        assert!(after.checked_stores - before.checked_stores >= n);
        assert!(after.checked_records - before.checked_records >= n);
    }
    assert_eq!(hca.take_violations().1, [""; 0]);
    p.close();
    d.close();
}

#[test]
fn completions_of_dead_pairs_stay_and_stale_requests_run() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    // A CQ owned by direct verbs keeps the completions of a QP that is gone; its number comes back at once.
    let ring = Ring::of(p.ca);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 8)], p.mb.addr, p.mb.rkey()));
    hca.step();
    let old = p.a.num;
    let entry = ring.get(0);
    assert_eq!(entry[63] >> 4, 0, "a requester's completion");
    p.a.destroy();
    assert_eq!(ring.get(0), entry);
    let again = d.qp(RC, p.ca, p.ca);
    assert_eq!(again.num, old);
    again.destroy();
    p.b.destroy();
    // A key comes back at once, too.
    let key = p.ma.rkey();
    p.ma.dereg();
    let mut mem = vec![0u8; 100];
    let m = d.mr(&mut mem, ALL);
    assert_eq!(m.rkey(), key);
    m.dereg();
    p.mb.dereg();
    free_cq(p.ca);
    free_cq(p.cb);
    d.close();
}
