//! Fault injection: what the tests and `SOFTHCA_FAULTS` make go wrong.

use crate::bits::Syndrome;
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    Delay(u64),
    Corrupt,
    /// The QP fails.
    Fail,
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
    /// Send completions so far, and which ones are errors.
    completions: u64,
    bad: BTreeMap<u64, Syndrome>,
    /// CQEs so far, and which ones find no room.
    cqes: u64,
    overruns: BTreeSet<u64>,
    /// The next CQE of this CQ finds no room.
    overrun: Option<u32>,
    /// When the links go down (false) and up (true).
    links: BTreeMap<u64, bool>,
}

/// Names of errors that a plan may use.
const SYNDROMES: [(&str, Syndrome); 9] = [
    ("loc-len", Syndrome::LocalLength),
    ("loc-qp-op", Syndrome::LocalQpOp),
    ("loc-prot", Syndrome::LocalProtection),
    ("rem-inv-req", Syndrome::RemoteInvalidRequest),
    ("rem-access", Syndrome::RemoteAccess),
    ("rem-op", Syndrome::RemoteOperation),
    ("retry-exc", Syndrome::RetryExceeded),
    ("rnr-retry-exc", Syndrome::RnrRetryExceeded),
    ("bad-resp", Syndrome::BadResponse),
];

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
    /// Reads a plan: items separated by commas; messages, verbs and completions are counted from 1 on.
    /// The README has the list.
    pub(crate) fn parse(plan: &str) -> Result<Self, String> {
        let mut f = Self { random: 0x9e37_79b9_7f4a_7c15, ..Self::default() };
        for item in plan.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let bad = || format!("fault {item:?}: not understood");
            let mut parts = item.split(':');
            let (what, first, second) = (parts.next(), parts.next().ok_or_else(bad)?, parts.next());
            let number = || first.parse::<u64>().map_err(|_| bad());
            match (what, second) {
                (Some("drop"), None) => f.plan(number()?, Verdict::Drop),
                (Some("qp"), None) => f.plan(number()?, Verdict::Fail),
                (Some("cqe"), Some(name)) => {
                    let s = SYNDROMES.iter().find(|(n, _)| *n == name).ok_or_else(bad)?.1;
                    f.bad.insert(number()?, s);
                }
                (Some("overrun"), None) => {
                    f.overruns.insert(number()?);
                }
                (Some("down"), None) => {
                    f.links.insert(nanoseconds(first).ok_or_else(bad)?, false);
                }
                (Some("up"), None) => {
                    f.links.insert(nanoseconds(first).ok_or_else(bad)?, true);
                }
                (Some("corrupt"), None) => f.plan(number()?, Verdict::Corrupt),
                (Some("delay"), Some(t)) => {
                    f.plan(number()?, Verdict::Delay(nanoseconds(t).ok_or_else(bad)?));
                }
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

    /// The next successful send completion is an error.
    pub(crate) fn set_bad_completion(&mut self, s: Syndrome) {
        self.bad.insert(self.completions + 1, s);
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

    /// Counts a successful send completion; says whether it is an error instead.
    pub(crate) fn on_completion(&mut self) -> Option<Syndrome> {
        self.completions += 1;
        self.bad.remove(&self.completions)
    }

    /// Counts a CQE of CQ `cqn`; says whether it finds no room.
    pub(crate) fn on_cqe(&mut self, cqn: u32) -> bool {
        self.cqes += 1;
        self.overruns.remove(&self.cqes) || self.overrun.take_if(|n| *n == cqn).is_some()
    }

    /// What becomes of the links by `now`.
    pub(crate) fn due_link(&mut self, now: u64) -> Option<bool> {
        let first = self.links.first_entry().filter(|e| *e.key() <= now)?;
        Some(first.remove())
    }

    /// When a link changes next.
    pub(crate) fn next_link(&self) -> Option<u64> {
        self.links.first_key_value().map(|(t, _)| *t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_happens_as_written() {
        let mut f = Faults::parse("drop:2, delay:3:5us ,verb:1:ENOMEM,corrupt:4").unwrap();
        let got: Vec<_> = (0..5).map(|_| f.on_message()).collect();
        assert_eq!(
            got,
            [Verdict::Pass, Verdict::Drop, Verdict::Delay(5000), Verdict::Corrupt, Verdict::Pass]
        );
        assert_eq!(f.on_verb(), Some(libc::ENOMEM));
        assert_eq!(f.on_verb(), None);
        f.add(1, Verdict::Drop);
        assert_eq!(f.on_message(), Verdict::Drop);
    }

    #[test]
    fn links_completions_and_entries_are_planned() {
        let mut f = Faults::parse("down:5us,up:1ms,cqe:2:retry-exc,overrun:3,qp:1").unwrap();
        assert_eq!((f.due_link(4999), f.next_link()), (None, Some(5000)));
        assert_eq!((f.due_link(5000), f.due_link(5000)), (Some(false), None));
        assert_eq!(f.due_link(u64::MAX), Some(true));
        assert_eq!((f.on_completion(), f.on_completion()), (None, Some(Syndrome::RetryExceeded)));
        assert_eq!((f.on_cqe(1), f.on_cqe(1), f.on_cqe(1), f.on_cqe(1)), (false, false, true, false));
        assert_eq!(f.on_message(), Verdict::Fail);
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
        for p in [
            "cqe:1:what",
            "down",
            "drop",
            "drop:x",
            "verb:1:EWHAT",
            "delay:1",
            "delay:1:3h",
            "drop:1:2:3",
            "what:1",
        ] {
            assert!(Faults::parse(p).is_err(), "{p}");
        }
    }
}
