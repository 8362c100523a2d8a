//! Properties of what peers send and users cut: no input panics, what is written is read back, no range gets out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

mod support_null;

use std::ops::Bound;

use ibv::{Endpoint, Gid, Guid, MemoryRegion, Mtu, RemoteRegion};
use nullhca::hca;
use proptest::prelude::*;
use support_null::*;

fn bound() -> impl Strategy<Value = Bound<usize>> {
    let at = || prop_oneof![4 => 0..200usize, 1 => any::<usize>(), 1 => Just(usize::MAX)];
    prop_oneof![Just(Bound::Unbounded), at().prop_map(Bound::Included), at().prop_map(Bound::Excluded)]
}

/// The same range, by arithmetic that cannot overflow.
fn exact((from, to): (Bound<usize>, Bound<usize>), room: u128) -> Option<(u128, u128)> {
    let start = match from {
        Bound::Included(at) => at as u128,
        Bound::Excluded(at) => at as u128 + 1,
        Bound::Unbounded => 0,
    };
    let end = match to {
        Bound::Included(at) => at as u128 + 1,
        Bound::Excluded(at) => at as u128,
        Bound::Unbounded => room,
    };
    (start <= end && end <= room && end - start <= 1 << 31).then(|| (start, end - start))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn endpoints_survive_the_wire(lid: u16, qpn in 0..1u32 << 24, psn in 0..1u32 << 24, gid: [u8; 16]) {
        let endpoint = Endpoint { lid, qpn, psn, gid: Gid(gid) };
        let wire = endpoint.to_wire();
        prop_assert_eq!(Endpoint::from_wire(&wire).unwrap(), endpoint);
        // as sscanf of the C programs would read it
        let text = std::str::from_utf8(&wire[..51]).unwrap();
        let expected = format!("{lid:04x}:{qpn:06x}:{psn:06x}:");
        prop_assert!(text.starts_with(&expected) && wire[51] == 0);
    }

    #[test]
    fn any_bytes_are_an_endpoint_or_an_error(wire: [[u8; 26]; 2]) {
        let wire: [u8; 52] = wire.concat().try_into().unwrap();
        if let Ok(endpoint) = Endpoint::from_wire(&wire) {
            prop_assert!(endpoint.qpn < 1 << 24 && endpoint.psn < 1 << 24);
        }
    }

    #[test]
    fn one_changed_byte_is_an_error_or_another_endpoint(at in 0..52usize, byte: u8, gid: [u8; 16]) {
        let endpoint = Endpoint { lid: 1, qpn: 2, psn: 3, gid: Gid(gid) };
        let mut wire = endpoint.to_wire();
        wire[at] = byte;
        match Endpoint::from_wire(&wire) {
            // what was read is what is there, up to the case of the digits
            Ok(read) => prop_assert!(read.to_wire()[..51].eq_ignore_ascii_case(&wire[..51])),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn regions_survive_the_wire_or_are_refused(addr: u64, len: u64, rkey: u32) {
        let region = RemoteRegion { addr, len, rkey };
        match RemoteRegion::from_wire(&region.to_wire()) {
            Ok(read) => prop_assert_eq!((read, addr.checked_add(len).is_some()), (region, true)),
            Err(_) => prop_assert_eq!(addr.checked_add(len), None),
        }
    }

    #[test]
    fn slices_of_a_peers_region_stay_in_it(
        len in prop_oneof![0..300u64, any::<u64>()],
        range in (bound(), bound()),
    ) {
        let region = RemoteRegion { addr: 0x1000, len, rkey: 7 };
        let expected = exact(range, len.into()).map(|(_, len)| len);
        let got = region.slice(range).ok().map(|slice| u128::from(slice.len()));
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn a_peers_words_are_aligned_and_inside(addr in 0..64u64, len in 0..64u64, at in 0..80usize) {
        let region = RemoteRegion { addr, len, rkey: 7 };
        let inside = at as u64 + 8 <= len && (addr + at as u64) % 8 == 0;
        prop_assert_eq!(region.u64_at(at).is_ok(), inside);
        prop_assert!(region.u64_at(usize::MAX - at).is_err());
    }

    #[test]
    fn slices_of_a_region_stay_in_it(range in (bound(), bound()), again in (bound(), bound())) {
        let ctx = open();
        let pd = ctx.alloc_pd().unwrap();
        let mr = MemoryRegion::local(&pd, vec![0u8; 100]).unwrap();
        let expected = exact(range, 100);
        let slice = mr.slice(range).ok();
        prop_assert_eq!(slice.map(|slice| u128::from(slice.len())), expected.map(|(_, len)| len));
        if let Some((slice, (_, len))) = slice.zip(expected) {
            let part = slice.slice(again).ok();
            let expected = exact(again, len).map(|(_, len)| len);
            prop_assert_eq!(part.map(|part| u128::from(part.len())), expected);
        }
    }

    #[test]
    fn the_cpu_reads_what_it_wrote_and_nothing_else(at in 0..150usize, bytes in prop::collection::vec(any::<u8>(), 0..150)) {
        let ctx = open();
        let pd = ctx.alloc_pd().unwrap();
        let mr = MemoryRegion::local(&pd, vec![0xaau8; 100]).unwrap();
        let fits = at + bytes.len() <= 100;
        prop_assert_eq!(mr.write(at, &bytes).is_ok(), fits);
        let mut read = vec![0; bytes.len()];
        prop_assert_eq!(mr.read(at, &mut read).is_ok(), fits);
        let mut expected = vec![0xaa; 100];
        if fits {
            prop_assert_eq!(&read, &bytes);
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let aligned = (mr.memory().as_ptr() as usize + at) % 8 == 0;
        prop_assert_eq!(mr.load_u64(at).is_ok(), aligned && at + 8 <= 100);
        prop_assert_eq!(mr.u64_at(at).is_ok(), aligned && at + 8 <= 100);
        prop_assert!(mr.read(usize::MAX - at, &mut read[..bytes.len().min(1)]).is_err() || bytes.is_empty());
        prop_assert_eq!(mr.into_buffer().unwrap(), expected);
        prop_assert_eq!(hca().live().mrs, 0);
    }

    #[test]
    fn guids_and_mtus_read_back(guid: u64, bytes: u32, text in ".{0,24}") {
        prop_assert_eq!(Guid(guid).to_string().parse::<Guid>().unwrap(), Guid(guid));
        _ = text.parse::<Guid>();
        if let Some(mtu) = Mtu::from_bytes(bytes) {
            prop_assert_eq!(mtu.bytes(), bytes);
        }
    }
}
