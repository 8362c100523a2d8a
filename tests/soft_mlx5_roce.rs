//! The tests of `soft_mlx5` about what goes over the wire once more, over Ethernet: addressed by GIDs.
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
#[path = "soft_mlx5/life.rs"]
mod life;
#[path = "soft_mlx5/rig.rs"]
mod rig;
#[path = "soft_mlx5/scattered.rs"]
mod scattered;
#[path = "soft_mlx5/shared.rs"]
mod shared;
#[path = "soft_mlx5/together.rs"]
mod together;
#[path = "soft_mlx5/windows.rs"]
mod windows;
