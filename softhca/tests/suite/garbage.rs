//! What a broken driver can do to the device: garbage in rings, records and registers. It must go on for others.
//!
//! # Safety
//!
//! The addresses come from `mlx5dv_init_obj`; only bytes within the queues' own memory are written.
#![expect(unsafe_code, reason = "drives a device")]

use super::ring::memory;
use crate::common::*;
use ibv_sys::*;

/// xorshift: the same garbage each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn the_device_survives_garbage() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let good = Pair::new(&d, RC);
    let mut r = Random(0x1234_5678_9abc_def1);
    for round in 0..60 {
        let kind = [RC, UC, UD][round % 3];
        let p = Pair::new(&d, kind);
        let dv = memory(&p.a);
        let blocks = dv.sq.wqe_cnt;
        // SAFETY: both rings end where their counts of blocks of 64 bytes and of strides do; the record has two words.
        // What the device does with this is what is tried.
        unsafe {
            for i in 0..blocks as usize * 8 {
                dv.sq.buf.cast::<u64>().add(i).write_volatile(r.next());
            }
            // Some WQEs get a plausible head, so that the device looks at the rest.
            for i in 0..blocks {
                if r.next() % 4 != 0 {
                    let opcode = [0u32, 1, 8, 9, 10, 11, 16, 17, 18, 37][r.next() as usize % 10];
                    let units = r.next() as u32 % 20;
                    let at = dv.sq.buf.cast::<u32>().add(i as usize * 16);
                    at.write_volatile((i << 8 | opcode).to_be());
                    at.add(1).write_volatile((p.a.num << 8 | units).to_be());
                }
            }
            for i in 0..dv.rq.wqe_cnt as usize * dv.rq.stride as usize / 8 {
                dv.rq.buf.cast::<u64>().add(i).write_volatile(r.next());
            }
            dv.dbrec.write_volatile((r.next() as u32).to_be());
            dv.dbrec.add(1).write_volatile((r.next() as u32).to_be());
            dv.bf.reg.cast::<u64>().write_volatile(r.next() | 1);
        }
        hca.step();
        hca.run_until_idle();
        // Another pair doesn't notice.
        good.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [good.ma.sge(0, 8)], good.mb.addr, good.mb.rkey()));
        hca.run_until_idle();
        assert_eq!(drain(good.ca), [(1, 0)]);
        // The CQ may hold anything now; its own destruction cleans it.
        p.close();
        while d.event() != -1 {}
    }
    hca.take_violations();
    good.close();
    d.close();
}
