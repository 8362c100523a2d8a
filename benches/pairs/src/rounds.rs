//! Taking turns, and what follows from the numbers.

use std::time::Instant;

use serde_json::{Value, json};

use crate::Result;

/// How far from 1 C may be beside C, taken as ours is, for anything to follow.
const SPREAD: f64 = 0.05;
/// How sure it is that a median is in its interval, of ratios that know nothing of each other. Of these, neighbours
/// share a run of C's, and an interval is surer than 95 % only so.
const CERTAINTY: f64 = 0.96;
/// So often a row is measured, however long it takes.
const LEAST: usize = 3;
/// So often before it is given up.
const PATIENCE: usize = 7;
/// So often what has nothing beside it is measured, at most.
const ALONE: usize = 9;

/// How often a row is measured: so many times, but no more after that moment.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    pub(crate) most: u32,
    pub(crate) until: Instant,
}

impl Turns {
    fn goes_on(&self, done: usize) -> bool {
        done < self.most as usize && (done < LEAST || Instant::now() < self.until)
    }

    /// C, ours, C, ours, …, C: each gives a number. It ends early where it is plain that nothing will follow; never
    /// because something does.
    pub fn pairs(
        &self,
        mut ours: impl FnMut() -> Result<f64>,
        mut theirs: impl FnMut() -> Result<f64>,
    ) -> Result<Pairs> {
        let start = Instant::now();
        let (mut of_ours, mut of_theirs) = (Vec::new(), vec![theirs()?]);
        let mut pairs = Pairs::new(&of_ours, &of_theirs);
        while self.goes_on(of_ours.len()) {
            of_ours.push(ours()?);
            of_theirs.push(theirs()?);
            pairs = Pairs::new(&of_ours, &of_theirs);
            let spent = start.elapsed().as_secs_f64();
            let left = self.until.saturating_duration_since(Instant::now()).as_secs_f64();
            if pairs.is_hopeless((spent + left) / spent, self.most) {
                break;
            }
        }
        Ok(pairs)
    }

    /// Ours alone.
    pub fn alone(&self, mut ours: impl FnMut() -> Result<f64>) -> Result<()> {
        let mut done = 0;
        while done < ALONE && self.goes_on(done) {
            ours()?;
            done += 1;
        }
        Ok(())
    }
}

/// Ours beside C's, taken in turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    /// Ours as a part of the mean of the C runs before and after, in order.
    ratios: Vec<f64>,
    /// The same of C: how far the interval of its median goes from 1.
    spread: f64,
}

impl Pairs {
    fn new(ours: &[f64], theirs: &[f64]) -> Self {
        let beside = |runs: &[f64], neighbours: &mut dyn Iterator<Item = (f64, f64)>| {
            sorted(runs.iter().zip(neighbours).map(|(run, (before, after))| 2.0 * run / (before + after)))
        };
        let after = |by: usize| theirs.iter().copied().zip(theirs.iter().copied().skip(by));
        let ratios = beside(ours, &mut after(1));
        let of_c = match theirs {
            // of two runs, one beside the other
            [first, second] => vec![first / second],
            _ => beside(theirs.get(1..).unwrap_or_default(), &mut after(2)),
        };
        let (low, high) = interval(&of_c);
        Self { ratios, spread: (low - 1.0).abs().max((high - 1.0).abs()) }
    }

    /// The median of the pairs.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// Whether even twice the precision that `times` as many pairs promise, of at most so many, would not be enough.
    fn is_hopeless(&self, times: f64, most: u32) -> bool {
        let done = self.ratios.len();
        let times = times.min(f64::from(most) / done as f64).max(1.0);
        done >= PATIENCE && self.spread / times.sqrt() > 2.0 * SPREAD
    }

    /// Whether C agrees with itself well enough.
    pub fn is_conclusive(&self) -> bool {
        self.spread <= SPREAD
    }

    /// Median and its interval, C's own spread, and whether they say anything.
    pub fn to_json(&self) -> Value {
        let (low, high) = interval(&self.ratios);
        json!({
            "pairs": self.ratios.len(),
            "ratio": self.ratio(),
            "low": low,
            "high": high,
            "spread": self.spread,
            "conclusive": self.is_conclusive(),
        })
    }
}

/// For people.
impl std::fmt::Display for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = interval(&self.ratios);
        let spread = self.spread * 100.0;
        if self.is_conclusive() {
            write!(f, "{:.3} of C ({low:.3} to {high:.3}; C differs by {spread:.1} %)", self.ratio())
        } else {
            write!(f, "inconclusive: {low:.3} to {high:.3} of C, which differs by {spread:.1} % from itself")
        }
    }
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// Where the median is of what these sorted numbers are samples of: between two of them, as long as there are enough to
/// be [`CERTAINTY`] sure (six), else between the extremes. Whatever the numbers' distribution: half of it is above the
/// median, so that how many samples are is like heads of a coin. Wild runs are common, and change nothing here.
fn interval(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len();
    // the chance of so many heads, and of so many or fewer
    let (mut chance, mut tail, mut cut) = (0.5f64.powi(count as i32), 0.0, 0);
    loop {
        tail += chance;
        if 1.0 - 2.0 * tail < CERTAINTY || 2 * cut >= count {
            break;
        }
        cut += 1;
        chance *= (count + 1 - cut) as f64 / cut as f64;
    }
    // cut - 1 at each end are outside
    let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
    let outside = cut.saturating_sub(1);
    (at(outside), at(count.saturating_sub(1 + outside)))
}

/// Of sorted numbers.
fn median(numbers: &[f64]) -> f64 {
    let at = |index: usize| numbers.get(index).copied().unwrap_or(f64::NAN);
    match numbers.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => at(odd / 2),
        even => f64::midpoint(at(even / 2 - 1), at(even / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_of_the_machine_cancels() {
        // everything becomes slower by 10 % from run to run; ours is equal
        let theirs = [100.0, 120.0, 140.0, 160.0];
        let pairs = Pairs::new(&[110.0, 130.0, 150.0], &theirs);
        assert_eq!((pairs.ratio(), pairs.spread), (1.0, 0.0));
    }

    #[test]
    fn what_is_of_two_kinds_is_not_conclusive() {
        let theirs = [10.0, 10.0, 40.0, 10.0, 40.0, 40.0, 10.0, 40.0];
        let pairs = Pairs::new(&[10.0; 7], &theirs);
        assert!(!pairs.is_conclusive(), "{pairs}");
        assert!(!Pairs::new(&[10.0], &[10.0, 11.0]).is_conclusive());
    }

    #[test]
    fn the_median_is_between_as_many_as_are_needed_to_be_sure() {
        // the tables of the sign test: of 6 to 8 the extremes, of 9 to 11 the second ones, of 12 to 14 the third ones
        for (count, outside) in
            [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (14, 2), (15, 3), (26, 7)]
        {
            let numbers: Vec<f64> = (0..count).map(f64::from).collect();
            assert_eq!(interval(&numbers), (f64::from(outside), f64::from(count - 1 - outside)), "{count}");
        }
    }

    #[test]
    fn the_interval_has_the_ratio_as_often_as_it_says() {
        // a generator of its own: the same numbers each time
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        // runs that differ by up to 20 %, ours 3 % slower
        let (mut hits, all) = (0, 2000);
        for _ in 0..all {
            let mut run = |of: f64| of * (1.0 + 0.2 * random());
            let theirs: Vec<f64> = (0..25).map(|_| run(1.0)).collect();
            let ours: Vec<f64> = (0..24).map(|_| run(1.03)).collect();
            let (low, high) = interval(&Pairs::new(&ours, &theirs).ratios);
            hits += u32::from(low <= 1.03 && 1.03 <= high);
        }
        let part = f64::from(hits) / f64::from(all);
        assert!((0.945..0.985).contains(&part), "{part}");
    }

    #[test]
    fn what_will_not_follow_is_given_up_and_what_may_is_not() {
        let turns = Turns { most: 40, until: Instant::now() + std::time::Duration::from_secs(60) };
        let count = |of_c: [f64; 2]| {
            let mut theirs = of_c.into_iter().cycle();
            turns.pairs(|| Ok(1.0), || theirs.next().ok_or("end".into())).unwrap().ratios.len()
        };
        assert_eq!([[1.0, 1.0], [1.0, 1.1], [1.0, 3.0]].map(count), [40, 40, PATIENCE]);
    }

    #[test]
    fn one_bad_run_does_not_count() {
        let turns = |most| Turns { most, until: Instant::now() + std::time::Duration::from_secs(60) };
        let mut ours = [10.2, 10.2, 30.0].into_iter().chain(std::iter::repeat(10.2));
        let pairs = turns(9).pairs(|| ours.next().ok_or("end".into()), || Ok(10.0)).unwrap();
        assert!((pairs.ratio() - 1.02).abs() < 1e-9 && pairs.is_conclusive());
        assert_eq!(pairs.to_string(), "1.020 of C (1.020 to 1.020; C differs by 0.0 %)");
        let json = pairs.to_json();
        assert_eq!((json["pairs"].as_u64(), json["conclusive"].as_bool()), (Some(9), Some(true)));
    }

    #[test]
    fn a_row_that_has_no_time_left_is_measured_three_times() {
        let turns = |most| Turns { most, until: Instant::now() };
        let count = |most| turns(most).pairs(|| Ok(1.0), || Ok(1.0)).unwrap().ratios.len();
        assert_eq!([1, 3, 9].map(count), [1, 3, 3]);
        let mut runs = 0;
        turns(9)
            .alone(|| {
                runs += 1;
                Ok(1.0)
            })
            .unwrap();
        assert_eq!(runs, 3);
    }
}
