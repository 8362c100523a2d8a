//! What is held: open files, and objects of the device.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::rig::MADE;

/// How long a device may take to clean up.
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
    /// As `rdma resource show` prints them. On a kernel's device they are those of all processes: it tells the thread
    /// that made an object, but not once that has ended.
    objects: String,
}

impl Counts {
    pub(crate) fn now() -> Self {
        // the listing itself is one of them, always
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { files, objects: MADE.get().map_or_else(kernel_objects, |made| (made.objects)()) }
    }

    /// How many objects of that kind (`ctx`, `pd`, `mr`, `cq`, `qp`) there are.
    pub(crate) fn of(&self, kind: &str) -> u32 {
        let mut words = self.objects.split_whitespace().skip_while(|&word| word != kind);
        words
            .nth(1)
            .and_then(|count| count.parse().ok())
            .unwrap_or_else(|| panic!("{kind}: {}", self.objects))
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
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn kernel_objects() -> String {
    let device = std::env::var("IBV_TEST_DEVICE").unwrap();
    let output = Command::new("rdma").args(["resource", "show", &device]).output();
    let output = output.expect("`rdma` of iproute2");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
