//! A few functions for C programs: declared in `softhca.h`, found at run time by `dlsym` or linked.
//!
//! # Safety
//!
//! The functions take integers only and touch nothing of the caller's.
#![expect(unsafe_code, reason = "exported C functions")]

use crate::model::{self, Model};
use std::ffi::{c_int, c_ulonglong};

/// One pass of the device; 1 if anything was done.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_step() -> c_int {
    c_int::from(crate::run::step())
}

/// Steps until nothing is left to do (in manual mode time moves on to each timer).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_run_until_idle() {
    model::with(Model::run_until_idle);
}

/// How many rules of the device the program's driver broke since the last call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_take_violations() -> c_ulonglong {
    crate::check::take().0
}

/// Takes the port of device `dev` (counted from 0) down (0) or up (1).
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_set_link(dev: c_int, up: c_int) {
    if let Ok(dev) = usize::try_from(dev) {
        model::with(|m| m.set_link(dev, up != 0));
    }
}

/// The `nth` message from now on (1: the next) is lost.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_drop_message(nth: c_ulonglong) {
    model::with(|m| m.faults.add(nth, crate::fault::Verdict::Drop));
}
