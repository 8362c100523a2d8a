//! The rig of the device tests, on a software HCA that this program makes: `crate::MODE` says who runs it, and
//! `crate::LINK` how its port is addressed.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

#[path = "../support/rig.rs"]
mod shared;

pub(crate) use shared::*;

use softhca::{Config, Hca, Link, Mode};

/// RoCE v2, with an IPv4 address.
const GID_INDEX: u32 = 3;

/// The device, started if it was not.
pub(crate) fn hca() -> Hca {
    let hca = Hca::start(Config::new().mode(crate::MODE).devices(1, crate::LINK)).unwrap();
    MADE.get_or_init(|| Made {
        name: "mlx5_0",
        gid_index: (crate::LINK == Link::RoCE).then_some(GID_INDEX),
        work: is_stepped().then_some(step),
    });
    hca
}

/// Whether the test makes the device work, in virtual time.
pub(crate) fn is_stepped() -> bool {
    matches!(crate::MODE, Mode::Manual | Mode::Trap)
}

fn step() {
    hca().run_until_idle();
}

/// [`shared::scenario`], in which the device must not have seen a rule broken.
pub(crate) fn scenario(run: impl FnOnce(&Rig)) {
    hca();
    shared::scenario(|rig| expect_no_violation(|| run(rig)));
}

/// [`shared::checked`], in which the device must not have seen a rule broken.
pub(crate) fn checked(run: impl FnOnce()) {
    hca();
    shared::checked(|| expect_no_violation(run));
}

fn expect_no_violation(run: impl FnOnce()) {
    hca().take_violations();
    run();
    let (count, texts) = hca().take_violations();
    assert_eq!(count, 0, "violations: {texts:?}");
}
