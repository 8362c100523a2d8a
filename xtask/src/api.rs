//! `cargo xtask api`: the public API against its text file.

use crate::cargo;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask api [--bless]

Compares the public API of `ibv` with tests/api.txt, which the test suite does too, and shows what came and went.

  --bless   write the file anew: its diff wants reading, and a line in CHANGELOG.md";

pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let mut bless = false;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("bless") => bless = true,
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let mut command = cargo::cargo();
    command.args(["test", "--quiet", "--package", "ibv-api"]);
    command.env_remove("IBV_BLESS").env("RUST_BACKTRACE", "0");
    if bless {
        command.env("IBV_BLESS", "1");
    }
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
