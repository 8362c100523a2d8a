//! `cargo xtask test`: every test, on every device there is for it.
//!
//! | tier | what | where |
//! |---|---|---|
//! | unit | all test programs but `vm_*`, `soft_mlx5` once more with optimisation, and doctests | here |
//! | vm | `vm_*` | in a guest with `rxe0`, one guest for each program, so that a panic costs only that one |
//! | hca | `vm_*` | here, on the device that `IBV_TEST_DEVICE` names |

mod libtest;
mod summary;
mod targets;

use crate::kernel::{self, Kernel};
use crate::run::{self, Tee};
use crate::setup::Part;
use crate::{cargo, setup, vm};
use anyhow::Result;
use libtest::Report;
use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use summary::{Row, Summary};
use targets::{Built, Program};

const HELP: &str = "\
cargo xtask test [--tier unit|vm|hca]... [NAME]...

Runs the test suite: on this machine, and what needs an RDMA device in a virtual machine with rxe0. With IBV_TEST_DEVICE
set to a device of this machine, what needs one runs there too (IBV_TEST_GID_INDEX says which of its addresses to use).

  --tier TIER   only this tier
  NAME          only the test programs with this in their names";

/// The test program that runs with optimisation too: some of it would take minutes without.
const OPTIMISED: &str = "ibv soft_mlx5 (optimised)";

/// A test program of this machine that takes longer has hung.
const HOST_LIMIT: Duration = Duration::from_secs(900);

const TIERS: [&str; 3] = ["unit", "vm", "hca"];

/// What to run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    /// Empty: all.
    tiers: Vec<String>,
    /// Empty: all.
    names: Vec<String>,
}

/// `cargo xtask test`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let Some(selection) = Selection::parse(arguments)? else {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    setup::ensure(Part::ALL)?;
    let built = targets::build()?;
    let mut summary = Summary::default();
    if selection.has_tier("unit") {
        unit(&built, &selection, &mut summary)?;
    }
    if selection.has_tier("vm") {
        guests(&built, &selection, &mut summary)?;
    }
    if selection.has_tier("hca") {
        hca(&built, &selection, &mut summary)?;
    }
    println!("\n{summary}");
    Ok(if summary.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Selection {
    /// None if help was asked for.
    fn parse(arguments: Vec<OsString>) -> Result<Option<Self>> {
        use lexopt::prelude::*;
        let mut selection = Self::default();
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            match argument {
                Long("tier") => {
                    let tier = parser.value()?.string()?;
                    anyhow::ensure!(
                        TIERS.contains(&tier.as_str()),
                        "--tier {tier}: one of {}",
                        TIERS.join(", ")
                    );
                    selection.tiers.push(tier);
                }
                Short('h') | Long("help") => return Ok(None),
                Value(name) => selection.names.push(name.string()?),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(selection))
    }

    fn has_tier(&self, tier: &str) -> bool {
        self.tiers.is_empty() || self.tiers.iter().any(|wanted| wanted == tier)
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.contains(wanted.as_str()))
    }

    fn of<'b>(&self, built: &'b Built, needs_device: bool) -> impl Iterator<Item = &'b Program> {
        built
            .programs
            .iter()
            .filter(move |program| program.needs_device() == needs_device && self.has_name(&program.name))
    }
}

fn unit(built: &Built, selection: &Selection, summary: &mut Summary) -> Result<()> {
    for program in selection.of(built, false) {
        summary.0.push(run_here("unit", &program.name, program.command())?);
    }
    if selection.has_name("doctests") {
        let mut command = cargo::cargo();
        command.args(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
        summary.0.push(run_here("unit", "doctests", command)?);
    }
    if selection.has_name(OPTIMISED) {
        let mut command = cargo::cargo();
        // the benchmarks' profile, so that what both need is built once
        command.args(["test", "--profile", "bench", "--all-features", "--test", "soft_mlx5"]);
        summary.0.push(run_here("unit", OPTIMISED, command)?);
    }
    if selection.has_name("bench counts") {
        // by cargo: this program's own file may have been replaced since, by the build of all the tests
        let mut command = cargo::cargo();
        command.args(["xtask", "bench", "counts"]);
        summary.0.push(run_here("unit", "bench counts", command)?);
    }
    if selection.has_name("mutants") {
        let mut command = cargo::cargo();
        command.args(["xtask", "mutants"]);
        summary.0.push(run_here("unit", "mutants", command)?);
    }
    Ok(())
}

fn hca(built: &Built, selection: &Selection, summary: &mut Summary) -> Result<()> {
    let Some(device) = std::env::var_os("IBV_TEST_DEVICE") else { return Ok(()) };
    let tier = format!("hca {}", device.to_string_lossy());
    for program in selection.of(built, true) {
        let mut command = program.command();
        command.arg("--test-threads=1");
        if let Some(examples) = &built.examples {
            command.env("IBV_EXAMPLES_DIR", examples);
        }
        summary.0.push(run_here(&tier, &program.name, command)?);
    }
    Ok(())
}

fn run_here(tier: &str, name: &str, mut command: Command) -> Result<Row> {
    println!("\n== {tier}: {name}");
    let started = Instant::now();
    let (mut out, mut err) = (Tee::new(io::stdout()), Tee::new(io::stderr()));
    let end = run::run(&mut command, HOST_LIMIT, &mut out, &mut err)?;
    let report = libtest::read(name, &out.text(), &err.text(), end);
    Ok(Row { tier: tier.to_owned(), target: name.to_owned(), report, took: started.elapsed() })
}

fn guests(built: &Built, selection: &Selection, summary: &mut Summary) -> Result<()> {
    let module = vm::Link::Rxe.module();
    for program in selection.of(built, true) {
        let main = kernel::pick(None, module)?;
        let wishes = program.wishes()?;
        summary.0.push(run_in_guest(built, program, &main, None, wishes.timeout)?);
        for (series, filter) in &wishes.kernels {
            if main.is_of(series) {
                continue;
            }
            summary.0.push(match kernel::pick(Some(series), module) {
                Ok(kernel) => run_in_guest(built, program, &kernel, filter.as_deref(), wishes.timeout)?,
                Err(reason) => Row {
                    tier: format!("vm {series}"),
                    target: program.name.clone(),
                    report: Report { skipped: vec![format!("all: {reason}")], ..Report::default() },
                    took: Duration::ZERO,
                },
            });
        }
    }
    Ok(())
}

fn run_in_guest(
    built: &Built,
    program: &Program,
    kernel: &Kernel,
    filter: Option<&str>,
    timeout: Duration,
) -> Result<Row> {
    let tier = format!("vm {}", kernel.version);
    println!("\n== {tier}: {}", program.name);
    let mut environment = vm::environment();
    environment.extend(program.environment());
    environment.extend(
        [("IBV_TEST_DEVICE", "rxe0"), ("IBV_TEST_GID_INDEX", "1")]
            .map(|(name, value)| (name.into(), value.into())),
    );
    if let Some(examples) = &built.examples {
        environment.push(("IBV_EXAMPLES_DIR".into(), examples.clone().into()));
    }
    let job = vm::Job {
        kernel: kernel.clone(),
        link: vm::Link::Rxe,
        timeout,
        directory: program.folder.clone(),
        environment,
        command: [program.file.clone().into(), "--test-threads=1".into()]
            .into_iter()
            .chain(filter.map(OsString::from))
            .collect(),
    };
    let started = Instant::now();
    let (mut out, mut err) = (Tee::new(io::stdout()), Tee::new(io::stderr()));
    let ended = vm::run(&job, &mut out, &mut err)?;
    ended.report(&job);
    let report = libtest::read(&program.name, &out.text(), &err.text(), ended.verdict());
    Ok(Row { tier, target: program.name.clone(), report, took: started.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Selection>> {
        Selection::parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn everything_runs_unless_a_part_is_named() {
        let all = parse("").unwrap().unwrap();
        assert!(TIERS.iter().all(|tier| all.has_tier(tier)) && all.has_name("ibv layout"));
        let part = parse("--tier vm --tier hca vm_rc").unwrap().unwrap();
        assert!(part.has_tier("vm") && part.has_tier("hca") && !part.has_tier("unit"));
        assert!(part.has_name("ibv vm_rc") && !part.has_name("ibv vm_ud"));
        assert!(parse("--tier soft").is_err());
        assert!(parse("-h").unwrap().is_none());
    }
}
