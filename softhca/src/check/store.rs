//! How wide a store is: from the bytes of the x86-64 instruction that made it.

/// How many bytes the store instruction `code` writes; 0 if it is none that is known. Takes no more of `code` than
/// the instruction's own bytes: those behind it may not be there.
pub(super) fn store_width(code: impl IntoIterator<Item = u8>) -> u32 {
    let mut b = code.into_iter();
    let (mut operand16, mut rep, mut wide) = (false, 0, false);
    let mut op = b.next().unwrap_or(0);
    loop {
        match op {
            0x66 => operand16 = true,
            0xf2 | 0xf3 => rep = op,
            0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x67 | 0xf0 => {}
            _ => break,
        }
        op = b.next().unwrap_or(0);
    }
    if op & 0xf0 == 0x40 {
        wide = op & 8 != 0;
        op = b.next().unwrap_or(0);
    }
    let integer = if wide {
        8
    } else if operand16 {
        2
    } else {
        4
    };
    match op {
        0x88 | 0xc6 | 0xa4 | 0xaa | 0x86 => 1,
        0x89 | 0xc7 | 0xa5 | 0xab | 0x87 => integer,
        0xc5 => vex(b.next().unwrap_or(0), b.next().unwrap_or(0)),
        0xc4 => {
            b.next();
            let p = b.next().unwrap_or(0);
            if b.next().unwrap_or(0) == 0x7e && p & 0x80 != 0 { 8 } else { vex(p, 0) }
        }
        0x62 => match b.nth(2).unwrap_or(0) >> 5 & 3 {
            0 => 16,
            1 => 32,
            _ => 64,
        },
        0x0f => match (b.next().unwrap_or(0), rep, operand16) {
            (0xc3, ..) => integer,
            (0x11, 0xf2, _) | (0x13 | 0x17 | 0xd6, ..) => 8,
            (0x11, 0xf3, _) => 4,
            (0x7e, _, true) => integer.max(4),
            (0x7f | 0xe7, _, false) => 8,
            (0x11 | 0x29 | 0x2b | 0x7f | 0xe7, ..) => 16,
            (0x38, ..) if b.next() == Some(0xf8) => 64,
            (0xc7 | 0xb1 | 0xc1, ..) => integer,
            _ => 0,
        },
        _ => 0,
    }
}

fn vex(p: u8, op: u8) -> u32 {
    match (op, p & 3) {
        (0x11, 3) | (0xd6, _) | (0x13 | 0x17, _) => 8,
        (0x11, 2) | (0x7e, _) => 4,
        _ if p & 4 != 0 => 32,
        _ => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_of_common_stores() {
        let cases: [(&[u8], u32); 12] = [
            (&[0x48, 0x89, 0x07], 8),                    // mov [rdi], rax
            (&[0x89, 0x07], 4),                          // mov [rdi], eax
            (&[0x66, 0x89, 0x07], 2),                    // mov [rdi], ax
            (&[0x88, 0x07], 1),                          // mov [rdi], al
            (&[0x4c, 0x0f, 0xc3, 0x07], 8),              // movnti [rdi], r8
            (&[0x0f, 0x11, 0x07], 16),                   // movups [rdi], xmm0
            (&[0x66, 0x0f, 0xe7, 0x07], 16),             // movntdq [rdi], xmm0
            (&[0x66, 0x0f, 0xd6, 0x07], 8),              // movq [rdi], xmm0
            (&[0xf2, 0x0f, 0x11, 0x07], 8),              // movsd [rdi], xmm0
            (&[0xc5, 0xfe, 0x7f, 0x07], 32),             // vmovdqu [rdi], ymm0
            (&[0x62, 0xf1, 0xfe, 0x48, 0x7f, 0x07], 64), // vmovdqu64 [rdi], zmm0
            (&[0xf4], 0),                                // hlt
        ];
        for (code, width) in cases {
            let end = std::iter::from_fn(|| panic!("{code:x?}: read past its end"));
            assert_eq!(store_width(code.iter().copied().chain(end)), width, "{code:x?}");
        }
    }
}
