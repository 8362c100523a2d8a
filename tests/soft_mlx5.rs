//! The mlx5 direct path on the software HCA, stepped by hand.
#![expect(unsafe_code, reason = "looks into the rings of both sides, by direct verbs")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one argument for all: objects and memory are the test's, alive"
)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

#[path = "soft_mlx5/atomics.rs"]
mod atomics;
#[path = "soft_mlx5/bytes.rs"]
mod bytes;
#[path = "soft_mlx5/compressed.rs"]
mod compressed;
#[path = "soft_mlx5/cqes.rs"]
mod cqes;
#[cfg(target_arch = "x86_64")]
#[path = "soft_mlx5/fences.rs"]
mod fences;
#[path = "soft_mlx5/graves.rs"]
mod graves;
#[path = "soft_mlx5/life.rs"]
mod life;
#[cfg(debug_assertions)]
#[path = "../softhca/tests/common/memcheck.rs"]
mod memcheck;
#[path = "soft_mlx5/rig.rs"]
mod rig;
#[path = "soft_mlx5/rules.rs"]
mod rules;
#[path = "soft_mlx5/scattered.rs"]
mod scattered;
#[path = "soft_mlx5/shared.rs"]
mod shared;
#[path = "soft_mlx5/together.rs"]
mod together;
#[path = "soft_mlx5/windows.rs"]
mod windows;

/// Not the tests that count on and on, those that step through the machine code, nor those that hold all against what
/// libmlx5 reads where it was never given an id, which memcheck sees. Not of optimised code, which may branch on what has no
/// value as yet where nothing comes of it.
#[cfg(debug_assertions)]
#[test]
fn memcheck_finds_nothing() {
    memcheck::finds_nothing(&["two_to_the", "fences", "cqes::", "messages_of", "answers"]);
}
