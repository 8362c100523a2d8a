//! Switches of the environment that change what libmlx5 makes. One test in a program of its own: the environment is the
//! whole process's.
#![expect(unsafe_code, reason = "changes the environment")]
#![allow(clippy::unwrap_used, reason = "a test")]

use ibv::{CompletionQueue, Context, Error, QueuePairBuilder, Rc, SharedReceiveQueue};
use softhca::{Config, Hca, Mode};

#[test]
fn signed_queues_are_refused_as_libmlx5_makes_them() {
    let _hca = Hca::start(Config::new().mode(Mode::Manual)).unwrap();
    let ctx = Context::open("mlx5_0").unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let cq = CompletionQueue::builder(&ctx, 256).build_direct().unwrap();
    let queue_pair = || QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).build().map(drop);
    let shared = || SharedReceiveQueue::direct(&pd, &cq, 15, 1).map(drop);
    let try_one = |made: &dyn Fn() -> Result<(), Error>, switch: &str| {
        made().unwrap();
        // libmlx5 asks only whether it is there
        for value in ["1", "0", ""] {
            // SAFETY: this process has no other thread that looks at the environment.
            unsafe { std::env::set_var(switch, value) };
            let error = made().unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(switch), "{error}");
        }
        // SAFETY: as above.
        unsafe { std::env::remove_var(switch) };
        made().unwrap();
    };
    try_one(&queue_pair, "MLX5_QP_SIGNATURE");
    try_one(&shared, "MLX5_SRQ_SIGNATURE");
}
