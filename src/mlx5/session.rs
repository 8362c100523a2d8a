//! Compressed completions, put back into their full form. Pure: words in, words out.

use super::bits::{cqe, mini};

/// An entry, or an array of short forms, in words as they stand in memory.
pub(super) type Words = [u64; 8];

/// Places of an array of short forms, counted from the title: the entry in which those of completions `at..at + 8` are.
pub(super) const fn array_of(at: u32) -> u32 {
    if at == 0 { 1 } else { at }
}

/// How many completions `title` stands for, in a ring of `entries`. `None` if it says what no device does: one by
/// itself, or more than half of the ring, which is all that may be outstanding. Such an entry stands for itself alone.
pub(super) fn count(title: &Words, entries: u32) -> Option<u32> {
    let count = u32::from_be((title[cqe::BYTE_CNT / 8] >> 32) as u32);
    (1..=entries / 2).contains(&count).then_some(count)
}

/// Completion `number` of a session, from its short form; `owner` is the owner bit of its entry.
pub(super) const fn expand(title: &Words, number: u32, short: u64, owner: bool) -> Words {
    let [a, b, c, d, e, length, time, last] = *title;
    // the half that comes second in memory is the upper one
    let length = length & 0xffff_ffff | short & !0xffff_ffff;
    let mut tail = last.to_ne_bytes();
    if tail[7] >> 4 == cqe::REQ {
        let [high, low, opcode, ..] = short.to_ne_bytes();
        (tail[0], tail[4], tail[5]) = (opcode, high, low);
    } else {
        let [high, low] = u16::from_be_bytes([tail[4], tail[5]]).wrapping_add(number as u16).to_be_bytes();
        (tail[4], tail[5]) = (high, low);
    }
    tail[7] = tail[7] & !(cqe::FORMAT | cqe::OWNER) | owner as u8;
    [a, b, c, d, e, length, time, u64::from_ne_bytes(tail)]
}

const _: () = assert!(cqe::BYTE_CNT % 8 == 4 && cqe::LAST_WORD == 56 && mini::ARRAY == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(bytes: [u8; 64]) -> Words {
        std::array::from_fn(|i| u64::from_ne_bytes(bytes[i * 8..i * 8 + 8].try_into().unwrap()))
    }

    proptest! {
        #[test]
        fn short_forms_become_what_they_stand_for(
            body: [[u8; 32]; 2], kind in 0u8..5, n in 2u32..64, number in 0u32..64,
            index: u16, opcode: u8, len: u32, owner: bool, solicited: bool
        ) {
            let mut title = [0; 64];
            title.copy_from_slice(body.as_flattened());
            title[44..48].copy_from_slice(&n.to_be_bytes());
            title[63] = kind << 4 | cqe::COMPRESSED | u8::from(solicited) << 1 | u8::from(!owner);
            let mut want = title;
            want[44..48].copy_from_slice(&len.to_be_bytes());
            let mut short = [0; 8];
            short[4..].copy_from_slice(&len.to_be_bytes());
            short[..2].copy_from_slice(&index.to_be_bytes());
            short[2] = opcode;
            if kind == cqe::REQ {
                want[60..62].copy_from_slice(&index.to_be_bytes());
                want[56] = opcode;
            } else {
                let first = u16::from_be_bytes([title[60], title[61]]);
                want[60..62].copy_from_slice(&first.wrapping_add(number as u16).to_be_bytes());
            }
            want[63] = kind << 4 | u8::from(solicited) << 1 | u8::from(owner);
            for entries in [2, 8, 32, 64, 128, 1 << 20] {
                let known = (n <= entries / 2).then_some(n);
                prop_assert_eq!(count(&words(title), entries), known);
            }
            let mut nothing = title;
            nothing[44..48].fill(0);
            prop_assert_eq!(count(&words(nothing), 64), None);
            let short = u64::from_ne_bytes(short);
            prop_assert_eq!(expand(&words(title), number, short, owner), words(want));
        }
    }

    #[test]
    fn arrays_stand_in_the_second_ninth_and_seventeenth_entry() {
        assert_eq!([0, 8, 16].map(array_of), [1, 8, 16]);
    }
}
