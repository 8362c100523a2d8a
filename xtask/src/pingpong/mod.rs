//! `cargo xtask pingpong`: from a fresh machine to a measured RC ping-pong.

mod device;
mod place;
mod results;

use crate::setup::Part;
use crate::{cargo, program, setup};
use anyhow::{Context as _, Result, ensure};
use device::Device;
use place::{Place, Wanted};
use results::Results;
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask pingpong [--device DEVICE] [--iters N] [--program PROGRAM]

Installs what is missing, builds examples/rc_pingpong and measures it between two processes: on this machine's RDMA
device, else on the software HCA (softhca/), which runs the stock libmlx5 without a device.

  --device DEVICE     soft: the software HCA; rxe: Soft-RoCE in a virtual machine; else a device of this machine
                      (default: IBV_DEVICE if set, else the first with an active port, else soft)
  --iters N           round trips of each size (default 10000, in the virtual machine 1000)
  --program PROGRAM   measure another program instead, such as ibv_rc_pingpong; those don't tell latencies";

/// Its program is `examples/rc_pingpong.rs`.
const PACKAGE: &str = "ibv-pingpong";
const SIZES: [u32; 3] = [64, 4096, 65536];
const SCRIPT: &str = include_str!("run.sh");
/// `cargo xtask pingpong`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let (mut device, mut iterations, mut program) = (None, None, None);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("device") => device = Some(parser.value()?.string()?),
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
    let wanted = Wanted::new(device.or_else(|| std::env::var("IBV_DEVICE").ok()));
    let mut parts = vec![Part::Build];
    if wanted == Wanted::Rxe {
        parts.push(Part::Vm);
    }
    if program.as_deref().and_then(Path::to_str).is_some_and(|name| program::find(name).is_none()) {
        parts.push(Part::Test);
    }
    setup::ensure(&parts)?;
    let place = Place::find(&wanted)?;
    let is_ours = program.is_none();
    let program = program.map_or_else(|| cargo::release_program(PACKAGE), Ok)?;
    let iterations = iterations.unwrap_or_else(|| place.iterations());

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
