//! This test program once more, in a process of its own, for one test.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::env::{current_exe, var_os};
use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;

use crate::rig::{Rig, checked};

const CHILD: &str = "IBV_TEST_CHILD";
const MARK: &str = "ibv-child: ";

/// Whether this is the process that [`Child::start`] started.
pub(crate) fn is_child() -> bool {
    var_os(CHILD).is_some()
}

/// Runs a scenario that leaks on purpose in a child, which must succeed, and whose end must clear it all away. (The
/// rings of a forgotten queue are mapped, and keep the device open, as long as their process lives.)
pub(crate) fn leaking(run: impl FnOnce(&Rig)) {
    if is_child() {
        return run(&Rig::open());
    }
    within(&[]);
}

/// Runs the test that calls it once more in a process by `wrapper`, a command that takes a command, where it must
/// succeed.
pub(crate) fn within(wrapper: &[&str]) {
    checked(|| assert!(Child::start(wrapper).wait().success()));
}

/// In the child: tells its parent.
pub(crate) fn tell(text: &str) {
    // the harness has begun this line
    println!("\n{MARK}{text}");
}

/// In the child: what its parent told.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The test that calls it, in another process. Killed when dropped.
pub(crate) struct Child {
    process: std::process::Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Child {
    /// Starts it, as [`within`].
    pub(crate) fn start(wrapper: &[&str]) -> Self {
        let exe = current_exe().unwrap();
        let mut command = match wrapper {
            [] => Command::new(exe),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(exe);
                command
            }
        };
        let test = thread::current().name().unwrap().to_owned();
        let mut process = command
            .args(["--exact", &test, "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, to, from: BufReader::new(from) }
    }

    pub(crate) fn tell(&mut self, text: &str) {
        writeln!(self.to, "{text}").unwrap();
    }

    /// The next that it [tells](tell).
    pub(crate) fn listen(&mut self) -> String {
        let mut line = String::new();
        while self.from.read_line(&mut line).unwrap() > 0 {
            if let Some(text) = line.strip_prefix(MARK) {
                return text.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("the child ended: {:?}", self.process.wait());
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // it may have ended already
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
