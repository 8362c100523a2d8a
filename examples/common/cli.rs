//! What every program here does the same way: one line on standard error when something fails.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Any failure: all that is done with it is to tell it.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs a program, and tells how it ended.
pub(crate) fn main(name: &str, run: impl FnOnce() -> Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // if nobody reads that either, the status is all that is left
            let _ = writeln!(io::stderr(), "{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What to say on a machine without devices.
pub(crate) const NO_DEVICE: &str = "there is no RDMA device on this machine: load its driver, or make a software one \
     (`rdma link add rxe0 type rxe netdev eth0`)";
