//! Nanoseconds, as ratios.
//!
//! Samples of ours, C's and C's once more take turns, so that whatever else the machine does meets all alike. If C
//! differs from C by more than [`SPREAD`], nothing can be concluded.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ibv::Error;

use crate::row::{Loop, Row};

/// Samples of each kind.
const SAMPLES: usize = 150;
/// What a sample takes at least, so that the clock's resolution does not count.
const SAMPLE: Duration = Duration::from_micros(50);
/// How far two measurements of the same C may be apart.
const SPREAD: f64 = 0.05;

/// What an operation took, over all samples, in nanoseconds.
struct Times {
    min: f64,
    median: f64,
}

impl Times {
    fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |index: usize| samples.get(index).copied().unwrap_or(f64::NAN);
        Self { min: at(0), median: at(samples.len() / 2) }
    }

    /// How far they are from others of the same.
    fn apart(&self, other: &Self) -> f64 {
        let apart = |a: f64, b: f64| (a / b - 1.0).abs();
        apart(self.min, other.min).max(apart(self.median, other.median))
    }
}

/// A row that was measured.
pub(crate) struct Timed {
    group: &'static str,
    name: &'static str,
    per_operation: u32,
    expected: Option<f64>,
    ours: Times,
    theirs: Times,
    spread: f64,
}

/// How long so many operations take, without looking at the clock.
fn time(side: &mut Loop<'_>, operations: u64, limit: u64, clock: Duration) -> Result<Duration, Error> {
    let (mut left, mut taken) = (operations, Duration::ZERO);
    while left > 0 {
        let now = left.min(limit);
        side.run(now, |run| {
            let start = Instant::now();
            assert!(run(), "a call failed");
            taken += start.elapsed().saturating_sub(clock);
        })?;
        left -= now;
    }
    Ok(taken)
}

/// What looking at the clock twice takes.
fn clock() -> Duration {
    let samples = std::iter::repeat_with(|| {
        let start = Instant::now();
        start.elapsed()
    });
    samples.take(1000).min().unwrap_or_default()
}

impl Timed {
    /// Measures a row.
    pub(crate) fn measure(group: &'static str, row: &mut Row<'_>) -> Result<Self, Error> {
        let (limit, clock) = (row.limit, clock());
        let mut operations = limit.min(64);
        while time(&mut row.theirs, operations, limit, clock)? < SAMPLE {
            operations *= 2;
        }
        let (mut ours, mut theirs, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            let sample = |side: &mut Loop<'_>, samples: &mut Vec<f64>| {
                let taken = time(side, operations, limit, clock)?;
                samples.push(taken.as_secs_f64() * 1e9 / operations as f64);
                Ok::<_, Error>(())
            };
            sample(&mut row.ours, &mut ours)?;
            sample(&mut row.theirs, &mut theirs)?;
            sample(&mut row.theirs, &mut again)?;
        }
        let [ours, theirs, again] = [ours, theirs, again].map(Times::of);
        let spread = theirs.apart(&again);
        let Row { name, per_operation, expected, .. } = *row;
        Ok(Self { group, name, per_operation, expected, ours, theirs, spread })
    }

    fn is_conclusive(&self) -> bool {
        self.spread <= SPREAD
    }

    fn ratios(&self) -> (f64, f64) {
        (self.ours.min / self.theirs.min, self.ours.median / self.theirs.median)
    }

    /// One line of JSON, for the report.
    fn json(&self) -> String {
        let Self { group, name, per_operation, expected, ours, theirs, spread } = self;
        let pair = |times: &Times| {
            let each = |time: f64| time / f64::from(*per_operation);
            format!(r#"{{"min":{:.3},"median":{:.3}}}"#, each(times.min), each(times.median))
        };
        let (min, median) = self.ratios();
        let expected = expected.map_or("null".to_owned(), |expected| expected.to_string());
        format!(
            r#"{{"group":"{group}","name":"{name}","unit":"ns","ours":{},"theirs":{},"ratio_min":{min:.4},"ratio_median":{median:.4},"expected":{expected},"spread":{spread:.4},"conclusive":{}}}"#,
            pair(ours),
            pair(theirs),
            self.is_conclusive()
        )
    }
}

/// The head of the table.
pub(crate) fn head() -> String {
    format!("{:28} {:>15} {:>15}   ratio to C", "min / median", "ours, ns", "C, ns")
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |of: &Times| format!("{:.1} / {:.1}", of.min, of.median);
        let name = match self.per_operation {
            1 => format!("{} {}", self.group, self.name),
            all => format!("{} {} (all {all})", self.group, self.name),
        };
        write!(f, "{name:34} {:>15} {:>15}   ", pair(&self.ours), pair(&self.theirs))?;
        if !self.is_conclusive() {
            return write!(f, "inconclusive: C differs from C by {:.0} %", self.spread * 100.0);
        }
        let (min, median) = self.ratios();
        write!(f, "{min:.2} / {median:.2}")?;
        self.expected.map_or(Ok(()), |expected| write!(f, " (expected {expected:.2})"))
    }
}

/// Where reports are made from: `ibv-bench` in Cargo's folder, which this program is in.
fn folder() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.ancestors().find(|folder| folder.ends_with("release"));
    let target = profile.and_then(Path::parent).ok_or(std::io::ErrorKind::NotFound)?;
    let folder = target.join("ibv-bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Writes the rows to `ns.json`, a line each, in the place of what was there of their groups.
pub(crate) fn report(rows: &[Timed]) -> std::io::Result<PathBuf> {
    let path = folder()?.join("ns.json");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let mut file = std::fs::File::create(&path)?;
    let is_renewed =
        |line: &str| rows.iter().any(|row| line.starts_with(&format!(r#"{{"group":"{}","#, row.group)));
    for line in before.lines().filter(|line| !is_renewed(line)) {
        writeln!(file, "{line}")?;
    }
    rows.iter().try_for_each(|row| writeln!(file, "{}", row.json()))?;
    Ok(path)
}
