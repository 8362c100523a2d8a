//! Atomics: what is compared, stored and given back, to the last bit.

use super::rig::{Random, Rig, drain_direct};
use ibv::mlx5::Poller;
use ibv::{Rc, WcOpcode, cmp_swp, fetch_add};

/// Where the peer's word is, and where its old value comes to; the words beside them stay.
const WORD: usize = 64;
const INTO: usize = 128;
const BESIDE: u64 = 0x5a5a_5a5a_a5a5_a5a5;

/// Words whose halves, signs and byte orders would show if they were mixed up.
const VALUES: [u64; 8] = [
    0,
    1,
    u64::MAX,
    1 << 63,
    0x0123_4567_89ab_cdef,
    0xffff_ffff_0000_0000,
    0x0000_0000_ffff_ffff,
    0x8000_0000_0000_0001,
];

#[test]
fn words_are_compared_and_added_to_the_last_bit() {
    let rig = Rig::new();
    let mr = rig.region(4096);
    for cq in [rig.direct(256), rig.direct_wide(256)] {
        let mut poller = Poller::new(&cq).unwrap();
        let mut qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
        let (word, into) = (mr.remote_region().u64_at(WORD).unwrap(), mr.u64_at(INTO).unwrap().detach());
        let mut random = Random::new(47);
        let (mut hits, mut misses) = (0, 0);
        for round in 0..1000u64 {
            let old = VALUES.get(round as usize).copied().unwrap_or_else(|| random.word());
            let (new, id) = (random.word(), random.word());
            for beside in [WORD - 8, WORD + 8, INTO - 8, INTO + 8] {
                mr.store_u64(beside, BESIDE).unwrap();
            }
            mr.store_u64(WORD, old).unwrap();
            mr.store_u64(INTO, !old).unwrap();
            let (opcode, expected) = match round % 3 {
                0 => {
                    hits += 1;
                    qp.post(cmp_swp(into, word, old, new).signaled().id(id)).unwrap();
                    (WcOpcode::COMP_SWAP, new)
                }
                1 => {
                    misses += 1;
                    let nearly = old ^ 1 << random.below(64);
                    qp.post(cmp_swp(into, word, nearly, new).signaled().id(id)).unwrap();
                    (WcOpcode::COMP_SWAP, old)
                }
                _ => {
                    qp.post(fetch_add(into, word, new).signaled().id(id)).unwrap();
                    (WcOpcode::FETCH_ADD, old.wrapping_add(new))
                }
            };
            rig.hca.run_until_idle();
            let got = drain_direct(&mut poller);
            let said: Vec<_> = got
                .iter()
                .map(|wc| {
                    let done = wc.result().unwrap();
                    (wc.id(), done.opcode(), done.byte_len())
                })
                .collect();
            assert_eq!(said, [(id, opcode, Some(8))]);
            let found = (mr.load_u64(WORD).unwrap(), mr.load_u64(INTO).unwrap());
            assert_eq!(found, (expected, old), "round {round}: {old:#x}, {new:#x}");
            for beside in [WORD - 8, WORD + 8, INTO - 8, INTO + 8] {
                assert_eq!(mr.load_u64(beside).unwrap(), BESIDE);
            }
        }
        assert!(hits > 300 && misses > 300);
    }
    rig.no_violations();
}
