#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
// `eprintln!` panics if it can't write, which ends a C program: `log::tell` instead.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod bar;
mod bits;
mod capi;
mod check;
mod config;
mod engine;
mod events;
mod fabric;
mod fault;
mod hca;
mod interpose;
mod leaked;
mod log;
mod mem;
mod model;
mod objects;
mod run;
mod settings;
mod signal;
mod stats;
mod uverbs;

pub use bits::Syndrome;
pub use config::{Config, Device, Gid, GidKind, Limits, Link, LogTarget, MAX_DEVICES, Mode};
pub use hca::{Error, Hca};
pub use stats::{Objects, Stats};
