//! Switches of the environment that take away a provider's locks. One test in a program of its own: the environment is
//! the whole process's.

#![allow(clippy::unwrap_used, reason = "a test")]

use ibv::{Context, Error, devices};
use nullhca::hca;

#[test]
fn a_provider_without_locks_is_opened_only_by_an_unsafe_call() {
    let set = |value: Option<&str>| {
        // SAFETY: this process has no other thread that looks at the environment.
        unsafe {
            match value {
                Some(value) => std::env::set_var("MLX5_SINGLE_THREADED", value),
                None => std::env::remove_var("MLX5_SINGLE_THREADED"),
            }
        }
    };
    for harmless in [None, Some("0"), Some("")] {
        set(harmless);
        Context::open("null0").unwrap();
    }
    for harmful in ["1", "true", "-1"] {
        set(Some(harmful));
        let error = Context::open("null0").unwrap_err();
        assert!(matches!(error, Error::Unlocked { variable: "MLX5_SINGLE_THREADED" }), "{error}");
        assert!(error.to_string().contains("open_unlocked"), "{error}");
        assert_eq!(hca().live().contexts, 0);
        let list = devices().unwrap();
        // SAFETY: used by this thread alone.
        unsafe { list.by_name("null0").unwrap().open_unlocked() }.unwrap();
    }
}
