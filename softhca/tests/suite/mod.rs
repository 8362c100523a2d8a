//! The tests that run in each mode.
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::field_reassign_with_default, reason = "C structs are filled field by field")]

mod compression;
mod contexts;
mod data;
mod direct;
mod errors;
mod extended;
mod faults;
mod garbage;
mod objects;
mod refused;
mod ring;
mod scatter;
mod unmapped;
