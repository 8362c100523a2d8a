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
    /// It arrives, and its answer is lost.
    Unanswered,
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

/// Errno names that a plan may use, and the log uses.
pub(crate) const ERRNOS: [(&str, i32); 14] = [
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
    ("ENOENT", libc::ENOENT),
    ("EPROTONOSUPPORT", libc::EPROTONOSUPPORT),
];

/// All items.
const ITEMS: &str = "drop:N, answer:N, corrupt:N, delay:N:TIME, loss:PPM, seed:N, slow:TIME, verb:N:ERRNO, cqe:N:ERROR, \
                     overrun:N, qp:N, down:TIME, up:TIME";

fn nanoseconds(s: &str) -> Result<u64, String> {
    let (number, unit) = s.split_at(s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len()));
    let scale = match unit {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        _ => None,
    };
    let ns = scale.and_then(|scale| number.parse::<u64>().ok()?.checked_mul(scale));
    ns.ok_or_else(|| format!("{s:?} is not a time, which is a number with a unit: 50ns, 5us, 20ms, 1s"))
}

/// A count of messages, calls or completions.
fn count(s: &str) -> Result<u64, String> {
    let n = s.parse::<u64>().ok().filter(|n| *n > 0);
    n.ok_or_else(|| format!("{s:?} is not a count, which starts at 1"))
}

fn named<T: Copy>(s: &str, names: &[(&str, T)]) -> Result<T, String> {
    names.iter().find(|(n, _)| *n == s).map(|(_, v)| *v).ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(n, _)| *n).collect();
        format!("{s:?} is not one of {}", names.join(", "))
    })
}

/// Puts an item into a plan, unless something is there.
fn put_once<V>(plan: &mut BTreeMap<u64, V>, at: u64, what: V) -> Result<(), String> {
    match plan.insert(at, what) {
        None => Ok(()),
        Some(_) => Err("something else is to happen there".to_owned()),
    }
}

impl Faults {
    /// Reads a plan: items separated by commas; messages, verbs and completions are counted from 1 on.
    /// The README has the list.
    pub(crate) fn parse(plan: &str) -> Result<Self, String> {
        let mut f = Self { random: 0x9e37_79b9_7f4a_7c15, ..Self::default() };
        for item in plan.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            f.parse_item(item).map_err(|e| format!("fault {item:?}: {e}"))?;
        }
        Ok(f)
    }

    fn parse_item(&mut self, item: &str) -> Result<(), String> {
        const MILLION: u32 = 1_000_000;
        let parts: Vec<&str> = item.split(':').collect();
        match parts.as_slice() {
            ["drop", n] => put_once(&mut self.planned, count(n)?, Verdict::Drop),
            ["answer", n] => put_once(&mut self.planned, count(n)?, Verdict::Unanswered),
            ["corrupt", n] => put_once(&mut self.planned, count(n)?, Verdict::Corrupt),
            ["qp", n] => put_once(&mut self.planned, count(n)?, Verdict::Fail),
            ["delay", n, t] => put_once(&mut self.planned, count(n)?, Verdict::Delay(nanoseconds(t)?)),
            ["verb", n, e] => put_once(&mut self.failing, count(n)?, named(e, &ERRNOS)?),
            ["cqe", n, e] => put_once(&mut self.bad, count(n)?, named(e, &SYNDROMES)?),
            ["down", t] => put_once(&mut self.links, nanoseconds(t)?, false),
            ["up", t] => put_once(&mut self.links, nanoseconds(t)?, true),
            ["overrun", n] => {
                self.overruns.insert(count(n)?);
                Ok(())
            }
            ["loss", ppm] => {
                let n = ppm.parse().ok().filter(|n| *n <= MILLION);
                self.drop_ppm = n.ok_or_else(|| format!("{ppm:?} is not a number from 0 to {MILLION}"))?;
                Ok(())
            }
            ["slow", t] => {
                self.slow = nanoseconds(t)?;
                Ok(())
            }
            ["seed", n] => {
                self.random = n.parse::<u64>().map_err(|_| format!("{n:?} is not a number"))? | 1;
                Ok(())
            }
            _ => Err(format!("no such fault; there are {ITEMS}")),
        }
    }

    /// The `nth` message from now on (1: the next) suffers `what`.
    pub(crate) fn add(&mut self, nth: u64, what: Verdict) {
        self.planned.insert(self.messages.saturating_add(nth.max(1)), what);
    }

    /// The `nth` control call from now on fails.
    pub(crate) fn fail_verb(&mut self, nth: u64, errno: i32) {
        self.failing.insert(self.verbs.saturating_add(nth.max(1)), errno);
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

    /// Counts a successful send completion, of a signaled request; says whether it is an error instead.
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
        let mut f = Faults::parse("drop:2, delay:3:5us ,verb:1:ENOMEM,corrupt:4,answer:5").unwrap();
        let got: Vec<_> = (0..6).map(|_| f.on_message()).collect();
        let [pass, lost, late] = [Verdict::Pass, Verdict::Drop, Verdict::Delay(5000)];
        assert_eq!(got, [pass, lost, late, Verdict::Corrupt, Verdict::Unanswered, pass]);
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
    fn nonsense_is_refused_with_what_is_allowed() {
        for (p, says) in [
            ("cqe:1:what", "loc-len, loc-qp-op"),
            ("down", "no such fault; there are drop:N"),
            ("drop", "no such fault"),
            ("drop:x", "starts at 1"),
            ("drop:0", "starts at 1"),
            ("overrun:0", "starts at 1"),
            ("cqe:0:rem-op", "starts at 1"),
            ("verb:0:EIO", "starts at 1"),
            ("verb:1:EWHAT", "ENOMEM, EINVAL"),
            ("delay:1", "no such fault"),
            ("delay:1:3h", "5us"),
            ("delay:1:3", "a number with a unit"),
            ("slow:5", "a number with a unit"),
            ("slow:99999999999s", "a number with a unit"),
            ("loss:1000001", "from 0 to 1000000"),
            ("loss:-1", "from 0 to 1000000"),
            ("drop:1:2:3", "no such fault"),
            ("drop:1,corrupt:1", "something else"),
            ("what:1", "no such fault"),
        ] {
            let e = Faults::parse(p).unwrap_err();
            assert!(e.contains(says) && e.contains(p.split(',').next_back().unwrap()), "{p}: {e}");
        }
    }
}
