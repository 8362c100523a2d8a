//! The tests that run in each mode.

mod data;
mod errors;
mod direct;
