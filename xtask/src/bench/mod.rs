//! `cargo xtask bench`: what the crate costs.
//!
//! | file | what |
//! |---|---|
//! | `counts` | instructions beside C's, exactly |
//! | `callgrind` | running a program under it, and reading what it counted |
//! | `assembly` | what can be reached from the counted functions |

mod assembly;
mod callgrind;
mod counts;

use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::process::ExitCode;

use crate::cargo;

const HELP: &str = "\
cargo xtask bench [counts [--bless]]

Without a command: the counts, then `cargo bench`.

  counts   instructions of the data path on a provider that does nothing, beside those of the same loop in C; that they
           are as committed (benches/counts.txt); and that no panic and no allocation can be reached from there
  --bless  writes benches/counts.txt anew for this compiler";

/// `cargo xtask bench`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let (mut only_counts, mut bless) = (false, false);
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Value(name) if name == "counts" => only_counts = true,
            Long("bless") => bless = true,
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let counts = counts::run(bless)?;
    if only_counts {
        return Ok(counts);
    }
    let status = cargo::cargo().arg("bench").status().context("cannot run cargo")?;
    Ok(if status.success() { counts } else { ExitCode::FAILURE })
}
