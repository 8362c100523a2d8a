//! To be preloaded where two processes poll on one processor: who finds a completion queue empty hands the processor
//! over (`sched_yield`). Else it is kept until the scheduler's next tick, and ticks are all that is measured.
//!
//! So does who finds that a WRITE is done: the next that programs that answer each other's WRITEs do is to wait at
//! their memory, for what the peer only now comes to. Those looks at memory can't be seen here.
//!
//! This takes the place of `ibv_open_device`, and the provider's `poll_cq` in each context: so it is the same for ours
//! and for C's programs.
//!
//! # Safety
//!
//! What is called is what would have been called without it, with the same arguments.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::c_int;
use std::sync::OnceLock;

use ibv_sys as sys;

type Open = unsafe extern "C" fn(*mut sys::ibv_device) -> *mut sys::ibv_context;
type Poll = unsafe extern "C" fn(*mut sys::ibv_cq, c_int, *mut sys::ibv_wc) -> c_int;

/// The provider's: that of the first context. A process of a benchmark has one.
static POLL: OnceLock<Poll> = OnceLock::new();

/// `ibv_open_device` of libibverbs.
///
/// # Safety
///
/// As that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    // SAFETY: a name with its terminator, which the next library defines with this signature; or null, which is `None`.
    let next = unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"ibv_open_device".as_ptr());
        std::mem::transmute::<*mut std::ffi::c_void, Option<Open>>(next)
    };
    let Some(open) = next else { return std::ptr::null_mut() };
    // SAFETY: passed on.
    let ctx = unsafe { open(device) };
    // SAFETY: null, or new and nobody else's yet.
    if let Some(ctx) = unsafe { ctx.as_mut() }
        && let Some(poll) = ctx.ops.poll_cq
        && *POLL.get_or_init(|| poll) as usize == poll as usize
    {
        ctx.ops.poll_cq = Some(poll_or_hand_over);
    }
    ctx
}

unsafe extern "C" fn poll_or_hand_over(cq: *mut sys::ibv_cq, room: c_int, wcs: *mut sys::ibv_wc) -> c_int {
    let Some(poll) = POLL.get() else { return -1 };
    // SAFETY: passed on, to the provider of the queue's context.
    let found = unsafe { poll(cq, room, wcs) };
    // SAFETY: as many as were found are filled, by librxe as a whole.
    let first = if found > 0 { unsafe { wcs.as_ref() } } else { None };
    if is_peers_turn(found, first) {
        // SAFETY: no precondition.
        unsafe { libc::sched_yield() };
    }
    found
}

/// Whether the program that found so many completions, and this one first, waits for its peer now.
fn is_peers_turn(found: c_int, first: Option<&sys::ibv_wc>) -> bool {
    found == 0 || first.is_some_and(|wc| wc.opcode == sys::IBV_WC_RDMA_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_completion_or_has_written_hands_over() {
        // SAFETY: numbers, and a union of them.
        let mut wc: sys::ibv_wc = unsafe { std::mem::zeroed() };
        let mut of = |opcode| {
            wc.opcode = opcode;
            is_peers_turn(1, Some(&wc))
        };
        assert!(of(sys::IBV_WC_RDMA_WRITE));
        assert!(![sys::IBV_WC_SEND, sys::IBV_WC_RECV, sys::IBV_WC_RDMA_READ].map(of).contains(&true));
        assert_eq!([0, -1].map(|found| is_peers_turn(found, None)), [true, false]);
    }
}
