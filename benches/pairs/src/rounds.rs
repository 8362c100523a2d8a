//! Taking turns, and what follows from the numbers.

use serde_json::{Value, json};

use crate::Result;

/// How far two runs of the same C program may typically be apart, for anything to follow.
const SPREAD: f64 = 0.05;

/// Ours beside C's, taken in turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    /// Ours as a part of the mean of the C runs before and after, in order.
    ratios: Vec<f64>,
    /// How far C is from itself: typically from one run to the next, or between the quarters of all runs if that is
    /// more, as where it is now of one kind and now of another.
    spread: f64,
}

impl Pairs {
    /// C, ours, C, ours, …, C: each gives a number.
    pub fn take(
        count: u32,
        mut ours: impl FnMut() -> Result<f64>,
        mut theirs: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        let (mut of_ours, mut of_theirs) = (Vec::new(), vec![theirs()?]);
        for _ in 0..count {
            of_ours.push(ours()?);
            of_theirs.push(theirs()?);
        }
        Ok(Self::new(&of_ours, &of_theirs))
    }

    fn new(ours: &[f64], theirs: &[f64]) -> Self {
        let neighbours = theirs.iter().zip(theirs.iter().skip(1));
        let ratios =
            ours.iter().zip(neighbours.clone()).map(|(ours, (before, after))| 2.0 * ours / (before + after));
        let apart = neighbours.map(|(before, after)| (after / before - 1.0).abs());
        let all = sorted(theirs.iter().copied());
        let quarter = |part: usize| all.get((all.len() - 1) * part / 4).copied().unwrap_or(f64::NAN);
        let between = (quarter(3) - quarter(1)) / median(&all);
        Self { ratios: sorted(ratios), spread: median(&sorted(apart)).max(between) }
    }

    /// The median of the pairs.
    pub fn ratio(&self) -> f64 {
        median(&self.ratios)
    }

    /// Whether C agrees with itself well enough.
    pub fn is_conclusive(&self) -> bool {
        self.spread <= SPREAD
    }

    /// Median, extremes, C's own spread, and whether they say anything.
    pub fn to_json(&self) -> Value {
        json!({
            "pairs": self.ratios.len(),
            "ratio": self.ratio(),
            "low": self.ratios.first(),
            "high": self.ratios.last(),
            "spread": self.spread,
            "conclusive": self.is_conclusive(),
        })
    }
}

/// For people.
impl std::fmt::Display for Pairs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = (self.ratios.first(), self.ratios.last());
        let [low, high] = [low, high].map(|ratio| ratio.copied().unwrap_or(f64::NAN));
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
        assert_eq!(pairs.ratio(), 1.0);
        assert!(!pairs.is_conclusive(), "{pairs}");
    }

    #[test]
    fn what_is_of_two_kinds_is_not_conclusive() {
        let theirs = [10.0, 10.0, 10.0, 10.0, 40.0, 40.0, 40.0, 40.0];
        let pairs = Pairs::new(&[10.0; 7], &theirs);
        assert!(!pairs.is_conclusive(), "{pairs}");
    }

    #[test]
    fn one_bad_run_does_not_count() {
        let mut ours = [10.2, 10.2, 30.0, 10.2, 10.2, 10.2, 10.2].into_iter();
        let pairs = Pairs::take(7, || ours.next().ok_or("end".into()), || Ok(10.0)).unwrap();
        assert!((pairs.ratio() - 1.02).abs() < 1e-9 && pairs.is_conclusive());
        assert_eq!(pairs.to_string(), "1.020 of C (1.020 to 3.000; C differs by 0.0 %)");
        let json = pairs.to_json();
        assert_eq!((json["pairs"].as_u64(), json["conclusive"].as_bool()), (Some(7), Some(true)));
    }
}
