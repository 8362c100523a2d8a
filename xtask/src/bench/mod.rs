//! `cargo xtask bench`: what the crate costs.
//!
//! | file | what |
//! |---|---|
//! | `counts` | instructions beside C's, exactly |
//! | `callgrind` | running a program under it, and reading what it counted |
//! | `assembly` | their machine code, and what can be reached from there |
//! | `fences` | those of the direct path, in its machine code |
//! | `peers` | the same through other crates |
//! | `measure` | running what takes time, here or in a virtual machine |
//! | `report/` | a page and BENCHMARKS.md, of all that was measured |

mod assembly;
mod callgrind;
mod counts;
mod fences;
mod measure;
mod peers;
mod report;

use anyhow::{Context as _, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::Place;

const HELP: &str = "\
cargo xtask bench [counts [--bless] | assembly | peers | time | latency | bandwidth | report]
                  [--device DEVICE] [-- OPTION...]

Without a command: all of it, one after the other, in a quarter of an hour. `time`, `latency` and `bandwidth` alone renew
their parts of BENCHMARKS.md, too; the others stay as they are.

  counts   instructions of the data path beside those of the same loop in C: on a provider that does nothing, through
           libmlx5, and of the direct path; that ours are as committed (benches/counts.txt); and `assembly`
  assembly that no panic and no allocation can be reached from what is counted; and that the direct path has the fences
           that it needs, and no other one
  --bless  writes benches/counts.txt anew for this compiler
  peers    instructions and allocations of the same loops through other crates, which are built from crates.io
  time     nanoseconds of the data path beside C's, and how the cost of a post grows
  latency  between two processes, beside perftest's programs and TCP
  bandwidth
           messages a second between them
  report   a page with charts, and BENCHMARKS.md, from what was measured last

  --device DEVICE   for latency and bandwidth. soft: the software HCA; rxe: Soft-RoCE in a virtual machine; else a device of this
                    machine (default: IBV_DEVICE if set, else soft)
                    With IBV_VM_ACCEL=icount, that machine has one processor, whose clock counts its instructions: ratios
                    are then of what programs and kernel compute, and the same each time. Who polls a completion queue in
                    vain, or finds that a WRITE is done, hands the processor over there; rows that poll a socket are left
                    out. All of latency takes ten minutes
  -- OPTION...      for them: those of `cargo bench --bench latency`, such as --pairs 3";

/// Where a report's data are: `ibv-bench` in Cargo's folder, which `program` is in.
fn reports(program: &Path) -> Result<PathBuf> {
    let is_profile = |folder: &&Path| folder.ends_with("release") || folder.ends_with("debug");
    let profile = program.ancestors().find(is_profile);
    let target = profile.and_then(Path::parent).context("a program that is not in Cargo's folder")?;
    let folder = target.join("ibv-bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    /// None: all.
    part: Option<String>,
    bless: bool,
    device: Option<String>,
    /// For latency and bandwidth.
    options: Vec<OsString>,
}

const PARTS: [&str; 7] = ["counts", "assembly", "peers", "time", "latency", "bandwidth", "report"];
/// Those that take time, and are in the report as soon as they are done.
const TIMED: [&str; 3] = ["time", "latency", "bandwidth"];
/// Those at a place.
const PLACED: [&str; 2] = ["latency", "bandwidth"];

impl Wanted {
    /// None if help was asked for.
    fn parse(arguments: Vec<OsString>) -> Result<Option<Self>> {
        use lexopt::prelude::*;
        let mut wanted = Self::default();
        // what follows `--` is the benchmarks'
        let mut arguments = arguments.into_iter();
        let own: Vec<_> = arguments.by_ref().take_while(|argument| argument != "--").collect();
        wanted.options = arguments.collect();
        let mut parser = lexopt::Parser::from_args(own);
        while let Some(argument) = parser.next()? {
            match argument {
                Value(name) if wanted.part.is_none() && PARTS.iter().any(|part| name == *part) => {
                    wanted.part = Some(name.string()?);
                }
                Long("bless") => wanted.bless = true,
                Long("device") => wanted.device = Some(parser.value()?.string()?),
                Short('h') | Long("help") => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        let given = [
            ("--bless", wanted.bless, &["counts"][..]),
            ("--device", wanted.device.is_some(), &PLACED),
            ("-- OPTION...", !wanted.options.is_empty(), &PLACED),
        ];
        for (option, is_given, parts) in given {
            let is_wanted = parts.iter().any(|part| wanted.wants(part));
            ensure!(!is_given || is_wanted, "{option} is for `cargo xtask bench {}`", parts.join("` and `"));
        }
        Ok(Some(wanted))
    }

    fn wants(&self, part: &str) -> bool {
        self.part.as_ref().is_none_or(|wanted| wanted == part)
    }
}

/// `cargo xtask bench`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let Some(wanted) = Wanted::parse(arguments)? else {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let mut status = ExitCode::SUCCESS;
    if wanted.wants("counts") {
        status = counts::run(wanted.bless)?;
    }
    // all of it has that in `counts`
    if wanted.part.as_deref() == Some("assembly") {
        status = counts::assembly()?;
    }
    if wanted.wants("peers") {
        // other crates may not build here, or not be reached: that is no reason to measure nothing else
        let peers = match peers::run() {
            Err(error) if wanted.part.is_none() => {
                eprintln!("bench: other crates are left out: {error:#}");
                ExitCode::FAILURE
            }
            ended => ended?,
        };
        if peers != ExitCode::SUCCESS {
            status = peers;
        }
    }
    if wanted.wants("time") {
        eprintln!("bench: time, which takes half a minute");
        measure::nanoseconds()?;
        let scaling = measure::build("scaling")?;
        measure::here(&scaling, &reports(&scaling)?.join("scaling.json"))?;
    }
    let placed = PLACED.into_iter().filter(|part| wanted.wants(part)).collect::<Vec<_>>();
    if !placed.is_empty() {
        let device = wanted.device.clone().or_else(|| std::env::var("IBV_DEVICE").ok());
        let place = Place::new(device.as_deref())?;
        for part in placed {
            eprintln!("bench: {part}");
            let program = measure::build(part)?;
            // rows that failed are no reason to measure nothing else
            if let Err(error) = measure::at(&place, &program, part, &wanted.options, &reports(&program)?) {
                eprintln!("bench: {error:#}");
                status = ExitCode::FAILURE;
            }
        }
    }
    let is_timed = wanted.part.as_deref().is_some_and(|part| TIMED.contains(&part));
    if is_timed || wanted.wants("report") {
        println!("{}", report::write(&reports(&std::env::current_exe()?)?)?.display());
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Wanted>> {
        Wanted::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn one_part_or_all() {
        let all = parse("").unwrap().unwrap();
        assert!(PARTS.iter().all(|part| all.wants(part)));
        let one = parse("latency --device rxe -- --pairs 3").unwrap().unwrap();
        assert!(one.wants("latency") && !one.wants("report"));
        assert_eq!((one.device.as_deref(), one.options), (Some("rxe"), vec!["--pairs".into(), "3".into()]));
        assert!(parse("nothing").is_err() && parse("counts time").is_err());
        assert!(parse("-h").unwrap().is_none());
    }

    #[test]
    fn options_of_a_part_that_is_not_run_are_errors() {
        for line in ["latency --bless", "counts --device soft", "time -- --pairs 3"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--bless --device soft -- --pairs 3").unwrap().is_some());
        assert!(parse("bandwidth --device soft -- --pairs 3").unwrap().is_some());
    }
}
