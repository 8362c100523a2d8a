//! What this process holds: open files, and objects in the kernel.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What `rdma resource show` tells of.
const OBJECTS: [&str; 5] = ["ctx", "pd", "mr", "cq", "qp"];

/// How long the kernel may take to clean up.
const LIMIT: Duration = Duration::from_secs(5);

/// Says, past the harness's capture, that this test did not run.
#[expect(clippy::explicit_write, reason = "`eprintln!` is captured")]
pub(crate) fn skip(reason: &str) {
    let test = thread::current().name().unwrap_or("?").to_owned();
    writeln!(std::io::stderr(), "ibv-skip: {test}: {reason}").unwrap();
}

/// How many of each this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    files: usize,
    objects: [usize; OBJECTS.len()],
}

impl Counts {
    pub(crate) fn now() -> Self {
        // the listing itself is one of them, always
        let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
        Self { files, objects: objects_of(std::process::id()) }
    }

    /// The counts are, or soon become, these again.
    pub(crate) fn expect_again(&self) {
        let start = Instant::now();
        loop {
            let now = Self::now();
            if now == *self {
                return;
            }
            assert!(start.elapsed() < LIMIT, "left behind ({OBJECTS:?}): before {self:?}, after {now:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// How many of each kind of object the kernel holds for that process.
pub(crate) fn objects_of(pid: u32) -> [usize; OBJECTS.len()] {
    let mut questions = String::new();
    for object in OBJECTS {
        writeln!(questions, "resource show {object}").unwrap();
    }
    // one process for all: under emulation, starting one takes longer than all else here
    let mut rdma = Command::new("rdma")
        .args(["-j", "-b", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`rdma` of iproute2");
    rdma.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    let output = rdma.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(answers.len(), OBJECTS.len(), "{text}");
    let (inside, last) = (format!("\"pid\":{pid},"), format!("\"pid\":{pid}}}"));
    std::array::from_fn(|at| answers[at].matches(&inside).count() + answers[at].matches(&last).count())
}
