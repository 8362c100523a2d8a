//! How many fences the direct path executes: counted, instruction by instruction.
//!
//! The thread runs with the processor's trap flag set, so that a signal comes after each instruction; the handler looks
//! at the next one. (x86-64)
#![expect(unsafe_code, reason = "handles a signal, and sets a flag of the processor's")]

use crate::suite::rig::Rig;
use ibv::mlx5::Poller;
use ibv::{Inline, Rc, recv, write};
use std::sync::atomic::{AtomicU32, Ordering};

static SFENCES: AtomicU32 = AtomicU32::new(0);
static OTHERS: AtomicU32 = AtomicU32::new(0);
static LOCKED: AtomicU32 = AtomicU32::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn look(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives the handler the context of the signal.
    let next = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    // SAFETY: a byte of the instruction to come, which has as many as its first ones say.
    let byte = |at| unsafe { std::ptr::with_exposed_provenance::<u8>(next as usize + at).read() };
    let counter = match byte(0) {
        0x0f if byte(1) == 0xae => match byte(2) {
            0xf8 => &SFENCES,
            // lfence, mfence
            0xe8 | 0xf0 => &OTHERS,
            _ => &STEPS,
        },
        0xf0 => &LOCKED,
        _ => &STEPS,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// (sfences, other fences, locked instructions) that `f` executes.
fn count(f: impl FnOnce()) -> (u32, u32, u32) {
    // SAFETY: zeros are an action; the handler does no more than a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = look as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    [&SFENCES, &OTHERS, &LOCKED, &STEPS].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    // SAFETY: sets a flag that the processor has for this, whose signal is handled from now on.
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    f();
    // SAFETY: clears it.
    unsafe { std::arch::asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
    assert!(STEPS.load(Ordering::Relaxed) > 10, "it steps");
    let [sfences, others, locked] =
        [&SFENCES, &OTHERS, &LOCKED].map(|counter| counter.load(Ordering::Relaxed));
    (sfences, others, locked)
}

#[test]
fn one_store_fence_for_a_copy_two_for_a_doorbell_no_load_fence_no_lock() {
    let rig = Rig::new();
    let mr = rig.region(8192);
    let cq = rig.direct(1024);
    let mut poller = Poller::new(&cq).unwrap();
    let mut qp = rig.to_itself(rig.direct_qp::<Rc>(&cq, &cq));
    let (data, to) = (mr.slice(..64).unwrap().detach(), mr.remote_region().slice(4096..).unwrap());
    let request = write(data, to).signaled();
    // the poller meets the queues once
    qp.post(request).unwrap();
    rig.hca.run_until_idle();
    assert!(poller.poll().is_some());
    assert_eq!(count(|| qp.post(request).unwrap()), (1, 0, 0), "BlueFlame");
    assert_eq!(
        count(|| qp.post(write(Inline(&[1; 8]), to).signaled()).unwrap()),
        (1, 0, 0),
        "BlueFlame, inline"
    );
    assert_eq!(
        count(|| qp.post(write(Inline(&[1; 100]), to).signaled()).unwrap()),
        (1, 0, 0),
        "several blocks"
    );
    assert_eq!(count(|| qp.post_list(&[request; 3]).unwrap()), (2, 0, 0), "a doorbell");
    assert_eq!(count(|| qp.post_recv(recv(data)).unwrap()), (0, 0, 0), "a receive");
    rig.hca.run_until_idle();
    for _ in 0..6 {
        assert_eq!(count(|| assert!(poller.poll().is_some())), (0, 0, 0), "a completion");
    }
    assert_eq!(count(|| assert!(poller.poll().is_none())), (0, 0, 0), "none");
}
