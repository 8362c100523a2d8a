//! `cargo bench --bench data_path [NAME]`: nanoseconds of the data path beside C's, on a provider that does nothing.
//!
//! What is measured is building the request and calling the provider, or polling and looking at each completion; no
//! device takes part. Samples of ours, C's and C's once more take turns, so that whatever else the machine does meets all
//! alike. If C differs from C by more than [`SPREAD`], nothing can be concluded. `cargo xtask bench counts` counts the
//! same loops' instructions, exactly.

#![allow(clippy::unwrap_used, reason = "a benchmark may stop at what is not expected")]

use std::time::{Duration, Instant};

use ibv_bench_twins::{Row, Use, with_rows};

/// Samples of each kind.
const SAMPLES: usize = 300;
/// What a sample takes, so that the clock's resolution does not count.
const SAMPLE: Duration = Duration::from_micros(50);
/// How far two measurements of the same C may be apart.
const SPREAD: f64 = 0.05;

/// Nanoseconds of an operation, by sample, in order.
struct Sorted(Vec<f64>);

impl Sorted {
    fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.0.get(self.0.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

fn time(operations: u64, run: &mut dyn FnMut(u64) -> bool) -> f64 {
    let start = Instant::now();
    assert!(run(operations), "a call failed");
    start.elapsed().as_secs_f64() * 1e9 / operations as f64
}

/// As many operations as fill a sample.
fn calibrate(run: &mut dyn FnMut(u64) -> bool) -> u64 {
    let mut operations = 64;
    loop {
        let start = Instant::now();
        assert!(run(operations), "a call failed");
        if start.elapsed() >= SAMPLE {
            return operations;
        }
        operations *= 2;
    }
}

fn measure(row: &mut Row<'_>) -> String {
    let operations = calibrate(&mut row.theirs);
    let (mut ours, mut theirs, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        ours.push(time(operations, &mut row.ours));
        theirs.push(time(operations, &mut row.theirs));
        again.push(time(operations, &mut row.theirs));
    }
    let [ours, theirs, again] = [ours, theirs, again].map(Sorted::new);
    let apart = |a: f64, b: f64| (a / b - 1.0).abs();
    let spread = apart(theirs.min(), again.min()).max(apart(theirs.median(), again.median()));
    let verdict = if spread > SPREAD {
        format!("inconclusive: C differs from C by {:.0} %", spread * 100.0)
    } else {
        format!("{:.2} / {:.2}", ours.min() / theirs.min(), ours.median() / theirs.median())
    };
    let pair = |of: &Sorted| format!("{:.1} / {:.1}", of.min(), of.median());
    let name = if row.per_operation > 1 {
        format!("{} (all {})", row.name, row.per_operation)
    } else {
        row.name.to_owned()
    };
    format!("{name:28} {:>15} {:>15}   {verdict}", pair(&ours), pair(&theirs))
}

struct Measure {
    filter: Option<String>,
}

impl Use for Measure {
    type Result = ();

    fn rows(self, rows: Vec<Row<'_>>) {
        println!("{:28} {:>15} {:>15}   ratio to C", "min / median", "ours, ns", "C, ns");
        for mut row in rows {
            if self.filter.as_ref().is_none_or(|filter| row.name.contains(filter.as_str())) {
                println!("{}", measure(&mut row));
            }
        }
    }
}

fn main() {
    // cargo passes `--bench`
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    with_rows(true, Measure { filter }).unwrap();
}
