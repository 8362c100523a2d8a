//! `cargo bench --bench bandwidth [NAME]`: messages a second between two processes on a device, over 1 to 64 queue
//! pairs, beside the C program that does the same.
//!
//! Each queue pair has up to 128 requests outstanding, of which every 32nd asks for a completion; all complete on one
//! queue, as in `ib_write_bw` and `ib_read_bw`. Turns and conclusions are those of `latency.rs`; here more than 1 is
//! better than C.

use std::process::ExitCode;
use std::time::Duration;

use ibv_bench_pairs::{
    Operation, Options, Pairs, Place, Result, Test, Turns, messages_per_second, ours, program, theirs,
};
use serde_json::json;

const ABOUT: &str =
    "cargo bench --bench bandwidth -- [NAME] [OPTION]...: messages a second on a device, beside C's programs";

const QUEUES: [u32; 4] = [1, 4, 16, 64];
/// Of all queue pairs together.
const MESSAGES: std::ops::RangeInclusive<u64> = 256..=2_000_000;
/// Of a first run, which tells how many there is time for.
const TRY: u64 = 2048;
/// All rows: so that `cargo bench` ends within ten minutes.
const TOTAL: Duration = Duration::from_secs(130);

fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for bytes in [8, 65536] {
        tests.extend(QUEUES.map(|queues| Test::bandwidth(Operation::Write, bytes, queues)));
    }
    tests.push(Test::bandwidth(Operation::Read, 65536, 1));
    tests
}

/// Messages a second of one run.
fn rate(output: Result<String>) -> Result<f64> {
    let output = output?;
    messages_per_second(&output).ok_or_else(|| format!("no rate in the output:\n{output}").into())
}

fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// What a row came to.
struct Measured {
    ours: f64,
    theirs: std::result::Result<(f64, Pairs), String>,
}

fn measure(options: &Options, place: &Place, test: &mut Test, turns: Turns) -> Result<Measured> {
    let queues = u64::from(test.queues);
    test.iterations = TRY.div_ceil(queues);
    let first = rate(ours(place, test))?;
    // a program that cannot do it here says so now
    let has_theirs = program(test).and_then(|_| rate(theirs(place, test)).map_err(|error| error.to_string()));
    let slower = has_theirs.as_ref().map_or(first, |theirs| first.min(*theirs));
    let messages = (slower * options.time.as_secs_f64()) as u64;
    test.iterations = messages.clamp(*MESSAGES.start(), *MESSAGES.end()).div_ceil(queues);
    let (mut all_ours, mut all_theirs) = (Vec::new(), Vec::new());
    let mut one = || -> Result<f64> {
        let rate = rate(ours(place, test))?;
        all_ours.push(rate);
        Ok(rate)
    };
    let pairs = match has_theirs {
        Ok(_) => Ok(turns.pairs(one, || {
            let rate = rate(theirs(place, test))?;
            all_theirs.push(rate);
            Ok(rate)
        })?),
        Err(why) => {
            turns.alone(&mut one)?;
            Err(why)
        }
    };
    let theirs = pairs.map(|pairs| (median(all_theirs).unwrap_or(f64::NAN), pairs));
    Ok(Measured { ours: median(all_ours).unwrap_or(f64::NAN), theirs })
}

fn print_json(test: &Test, measured: &Measured) {
    let (theirs, alone) = (measured.theirs.as_ref().ok(), measured.theirs.as_ref().err());
    let row = json!({
        "name": test.to_string(),
        "operation": test.operation.to_string(),
        "bytes": test.bytes,
        "queues": test.queues,
        "iterations": test.iterations,
        "ours": measured.ours,
        "theirs": theirs.map(|(rate, _)| rate),
        "pairs": theirs.map(|(_, pairs)| pairs.to_json()),
        "program": theirs.and_then(|_| program(test).ok()),
        "alone": alone,
    });
    println!("{row}");
}

fn print(test: &Test, measured: &Measured) {
    let columns = |rate: f64| format!("{:>12.4} {:>10.1}", rate / 1e6, rate * test.bytes as f64 / 1e6);
    let verdict = match &measured.theirs {
        Ok((rate, pairs)) => format!("{}  {pairs}", columns(*rate)),
        Err(why) => format!("no C: {why}"),
    };
    println!("{:20} {}  {verdict}", test.to_string(), columns(measured.ours));
}

fn benchmark(options: &Options) -> Result<()> {
    let place = Place::find()?;
    if options.json {
        println!("{}", json!({ "place": place.describe() }));
    } else {
        let [messages, bytes] = ["million/s", "MB/s"];
        println!(
            "{}\n{:20} {messages:>12} {bytes:>10}  {:>12} {:>10}",
            place.describe(),
            "ours, then C",
            messages,
            bytes
        );
    }
    options.measure("bandwidth", tests(), |mut test, turns| {
        let measured = measure(options, &place, &mut test, turns)?;
        if options.json {
            print_json(&test, &measured);
        } else {
            print(&test, &measured);
        }
        Ok(())
    })
}

fn main() -> ExitCode {
    ibv_bench_pairs::main("bandwidth", ABOUT, TOTAL, benchmark)
}
