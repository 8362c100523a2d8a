//! How many fences the direct path executes: counted, instruction by instruction.
//!
//! The thread runs with the processor's trap flag set, so that a signal comes after each instruction; the handler looks
//! at the next one. (x86-64)

use super::rig::Rig;
use ibv::mlx5::Poller;
use ibv::{Inline, Rc, recv, write};
use std::sync::atomic::{AtomicU32, Ordering};

static SFENCES: AtomicU32 = AtomicU32::new(0);
static OTHERS: AtomicU32 = AtomicU32::new(0);
static LOCKED: AtomicU32 = AtomicU32::new(0);
static STEPS: AtomicU32 = AtomicU32::new(0);

extern "C" fn look(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // the context of the signal that is being handled; the instruction to come is in memory that can be read
    let code = unsafe {
        let context = context.cast::<libc::ucontext_t>();
        let at = (*context).uc_mcontext.gregs[libc::REG_RIP as usize];
        std::ptr::with_exposed_provenance::<[u8; 3]>(at as usize).read()
    };
    let counter = match code {
        [0x0f, 0xae, 0xf8] => &SFENCES,
        // lfence, mfence
        [0x0f, 0xae, 0xe8 | 0xf0] => &OTHERS,
        [0xf0, ..] => &LOCKED,
        _ => &STEPS,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// (sfences, other fences, locked instructions) that `f` executes.
fn count(f: impl FnOnce()) -> (u32, u32, u32) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = look as extern "C" fn(_, _, _) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
    }
    [&SFENCES, &OTHERS, &LOCKED, &STEPS].iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    unsafe { std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    f();
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
    let qp = rig.direct_qp::<Rc>(&cq, &cq);
    let number = qp.qp_num();
    let mut qp = rig.up(qp, number);
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
