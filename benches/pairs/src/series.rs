//! Many latencies.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::Result;

/// The percentiles that are told.
const PERCENTILES: [(&str, f64); 7] = [
    ("min", 0.0),
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("max", 100.0),
];

/// What a curve is drawn through.
const CURVE: [f64; 14] =
    [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99];

/// What is recorded: millionths of a microsecond.
const UNIT: f64 = 1e6;

/// Latencies in microseconds, to four digits.
#[derive(Debug, Clone)]
pub struct Series {
    histogram: Histogram<u64>,
    /// Microseconds that both processes computed in a round trip: sum, and of how many runs.
    computed: (f64, u32),
}

impl Series {
    /// None yet.
    pub fn new() -> Result<Self> {
        Ok(Self { histogram: Histogram::new(4)?, computed: (0.0, 0) })
    }

    /// Reads what two processes printed: `NUMBER, TICKS` a line, as perftest's `-H -C`, and ours also
    /// `computed MICROSECONDS` from each.
    pub fn read(output: &str, ticks_per_microsecond: f64) -> Result<Self> {
        let mut series = Self::new()?;
        let mut computed = None;
        for line in output.lines() {
            if let Some(time) = line.strip_prefix("computed ") {
                computed = Some(computed.unwrap_or(0.0) + time.parse::<f64>()?);
            }
            let Some((number, ticks)) = line.split_once(", ") else { continue };
            if let (Ok(_), Ok(ticks)) = (number.parse::<u64>(), ticks.trim().parse::<f64>()) {
                series.histogram.record((ticks / ticks_per_microsecond * UNIT) as u64)?;
            }
        }
        if let Some(computed) = computed {
            series.computed = (computed, 1);
        }
        if series.histogram.is_empty() {
            return Err(format!("no latencies in the output:\n{output}").into());
        }
        Ok(series)
    }

    /// All of another run too.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.histogram.add(&other.histogram)?;
        self.computed = (self.computed.0 + other.computed.0, self.computed.1 + other.computed.1);
        Ok(())
    }

    /// The latency in microseconds which so many percent do not exceed.
    pub fn at(&self, percent: f64) -> f64 {
        self.histogram.value_at_percentile(percent) as f64 / UNIT
    }

    /// The mean of the middle half, in microseconds: what is typical, also of two kinds of which each is about a half.
    pub fn middle(&self) -> f64 {
        let samples = self.samples();
        let (first, last) = (samples / 4, samples - samples / 4);
        let (mut before, mut sum) = (0, 0.0);
        for value in self.histogram.iter_recorded() {
            let after = before + value.count_at_value();
            let count = after.min(last).saturating_sub(before.max(first));
            sum += count as f64 * value.value_iterated_to() as f64;
            before = after;
        }
        sum / (last - first) as f64 / UNIT
    }

    /// How many.
    pub fn samples(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.histogram.mean() / UNIT
    }

    /// Microseconds that both sides computed in a round trip.
    pub fn computed(&self) -> Option<f64> {
        let (sum, runs) = self.computed;
        (runs > 0).then(|| sum / f64::from(runs))
    }

    /// The percentiles, and a curve of them; null where there are too few samples for one.
    pub fn to_json(&self) -> Value {
        let samples = self.samples();
        let known = |percent: f64| percent == 100.0 || samples as f64 * (1.0 - percent / 100.0) >= 1.0;
        let at = |percent| known(percent).then(|| self.at(percent));
        let mut object =
            Map::from_iter(PERCENTILES.map(|(name, percent)| (name.to_owned(), at(percent).into())));
        let curve: Vec<_> = CURVE.into_iter().filter_map(|percent| Some((percent, at(percent)?))).collect();
        object.insert("curve".to_owned(), json!(curve));
        object.insert("samples".to_owned(), samples.into());
        object.insert("computed".to_owned(), self.computed().into());
        object.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perftest_prints_is_read() {
        let output = " local address: LID 0x01 QPN 0x0100 PSN 0x345281\n#, cycles\n1, 2000\n2, 4000.5\n3, 1e+06\n\
                      64 3 1 2 3\ncomputed 1.5\ncomputed 2\n";
        let series = Series::read(output, 1000.0).unwrap();
        assert!((series.at(0.0) - 2.0).abs() < 1e-3, "{}", series.at(0.0));
        assert!((series.at(50.0) - 4.0005).abs() < 1e-3);
        assert!((series.at(100.0) - 1000.0).abs() < 0.1);
        assert_eq!(series.computed(), Some(3.5));
        // of three the one at each end counts, as there is no quarter of them
        assert!((series.middle() - 335.333_5).abs() < 0.1, "{}", series.middle());
        let json = series.to_json();
        assert_eq!((json["samples"].as_u64(), json["p99"].is_null()), (Some(3), true));
        assert!(Series::read("64 3 1 2 3\n", 1000.0).is_err());
    }

    #[test]
    fn the_middle_half_is_between_two_kinds() {
        let of = |few: u64| {
            let lines = (0..100).map(|n| format!("{n}, {}\n", if n < few { 1000 } else { 2000 }));
            Series::read(&lines.collect::<String>(), 1000.0).unwrap().middle()
        };
        for (few, middle) in [(0, 2.0), (25, 2.0), (49, 1.52), (51, 1.48), (75, 1.0), (100, 1.0)] {
            assert!((of(few) - middle).abs() < 1e-3, "{few}: {}", of(few));
        }
    }

    #[test]
    fn runs_add_up() {
        let one = Series::read("1, 1000\ncomputed 1\n", 1000.0).unwrap();
        let mut all = Series::read("1, 3000\ncomputed 3\n", 1000.0).unwrap();
        all.add(&one).unwrap();
        assert_eq!((all.to_json()["samples"].as_u64(), all.computed()), (Some(2), Some(2.0)));
    }
}
