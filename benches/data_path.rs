//! `cargo bench --bench data_path [NAME]`: the data path beside C's, on a provider that does nothing.
//!
//! What is measured is building the request and calling the provider, or polling and looking at each completion; no
//! device takes part. `cargo xtask bench counts` counts the same loops' instructions, exactly.

use std::process::ExitCode;

use ibv_bench_twins::{Provider, program, with_rows};

fn main() -> ExitCode {
    nullhca::hca().configure(|config| config.fast = true);
    let provider = Provider::Nobody { device: "null0", set_completions: nullhca::set_completions };
    program(|act| with_rows(provider, act.with("null"))?)
}
