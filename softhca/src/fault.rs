//! Fault injection: what the tests and `SOFTHCA_FAULTS` make go wrong.

use crate::bits::Syndrome;
use std::collections::BTreeMap;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    Delay(u64),
    Corrupt,
}

/// The faults to come.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Messages sent so far, and what the ones to come suffer.
    messages: u64,
    planned: BTreeMap<u64, Verdict>,
    /// Control calls so far, and which ones fail.
    verbs: u64,
    failing: BTreeMap<u64, i32>,
    /// Out of 1,000,000 messages, so many are lost.
    drop_ppm: u32,
    /// Each message takes so long.
    slow: u64,
    random: u64,
    bad_completion: Option<Syndrome>,
    overrun: Option<u32>,
}

/// Errno names that a plan may use.
const ERRNOS: [(&str, i32); 12] = [
    ("ENOMEM", libc::ENOMEM),
    ("EINVAL", libc::EINVAL),
    ("EAGAIN", libc::EAGAIN),
    ("EIO", libc::EIO),
    ("EBUSY", libc::EBUSY),
    ("EPERM", libc::EPERM),
    ("EFAULT", libc::EFAULT),
    ("ENODEV", libc::ENODEV),
    ("ENOSPC", libc::ENOSPC),
    ("EOPNOTSUPP", libc::EOPNOTSUPP),
    ("EINTR", libc::EINTR),
    ("ETIMEDOUT", libc::ETIMEDOUT),
];

fn nanoseconds(s: &str) -> Option<u64> {
    let (number, unit) = match s.find(|c: char| !c.is_ascii_digit()) {
        Some(i) => s.split_at_checked(i)?,
        None => (s, "ns"),
    };
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

impl Faults {
    /// Reads a plan: items separated by commas, messages and verbs counted from 1 on:
    /// `drop:N`, `corrupt:N`, `delay:N:TIME`, `verb:N:ERRNO`, `loss:PPM`, `slow:TIME`, `seed:N`.
    pub(crate) fn parse(plan: &str) -> Result<Self, String> {
        let mut f = Self { random: 0x9e37_79b9_7f4a_7c15, ..Self::default() };
        for item in plan.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let bad = || format!("fault {item:?}: not understood");
            let mut parts = item.split(':');
            let (what, first, second) = (parts.next(), parts.next().ok_or_else(bad)?, parts.next());
            let number = || first.parse::<u64>().map_err(|_| bad());
            match (what, second) {
                (Some("drop"), None) => f.plan(number()?, Verdict::Drop),
                (Some("corrupt"), None) => f.plan(number()?, Verdict::Corrupt),
                (Some("delay"), Some(t)) => f.plan(number()?, Verdict::Delay(nanoseconds(t).ok_or_else(bad)?)),
                (Some("verb"), Some(name)) => {
                    let e = ERRNOS.iter().find(|(n, _)| *n == name).ok_or_else(bad)?.1;
                    f.failing.insert(number()?, e);
                }
                (Some("loss"), None) => f.drop_ppm = u32::try_from(number()?).map_err(|_| bad())?,
                (Some("slow"), None) => f.slow = nanoseconds(first).ok_or_else(bad)?,
                (Some("seed"), None) => f.random = number()? | 1,
                _ => return Err(bad()),
            }
            if parts.next().is_some() {
                return Err(bad());
            }
        }
        Ok(f)
    }

    fn plan(&mut self, nth: u64, what: Verdict) {
        self.planned.insert(self.messages + nth, what);
    }

    /// The `nth` message from now on (1: the next) suffers `what`.
    pub(crate) fn add(&mut self, nth: u64, what: Verdict) {
        self.plan(nth.max(1), what);
    }

    /// The `nth` control call from now on fails.
    pub(crate) fn fail_verb(&mut self, nth: u64, errno: i32) {
        self.failing.insert(self.verbs + nth.max(1), errno);
    }

    pub(crate) fn set_loss(&mut self, ppm: u32, seed: u64) {
        self.drop_ppm = ppm;
        self.random = seed | 1;
    }

    pub(crate) fn set_slow(&mut self, ns: u64) {
        self.slow = ns;
    }

    pub(crate) fn set_bad_completion(&mut self, s: Syndrome) {
        self.bad_completion = Some(s);
    }

    pub(crate) fn set_overrun(&mut self, cqn: u32) {
        self.overrun = Some(cqn);
    }

    fn random(&mut self) -> u64 {
        // xorshift64*: reproducible, and good enough to lose messages by.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Counts a message; says what becomes of it.
    pub(crate) fn on_message(&mut self) -> Verdict {
        self.messages += 1;
        if let Some(v) = self.planned.remove(&self.messages) {
            return v;
        }
        if self.drop_ppm > 0 && self.random() % 1_000_000 < u64::from(self.drop_ppm) {
            return Verdict::Drop;
        }
        if self.slow > 0 { Verdict::Delay(self.slow) } else { Verdict::Pass }
    }

    /// Counts a control call; says whether it fails.
    pub(crate) fn on_verb(&mut self) -> Option<i32> {
        self.verbs += 1;
        self.failing.remove(&self.verbs)
    }

    pub(crate) fn take_bad_completion(&mut self) -> Option<Syndrome> {
        self.bad_completion.take()
    }

    pub(crate) fn take_overrun(&mut self, cqn: u32) -> bool {
        self.overrun.take_if(|n| *n == cqn).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_happens_as_written() {
        let mut f = Faults::parse("drop:2, delay:3:5us ,verb:1:ENOMEM,corrupt:4").unwrap();
        let got: Vec<_> = (0..5).map(|_| f.on_message()).collect();
        assert_eq!(got, [Verdict::Pass, Verdict::Drop, Verdict::Delay(5000), Verdict::Corrupt, Verdict::Pass]);
        assert_eq!(f.on_verb(), Some(libc::ENOMEM));
        assert_eq!(f.on_verb(), None);
        f.add(1, Verdict::Drop);
        assert_eq!(f.on_message(), Verdict::Drop);
    }

    #[test]
    fn loss_is_reproducible() {
        let run = || {
            let mut f = Faults::parse("loss:100000,seed:7").unwrap();
            (0..1000).filter(|_| f.on_message() == Verdict::Drop).count()
        };
        let n = run();
        assert!((50..200).contains(&n), "{n}");
        assert_eq!(n, run());
    }

    #[test]
    fn nonsense_is_refused() {
        for p in ["drop", "drop:x", "verb:1:EWHAT", "delay:1", "delay:1:3h", "drop:1:2:3", "what:1"] {
            assert!(Faults::parse(p).is_err(), "{p}");
        }
    }
}
