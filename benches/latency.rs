//! `cargo bench --bench latency [NAME]`: ping-pong between two processes on a device, beside the C program that does
//! the same, and over TCP.
//!
//! | row | what one sample is | C's program |
//! |---|---|---|
//! | SEND | half of there and back: a message each way, received by a completion | `ib_send_lat` |
//! | WRITE | half of there and back: each side looks at the last byte of its memory | `ib_write_lat` |
//! | READ | from one post to the next, with the completion in between | `ib_read_lat` |
//! | `FETCH_ADD`, `CMP_SWP` | the same | `ib_atomic_lat` |
//! | TCP | half of there and back over a socket of this machine, for context | |
//!
//! Each send asks for a completion, which is polled before the next message is awaited, as C's programs do. `inline`:
//! the message travels in the request. `events`: processes sleep until a completion (over TCP: a message) comes; else
//! they poll. `direct`: ours goes without libmlx5, beside C with it; for these rows, `cargo bench -p ibv -p
//! ibv-bench-pairs --all-features --bench latency`.
//!
//! A row is measured in turns: C, ours, C, ours, …, C, each time two new processes, with the same size and number of
//! messages, and as often as the time that all rows have allows. What a run comes to is the mean of the middle half of
//! its samples; each of ours is held against the mean of those of C before and after it. Of these ratios the median
//! counts, and the interval in which it is with 95 % certainty. C is held against C in the same way: if that interval
//! leaves 1 by more than 5 %, nothing can be concluded; and a row where it plainly will leaves its time to those that
//! follow. `computed` is what both processes together computed in a round trip.
//!
//! On one processor, such as that of a machine whose clock counts instructions, who polls a completion queue in vain
//! hands it over, and who finds there that a WRITE is done, ours and C's (`handover/`). Two that poll a socket do not,
//! and would wait for the scheduler's ticks: those rows are left out there.

use std::process::ExitCode;
use std::time::Duration;

use ibv_bench_pairs::{
    Operation, Options, Pairs, Place, Result, Series, Test, Turns, ours, program, theirs,
    ticks_per_microsecond,
};
use serde_json::{Value, json};

const ABOUT: &str =
    "cargo bench --bench latency -- [NAME] [OPTION]...: ping-pong on a device, beside C's programs";

const SIZES: [usize; 6] = [2, 64, 1024, 4096, 65536, 1 << 20];
const INLINE_SIZES: [usize; 2] = [2, 64];
const EVENT_SIZES: [usize; 2] = [64, 4096];
const DIRECT_SIZES: [usize; 2] = [64, 4096];

/// Messages of a run: as many as its time allows, within these.
const ITERATIONS: std::ops::RangeInclusive<u64> = 50..=20_000;
/// Of a first run, which tells how many those are.
const TRY: u64 = 200;
/// Bytes of one: of the largest messages, the first run has fewer.
const TRY_BYTES: u64 = 16 << 20;
/// All rows: so that `cargo bench` ends within ten minutes.
const TOTAL: Duration = Duration::from_secs(270);

fn tests(place: &Place) -> Vec<Test> {
    use Operation::{CmpSwp, FetchAdd, Read, Send, Tcp, Write};
    let mut tests = Vec::new();
    for operation in [Send, Write, Read, Tcp] {
        tests.extend(SIZES.map(|bytes| Test::latency(operation, bytes)));
        if matches!(operation, Send | Write) {
            tests.extend(INLINE_SIZES.map(|bytes| Test { inline: true, ..Test::latency(operation, bytes) }));
        }
        // who writes into the other's memory raises no event there
        if operation != Write {
            tests.extend(EVENT_SIZES.map(|bytes| Test { events: true, ..Test::latency(operation, bytes) }));
        }
    }
    for operation in [FetchAdd, CmpSwp] {
        let test = Test::latency(operation, 8);
        tests.extend([test.clone(), Test { events: true, ..test }]);
    }
    if place.has_one_processor() {
        tests.retain(|test| test.events || test.operation != Tcp);
    }
    if place.has_direct() {
        for operation in [Send, Write, Read] {
            tests.extend(DIRECT_SIZES.map(|bytes| Test { direct: true, ..Test::latency(operation, bytes) }));
        }
        tests.push(Test { direct: true, inline: true, ..Test::latency(Write, 64) });
    }
    tests
}

/// What a row came to.
struct Measured {
    test: Test,
    ours: Series,
    theirs: std::result::Result<(Series, Pairs), String>,
}

struct Bench<'o> {
    options: &'o Options,
    place: Place,
    ticks: f64,
}

impl Bench<'_> {
    fn ours(&self, test: &Test) -> Result<Series> {
        Series::read(&ours(&self.place, test)?, self.ticks)
    }

    fn theirs(&self, test: &Test) -> Result<Series> {
        Series::read(&theirs(&self.place, test)?, self.ticks)
    }

    fn measure(&self, test: Test, turns: Turns) -> Result<Measured> {
        let iterations = (TRY_BYTES / test.bytes as u64).clamp(*ITERATIONS.start(), TRY);
        let first = Test { iterations, ..test.clone() };
        let ours = self.ours(&first)?.mean();
        // a program that cannot do it here says so now
        let theirs = program(&test)
            .and_then(|_| self.theirs(&first).map(|series| series.mean()).map_err(|error| error.to_string()));
        let test = self.sized(test, theirs.as_ref().map_or(ours, |theirs| ours.max(*theirs)));
        let (mut all_ours, mut all_theirs) = (Series::new()?, Series::new()?);
        let mut ours = || -> Result<f64> {
            let series = self.ours(&test)?;
            all_ours.add(&series)?;
            Ok(series.middle())
        };
        let pairs = match theirs {
            Ok(_) => Ok(turns.pairs(ours, || {
                let series = self.theirs(&test)?;
                all_theirs.add(&series)?;
                Ok(series.middle())
            })?),
            Err(why) => {
                turns.alone(&mut ours)?;
                Err(why)
            }
        };
        Ok(Measured { test, ours: all_ours, theirs: pairs.map(|pairs| (all_theirs, pairs)) })
    }

    /// As many messages as a run has time for, of which each takes so long, in microseconds.
    fn sized(&self, test: Test, each: f64) -> Test {
        let round_trip = if test.operation.is_two_sided() { 2.0 * each } else { each };
        let iterations = (self.options.time.as_secs_f64() * 1e6 / round_trip) as u64;
        Test { iterations: iterations.clamp(*ITERATIONS.start(), *ITERATIONS.end()), ..test }
    }
}

impl Measured {
    fn print_json(&self) {
        let Test { operation, bytes, inline, events, direct, iterations, .. } = &self.test;
        let (theirs, alone) = (self.theirs.as_ref().ok(), self.theirs.as_ref().err());
        let row = json!({
            "name": self.test.to_string(),
            "operation": operation.to_string(),
            "bytes": bytes,
            "inline": inline,
            "events": events,
            "direct": direct,
            "iterations": iterations,
            "ours": self.ours.to_json(),
            "theirs": theirs.map(|(series, _)| series.to_json()),
            "pairs": theirs.map(|(_, pairs)| pairs.to_json()),
            "program": theirs.and_then(|_| program(&self.test).ok()),
            "alone": alone,
        });
        println!("{row}");
    }

    fn print(&self) {
        let line = |who: &str, series: &Series, verdict: &str| {
            let json = series.to_json();
            let columns = COLUMNS.map(|name| match json.get(name).and_then(Value::as_f64) {
                Some(value) => format!("{value:>9.2}"),
                None => format!("{:>9}", "-"),
            });
            let samples = series.samples();
            println!("{who:22} {samples:>7} {}  {verdict}", columns.join(" "));
        };
        match &self.theirs {
            Ok((theirs, pairs)) => {
                line(&self.test.to_string(), &self.ours, &pairs.to_string());
                line(&format!("  {}", program(&self.test).unwrap_or_default()), theirs, "");
            }
            Err(_) if self.test.operation == Operation::Tcp => {
                line(&self.test.to_string(), &self.ours, "");
            }
            Err(why) => line(&self.test.to_string(), &self.ours, &format!("no C: {why}")),
        }
    }
}

const COLUMNS: [&str; 8] = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max", "computed"];

fn benchmark(options: &Options) -> Result<()> {
    let bench = Bench { options, place: Place::find()?, ticks: ticks_per_microsecond() };
    if options.json {
        println!("{}", json!({ "place": bench.place.describe() }));
    } else {
        let columns = COLUMNS.map(|name| format!("{name:>9}"));
        println!("{}\n{:22} {:>7} {}", bench.place.describe(), "µs", "samples", columns.join(" "));
    }
    options.measure("latency", tests(&bench.place), |test, turns| {
        let measured = bench.measure(test, turns)?;
        if options.json {
            measured.print_json();
        } else {
            measured.print();
        }
        Ok(())
    })
}

fn main() -> ExitCode {
    ibv_bench_pairs::main("latency", ABOUT, TOTAL, benchmark)
}
