//! The tests of `soft_mlx5` once more, with the software HCA checking each store to a doorbell: WQE, record and
//! register are written in this order, the right one each, with the right value.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

#[path = "soft_mlx5/mod.rs"]
mod suite;
