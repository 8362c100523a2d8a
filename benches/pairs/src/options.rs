//! The command line of a benchmark.

use std::time::{Duration, Instant};

use lexopt::prelude::*;
use serde_json::json;

use crate::{Result, Test, Turns};

/// What was asked for.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "not published")]
pub struct Options {
    /// Results as lines of JSON instead of a table.
    pub json: bool,
    /// Pairs of each row, at most.
    pub pairs: u32,
    /// How long a run shall take.
    pub time: Duration,
    /// How long all rows together shall take.
    pub total: Duration,
    /// Rows whose name contains one of these, or all.
    pub names: Vec<String>,
}

const OPTIONS: &str = "
  NAME...        only the rows whose name contains one of them
  --pairs N      how often each row is measured beside C's program, at most (default 100)
  --time MS      how long a run takes, as far as it can be foreseen (default 50)
  --total S      how long all rows together may take: they get fewer pairs for it, but 3 (default: see above)
  --json         the results as lines of JSON

IBV_DEVICE names the device, IBV_PORT its port (default 1), IBV_GID_INDEX the GID to send from. Without IBV_DEVICE it
is the software HCA, whose times say nothing about hardware.";

impl Options {
    /// None if help was wanted, and printed.
    pub(crate) fn parse(about: &str, total: Duration) -> Result<Option<Self>> {
        let time = Duration::from_millis(50);
        let mut options = Self { json: false, pairs: 100, time, total, names: Vec::new() };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("json") => options.json = true,
                Long("pairs") => options.pairs = parser.value()?.parse::<u32>()?.max(1),
                Long("time") => options.time = Duration::from_millis(parser.value()?.parse::<u64>()?.max(1)),
                Long("total") => options.total = Duration::from_secs(parser.value()?.parse()?),
                // what Cargo says to every benchmark
                Long("bench") => {}
                Value(name) => options.names.push(name.string()?),
                Short('h') | Long("help") => {
                    println!("{about} (--total {})\n{OPTIONS}", total.as_secs());
                    return Ok(None);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(options))
    }

    /// Measures all of these tests that are wanted, which `row` does and prints, and goes on after one that fails.
    pub fn measure(
        &self,
        name: &str,
        tests: Vec<Test>,
        mut row: impl FnMut(Test, Turns) -> Result<()>,
    ) -> Result<()> {
        let tests: Vec<Test> = tests.into_iter().filter(|test| self.wants(&test.to_string())).collect();
        let (count, start, mut failed) = (tests.len(), Instant::now(), 0);
        for (number, test) in tests.into_iter().enumerate() {
            let title = test.to_string();
            eprintln!("{name}: {}/{count} {title}, {:.0} s", number + 1, start.elapsed().as_secs_f64());
            // each has its share of what is left
            let left = self.total.saturating_sub(start.elapsed()) / u32::try_from(count - number)?;
            let turns = Turns { most: self.pairs, until: Instant::now() + left };
            if let Err(error) = row(test, turns) {
                failed += 1;
                let said = if self.json {
                    json!({ "name": title, "failed": error.to_string() }).to_string()
                } else {
                    format!("{title}: failed: {error}")
                };
                println!("{said}");
            }
        }
        if failed == 0 { Ok(()) } else { Err(format!("{failed} of {count} rows failed").into()) }
    }

    /// Whether a row is wanted.
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| name.contains(wanted.as_str()))
    }
}
