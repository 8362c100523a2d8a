//! The methods of [`Hca`] for C programs: declared in `softhca.h`, found at run time by `dlsym` or linked.
//!
//! # Safety
//!
//! Integers, addresses that are only compared, and room for answers, of which the caller says how many bytes it has.
#![expect(unsafe_code, reason = "exported C functions")]

use crate::bits::Syndrome;
use crate::hca::Hca;
use crate::model;
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

/// Does it, if the arguments are `right` and the device runs.
fn done(right: bool, act: impl FnOnce(Hca)) -> c_int {
    if !right {
        return libc::EINVAL;
    }
    match Hca::running() {
        None => libc::ENODEV,
        Some(hca) => {
            act(hca);
            0
        }
    }
}

/// Writes as much of `from` as the caller has room for.
///
/// # Safety
/// `to` leads to `size` bytes, or is null.
unsafe fn give<T>(to: *mut c_void, size: usize, from: &[T]) {
    if !to.is_null() {
        // SAFETY: within both, by the caller's word and by the size of the slice.
        unsafe { to.cast::<u8>().copy_from(from.as_ptr().cast(), size.min(size_of_val(from))) };
    }
}

/// One pass of the device; 1 if anything was done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_step() -> c_int {
    Hca::running().map_or(0, |hca| c_int::from(hca.step()))
}

/// Steps until nothing is left to do.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_run_until_idle() -> u64 {
    Hca::running().map_or(0, |hca| hca.run_until_idle() as u64)
}

/// The device's time.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_now() -> u64 {
    Hca::running().map_or(0, |hca| u64::try_from(hca.now().as_nanos()).unwrap_or(u64::MAX))
}

/// Moves virtual time on.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_advance(ns: u64) -> c_int {
    done(true, |hca| hca.advance(Duration::from_nanos(ns)))
}

/// Counters.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softhca_stats(out: *mut c_void, size: usize) -> c_int {
    done(!out.is_null(), |hca| {
        let s = hca.stats();
        let all = [
            s.doorbells,
            s.wqes,
            s.cqes,
            s.error_cqes,
            s.rnr_naks,
            s.retries,
            s.completion_events,
            s.async_events,
            s.checked_stores,
            s.checked_records,
            s.faults,
        ];
        // SAFETY: the caller's room.
        unsafe { give(out, size, &all) };
    })
}

/// The objects that exist.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softhca_objects(out: *mut c_void, size: usize) -> c_int {
    done(!out.is_null(), |hca| {
        let o = hca.objects();
        let all = [o.contexts, o.pds, o.regions, o.windows, o.cqs, o.qps, o.srqs].map(|n| n as u64);
        // SAFETY: the caller's room.
        unsafe { give(out, size, &all) };
    })
}

/// How many rules were broken since the last call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_take_violations() -> u64 {
    crate::check::take().0
}

/// The same, with texts.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn softhca_take_violation_texts(out: *mut c_char, size: usize) -> u64 {
    let (n, texts) = crate::check::take();
    if let Some(room) = size.checked_sub(1).filter(|_| !out.is_null()) {
        let mut lines = texts.join("\n").into_bytes();
        lines.truncate(room);
        lines.push(0);
        // SAFETY: the caller's room.
        unsafe { give(out.cast(), size, &lines) };
    }
    n
}

/// The CPU owns this memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_cpu_owns(addr: *const c_void, len: usize) -> c_int {
    done(!addr.is_null() && len > 0, |hca| hca.cpu_owns(addr.addr(), len))
}

/// It doesn't any more.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_cpu_releases(addr: *const c_void) -> c_int {
    done(!addr.is_null(), |hca| hca.cpu_releases(addr.addr()))
}

/// The `nth` message is lost.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_drop_message(nth: u64) -> c_int {
    done(nth > 0, |hca| hca.drop_message(nth))
}

/// The answer to the `nth` message is lost.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_drop_answer(nth: u64) -> c_int {
    done(nth > 0, |hca| hca.drop_answer(nth))
}

/// The `nth` message is late.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_delay_message(nth: u64, ns: u64) -> c_int {
    done(nth > 0, |hca| hca.delay_message(nth, Duration::from_nanos(ns)))
}

/// The `nth` message has a wrong bit.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_corrupt_message(nth: u64) -> c_int {
    done(nth > 0, |hca| hca.corrupt_message(nth))
}

/// Messages are lost.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_lose_messages(ppm: u32, seed: u64) -> c_int {
    done(ppm <= 1_000_000, |hca| hca.lose_messages(ppm, seed))
}

/// Each message takes so long.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_slow_down(ns: u64) -> c_int {
    done(true, |hca| hca.slow_down(Duration::from_nanos(ns)))
}

/// The `nth` control call fails.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_fail_verb(nth: u64, error: c_int) -> c_int {
    done(nth > 0 && error > 0, |hca| hca.fail_verb(nth, error))
}

/// The next successful send completion is an error.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_fail_next_completion(status: c_int) -> c_int {
    /// By their `ibv_wc_status`.
    const SYNDROMES: [(c_int, Syndrome); 13] = [
        (1, Syndrome::LocalLength),
        (2, Syndrome::LocalQpOp),
        (4, Syndrome::LocalProtection),
        (5, Syndrome::Flushed),
        (6, Syndrome::MwBind),
        (7, Syndrome::BadResponse),
        (8, Syndrome::LocalAccess),
        (9, Syndrome::RemoteInvalidRequest),
        (10, Syndrome::RemoteAccess),
        (11, Syndrome::RemoteOperation),
        (12, Syndrome::RetryExceeded),
        (13, Syndrome::RnrRetryExceeded),
        (16, Syndrome::RemoteAborted),
    ];
    let syndrome = SYNDROMES.iter().find(|(s, _)| *s == status).map(|(_, s)| *s);
    done(syndrome.is_some(), |hca| {
        if let Some(s) = syndrome {
            hca.fail_next_completion(s);
        }
    })
}

/// The next completion of a CQ overruns it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_overrun_cq(cqn: u32) -> c_int {
    let known = model::with(|m| m.cqs.get(cqn).is_some()).unwrap_or(true);
    done(known, |hca| hca.overrun_cq(cqn))
}

/// A queue pair fails.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_fail_qp(qp_num: u32) -> c_int {
    let known = model::with(|m| m.qps.get(qp_num).is_some()).unwrap_or(true);
    done(known, |hca| hca.fail_qp(qp_num))
}

/// A port goes down or up.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_set_link(dev: c_int, up: c_int) -> c_int {
    let devices = model::with(|m| m.devices.len());
    let dev = usize::try_from(dev).ok().filter(|d| devices.is_none_or(|n| *d < n));
    done(dev.is_some() && matches!(up, 0 | 1), |hca| {
        if let Some(dev) = dev {
            hca.set_link(dev, up == 1);
        }
    })
}

#[cfg(test)]
mod tests {
    /// The names in `text` that follow `before`.
    fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
        text.split(before).skip(1).filter_map(|t| t.split_once('(').map(|(name, _)| name)).collect()
    }

    #[test]
    fn c_has_what_rust_has() {
        let header = include_str!("../include/softhca.h");
        let declared = |name: &str| header.contains(&format!(" softhca_{name}("));
        // The environment has a file for the log, and starts the device.
        let rust = names(include_str!("hca.rs"), "    pub fn ");
        let missing: Vec<_> =
            rust.iter().filter(|n| !matches!(**n, "start" | "take_log") && !declared(n)).collect();
        assert_eq!(missing, [&""; 0]);
        let here = names(include_str!("capi.rs"), "extern \"C\" fn softhca_");
        assert!(rust.len() > 15 && here.len() >= rust.len() - 2, "{rust:?} {here:?}");
        assert!(here.iter().all(|n| declared(n)), "{here:?}");
        assert_eq!(
            header.matches(" softhca_").count() - header.matches("struct softhca_").count(),
            here.len()
        );
    }
}
