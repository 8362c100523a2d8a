//! `cargo xtask pingpong`: from a fresh machine to a measured RC ping-pong.

mod device;
mod results;

use crate::kernel::{self, Kernel};
use crate::run::{self, Tee};
use crate::{cargo, setup, vm};
use anyhow::{Context as _, Result, bail, ensure};
use device::Device;
use results::Results;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
cargo xtask pingpong [--iters N] [--program PROGRAM]

Installs what is missing, builds examples/rc_pingpong and measures it between two processes: on this machine's RDMA
device (IBV_DEVICE names it if there are several), else on rxe0 in a virtual machine.

  --iters N           round trips of each size (default 10000 on a device, 1000 in the virtual machine)
  --program PROGRAM   measure another program instead, such as ibv_rc_pingpong; those don't tell latencies";

const EXAMPLE: &str = "rc_pingpong";
const SIZES: [u32; 3] = [64, 4096, 65536];
const SCRIPT: &str = include_str!("run.sh");
/// For all sizes; `run.sh` limits each.
const LIMIT: Duration = Duration::from_secs(700);

/// Where the ping-pong runs.
enum Place {
    Here(Device),
    Guest(Kernel),
}

/// `cargo xtask pingpong`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let (mut iterations, mut program) = (None, None);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("iters") => {
                let count: u32 = parser.value()?.parse()?;
                ensure!(count > 0, "--iters: at least 1");
                iterations = Some(count);
            }
            Long("program") => program = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    setup::ensure()?;
    let wanted = std::env::var("IBV_DEVICE").ok();
    let place = match device::find(wanted.as_deref())? {
        Some(device) => Place::Here(device),
        None => Place::Guest(kernel::pick(None, vm::Link::Rxe.module())?),
    };
    let is_ours = program.is_none();
    let program = program.map_or_else(|| cargo::release_example(EXAMPLE), Ok)?;
    let iterations = iterations.unwrap_or(match place {
        Place::Here(_) => 10_000,
        Place::Guest(_) => 1000,
    });

    let words = script_words(&program, is_ours, iterations, place.device())?;
    let output = place.run(words)?;
    println!("{}", place.describe());
    println!(
        "path    RC send and receive between two processes, {}, polling\n",
        program.file_name().unwrap_or_default().to_string_lossy()
    );
    println!("{}", Results::read(&output)?);
    Ok(ExitCode::SUCCESS)
}

/// The command that runs the script.
fn script_words(program: &PathBuf, is_ours: bool, iterations: u32, device: Device) -> Result<Vec<OsString>> {
    // All held until all are known, so that they differ.
    let listeners: io::Result<Vec<_>> = SIZES.iter().map(|_| TcpListener::bind(("127.0.0.1", 0))).collect();
    let mut runs = Vec::new();
    for (size, listener) in SIZES.iter().zip(listeners.context("no free TCP port")?) {
        let port = listener.local_addr().context("no free TCP port")?.port();
        runs.push(format!("{size}:{port}"));
    }
    let mut words: Vec<OsString> = ["sh", "-c", SCRIPT, "run.sh"].map(OsString::from).to_vec();
    words.push(program.into());
    words.push(if is_ours { "--latency" } else { "" }.into());
    words.push(runs.join(" ").into());
    words.extend(device.options().into_iter().map(OsString::from));
    words.extend(["-n".into(), iterations.to_string().into()]);
    Ok(words)
}

impl Place {
    fn device(&self) -> Device {
        match self {
            Self::Here(device) => device.clone(),
            Self::Guest(_) => Device { name: "rxe0".into(), port: 1, gid_index: Some(1) },
        }
    }

    fn describe(&self) -> String {
        let Device { name, port, gid_index } = self.device();
        let address = gid_index.map_or_else(|| "LID".into(), |index| format!("GID index {index}"));
        let place = match self {
            Self::Here(_) => String::new(),
            Self::Guest(kernel) if vm::is_emulated() => {
                format!(" in a VM (kernel {}, emulated: times mean nothing alone)", kernel.version)
            }
            Self::Guest(kernel) => format!(" in a VM (kernel {})", kernel.version),
        };
        format!("device  {name}, port {port}, {address}{place}")
    }

    /// Runs a command there; what it printed.
    fn run(&self, words: Vec<OsString>) -> Result<String> {
        let mut out = Tee::new(io::sink());
        let end = match self {
            Self::Here(_) => {
                let mut words = words.into_iter();
                let mut command = cargo::bare(words.next().context("no command")?);
                run::run(command.args(words), LIMIT, &mut out, &mut io::stderr())?
            }
            Self::Guest(kernel) => {
                let job = vm::Job {
                    kernel: kernel.clone(),
                    link: vm::Link::Rxe,
                    timeout: LIMIT,
                    directory: std::env::current_dir().context("the current folder is gone")?,
                    environment: vm::environment(),
                    command: words,
                };
                let ended = vm::run(&job, &mut out, &mut io::stderr())?;
                ended.report(&job);
                ended.verdict()
            }
        };
        if let Err(how) = end {
            bail!("the ping-pong failed ({how}); it had printed:\n{}", out.text());
        }
        Ok(out.text())
    }
}
