//! The processor's clock, which perftest reads too, and the time that a process computes.
//!
//! # Safety
//!
//! The clock is read by an instruction without any effect; the system call fills a struct that is ours.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::time::{Duration, Instant};

/// Whether [`ticks`] is what perftest calls cycles.
pub(crate) const IS_PERFTESTS: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// The clock.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks;
        // SAFETY: it reads a register that Linux lets programs read.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// How fast the clock runs, measured.
pub fn ticks_per_microsecond() -> f64 {
    let (start, from) = (Instant::now(), ticks());
    while start.elapsed() < Duration::from_millis(100) {
        std::hint::spin_loop();
    }
    // the two are read one after the other, both times
    let (took, to) = (start.elapsed(), ticks());
    to.wrapping_sub(from) as f64 / (took.as_secs_f64() * 1e6)
}

/// `clock_gettime(CLOCK_PROCESS_CPUTIME_ID)`: what all threads of this process have computed so far.
pub(crate) fn computed() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
