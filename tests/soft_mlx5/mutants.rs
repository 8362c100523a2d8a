//! Planted mistakes: what the direct path does for a post, done wrong by hand, is found; done right, it is not.

use super::rig::{Memory, Rig};
use ibv::Rc;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    RecordAfterRegister,
    RecordMissing,
    WqeAfterRecord,
    WrongIndexInRegister,
    OtherRegister,
    StaleIndexInWqe,
    HalfWidth,
}

/// Posts a WQE without data in block `index`, as `mistake` says.
fn post(memory: &Memory, other: &Memory, number: u32, index: u32, half: usize, mistake: Mistake) {
    let word = |index: u32| (u64::from(index << 8 | 0x0a) << 32 | u64::from(number << 8 | 1)).to_be();
    let stated = if mistake == Mistake::StaleIndexInWqe { index.wrapping_sub(1) & 0xffff } else { index };
    let control = word(stated);
    let write_wqe = || unsafe {
        let block = memory.sq.add(index as usize % memory.blocks * 64);
        block.cast::<u64>().write_volatile(control);
        block.add(8).cast::<u64>().write_volatile(0);
    };
    let write_record = || unsafe { memory.record.add(1).write_volatile((index + 1).to_be()) };
    let rung = if mistake == Mistake::WrongIndexInRegister { word(index + 1) } else { control };
    let register = if mistake == Mistake::OtherRegister { other.register } else { memory.register };
    let ring = || unsafe {
        let at = register.add(half * memory.register_size);
        if mistake == Mistake::HalfWidth {
            at.cast::<u32>().write_volatile(rung as u32);
        } else {
            at.cast::<u64>().write_volatile(rung);
        }
    };
    match mistake {
        Mistake::RecordAfterRegister => (write_wqe(), ring(), write_record()),
        Mistake::RecordMissing => (write_wqe(), ring(), ()),
        Mistake::WqeAfterRecord => (write_record(), write_wqe(), ring()),
        _ => (write_wqe(), write_record(), ring()),
    };
}

#[test]
fn planted_mistakes_are_found() {
    let rig = Rig::new();
    let all = [
        Mistake::None,
        Mistake::RecordAfterRegister,
        Mistake::RecordMissing,
        Mistake::WqeAfterRecord,
        Mistake::WrongIndexInRegister,
        Mistake::OtherRegister,
        Mistake::StaleIndexInWqe,
        Mistake::HalfWidth,
    ];
    for mistake in all {
        let cq = rig.direct(2048);
        // several, so that there is one with a register on another page
        let queues: Vec<_> = (0..4).map(|_| rig.direct_qp::<Rc>(&cq, &cq)).collect();
        let queues: Vec<_> = queues
            .into_iter()
            .map(|qp| {
                let number = qp.qp_num();
                rig.up(qp, number)
            })
            .collect();
        let memories: Vec<_> = queues.iter().map(Memory::of).collect();
        let page = |memory: &Memory| memory.register.addr() / 4096;
        let other = memories.iter().find(|memory| page(memory) != page(&memories[0])).unwrap();
        rig.hca.take_violations();
        for index in 0..3 {
            post(&memories[0], other, queues[0].qp_num(), index, index as usize % 2, mistake);
        }
        let (count, texts) = rig.hca.take_violations();
        assert_eq!(count != 0, mistake != Mistake::None, "{mistake:?}: {texts:?}");
    }
}
