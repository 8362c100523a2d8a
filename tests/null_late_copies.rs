//! Providers that copy what was received when its completion is polled. One test in a program of its own: the
//! environment is the whole process's.
#![expect(unsafe_code, reason = "the unsafe call is tried, and the environment changed")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::{Context, Error, Rc};
use nullhca::hca;
use support_null::open;

const SWITCH: &str = "MLX5_SCATTER_TO_CQE";

/// Makes a queue pair of either backend; with the unsafe call, or without.
fn make(ctx: &Context, unsafely: bool) -> Result<(), Error> {
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(256)?;
    let builder = || {
        let builder = pd.create_qp::<Rc>(&cq, &cq);
        // SAFETY: nothing is posted.
        if unsafely { unsafe { builder.allow_late_copies() } } else { builder }
    };
    let basic = builder().build().map(drop);
    let extended = builder().extended().build().map(drop);
    assert_eq!(basic.is_ok(), extended.is_ok());
    basic
}

fn of_model(vendor_id: u32, vendor_part_id: u32) -> Context {
    hca().configure(|config| {
        (config.device.vendor_id, config.device.vendor_part_id) = (vendor_id, vendor_part_id);
    });
    open()
}

/// Refused, in words that hold all of `said`; but not if asked for by the unsafe call.
fn refused(ctx: &Context, said: &[&str]) {
    let before = hca().count("ibv_create_qp");
    let error = make(ctx, false).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
    let text = error.to_string();
    for said in said.iter().chain(&[ctx.device_name(), "allow_late_copies"]) {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert_eq!(hca().count("ibv_create_qp"), before, "nothing was made");
    make(ctx, true).unwrap();
}

#[test]
fn queue_pairs_that_copy_late_are_made_only_by_an_unsafe_call() {
    // libhns always copies
    refused(&of_model(0x19e5, 0xa222), &["libhns"]);
    // libmlx5 copies if it is not told otherwise, which only the libmlx5 that drives the device can be (with the
    // feature `mlx5` this program is linked with one that does not); older Mellanox devices are other libraries'
    for part in [0x1003, 0x6750, 0x5a44] {
        make(&of_model(0x02c9, part), false).unwrap();
    }
    for part in [0x1011, 0x101d, 0xa2d6] {
        let ctx = of_model(0x02c9, part);
        let advice = ["libmlx5.so.1", "MLX5_SCATTER_TO_CQE=0"];
        refused(&ctx, &advice);
        for (value, off) in [("1", false), ("", false), ("0", true), ("00", false)] {
            // SAFETY: this process has no other thread that looks at the environment.
            unsafe { std::env::set_var(SWITCH, value) };
            if off { make(&ctx, false).unwrap() } else { refused(&ctx, &advice) }
        }
        // SAFETY: as above.
        unsafe { std::env::remove_var(SWITCH) };
    }
}
