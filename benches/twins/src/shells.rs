//! Our side of the twins. Each is a function of its own with a plain name, so that a profiler and a disassembler find it.
//! It does so many operations, on arguments that are unknown each time.
//!
//! # Safety
//!
//! No name is defined twice. The assembly does nothing.

#![expect(unsafe_code, reason = "the Safety section above")]
#![expect(clippy::pointers_in_nomem_asm_block, reason = "the assembly follows none")]
#![expect(
    clippy::redundant_closure_call,
    reason = "a `?` in a shell's operation ends that, and not the shell"
)]

use std::arch::asm;

use ibv::{
    AddressHandle, BatchStorage, CompletionQueue, Extended, Inline, MrSlice, MrU64, PostError, Prepared,
    QueuePair, Rc, RecvStorage, RemoteSlice, RemoteU64, Ud, WorkCompletion, Write, fetch_add, recv, send,
    state::Rts, write,
};

/// A value that fits a register.
trait Register {
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

/// Makes variables opaque, in place.
macro_rules! opaque {
    ($($variable:ident),*) => {$(
        $variable = Register::opaque($variable);
    )*};
}

macro_rules! shells {
    ($(fn $name:ident<'a>($($argument:ident: $type:ty),* $(,)?) -> $result:tt { $($body:tt)* })*) => {$(
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) fn $name<'a>($(mut $argument: $type),*, operations: u64) -> $result {
            shells!(@ $result, operations, [$($argument),*], $($body)*)
        }
    )*};
    // does it so often, and says whether all succeeded
    (@ bool, $operations:ident, [$($argument:ident),*], |$id:ident| $operation:expr) => {{
        for $id in 0..$operations {
            opaque!($($argument),*);
            if (|| -> Result<(), PostError> { $operation })().is_err() {
                return false;
            }
        }
        true
    }};
    // the sum of the ids of all completions, if all are of success, or -1
    (@ u64, $operations:ident, [$($argument:ident),*], || $operation:expr) => {{
        let mut sum = 0u64;
        for _ in 0..$operations {
            opaque!($($argument),*);
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

shells! {
    fn ours_post_write<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| qp.post(write(*data, *to).id(id).signaled())
    }

    fn ours_post_send_inline<'a>(qp: &QueuePair<'a>, data: &u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        |id| qp.post(send(Inline(unsafe { std::slice::from_raw_parts(data, len) })).id(id).signaled())
    }

    fn ours_post_fetch_add<'a>(qp: &QueuePair<'a>, data: &MrU64<'a>, at: &RemoteU64, add: u64) -> bool {
        |id| qp.post(fetch_add(*data, *at, add).id(id).signaled())
    }

    fn ours_post_ud_send<'a>(
        qp: &QueuePair<'a, Ud>,
        data: &MrSlice<'a>,
        ah: &'a AddressHandle<'a>,
        qpn: u32,
        qkey: u32,
    ) -> bool {
        |id| qp.post(send(*data).to(ah, qpn, qkey).id(id).signaled())
    }

    fn ours_post_prepared<'a>(qp: &QueuePair<'a>, request: &mut Prepared<'a, Rc>) -> bool {
        |id| {
            request.set_id(id);
            qp.post_prepared(request)
        }
    }

    fn ours_write_list_16<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| {
            let mut storage = BatchStorage::<16>::new();
            let mut batch = qp.batch(&mut storage);
            for _ in 0..15 {
                batch.push(write(*data, *to).id(id))?;
            }
            batch.push(write(*data, *to).id(id).signaled())?;
            batch.submit()
        }
    }

    fn ours_write_distinct_16<'a>(
        qp: &QueuePair<'a>,
        data: &[MrSlice<'a>; 16],
        to: &[RemoteSlice; 16],
    ) -> bool {
        |id| {
            let mut storage = BatchStorage::<16>::new();
            let mut batch = qp.batch(&mut storage);
            let ([data @ .., last_data], [to @ .., last_to]) = (data, to);
            for (data, to) in data.iter().zip(to) {
                batch.push(write(*data, *to).id(id))?;
            }
            batch.push(write(*last_data, *last_to).id(id).signaled())?;
            batch.submit()
        }
    }

    fn ours_post_recv<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>) -> bool {
        |id| qp.post_recv(recv(*data).id(id))
    }

    fn ours_recv_list_16<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>) -> bool {
        |id| {
            let mut storage = RecvStorage::<16>::new();
            let mut batch = qp.recv_batch(&mut storage);
            for _ in 0..16 {
                batch.push(recv(*data).id(id))?;
            }
            batch.submit()
        }
    }

    fn ours_wr_write<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        data: &MrSlice<'a>,
        to: &RemoteSlice,
    ) -> bool {
        |id| qp.post(write(*data, *to).id(id).signaled())
    }

    fn ours_wr_write_list_16<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        requests: &[Write<MrSlice<'a>>; 16],
    ) -> bool {
        |_id| qp.post_list(requests)
    }

    fn ours_poll_1<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 1]) -> u64 {
        || cq.poll(wcs)
    }

    fn ours_poll_16<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 16]) -> u64 {
        || cq.poll(wcs)
    }

    fn ours_poll_empty<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 32]) -> u64 {
        || cq.poll(wcs)
    }
}
