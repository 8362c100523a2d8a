//! The command line of a benchmark.

use std::time::Duration;

use lexopt::prelude::*;

use crate::Result;

/// What was asked for.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "not published")]
pub struct Options {
    /// Results as lines of JSON instead of a table.
    pub json: bool,
    /// Pairs of each row.
    pub pairs: u32,
    /// How long a run shall take.
    pub time: Duration,
    /// Rows whose name contains this.
    pub filter: Option<String>,
}

const OPTIONS: &str = "
  NAME           only the rows whose name contains it
  --pairs N      how often each row is measured beside C's program (default 7)
  --time MS      how long a run takes, as far as it can be foreseen (default 150)
  --json         the results as lines of JSON

IBV_DEVICE names the device, IBV_PORT its port (default 1), IBV_GID_INDEX the GID to send from. Without IBV_DEVICE it
is the software HCA, whose times say nothing about hardware.";

impl Options {
    /// None if help was wanted, and printed.
    pub(crate) fn parse(about: &str) -> Result<Option<Self>> {
        let mut options = Self { json: false, pairs: 7, time: Duration::from_millis(150), filter: None };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("json") => options.json = true,
                Long("pairs") => options.pairs = parser.value()?.parse::<u32>()?.max(1),
                Long("time") => options.time = Duration::from_millis(parser.value()?.parse::<u64>()?.max(1)),
                // what Cargo says to every benchmark
                Long("bench") => {}
                Value(name) if options.filter.is_none() => options.filter = Some(name.string()?),
                Short('h') | Long("help") => {
                    println!("{about}\n{OPTIONS}");
                    return Ok(None);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(options))
    }

    /// Whether a row is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
    }
}
