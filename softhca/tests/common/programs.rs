//! Running programs with the shared library preloaded.

#![allow(dead_code, reason = "a test and a benchmark use their parts")]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// The shared library of this build: it lies beside the test.
pub(crate) fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let p = exe.parent().unwrap().join("libsofthca.so");
    assert!(p.exists(), "{} was not built", p.display());
    p
}

/// Says, past the harness's capture, that this test did not run; `cargo xtask test` counts such lines.
#[expect(clippy::explicit_write, reason = "`eprintln!` is captured")]
pub(crate) fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    writeln!(std::io::stderr(), "ibv-skip: {test}: {reason}").unwrap();
}

/// A name and a TCP port that no other test uses, nor the system gives out by itself (those from 32768 on).
pub(crate) fn unique() -> (String, u16) {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let pid = std::process::id();
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    (format!("test-{pid}-{n}"), 10000 + (pid % 450) as u16 * 50 + n)
}

pub(crate) fn has(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|d| d.join(program).exists());
    if !found {
        skip(&format!("{program} is not installed"));
    }
    found
}

pub(crate) fn command(program: &str) -> Command {
    let mut c = Command::new(program);
    // What the tests themselves run with is not for the library, which refuses what it doesn't know.
    for (name, _) in std::env::vars_os().filter(|(n, _)| n.to_string_lossy().starts_with("SOFTHCA")) {
        c.env_remove(name);
    }
    c.process_group(0)
        .env("LD_PRELOAD", library())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    c
}

/// A program that is killed, with its children, when the test ends before it.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(c: &mut Command) -> Self {
        Self(Some(c.process_group(0).spawn().unwrap()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Sends a signal that ends it, and waits for that.
    pub(crate) fn kill(mut self, signal: &str) {
        let mut child = self.0.take().unwrap();
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        child.wait().unwrap();
    }

    pub(crate) fn finish(mut self, what: &str) -> Output {
        finish(self.0.take().unwrap(), what)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            kill_group(&mut child);
            let _ = child.wait();
        }
    }
}

fn kill_group(child: &mut Child) {
    let _ = Command::new("kill").args(["-s", "KILL", "--", &format!("-{}", child.id())]).output();
    let _ = child.kill();
}

/// Waits for `child`, for 60 seconds at most.
pub(crate) fn finish(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            // Its children too: they hold its output.
            kill_group(&mut child);
            let out = child.wait_with_output().unwrap();
            panic!("{what} hangs:\n{}", text(&out));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        // Children that wait for it hold its output.
        kill_group(&mut child);
    }
    child.wait_with_output().unwrap()
}

/// Waits for what `program` is to do, for 20 seconds at most.
pub(crate) fn wait_until(program: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "{program} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn text(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr)
}

pub(crate) fn run(program: &str, args: &[&str], env: &[(&str, &str)]) -> String {
    let child = command(program).args(args).envs(env.iter().copied()).spawn().unwrap();
    let out = finish(child, program);
    let fine = out.status.success() && !text(&out).contains("VIOLATION");
    assert!(fine, "{program} {args:?}: {}\n{}", out.status, text(&out));
    text(&out)
}

/// A program of `tests/programs`, in a directory of its own.
pub(crate) struct Program(PathBuf);

/// Compiles `tests/programs/NAME.c`.
pub(crate) fn compiled(name: &str, flags: &[&str]) -> Program {
    let dir = std::env::temp_dir().join(unique().0);
    fs::create_dir_all(&dir).unwrap();
    let exe = dir.join(name);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = here.join(format!("tests/programs/{name}.c"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Werror", "-I"]).arg(here.join("include")).arg("-o").arg(&exe);
    let cc = cc.arg(&src).arg("-libverbs").args(flags).output().unwrap();
    assert!(cc.status.success(), "{}", text(&cc));
    Program(exe)
}

impl Program {
    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// What it says, when all goes well.
    pub(crate) fn run(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        run(self.path(), args, env)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// The files of fabrics whose names end so.
pub(crate) fn left(name: &str) -> Vec<String> {
    let files = fs::read_dir("/dev/shm").unwrap().flatten();
    files.map(|f| f.file_name().into_string().unwrap()).filter(|f| f.ends_with(name)).collect()
}

/// A command that runs with mounts of its own, as `script` makes them; `None` (said visibly) if this user may not.
pub(crate) fn with_mounts(script: &str) -> Option<Command> {
    let may = Command::new("unshare").args(["--mount", "true"]).output();
    if !may.is_ok_and(|o| o.status.success()) {
        skip("unshare --mount needs root");
        return None;
    }
    let mut c = Command::new("unshare");
    c.args(["--mount", "sh", "-ec", script]);
    c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(c)
}

/// Runs server and client on one fabric; gives what the client said.
pub(crate) fn pair(program: &str, args: &[&str], env: &[(&str, &str)]) -> Option<String> {
    if !has(program) {
        return None;
    }
    let (fabric, number) = unique();
    let port = number.to_string();
    let start = |host: Option<&str>| {
        let mut c = command(program);
        c.args(args).args(["-p", &port]).args(host).envs(env.iter().copied()).env("SOFTHCA_FABRIC", &fabric);
        Running::start(&mut c)
    };
    let server = start(None);
    wait_until(program, || listening(number));
    let client = start(Some("127.0.0.1")).finish(program);
    let server = server.finish(program);
    let both = format!("client:\n{}server:\n{}", text(&client), text(&server));
    assert!(client.status.success() && server.status.success(), "{program} {args:?} {env:?}\n{both}");
    assert!(!both.contains("VIOLATION"), "{both}");
    assert_eq!(left(&fabric), [""; 0], "nothing stays behind");
    Some(text(&client))
}

/// Whether a local TCP port has a listener, without connecting to it.
pub(crate) fn listening(port: u16) -> bool {
    let want = format!(":{port:04X} ");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|f| {
        fs::read_to_string(f).is_ok_and(|t| {
            t.lines().any(|l| {
                l.split_whitespace().nth(3) == Some("0A")
                    && l.split_whitespace().nth(1).is_some_and(|a| format!("{a} ").ends_with(&want))
            })
        })
    })
}
