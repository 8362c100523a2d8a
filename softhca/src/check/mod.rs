//! Checks on what the application's driver does: rules that hardware relies on and doesn't report.

pub(crate) mod owner;
mod shared;
mod slots;
mod store;
pub(crate) mod trap;
mod watch;

use crate::leaked::Leaked;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Violations kept as text; more are only counted.
const KEPT: usize = 100;

static FOUND: Leaked<Mutex<(u64, Vec<String>)>> = Leaked::new();

fn found() -> MutexGuard<'static, (u64, Vec<String>)> {
    FOUND.get_or(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a forked child: a thread of the parent may hold the lock.
pub(crate) fn forget() {
    FOUND.forget();
}

/// Violations are told at once: under `LD_PRELOAD`, where nobody asks for them.
static LOUD: AtomicBool = AtomicBool::new(false);

pub(crate) fn be_loud() {
    LOUD.store(true, Ordering::Relaxed);
}

/// Notes a violation.
pub(crate) fn report(text: String) {
    note(1, text);
}

/// Notes `count` violations, of which `text` is all that is known.
fn note(count: u64, text: String) {
    if LOUD.load(Ordering::Relaxed) {
        crate::log::tell(&format!(": VIOLATION: {text}"));
    }
    let mut f = found();
    f.0 += count;
    if f.1.len() < KEPT {
        f.1.push(text);
    }
}

/// How many violations there were, and the first of them. Starts anew.
pub(crate) fn take() -> (u64, Vec<String>) {
    trap::collect();
    std::mem::take(&mut *found())
}
