//! The direct path on a device that is not libmlx5's.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::CompletionQueue;
use nullhca::hca;
use support_null::*;

#[test]
fn a_device_of_another_driver_is_refused_by_name() {
    for ctx in [open(), open_other()] {
        let queue = || CompletionQueue::builder(&ctx, 64);
        let before = hca().calls().len();
        for refused in [
            queue().build_direct(),
            queue().wide().build_direct(),
            queue().compressed().build_direct(),
            queue().overcommit().build_direct(),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
            let text = error.to_string();
            for said in [ctx.device_name(), "mlx5 devices alone", "`Basic`"] {
                assert!(text.contains(said), "{text}");
            }
        }
        assert_eq!(hca().calls().len(), before, "nothing was made");
        // and this is what the message is about
        queue().build().unwrap();
    }
}
