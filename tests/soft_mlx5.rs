//! The mlx5 direct path on the software HCA, stepped by hand.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

#[cfg(target_arch = "x86_64")]
#[path = "soft_mlx5/fences.rs"]
mod fences;
#[cfg(debug_assertions)]
#[path = "../softhca/tests/common/memcheck.rs"]
mod memcheck;
#[path = "soft_mlx5/mod.rs"]
mod suite;

/// Not the tests that count on and on, those that step through the machine code, nor those that hold all against what
/// libmlx5 reads where it was never given an id, which memcheck sees. Not of optimised code, which may branch on what
/// has no value as yet where nothing comes of it.
#[cfg(debug_assertions)]
#[test]
fn memcheck_finds_nothing() {
    memcheck::finds_nothing(&["two_to_the", "fences", "cqes::", "messages_of", "answers"]);
}
