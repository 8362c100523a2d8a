//! Two polling processes of `ibv_rc_pingpong`, 4096 bytes, on an otherwise idle machine of two processors: at most 30
//! microseconds per iteration.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a benchmark")]

#[path = "../tests/common/programs.rs"]
mod programs;

const LIMIT: f64 = 30.0;

fn main() {
    let mut times: Vec<f64> = (0..11)
        .filter_map(|_| programs::pair("ibv_rc_pingpong", &["-n", "5000"], &[("SOFTHCA_LINK", "ib")]))
        .filter_map(|text| text.split_whitespace().rev().nth(1)?.parse().ok())
        .collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    println!("microseconds per iteration: median {median} of {times:?}");
    assert!(median <= LIMIT, "more than {LIMIT}");
}
