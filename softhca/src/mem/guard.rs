//! Accesses that fail instead of crashing.
//!
//! A program may unmap memory that it registered. Hardware goes on with the pinned pages; here the pages are gone,
//! and the access is the process's own. So each access is one instruction of the routines below, and the handler of
//! SIGSEGV and SIGBUS knows these instructions: a fault there continues at the routine's failure exit. All other
//! faults go to the handler that was there before. While nothing faults this costs nothing.
//!
//! It fails to help in a program that replaced the handler after the start. On processors other than x86-64 the
//! accesses are plain ones, and a fault ends the process.
//!
//! # Safety
//!
//! The routines touch the addresses that they are given and nothing else, in one instruction each that can fault,
//! and use no stack, so that continuing at `softhca_fault` returns to their caller with 1.
#![expect(unsafe_code, reason = "reads and writes memory by address")]

/// The memory isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::{add, copy, install, load, store, swap};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{add, copy, install, load, store, swap};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::Missing;
    use crate::signal::{self, Before};
    use libc::{c_int, c_void, siginfo_t};
    use std::sync::Once;

    std::arch::global_asm!(
        ".pushsection .text.softhca_guard,\"ax\",@progbits",
        // Other objects of this library name these; nobody else does.
        ".irp name, copy, copy_at, load, load_at, store, store_at, add, add_at, swap, swap_at, fault",
        ".globl softhca_\\name",
        ".hidden softhca_\\name",
        ".endr",
        // Copies rdx bytes from rsi to rdi.
        "softhca_copy:",
        "mov rcx, rdx",
        "softhca_copy_at:",
        "rep movsb",
        "xor eax, eax",
        "ret",
        // Loads 4 bytes from rdi to where rsi says.
        "softhca_load:",
        "softhca_load_at:",
        "mov eax, dword ptr [rdi]",
        "mov dword ptr [rsi], eax",
        "xor eax, eax",
        "ret",
        // Stores the byte sil at rdi.
        "softhca_store:",
        "softhca_store_at:",
        "mov byte ptr [rdi], sil",
        "xor eax, eax",
        "ret",
        // Adds rsi to the 8 bytes at rdi; the old value goes where rdx says.
        "softhca_add:",
        "mov rax, rsi",
        "softhca_add_at:",
        "lock xadd qword ptr [rdi], rax",
        "mov qword ptr [rdx], rax",
        "xor eax, eax",
        "ret",
        // Stores rdx in the 8 bytes at rdi if they are rsi; the old value goes where rcx says.
        "softhca_swap:",
        "mov rax, rsi",
        "softhca_swap_at:",
        "lock cmpxchg qword ptr [rdi], rdx",
        "mov qword ptr [rcx], rax",
        "xor eax, eax",
        "ret",
        "softhca_fault:",
        "mov eax, 1",
        "ret",
        ".popsection",
    );

    // SAFETY: the routines above, with their arguments in the registers of the C calling convention.
    unsafe extern "C" {
        fn softhca_copy(to: u64, from: u64, len: u64) -> u32;
        fn softhca_load(from: u64, to: *mut u32) -> u32;
        fn softhca_store(to: u64, value: u8) -> u32;
        fn softhca_add(at: u64, value: u64, old: *mut u64) -> u32;
        fn softhca_swap(at: u64, expected: u64, new: u64, old: *mut u64) -> u32;
        // Places in them, never called.
        fn softhca_copy_at();
        fn softhca_load_at();
        fn softhca_store_at();
        fn softhca_add_at();
        fn softhca_swap_at();
        fn softhca_fault();
    }

    fn result(rc: u32) -> Result<(), Missing> {
        if rc == 0 { Ok(()) } else { Err(Missing) }
    }

    pub(in super::super) fn copy(to: u64, from: u64, len: u64) -> Result<(), Missing> {
        // SAFETY: see the module; the caller answers for the addresses being the device's to use.
        result(unsafe { softhca_copy(to, from, len) })
    }

    pub(in super::super) fn load(from: u64) -> Result<u32, Missing> {
        let mut v = 0;
        // SAFETY: as above, and `v` is a local.
        result(unsafe { softhca_load(from, &raw mut v) }).map(|()| v)
    }

    pub(in super::super) fn store(to: u64, value: u8) -> Result<(), Missing> {
        // SAFETY: as above.
        result(unsafe { softhca_store(to, value) })
    }

    pub(in super::super) fn add(at: u64, value: u64) -> Result<u64, Missing> {
        let mut old = 0;
        // SAFETY: as above, and `old` is a local.
        result(unsafe { softhca_add(at, value, &raw mut old) }).map(|()| old)
    }

    pub(in super::super) fn swap(at: u64, expected: u64, new: u64) -> Result<u64, Missing> {
        let mut old = 0;
        // SAFETY: as above, and `old` is a local.
        result(unsafe { softhca_swap(at, expected, new, &raw mut old) }).map(|()| old)
    }

    static BEFORE_SEGV: Before = Before::new();
    static BEFORE_BUS: Before = Before::new();

    /// Installs the handlers, once.
    pub(in super::super) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            BEFORE_SEGV.install(libc::SIGSEGV, on_fault);
            BEFORE_BUS.install(libc::SIGBUS, on_fault);
        });
    }

    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let at = signal::register(context, libc::REG_RIP);
        let address = |f: unsafe extern "C" fn()| f as usize as i64;
        let ours = [softhca_copy_at, softhca_load_at, softhca_store_at, softhca_add_at, softhca_swap_at]
            .map(address);
        if !signal::was_sent(info) && ours.contains(&at) {
            signal::set_register(context, libc::REG_RIP, address(softhca_fault));
        } else if signal == libc::SIGSEGV {
            BEFORE_SEGV.handle(signal, info, context);
        } else {
            BEFORE_BUS.handle(signal, info, context);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod portable {
    use super::Missing;
    use std::ptr::with_exposed_provenance_mut;
    use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

    fn ptr<T>(addr: u64) -> *mut T {
        with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0))
    }

    pub(in super::super) fn install() {}

    pub(in super::super) fn copy(to: u64, from: u64, len: u64) -> Result<(), Missing> {
        for i in 0..len {
            // SAFETY: byte `i` of two stretches that the program keeps mapped.
            unsafe { ptr::<u8>(to + i).write_volatile(ptr::<u8>(from + i).read_volatile()) };
        }
        Ok(())
    }

    pub(in super::super) fn load(from: u64) -> Result<u32, Missing> {
        // SAFETY: an aligned word that the program keeps mapped, only atomically accessed here.
        Ok(unsafe { AtomicU32::from_ptr(ptr(from)) }.load(Ordering::Acquire))
    }

    pub(in super::super) fn store(to: u64, value: u8) -> Result<(), Missing> {
        // SAFETY: as above, a byte.
        unsafe { AtomicU8::from_ptr(ptr(to)) }.store(value, Ordering::Release);
        Ok(())
    }

    pub(in super::super) fn add(at: u64, value: u64) -> Result<u64, Missing> {
        // SAFETY: as above, 8 bytes.
        Ok(unsafe { AtomicU64::from_ptr(ptr(at)) }.fetch_add(value, Ordering::AcqRel))
    }

    pub(in super::super) fn swap(at: u64, expected: u64, new: u64) -> Result<u64, Missing> {
        // SAFETY: as above.
        let a = unsafe { AtomicU64::from_ptr(ptr(at)) };
        Ok(a.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|old| old))
    }
}
