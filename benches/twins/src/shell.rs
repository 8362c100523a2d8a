//! Making functions that a profiler and a disassembler find: `shells!`.
//!
//! # Safety
//!
//! The assembly does nothing.

#![expect(unsafe_code, reason = "the Safety section above")]
#![expect(clippy::pointers_in_nomem_asm_block, reason = "the assembly follows none")]

use std::arch::asm;

/// A value that fits a register.
pub trait Register {
    /// The same, of which the compiler knows nothing. (`black_box` would go through memory.)
    fn opaque(self) -> Self;
}

macro_rules! register {
    ($([$($generic:tt)*] $type:ty, $value:ident => $to:expr, $from:expr;)*) => {$(
        impl<$($generic)*> Register for $type {
            #[inline(always)]
            fn opaque(self) -> Self {
                let $value = self;
                let mut $value = $to;
                // SAFETY: nothing happens.
                unsafe { asm!("/* {} */", inout(reg) $value, options(nomem, nostack, preserves_flags)) };
                $from
            }
        }
    )*};
}

register! {
    ['a, T] &'a T, value => std::ptr::from_ref(value), {
        // SAFETY: it is what it was.
        unsafe { &*value }
    };
    ['a, T] &'a mut T, value => std::ptr::from_mut(value), {
        // SAFETY: it is what it was.
        unsafe { &mut *value }
    };
    [] u64, value => value, value;
    [] u32, value => u64::from(value), value as u32;
    [] usize, value => value, value;
}

/// Functions with their own names, which are never inlined. Each does its operation so many times, as its last argument
/// says, on arguments that are unknown each time.
///
/// `|id| operation` may use `?`, and the function returns whether all succeeded; `|id| -> Error operation` names the
/// error, if it is not [`PostError`](ibv::PostError). `|| poll` gives completions, and the function returns the sum of
/// their ids, if all are of success, or -1; `|_id| { poll }` gives that sum itself, as an `Option`.
///
/// # Safety
///
/// No name is defined twice in a program.
#[macro_export]
macro_rules! shells {
    ($(fn $name:ident<'a>($($argument:ident: $type:ty),* $(,)?) -> $result:tt { $($body:tt)* })*) => {$(
        // SAFETY: the only function of this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) fn $name<'a>($(mut $argument: $type),*, operations: u64) -> $result {
            $crate::shells!(@ $result, operations, [$($argument),*], $($body)*)
        }
    )*};
    (@ bool, $operations:ident, $arguments:tt, |$id:ident| -> $error:ty $operation:block) => {
        $crate::shells!(@ each, $error, $operations, $arguments, $id, $operation)
    };
    (@ bool, $operations:ident, $arguments:tt, |$id:ident| $operation:expr) => {
        $crate::shells!(@ each, ::ibv::PostError, $operations, $arguments, $id, $operation)
    };
    (@ each, $error:ty, $operations:ident, [$($argument:ident),*], $id:ident, $operation:expr) => {{
        for $id in 0..$operations {
            $($argument = $crate::shell::Register::opaque($argument);)*
            // an error is dropped where there is one
            if let Err(_error) = (|| -> Result<(), $error> { $operation })() {
                return false;
            }
        }
        true
    }};
    (@ u64, $operations:ident, [$($argument:ident),*], |_id| $operation:block) => {{
        let mut sum = 0u64;
        for _ in 0..$operations {
            $($argument = $crate::shell::Register::opaque($argument);)*
            let Some(ids) = (|| -> Option<u64> { $operation })() else { return u64::MAX };
            sum = sum.wrapping_add(ids);
        }
        sum
    }};
    (@ u64, $operations:ident, [$($argument:ident),*], || $operation:expr) => {{
        let mut sum = 0u64;
        for _ in 0..$operations {
            $($argument = $crate::shell::Register::opaque($argument);)*
            let Ok(done) = $operation else { return u64::MAX };
            for wc in done {
                match wc.result() {
                    Ok(_) => sum = sum.wrapping_add(wc.id()),
                    Err(_) => return u64::MAX,
                }
            }
        }
        sum
    }};
}
