//! What is printed: the lines of the `ibv_*_pingpong` programs, and latencies.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use ibv::Endpoint;

use super::{Options, Result};

/// Prints an address. (`ibv_ud_pingpong` has another separator in one of its lines.)
pub(crate) fn print_endpoint(whose: &str, endpoint: &Endpoint, separator: char) -> Result<()> {
    let Endpoint { lid, qpn, psn, gid } = endpoint;
    writeln!(
        io::stdout(),
        "  {whose:15} LID 0x{lid:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}{separator} GID {gid}"
    )?;
    Ok(())
}

/// Takes the time.
pub(crate) struct Stopwatch {
    started: Instant,
    /// When each ping was posted, and when the last pong had come; unused without `--latency`.
    stamps: Vec<Instant>,
    latency: bool,
}

impl Stopwatch {
    pub(crate) fn start(options: &Options) -> Result<Self> {
        let latency = options.latency;
        let mut stamps = Vec::new();
        if latency {
            // before the start, all the memory it takes: a stamp more than round trips
            stamps
                .try_reserve_exact(options.iters as usize + 1)
                .map_err(|error| format!("--latency with --iters {}: {error}", options.iters))?;
        }
        Ok(Self { stamps, latency, started: Instant::now() })
    }

    /// A round trip begins, the one before is over.
    pub(crate) fn stamp(&mut self) {
        if self.latency {
            self.stamps.push(Instant::now());
        }
    }

    /// All round trips are over: prints the times.
    pub(crate) fn stop(mut self, options: &Options) -> Result<()> {
        self.stamp();
        let microseconds = micros(self.started.elapsed());
        let seconds = microseconds / 1e6;
        let bytes = options.size as u64 * u64::from(options.iters) * 2;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
            bytes as f64 * 8.0 / microseconds
        )?;
        let iters = options.iters;
        writeln!(
            out,
            "{iters} iters in {seconds:.2} seconds = {:.2} usec/iter",
            microseconds / f64::from(iters)
        )?;
        if self.latency {
            writeln!(out, "{}", latencies(&self.stamps))?;
        }
        Ok(())
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// The round trips between these stamps, as one line.
fn latencies(stamps: &[Instant]) -> String {
    let mut trips: Vec<Duration> =
        stamps.iter().zip(stamps.iter().skip(1)).map(|(from, to)| to.duration_since(*from)).collect();
    trips.sort_unstable();
    // the smallest that so many of a thousand do not exceed
    let of = |permille: usize| {
        let rank = (trips.len() * permille).div_ceil(1000).max(1);
        trips.get(rank - 1).copied().map_or(0.0, micros)
    };
    format!(
        "latency usec: min={:.2} p50={:.2} p90={:.2} p99={:.2} p99.9={:.2} max={:.2} samples={}",
        of(0),
        of(500),
        of(900),
        of(990),
        of(999),
        of(1000),
        trips.len()
    )
}
