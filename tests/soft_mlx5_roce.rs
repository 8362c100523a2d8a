//! The tests of `soft_mlx5` once more, over Ethernet: addressed by GIDs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

#[path = "soft_mlx5/mod.rs"]
mod suite;
