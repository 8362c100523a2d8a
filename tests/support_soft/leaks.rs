//! What is held: open files, and objects in the software HCA.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use softhca::Objects;

use crate::rig::hca;

/// How long a device that works by itself may take to clean up.
const LIMIT: Duration = Duration::from_secs(5);

/// Says, past the harness's capture, that this test did not run.
#[expect(clippy::explicit_write, reason = "`eprintln!` is captured")]
pub(crate) fn skip(reason: &str) {
    let test = thread::current().name().unwrap_or("?").to_owned();
    writeln!(std::io::stderr(), "ibv-skip: {test}: {reason}").unwrap();
}

/// Open files of this process, and objects of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    files: usize,
    objects: Objects,
}

impl Counts {
    pub(crate) fn now() -> Self {
        // the listing itself is one of them, always
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { files, objects: hca().objects() }
    }

    /// How many objects of that kind (`ctx`, `pd`, `mr`, `cq`, `qp`) there are.
    pub(crate) fn of(&self, kind: &str) -> u32 {
        let objects = &self.objects;
        let count = match kind {
            "ctx" => objects.contexts,
            "pd" => objects.pds,
            "mr" => objects.regions,
            "cq" => objects.cqs,
            "qp" => objects.qps,
            _ => panic!("{kind}: not counted"),
        };
        count.try_into().unwrap()
    }

    /// The counts are, or soon become, these again.
    pub(crate) fn expect_again(&self) {
        let start = Instant::now();
        loop {
            let now = Self::now();
            if now == *self {
                return;
            }
            assert!(start.elapsed() < LIMIT, "left behind: before {self:?}, after {now:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
