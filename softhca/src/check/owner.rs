//! Buffers that the program says the CPU owns: the device must not touch them.

use crate::mem::Span;
use crate::model::Model;
use std::collections::BTreeMap;

/// Stretches of memory that the CPU owns, by address.
#[derive(Debug, Default)]
pub(crate) struct Owned {
    by_start: BTreeMap<u64, u64>,
}

impl Owned {
    /// The CPU owns `len` bytes at `addr` from now on.
    pub(crate) fn own(&mut self, addr: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(addr, addr.saturating_add(len));
        }
    }

    /// The stretch at `addr` is the device's to use again.
    pub(crate) fn release(&mut self, addr: u64) {
        self.by_start.remove(&addr);
    }

    /// An owned stretch that overlaps `len` bytes at `addr`.
    fn hit(&self, addr: u64, len: u64) -> Option<(u64, u64)> {
        let end = addr.saturating_add(len);
        // Stretches don't overlap one another, so only the last one that starts before `end` can reach in.
        self.by_start.range(..end).next_back().filter(|(_, e)| **e > addr).map(|(s, e)| (*s, *e))
    }
}

impl Model {
    /// The device is about to write the first `len` bytes of `spans`.
    pub(crate) fn check_owned(&mut self, spans: &[Span], len: u64) {
        self.check_spans(spans, len, "writes");
    }

    /// The device is about to read `spans`.
    pub(crate) fn check_owned_read(&mut self, spans: &[Span]) {
        self.check_spans(spans, u64::MAX, "reads");
    }

    fn check_spans(&mut self, spans: &[Span], len: u64, what: &str) {
        if self.owned.by_start.is_empty() {
            return;
        }
        let mut left = len;
        for s in spans {
            let n = s.len.min(left);
            left -= n;
            if n == 0 {
                continue;
            }
            if let Some((from, to)) = self.owned.hit(s.addr, n) {
                self.violation(format!(
                    "the device {what} {n} bytes at {:#x}, which the CPU owns ({from:#x}..{to:#x})",
                    s.addr
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found() {
        let mut o = Owned::default();
        o.own(100, 10);
        o.own(200, 1);
        assert_eq!(o.hit(90, 10), None);
        assert_eq!(o.hit(90, 11), Some((100, 110)));
        assert_eq!(o.hit(109, 1), Some((100, 110)));
        assert_eq!(o.hit(110, 90), None);
        assert_eq!(o.hit(0, 1000), Some((200, 201)));
        o.release(200);
        assert_eq!(o.hit(150, 100), None);
    }
}
