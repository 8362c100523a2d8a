//! Running the benchmarks that take time, and keeping what they say for the report.

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::kernel::{self, Kernel};
use crate::run::{self, Tee};
use crate::{cargo, vm};

/// For one benchmark; in an emulated machine everything takes longer.
const LIMIT: Duration = Duration::from_secs(1800);
const GUEST_LIMIT: Duration = Duration::from_secs(5400);
/// How long a run takes in a guest, in milliseconds: there a message takes some of them. How often, and all rows, in
/// seconds.
const GUEST_TIMES: [&str; 6] = ["--time", "1000", "--pairs", "15", "--total", "4500"];
/// Where a clock counts instructions, runs differ by little more than where the scheduler's ticks come: as few as make
/// an interval.
const COUNTED_TIMES: [&str; 6] = ["--time", "50", "--pairs", "6", "--total", "420"];
/// There, the processes take turns on one processor. By the ordinary scheduler, who yields gets it back while the other
/// had it a millisecond more; in real time, the other has it next. The kernel's thread that carries packets comes
/// first.
const IN_TURNS: &str = r#"for thread in /proc/[0-9]*; do
    read -r name <$thread/comm
    [ "$name" = ksoftirqd/0 ] && chrt --fifo --pid 2 ${thread#/proc/} && exec chrt --rr 1 "$@"
done
echo "the processes can't take turns" >&2
exit 1"#;

/// Where latency and bandwidth are measured.
#[derive(Debug)]
pub(super) enum Place {
    /// The software HCA.
    Soft,
    /// This device of this machine.
    Device(String),
    /// `rxe0` in a virtual machine.
    Guest(Kernel),
}

impl Place {
    /// The one of that name: `soft` (also without a name), `rxe`, or a device.
    pub(super) fn new(name: Option<&str>) -> Result<Self> {
        Ok(match name {
            None | Some("" | "soft") => Self::Soft,
            Some("rxe") => Self::Guest(kernel::pick(None, vm::Link::Rxe.module())?),
            Some(name) => Self::Device(name.to_owned()),
        })
    }

    fn name(&self) -> &str {
        match self {
            Self::Soft => "soft",
            Self::Device(name) => name,
            Self::Guest(_) if vm::is_counted() => "rxe-counted",
            Self::Guest(_) => "rxe",
        }
    }

    /// How the place is called in the report, from what the benchmark says.
    fn describe(&self, said: &str) -> String {
        match self {
            Self::Guest(kernel) => {
                let emulated = match (vm::is_counted(), vm::is_emulated()) {
                    (true, _) => ", emulated, its clock counts instructions: 2 ns each",
                    (_, true) => ", emulated",
                    _ => "",
                };
                format!("{said}, in a virtual machine (kernel {}{emulated})", kernel.version)
            }
            Self::Soft | Self::Device(_) => said.to_owned(),
        }
    }
}

/// What all benchmarks are built from, so that they are built once. (The second package has the direct path only if
/// features are asked for it too.)
const BENCH: [&str; 6] = ["bench", "--package", "ibv", "--package", "ibv-bench-pairs", "--all-features"];

/// The program of a benchmark of Cargo's, built.
pub(super) fn build(name: &str) -> Result<PathBuf> {
    let messages = cargo::messages(&[&BENCH[..], &["--no-run", "--bench", name]].concat())?;
    let is = |message: &&Value| message.pointer("/target/name").and_then(Value::as_str) == Some(name);
    let programs = messages.iter().filter(is).filter_map(|message| message.get("executable")?.as_str());
    programs.map(PathBuf::from).next_back().with_context(|| format!("cargo built no benchmark {name}"))
}

/// Nanoseconds beside C's: those benchmarks keep them themselves.
pub(super) fn nanoseconds() -> Result<()> {
    let mut command = cargo::cargo();
    command.args(BENCH).args(["--bench=data_path", "--bench=mlx5_path"]);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "`cargo bench --bench data_path --bench mlx5_path` failed");
    Ok(())
}

/// A benchmark that needs no place: what it says goes to `file`.
pub(super) fn here(program: &Path, file: &Path) -> Result<()> {
    let mut command = cargo::bare(program);
    command.arg("--json");
    let (said, end) = run_here(command)?;
    end.map_err(|how| anyhow!("{}: {how}", program.display()))?;
    keep(file, &said)
}

/// A benchmark at a place: what it says goes to `WHAT.PLACE.json` in `folder`.
pub(super) fn at(
    place: &Place,
    program: &Path,
    what: &str,
    options: &[OsString],
    folder: &Path,
) -> Result<()> {
    let (said, end) = match place {
        Place::Soft | Place::Device(_) => {
            let mut command = cargo::bare(program);
            command.arg("--json").args(options);
            match place {
                Place::Device(name) => command.env("IBV_DEVICE", name),
                _ => command.env_remove("IBV_DEVICE"),
            };
            run_here(command)?
        }
        Place::Guest(kernel) => run_in_guest(kernel, program, options)?,
    };
    // rows that failed are among what it said
    if let Some((head, rows)) = said.split_once('\n') {
        let head: Value = serde_json::from_str(head).context("cannot read what the benchmark said")?;
        let name = head.get("place").and_then(Value::as_str).context("it did not say where it was")?;
        let head = json!({ "place": place.describe(name) });
        keep(&folder.join(format!("{what}.{}.json", place.name())), &format!("{head}\n{rows}"))?;
    }
    end.map_err(|how| anyhow!("{}: {how}", program.display()))
}

/// What a benchmark said, and how it ended.
type Said = (String, Result<(), String>);

fn run_here(mut command: Command) -> Result<Said> {
    let mut out = Tee::new(io::sink());
    let end = run::run(&mut command, LIMIT, &mut out, &mut io::stderr())?;
    Ok((out.text(), end))
}

fn run_in_guest(kernel: &Kernel, program: &Path, options: &[OsString]) -> Result<Said> {
    let mut environment = vm::environment();
    environment.retain(|(name, _)| name != "IBV_DEVICE" && name != "IBV_GID_INDEX");
    environment.extend(
        [("IBV_DEVICE", "rxe0"), ("IBV_GID_INDEX", "1")].map(|(name, value)| (name.into(), value.into())),
    );
    let (before, times) = match vm::is_counted() {
        true => (&["sh", "-c", IN_TURNS, "sh"][..], COUNTED_TIMES),
        false => (&[][..], GUEST_TIMES),
    };
    let job = vm::Job {
        kernel: kernel.clone(),
        link: vm::Link::Rxe,
        timeout: GUEST_LIMIT,
        directory: std::env::current_dir().context("the current folder is gone")?,
        environment,
        command: before
            .iter()
            .map(OsString::from)
            .chain([program.into(), "--json".into()])
            .chain(times.map(OsString::from))
            .chain(options.iter().cloned())
            .collect(),
    };
    let mut out = Tee::new(io::sink());
    let ended = vm::run(&job, &mut out, &mut io::stderr())?;
    ended.report(&job);
    Ok((out.text(), ended.verdict()))
}

fn keep(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
