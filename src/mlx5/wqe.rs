//! Segments of work requests as the device reads them. Pure: numbers in, bytes out.

use super::bits::{INLINE_SEG, INVALID_LKEY, SEGMENT, WQE_BB, av, ctrl, umr};

#[cfg(not(target_endian = "little"))]
compile_error!("the mlx5 direct path puts words together as little-endian machines have them");

/// 16 bytes of a WQE: two words of 64 bits, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment(pub(super) [u64; 2]);

impl Segment {
    /// From two numbers that stand big-endian in the ring.
    #[inline(always)]
    const fn be(first: u64, second: u64) -> Self {
        Self([first.to_be(), second.to_be()])
    }

    /// As bytes, in the order of the ring.
    #[cfg(test)]
    pub(super) fn bytes(self) -> [u8; SEGMENT] {
        let mut bytes = [0; SEGMENT];
        let (first, second) = bytes.split_at_mut(8);
        first.copy_from_slice(&self.0[0].to_ne_bytes());
        second.copy_from_slice(&self.0[1].to_ne_bytes());
        bytes
    }
}

/// `enum ibv_send_flags` as the control segment's third word, where `fm_ce_se` is the last byte; as it stands there.
#[inline(always)]
pub(super) const fn fm_ce_se(flags: u32) -> u32 {
    const { assert!(ibv_sys::IBV_SEND_FENCE << 7 == ctrl::FENCE as u32) };
    const { assert!(ibv_sys::IBV_SEND_SIGNALED << 2 == ctrl::CQ_UPDATE as u32) };
    const { assert!(ibv_sys::IBV_SEND_SOLICITED >> 1 == ctrl::SOLICITED as u32) };
    let fence = (flags & ibv_sys::IBV_SEND_FENCE) << 7;
    let completion = (flags & ibv_sys::IBV_SEND_SIGNALED) << 2;
    let solicited = (flags & ibv_sys::IBV_SEND_SOLICITED) >> 1;
    (fence | completion | solicited).to_be()
}

/// The fence mode of what comes after the update of a key, as [`fm_ce_se`] has it.
pub(super) const SMALL_FENCE: u32 = (ctrl::SMALL_FENCE as u32).to_be();

/// The control segment. `qpn` is the queue pair's number shifted left by 8, `units` the WQE's size in segments,
/// `flags` the third word as it stands there.
#[inline(always)]
pub(super) const fn control(index: u32, opcode: u8, qpn: u64, units: u32, flags: u32, imm: u32) -> Segment {
    let first = ((index & 0xffff) << 8 | opcode as u32) as u64;
    Segment([(first << 32 | units as u64 | qpn).to_be(), flags as u64 | (imm.to_be() as u64) << 32])
}

/// The remote address segment.
#[inline(always)]
pub(super) const fn remote(addr: u64, rkey: u32) -> Segment {
    Segment::be(addr, (rkey as u64) << 32)
}

/// The atomic segment: `swap_add` is swapped in or added, `compare` compared with.
#[inline(always)]
pub(super) const fn atomic(swap_add: u64, compare: u64) -> Segment {
    Segment::be(swap_add, compare)
}

/// A data segment. A length of 0 would mean 2³¹: elements without bytes are left out.
#[inline(always)]
pub(super) const fn data(addr: u64, len: u32, lkey: u32) -> Segment {
    Segment::be((len as u64) << 32 | lkey as u64, addr)
}

/// The same, if length and key come from one element of a send: those the compiler loads as one word, to turn it round.
#[inline(always)]
pub(super) const fn data_of_one(addr: u64, len: u32, lkey: u32) -> Segment {
    Segment::be((len as u64 | (lkey as u64) << 32).rotate_left(32), addr)
}

/// What follows the control segment of a local invalidate: of the key that the control segment names.
pub(super) const fn invalidate() -> [Segment; 7] {
    const NOTHING: Segment = Segment::be(0, 0);
    let flags = (umr::INLINE | umr::TRANSLATION_OFFSET | umr::CHECK_QPN) as u64;
    let control = Segment::be(flags << 56, umr::FREE | umr::KEY | umr::QPN);
    let context = Segment::be((umr::KEY_FREE as u64) << 56 | 0xffff_ff00, 0);
    [control, NOTHING, NOTHING, context, NOTHING, NOTHING, NOTHING]
}

/// What a window of type 2 is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    pub(super) addr: u64,
    /// At most 2³¹.
    pub(super) len: u32,
    /// The region's.
    pub(super) lkey: u32,
    /// The window's new key.
    pub(super) rkey: u32,
    /// `enum ibv_access_flags`.
    pub(super) access: u32,
    /// The address counts from 0.
    pub(super) zero_based: bool,
}

/// What follows the control segment of a bind, which names the window by the key that it has. `qpn` is the queue pair's
/// number shifted left by 8.
pub(super) fn bind(qpn: u64, to: &Binding) -> [Segment; 11] {
    const NOTHING: Segment = Segment::be(0, 0);
    /// Entries of the list, with those that pad it.
    const ENTRIES: u64 = 4;
    let &Binding { addr, len, lkey, rkey, access, zero_based } = to;
    let flags = u64::from(umr::INLINE | umr::TRANSLATION_OFFSET | umr::CHECK_FREE);
    let fields = umr::FREE | umr::KEY | umr::QPN | umr::LEN | umr::START | umr::ACCESS;
    let rights = [
        (ibv_sys::IBV_ACCESS_LOCAL_WRITE, umr::LOCAL_WRITE),
        (ibv_sys::IBV_ACCESS_REMOTE_WRITE, umr::REMOTE_WRITE),
        (ibv_sys::IBV_ACCESS_REMOTE_READ, umr::REMOTE_READ),
        (ibv_sys::IBV_ACCESS_REMOTE_ATOMIC, umr::ATOMIC),
    ];
    let rights = rights.iter().filter(|(flag, _)| access & flag != 0).fold(0, |all, (_, bit)| all | bit);
    let key = qpn | u64::from(rkey & 0xff);
    [
        Segment::be(flags << 56 | ENTRIES << 16, fields),
        NOTHING,
        NOTHING,
        Segment::be(u64::from(rights) << 40 | key, 0),
        Segment::be(if zero_based { 0 } else { addr }, len.into()),
        NOTHING,
        NOTHING,
        data(addr, len, lkey),
        NOTHING,
        NOTHING,
        NOTHING,
    ]
}

/// What ends the list of a receive that has fewer elements than its WQE has room for.
pub(super) const END_OF_LIST: Segment = data(0, 0, INVALID_LKEY);

/// The first 4 bytes of inline data, as a number to be stored as it is.
#[inline(always)]
pub(super) const fn inline_header(len: u32) -> u32 {
    (INLINE_SEG | len).to_be()
}

/// An address vector, with the destination filled in: `address` is its fixed part, as the library made it.
#[inline(always)]
pub(super) const fn datagram(address: &AddressBytes, qpn: u32, qkey: u32) -> [Segment; 3] {
    let AddressBytes([first, second, rest @ ..]) = *address;
    let (key, destination) = ((qkey as u64) << 32, ((av::EXTENDED | qpn) as u64) << 32);
    let key = low_half(first) | key.to_be();
    let destination = low_half(second) | destination.to_be();
    let [b0, b1, c0, c1] = rest;
    [Segment([key, destination]), Segment([b0, b1]), Segment([c0, c1])]
}

/// The 4 bytes that come second in the ring.
#[inline(always)]
const fn low_half(word: u64) -> u64 {
    word & 0xffff_ffff_u64.to_be()
}

/// The 48 bytes of an address vector, in words as they are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBytes(pub(super) [u64; av::LEN / 8]);

impl AddressBytes {
    /// All zeros.
    pub(super) const NOWHERE: Self = Self([0; av::LEN / 8]);
}

/// Segments that `len` bytes of inline data take with their header; none for none.
#[inline(always)]
pub(super) const fn inline_units(len: usize) -> usize {
    if len == 0 { 0 } else { (len + 4).div_ceil(SEGMENT) }
}

/// Basic blocks of a WQE of so many segments.
#[inline(always)]
pub(super) const fn blocks(units: usize) -> u32 {
    units.div_ceil(WQE_BB / SEGMENT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibv_sys as sys;
    use proptest::prelude::*;

    /// The fields of C's struct, byte by byte.
    fn be<const N: usize>(parts: &[(usize, &[u8])]) -> [u8; N] {
        let mut bytes = [0; N];
        for (at, part) in parts {
            bytes[*at..*at + part.len()].copy_from_slice(part);
        }
        bytes
    }

    proptest! {
        #[test]
        fn control_segments_have_each_field_in_its_place(
            index: u16, opcode: u8, qpn in 0u32..1 << 24, units in 1u32..64, flags in 0u32..8, imm: u32
        ) {
            let got = control(index.into(), opcode, u64::from(qpn) << 8, units, fm_ce_se(flags), imm).bytes();
            let mut fm = 0;
            for (flag, bit) in [
                (sys::IBV_SEND_FENCE, 0x80), (sys::IBV_SEND_SIGNALED, 8), (sys::IBV_SEND_SOLICITED, 2)
            ] {
                if flags & flag != 0 {
                    fm |= bit;
                }
            }
            let want: [u8; 16] = be(&[
                (1, &index.to_be_bytes()), (3, &[opcode]), (4, &(qpn << 8 | units).to_be_bytes()),
                (11, &[fm]), (12, &imm.to_be_bytes()),
            ]);
            prop_assert_eq!(got, want);
        }

        #[test]
        fn the_other_segments_too(a: u64, b: u64, c: u32, d: u32) {
            prop_assert_eq!(remote(a, c).bytes(), be(&[(0, &a.to_be_bytes()), (8, &c.to_be_bytes())]));
            prop_assert_eq!(atomic(a, b).bytes(), be(&[(0, &a.to_be_bytes()), (8, &b.to_be_bytes())]));
            let want = be(&[(0, &c.to_be_bytes()), (4, &d.to_be_bytes()), (8, &a.to_be_bytes())]);
            prop_assert_eq!(data(a, c, d).bytes(), want);
        }

        #[test]
        fn address_vectors_keep_what_is_not_the_destination(
            fixed: [u8; 48], qpn in 0u32..1 << 24, qkey: u32
        ) {
            let words = std::array::from_fn(|i| {
                u64::from_ne_bytes(fixed[i * 8..i * 8 + 8].try_into().unwrap())
            });
            let got: Vec<u8> = datagram(&AddressBytes(words), qpn, qkey).into_iter().flat_map(Segment::bytes).collect();
            let mut want = fixed;
            want[..4].copy_from_slice(&qkey.to_be_bytes());
            want[8..12].copy_from_slice(&(qpn | 1 << 31).to_be_bytes());
            prop_assert_eq!(got, want);
        }

        #[test]
        fn sizes(len in 0usize..2000) {
            let units = inline_units(len);
            let least = if len == 0 { 0 } else { len + 4 };
            prop_assert!(units * 16 >= least);
            prop_assert!(units == 0 || units * 16 < len + 4 + 16);
            prop_assert_eq!(blocks(units) as usize, units.div_ceil(4));
            prop_assert_eq!(u32::from_be(inline_header(len as u32)), len as u32 | 1 << 31);
        }
    }

    #[test]
    fn segments_are_as_long_as_in_c() {
        assert_eq!(size_of::<sys::mlx5_wqe_ctrl_seg>(), SEGMENT);
        assert_eq!(size_of::<sys::mlx5_wqe_raddr_seg>(), SEGMENT);
        assert_eq!(size_of::<sys::mlx5_wqe_atomic_seg>(), SEGMENT);
        assert_eq!(size_of::<sys::mlx5_wqe_data_seg>(), SEGMENT);
        assert_eq!(size_of::<sys::mlx5_wqe_datagram_seg>(), av::LEN);
        assert_eq!(END_OF_LIST.bytes(), be(&[(6, &[1])]), "lkey 0x100");
    }
}
