//! Trap mode: each store to a doorbell register or doorbell record faults, is let through alone, and is checked
//! against what is in memory at that moment.
//!
//! Registers and records are mapped read-only. A store raises SIGSEGV; the handler opens the page, sets the trap
//! flag and returns; the processor executes the one instruction and raises SIGTRAP; that handler closes the page
//! and checks:
//!
//! - a send doorbell is one 8-byte store (or wider, by BlueFlame) of the first 8 bytes of a WQE that is in the
//!   ring, to a register of its QP's page, after the doorbell record named the index behind it;
//! - what BlueFlame copies behind it is what the ring holds;
//! - a doorbell record is set only over WQEs that are in the ring;
//! - a CQ is armed in its record before its doorbell;
//! - a receive of an SRQ is, when the device takes it, what it was when the doorbell record counted it.
//!
//! The device itself runs later (a step, or the pump): nothing but the checks happens in the handlers.
//! This sees the order in which instructions are executed, not the order in which a weakly ordered processor or a
//! write-combining buffer makes them visible.
//!
//! # Safety
//!
//! The handlers use atomics in places that stay where they are, the fault's own address, and the system calls
//! `mprotect` and `gettid` only, all async-signal-safe; no lock, no allocation, no formatting. They
//! read memory of rings and records whose queues are alive (their entries are removed before the application may
//! free them). Faults that are not at a watched page go to the handler that was there before.
#![expect(unsafe_code, reason = "signal handlers and page protection")]

use super::shared;
use super::watch::{self, Kind};
use crate::config::Mode;
use std::sync::atomic::{AtomicBool, Ordering};

static ON: AtomicBool = AtomicBool::new(false);

fn is_on() -> bool {
    ON.load(Ordering::Acquire)
}

/// Installs the handlers, if `mode` wants them.
pub(crate) fn prepare(mode: Mode) -> Result<(), String> {
    if !mode.traps() {
        return Ok(());
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Err("trap mode needs an x86-64 processor".to_owned());
    }
    handlers::install();
    ON.store(true, Ordering::Release);
    Ok(())
}

/// The application mapped a doorbell page at `addr` (read-only).
pub(crate) fn watch_page(addr: usize, ctx: u32, page: u32) {
    watch::PAGES.add(addr, ctx, page);
}

pub(crate) fn forget_page(ctx: u32, page: u32) {
    watch::PAGES.remove_where(|c, p| (c, p) == (ctx, page));
}

pub(crate) fn forget_context(ctx: u32) {
    watch::PAGES.remove_where(|c, _| c == ctx);
}

/// A doorbell record of 8 bytes at `db`.
pub(crate) fn watch_record(db: u64) {
    if is_on() && db != 0 {
        let page = usize::try_from(db).unwrap_or(0) & !4095;
        if watch::RECORDS.add(page) {
            protect(page, true);
        }
    }
}

pub(crate) fn forget_record(db: u64) {
    if is_on() && db != 0 {
        let page = usize::try_from(db).unwrap_or(0) & !4095;
        if watch::RECORDS.remove(page) {
            protect(page, false);
        }
    }
}

/// An SRQ: its record, buffer, the logarithm of its stride, and how many WQEs there are.
pub(crate) fn watch_srq(srqn: u32, db: u64, buf: u64, shift: u32, slots: u32) {
    watch_record(db);
    if is_on() {
        shared::add(srqn, db, buf, shift, slots);
    }
}

pub(crate) fn forget_srq(srqn: u32, db: u64) {
    if is_on() {
        shared::remove(srqn);
        forget_record(db);
    }
}

/// The device takes receive `number` of an SRQ from `slot`.
pub(crate) fn check_taken(srqn: u32, number: u16, slot: u16) {
    if is_on() && !shared::is_as_counted(srqn, number, slot) {
        super::report(format!(
            "SRQ {srqn}: receive {number} in WQE {slot} is not what it was when the doorbell record counted it"
        ));
    }
}

/// A QP: its record, send ring and doorbell page.
pub(crate) fn watch_qp(qpn: u32, db: u64, sq: u64, sq_count: u32, ctx: u32, page: u32) {
    if is_on() {
        watch::QUEUES.add(watch::Queue { number: qpn, db, ring: sq, blocks: sq_count, ctx, page });
    }
}

pub(crate) fn forget_qp(qpn: u32, db: u64) {
    if is_on() {
        watch::QUEUES.remove(qpn);
        forget_record(db);
    }
}

/// A QP was reset: its counters start anew.
pub(crate) fn reset_qp(qpn: u32) {
    watch::QUEUES.reset(qpn);
}

/// A CQ, for the check of its arming.
pub(crate) fn watch_cq(cqn: u32, db: u64) {
    if is_on() {
        watch::CQS.add(watch::Queue { number: cqn, db, ring: 0, blocks: 0, ctx: 0, page: 0 });
    }
}

pub(crate) fn forget_cq(cqn: u32) {
    watch::CQS.remove(cqn);
}

/// Whether a store is being executed or checked: the device leaves the registers alone meanwhile.
pub(crate) fn is_stepping() -> bool {
    watch::is_stepping()
}

/// Stores checked so far: of registers, of records.
pub(crate) fn counts() -> (u64, u64) {
    (watch::STORES.load(Ordering::Relaxed), watch::RECORD_STORES.load(Ordering::Relaxed))
}

/// Turns what the handlers found into text.
pub(crate) fn collect() {
    let more = watch::FOUND.drain(|kind, a, b, c| super::report(text(kind, a, b, c)));
    if more != 0 {
        super::note(more as u64, format!("{more} more in trap mode at once, of which nothing was kept"));
    }
    let unchecked = watch::UNCHECKED.swap(0, Ordering::AcqRel);
    if unchecked != 0 {
        crate::log::tell(&format!(
            ": {unchecked} stores passed unchecked: too many threads made one at once"
        ));
    }
}

fn text(kind: Kind, a: u64, b: u64, c: u64) -> String {
    match kind {
        Kind::UnknownQp => format!("doorbell for QP {a:#x}, which isn't there"),
        Kind::WrongRegister => format!("QP {a:#x} was rung on doorbell page {b}, but belongs to page {c}"),
        Kind::RecordNotSet => {
            format!("QP {a:#x} was rung for a WQE before index {b}, but its doorbell record says {c}")
        }
        Kind::NotTheWqe => format!("QP {a:#x}: the doorbell's value is not WQE {b} of its ring"),
        Kind::CopyDiffers => {
            format!("QP {a:#x}: BlueFlame copy of WQE {b} differs from the ring at byte {c}")
        }
        Kind::Width => format!("store of {a} bytes at offset {b:#x} of a doorbell page"),
        Kind::NoRegister => format!("store at offset {b:#x} of a doorbell page, where no register is"),
        Kind::RecordWidth => format!("store of {a} bytes to the doorbell record at {b:#x}"),
        Kind::WqeNotWritten => {
            format!("QP {a:#x}: the doorbell record was set to {b}, but WQE {c} is not in the ring")
        }
        Kind::UnknownCq => format!("CQ doorbell for CQ {a:#x}, which isn't there"),
        Kind::HalfAgain => {
            format!(
                "QP {a:#x}: WQE {b} was copied to the register at {c:#x}, as was the one before: use them in turn"
            )
        }
        Kind::NoSlot => {
            format!(
                "SRQ {a}: the doorbell record counted receive {b}, which would be in WQE {c}, of which there is none"
            )
        }
        Kind::ArmDiffers => format!("CQ {a:#x}: armed by {b:#x}, but its record says {c:#x}"),
    }
}

fn protect(page: usize, read_only: bool) {
    let prot = if read_only { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
    // SAFETY: a page of doorbell records, which the application has mapped readable and writable.
    unsafe { libc::syscall(libc::SYS_mprotect, page, 4096usize, prot) };
}

#[cfg(not(target_arch = "x86_64"))]
mod handlers {
    pub(super) fn install() {}
}

#[cfg(target_arch = "x86_64")]
mod handlers {
    use super::super::shared;
    use super::super::store::store_width;
    use super::super::watch::{self, Place};
    use super::protect;
    use crate::signal::{self, Before, was_sent};
    use libc::{c_int, c_void, siginfo_t};
    use std::sync::Once;
    use std::sync::atomic::Ordering;

    const TRAP_FLAG: i64 = 0x100;

    static BEFORE_SEGV: Before = Before::new();
    static BEFORE_TRAP: Before = Before::new();

    pub(super) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            BEFORE_TRAP.install(libc::SIGTRAP, on_trap);
            BEFORE_SEGV.install(libc::SIGSEGV, on_fault);
        });
    }

    fn set_trap_flag(context: *mut c_void, on: bool) {
        let flags = signal::register(context, libc::REG_EFL);
        let flags = if on { flags | TRAP_FLAG } else { flags & !TRAP_FLAG };
        signal::set_register(context, libc::REG_EFL, flags);
    }

    /// The bytes of the instruction that faulted, each read when it is asked for.
    fn code(context: *mut c_void) -> impl Iterator<Item = u8> {
        let ip = usize::from_ne_bytes(signal::register(context, libc::REG_RIP).to_ne_bytes());
        // SAFETY: the processor has just fetched the instruction at this address, all of it, and the decoder asks
        // for no byte behind it.
        (0..15).map(move |i| unsafe { std::ptr::with_exposed_provenance::<u8>(ip + i).read_volatile() })
    }

    fn thread() -> u32 {
        // SAFETY: no arguments.
        let id = unsafe { libc::syscall(libc::SYS_gettid) };
        u32::try_from(id).unwrap_or(0)
    }

    extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        if was_sent(info) {
            return BEFORE_SEGV.handle(signal, info, context);
        }
        // SAFETY: the kernel's siginfo of a SIGSEGV.
        let addr = unsafe { (*info).si_addr() }.addr();
        let Some(place) = watch::find(addr) else { return BEFORE_SEGV.handle(signal, info, context) };
        if watch::STEPS.is_at(thread(), addr) {
            protect(addr & !4095, false);
            set_trap_flag(context, true);
            return;
        }
        let width = store_width(code(context));
        if !watch::STEPS.begin(thread(), addr, width) {
            watch::UNCHECKED.fetch_add(1, Ordering::AcqRel);
            protect(addr & !4095, false);
            return;
        }
        protect(addr & !4095, false);
        if let Place::Register { .. } = place {
            watch::STORES.fetch_add(1, Ordering::Relaxed);
        } else {
            watch::RECORD_STORES.fetch_add(1, Ordering::Relaxed);
        }
        set_trap_flag(context, true);
    }

    extern "C" fn on_trap(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let Some((addr, width)) = watch::STEPS.get(thread()).filter(|_| !was_sent(info)) else {
            return BEFORE_TRAP.handle(signal, info, context);
        };
        set_trap_flag(context, false);
        protect(addr & !4095, true);
        match watch::find(addr) {
            Some(Place::Register { ctx, page }) => watch::check_register(addr, ctx, page, width),
            Some(Place::Record) => {
                watch::check_record(addr, width);
                shared::counted(addr);
            }
            None => {}
        }
        watch::STEPS.end(thread());
    }
}
