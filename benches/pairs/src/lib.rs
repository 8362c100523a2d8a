//! Two processes of ours beside two of C's, on one device: what `benches/latency.rs` and `benches/bandwidth.rs` share.
//!
//! | module | what |
//! |---|---|
//! | `place` | the device, and how a process gets at it |
//! | `test` | what two processes do, and the words by which they are told |
//! | `side` | one of our processes |
//! | `perftest` | the C programs that do the same |
//! | `processes` | running a server and a client |
//! | `rounds` | taking turns, and what follows from the numbers |
//! | `series` | many latencies |
//! | `clock` | the processor's clock, and the time that a process computes |

#![deny(unsafe_code)]

mod clock;
mod options;
mod perftest;
mod place;
mod processes;
mod rounds;
mod series;
mod side;
mod test;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

pub use clock::ticks_per_microsecond;
pub use options::Options;
pub use perftest::{messages_per_second, program};
pub use place::Place;
pub use rounds::{Pairs, Turns};
pub use series::Series;
pub use test::{Kind, Operation, Test};

/// Of a benchmark, which has one reader.
pub type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Runs a benchmark, or one of the processes that it starts: those are this program too. `total`: how long its rows may
/// take, if nothing else is asked for.
pub fn main(
    name: &str,
    about: &str,
    total: Duration,
    benchmark: impl FnOnce(&Options) -> Result<()>,
) -> ExitCode {
    let mut words = std::env::args().skip(1);
    let result = match words.next().as_deref() {
        Some(side::WORD) => side::run(&words.collect::<Vec<_>>()),
        _ => Options::parse(about, total)
            .and_then(|options| options.map_or(Ok(()), |options| benchmark(&options))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ours once; what the client and the server printed.
pub fn ours(place: &Place, test: &Test) -> Result<String> {
    let program = std::env::current_exe()?;
    processes::run(place, test, |port, host| {
        let mut command = place.command(&program);
        command.arg(side::WORD).args(side::words(test, place, port, host));
        command
    })
}

/// C's once; what the client and the server printed.
pub fn theirs(place: &Place, test: &Test) -> Result<String> {
    processes::run(place, test, |port, host| perftest::command(place, test, port, host))
}
