//! The example programs and their C namesakes as child processes, which end when the test does.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// No program of a test that goes well takes longer, however slow an emulated machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// An example of this crate, built with the tests.
pub(crate) fn example(name: &str) -> Command {
    let folder = std::env::var_os("IBV_EXAMPLES_DIR").map_or_else(
        // target/PROFILE/deps/this-program
        || std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples"),
        PathBuf::from,
    );
    let file = folder.join(name);
    assert!(file.exists(), "{} is not there: `cargo build --examples` makes it", file.display());
    Command::new(file)
}

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Running {
    what: String,
    child: Child,
    /// Each line of standard output, when it comes.
    lines: Receiver<String>,
    out: String,
    err: Option<JoinHandle<String>>,
    started: Instant,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) what: String,
    /// `None`: by a signal.
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let what = [name.rsplit('/').next().unwrap_or_default().to_owned()].into_iter().chain(words);
        let what = what.collect::<Vec<_>>().join(" ");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error} (`cargo xtask setup` installs the C programs)"));
        let (out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let err = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = err.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { what, child, lines, out: String::new(), err: Some(err), started: Instant::now() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has printed a line with `part` in it, which is returned.
    pub(crate) fn line_with(&mut self, part: &str) -> String {
        loop {
            match self.next_line() {
                Some(line) if line.contains(part) => return line,
                Some(_) => {}
                None => panic!("{}: no line with {part:?} came; output so far:\n{}", self.what, self.out),
            }
        }
    }

    /// The next line; `None` if it ended or takes too long.
    fn next_line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT.saturating_sub(self.started.elapsed())) {
            Ok(line) => {
                self.out += &line;
                self.out.push('\n');
                Some(line)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits until it listens on a TCP port.
    pub(crate) fn listens(&mut self, port: u16) {
        let line = format!(":{port:04X} ");
        while !listeners().contains(&line) {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{}: {status} before it listened: {}", self.what.clone(), self.err());
            }
            assert!(self.started.elapsed() < LIMIT, "{}: does not listen on port {port}", self.what);
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.started.elapsed() >= LIMIT {
                let _ = self.child.kill();
                while self.next_line().is_some() {}
                let err = self.err();
                panic!("{} did not end in {LIMIT:?}; it printed:\n{}{err}", self.what, self.out);
            }
            thread::sleep(Duration::from_millis(10));
        };
        let took = self.started.elapsed();
        while self.next_line().is_some() {}
        let err = self.err();
        Ended { what: self.what.clone(), status: status.code(), out: self.out.clone(), err, took }
    }

    fn err(&mut self) -> String {
        self.err.take().map(|thread| thread.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// It did what was asked, without complaints.
    pub(crate) fn succeeded(self) -> Self {
        assert!(self.status == Some(0) && self.err.is_empty(), "{self:#?}");
        self
    }

    /// It failed with status 1 and one line, which has all of `parts` in it.
    pub(crate) fn failed_with(self, parts: &[&str]) -> Self {
        let name = self.what.split(' ').next().unwrap_or_default();
        let is_one_line = self.err.ends_with('\n') && self.err.lines().count() == 1;
        let is_clear =
            self.err.starts_with(&format!("{name}: ")) && parts.iter().all(|part| self.err.contains(part));
        assert!(self.status == Some(1) && is_one_line && is_clear, "wanted {parts:?}, got {self:#?}");
        println!("{:>5.1} s  {}\n         {}", self.took.as_secs_f64(), self.what, self.err.trim_end());
        self
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).wait()
}

/// A TCP port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port()
}

/// The local addresses that are listened on, as the kernel writes them.
fn listeners() -> String {
    let mut found = String::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // there may be no IPv6
        for line in std::fs::read_to_string(table).unwrap_or_default().lines() {
            let mut words = line.split_whitespace().skip(1);
            if let (Some(local), Some(_), Some("0A")) = (words.next(), words.next(), words.next()) {
                found += local;
                found.push(' ');
            }
        }
    }
    found
}

/// Says, past the harness's capture, that this test did not run.
pub(crate) fn skip(reason: &str) {
    let test = thread::current().name().unwrap_or("?").to_owned();
    // in one piece, as other tests may write at the same time
    std::io::stderr().write_all(format!("ibv-skip: {test}: {reason}\n").as_bytes()).unwrap();
}
