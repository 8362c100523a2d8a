//! Reading what the ping-pong clients print, and the table of it.

use anyhow::{Context as _, Result};
use std::fmt::{self, Display};

/// The columns of the latency, as the programs name them.
const LATENCIES: [&str; 6] = ["min", "p50", "p90", "p99", "p99.9", "max"];

/// One run.
#[derive(Debug, PartialEq)]
pub(super) struct Measurement {
    size: u64,
    iterations: u64,
    microseconds: f64,
    megabits: f64,
    /// Of one round trip, in microseconds; None if the program doesn't say.
    latencies: [Option<f64>; 6],
}

/// All runs.
#[derive(Debug, PartialEq)]
pub(super) struct Results(Vec<Measurement>);

impl Results {
    /// Reads the output of `run.sh`.
    pub(super) fn read(output: &str) -> Result<Self> {
        let output = format!("\n{output}");
        let runs = output.split("\nsize ").skip(1);
        let measurements: Result<Vec<_>> = runs
            .map(|run| measurement(run).with_context(|| format!("unexpected output of the client:\n{run}")))
            .collect();
        Ok(Self(measurements?))
    }
}

fn measurement(run: &str) -> Option<Measurement> {
    let mut lines = run.lines();
    let size = lines.next()?.trim().parse().ok()?;
    let mut found = (None, None, [None; 6]);
    for line in lines {
        // `… = 1234.56 Mbit/sec`, `1000 iters in … = 12.34 usec/iter`
        let value = line.rsplit_once(" = ").and_then(|(_, value)| value.split_once(' '));
        match value {
            Some((value, "Mbit/sec")) => found.0 = value.parse().ok(),
            Some((value, "usec/iter")) => {
                let iterations = line.split_whitespace().next().and_then(|word| word.parse().ok());
                found.1 = iterations.zip(value.parse().ok());
            }
            _ => {}
        }
        if let Some(values) = line.strip_prefix("latency usec: ") {
            found.2 = LATENCIES.map(|name| {
                let values = values.split_whitespace().filter_map(|word| word.split_once('='));
                values.into_iter().find(|(key, _)| *key == name)?.1.parse().ok()
            });
        }
    }
    let (Some(megabits), Some((iterations, microseconds)), latencies) = found else { return None };
    Some(Measurement { size, iterations, microseconds, megabits, latencies })
}

impl Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [size, iterations, time, rate] = ["bytes", "iters", "usec/iter", "Mbit/s"];
        write!(f, "{:33}  | latency in usec", "")?;
        write!(f, "\n{size:>8} {iterations:>6} {time:>9} {rate:>8} |")?;
        for name in LATENCIES {
            write!(f, " {name:>8}")?;
        }
        for run in &self.0 {
            let Measurement { size, iterations, microseconds, megabits, .. } = run;
            write!(f, "\n{size:>8} {iterations:>6} {microseconds:>9.2} {megabits:>8.2} |")?;
            for value in run.latencies {
                match value {
                    Some(value) => write!(f, " {value:>8.2}")?,
                    None => write!(f, " {:>8}", "-")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "size 64
  local address:  LID 0x0000, QPN 0x000012, PSN 0xb0ac02, GID ::ffff:10.8.0.1
  remote address: LID 0x0000, QPN 0x000011, PSN 0x7e0226, GID ::ffff:10.8.0.1
128000 bytes in 0.01 seconds = 75.90 Mbit/sec
1000 iters in 0.01 seconds = 13.49 usec/iter
latency usec: min=11.20 p50=13.10 p90=15.00 p99=21.50 p99.9=40.00 max=99.25 samples=1000
size 4096
8192000 bytes in 1.57 seconds = 8.33 Mbit/sec
200 iters in 1.57 seconds = 7870.23 usec/iter
";

    #[test]
    fn output_is_read_with_and_without_latency() {
        let Results(runs) = Results::read(OUTPUT).unwrap();
        let [first, second] = &runs[..] else { panic!("{runs:?}") };
        assert_eq!(
            (first.size, first.iterations, first.microseconds, first.megabits),
            (64, 1000, 13.49, 75.90)
        );
        assert_eq!(first.latencies, [11.2, 13.1, 15.0, 21.5, 40.0, 99.25].map(Some));
        assert_eq!((second.size, second.iterations), (4096, 200));
        assert_eq!(second.latencies, [None; 6]);
        assert!(Results::read("size 64\nnothing\n").is_err());
    }

    #[test]
    fn the_columns_stand_under_their_titles() {
        let table = Results::read(OUTPUT).unwrap().to_string();
        let widths: Vec<_> = table.lines().skip(1).map(str::len).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
        let bars: Vec<_> = table.lines().map(|line| line.find('|').unwrap()).collect();
        assert!(bars.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
    }
}
