//! Signal handlers that hand on what isn't theirs.
//!
//! # Safety
//!
//! What runs in a handler uses static atomics and async-signal-safe calls only. The handler that was there before is
//! kept in leaked memory, written before ours is installed and never freed; it is called as the kernel would call it.
#![expect(unsafe_code, reason = "signal handlers")]

use libc::{c_int, c_void, siginfo_t};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// The handler that was there before.
pub(crate) struct Before(AtomicPtr<libc::sigaction>);

impl Before {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Puts `handler` in front of the one that is there.
    pub(crate) fn install(&self, signal: c_int, handler: Handler) {
        let before: *mut libc::sigaction = Box::leak(Box::new(MaybeUninit::zeroed())).as_mut_ptr();
        // SAFETY: the structure is leaked, so it stays for the handler; the handler keeps the module's rules. It
        // runs on the alternate stack, so that std's stack overflow detection still works behind it.
        unsafe {
            let mut a: libc::sigaction = std::mem::zeroed();
            a.sa_sigaction = handler as usize;
            a.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigaction(signal, std::ptr::null(), before);
            self.0.store(before, Ordering::Release);
            libc::sigaction(signal, &raw const a, std::ptr::null_mut());
        }
    }

    /// Hands a signal on to it.
    pub(crate) fn handle(&self, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let old = self.0.load(Ordering::Acquire);
        // SAFETY: set before the handler was installed (module comment).
        unsafe {
            match (*old).sa_sigaction {
                libc::SIG_IGN if was_sent(info) => {}
                libc::SIG_DFL | libc::SIG_IGN => {
                    libc::sigaction(signal, old, std::ptr::null_mut());
                    // An instruction faults again; what was sent doesn't come again by itself.
                    if was_sent(info) {
                        libc::raise(signal);
                    }
                }
                f if (*old).sa_flags & libc::SA_SIGINFO != 0 => {
                    std::mem::transmute::<usize, Handler>(f)(signal, info, context);
                }
                f => std::mem::transmute::<usize, extern "C" fn(c_int)>(f)(signal),
            }
        }
    }
}

/// Whether somebody sent the signal (`kill` and the like): no instruction of ours raised it.
pub(crate) fn was_sent(info: *mut siginfo_t) -> bool {
    // SAFETY: the kernel's siginfo of the signal being handled.
    unsafe { (*info).si_code <= 0 }
}

/// The saved register number `index` (a `REG_…` constant) of the interrupted code.
#[cfg(target_arch = "x86_64")]
pub(crate) fn register(context: *mut c_void, index: c_int) -> i64 {
    let at = usize::try_from(index).unwrap_or(0);
    // SAFETY: the third argument of an SA_SIGINFO handler is a ucontext.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs.get(at).copied().unwrap_or(0) }
}

/// Changes it: the interrupted code goes on with `value`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn set_register(context: *mut c_void, index: c_int, value: i64) {
    let at = usize::try_from(index).unwrap_or(0);
    // SAFETY: as above; the handler alone has the structure.
    unsafe {
        if let Some(r) = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs.get_mut(at) {
            *r = value;
        }
    }
}
