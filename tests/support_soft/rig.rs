//! The rig of the device tests, on a software HCA that this program makes: `crate::MODE` says who runs it, and
//! `crate::LINK` how its port is addressed.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

#[path = "../support/rig.rs"]
mod shared;

pub(crate) use shared::*;

use std::process::Command;

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
        // the same tests run in one mode on what stands in for them
        trusts_wr: crate::MODE != Mode::Manual,
        objects,
        show_to,
    });
    hca
}

/// Whether the test makes the device work, in virtual time.
pub(crate) fn is_stepped() -> bool {
    matches!(crate::MODE, Mode::Manual | Mode::Trap)
}

fn objects() -> String {
    let o = hca().objects();
    let counts = [
        ("ctx", o.contexts),
        ("pd", o.pds),
        ("mr", o.regions),
        ("mw", o.windows),
        ("cq", o.cqs),
        ("qp", o.qps),
        ("srq", o.srqs),
    ];
    counts.iter().map(|(kind, n)| format!("{kind} {n} ")).collect()
}

/// Another process has a device of its own, which looks the same.
fn show_to(command: &mut Command) {
    let library = std::env::current_exe().unwrap().with_file_name("libsofthca.so");
    let link = if crate::LINK == Link::RoCE { "roce" } else { "ib" };
    command.env("LD_PRELOAD", library).env("SOFTHCA_LINK", link).env("SOFTHCA_FABRIC", "none");
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
