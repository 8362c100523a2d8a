//! Checks on what the application's driver does: rules that hardware relies on and doesn't report.

pub(crate) mod owner;
pub(crate) mod trap;

use std::sync::{Mutex, PoisonError};

/// Violations kept as text; more are only counted.
const KEPT: usize = 100;

static FOUND: Mutex<(u64, Vec<String>)> = Mutex::new((0, Vec::new()));

/// Notes a violation.
pub(crate) fn report(text: String) {
    let mut f = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    f.0 += 1;
    if f.1.len() < KEPT {
        f.1.push(text);
    }
}

/// How many violations there were, and the first of them. Starts anew.
pub(crate) fn take() -> (u64, Vec<String>) {
    trap::collect();
    std::mem::take(&mut *FOUND.lock().unwrap_or_else(PoisonError::into_inner))
}
