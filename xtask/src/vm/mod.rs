//! `cargo xtask vm`: a command in a virtual machine that has a software RDMA device.
//!
//! QEMU boots a stock kernel on the host's own files (read-only over 9p, under a scratch layer in memory), so whatever
//! was built here runs there under the same path, and nothing it writes stays. `init.sh` and `guest.sh` are the guest's
//! side.

mod arguments;
mod initrd;
mod qemu;
mod stream;

use crate::kernel::{self, Kernel};
use crate::shell::push_quoted;
use crate::{cargo, program};
use anyhow::{Context as _, Result, bail};
use qemu::{Channels, Qemu};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use stream::UntilMarker;

/// What the guest does once it sees the host's files.
const GUEST: &[u8] = include_bytes!("guest.sh");

/// The command did not end in time, as `timeout(1)` says it.
const TIMED_OUT: u8 = 124;
/// The machine ended before the command did.
const DIED: u8 = 125;

/// A guest that hasn't booted after this long never will, however loaded the host is.
const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// The same of one that is not emulated, and boots in a few seconds.
const KVM_BOOT_LIMIT: Duration = Duration::from_secs(30);
/// For the last bytes of output, once the command has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
/// What is kept of the kernel's messages.
const LOG_LIMIT: usize = 16 << 10;

/// The software device of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Link {
    /// Soft-RoCE: RoCE v2.
    #[default]
    Rxe,
    /// Soft-iWARP.
    Siw,
}

/// A command for a guest.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The kernel to boot.
    pub(crate) kernel: Kernel,
    /// The device to make: `rxe0` or `siw0`.
    pub(crate) link: Link,
    /// How long the command may take, counted from its start.
    pub(crate) timeout: Duration,
    /// Where the command runs.
    pub(crate) directory: PathBuf,
    /// All of the command's environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
}

/// How a guest ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// From QEMU's start to the command's, if it came so far.
    pub(crate) boot: Option<Duration>,
    /// What happened.
    pub(crate) how: How,
    /// The last messages of the kernel; usually empty.
    pub(crate) kernel_log: String,
}

/// What ended a guest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The command ended with this status (128 + n after signal n, 127 if it wasn't found).
    Exited(u8),
    /// The command took longer than it may.
    TimedOut,
    /// The guest panicked or switched itself off.
    Died,
    /// The guest never came to the command.
    NoBoot(String),
    /// Nobody reads the output any more.
    OutputClosed,
}

impl Link {
    /// The kernel module that provides it.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Self::Rxe => "rdma_rxe",
            Self::Siw => "siw",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }
}

/// `cargo xtask vm`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    let Some(options) = arguments::parse(arguments)? else {
        println!("{}", arguments::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    let job = Job {
        kernel: kernel::pick(options.kernel.as_deref(), options.link.module())?,
        link: options.link,
        timeout: options.timeout,
        directory: std::env::current_dir().context("the current folder is gone")?,
        environment: environment(),
        command: options.command,
    };
    let ended = run(&job, &mut io::stdout(), &mut io::stderr())?;
    if options.verbose {
        let boot = ended.boot.map_or_else(|| "none".into(), |boot| format!("{:.1} s", boot.as_secs_f64()));
        eprintln!("xtask vm: kernel {}, boot to command {boot}", job.kernel.version);
    }
    ended.report(&job);
    Ok(ExitCode::from(ended.status()))
}

/// What a command in the guest gets of our environment: all but what Cargo set for xtask itself.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    let mut variables: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| !cargo::is_about_xtask(name) && name != "PATH" && name != "OLDPWD")
        .collect();
    variables.push(("PATH".into(), program::search_path()));
    variables
}

impl Ended {
    /// The exit status that tells it.
    pub(crate) fn status(&self) -> u8 {
        match &self.how {
            How::Exited(status) => *status,
            How::TimedOut => TIMED_OUT,
            How::Died | How::NoBoot(_) | How::OutputClosed => DIED,
        }
    }

    /// Ok if the command succeeded, else what happened.
    pub(crate) fn verdict(&self) -> Result<(), String> {
        match &self.how {
            How::Exited(0) => Ok(()),
            How::Exited(status) if *status > 128 => Err(format!("signal {}", status - 128)),
            How::Exited(status) => Err(format!("exit status {status}")),
            How::TimedOut => Err("did not end in time".into()),
            How::Died => Err("the guest panicked".into()),
            How::NoBoot(reason) => Err(format!("the guest did not come up: {reason}")),
            How::OutputClosed => Err("its output could not be written".into()),
        }
    }

    /// Says on standard error what went wrong, if the command didn't end by itself.
    pub(crate) fn report(&self, job: &Job) {
        let kernel = &job.kernel.version;
        let what = match &self.how {
            How::Exited(_) | How::OutputClosed => return,
            How::TimedOut => format!("the command did not end within {} s", job.timeout.as_secs_f64()),
            How::Died => format!("the guest (kernel {kernel}) panicked or was switched off"),
            How::NoBoot(reason) => {
                let advice = if is_emulated() { "" } else { "; IBV_VM_ACCEL is set: try without" };
                format!("the guest (kernel {kernel}) did not come up: {reason}{advice}")
            }
        };
        // One line first; the kernel's messages are the details.
        eprintln!("xtask vm: {what}");
        for line in self.kernel_log.lines() {
            eprintln!("  {line}");
        }
    }
}

enum Event {
    Said(String),
    Gone,
    StreamEnded,
    OutputClosed,
}

/// Boots a guest, runs the job's command there, and passes its output on as it comes.
///
/// An emulated guest sometimes loses its clock while it boots, and hangs: it gets a second chance. One on KVM does not:
/// where that can't boot a guest, it never can.
pub(crate) fn run(job: &Job, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Result<Ended> {
    let ended = run_once(job, out, err)?;
    match ended.how {
        How::NoBoot(_) if is_emulated() => {
            ended.report(job);
            eprintln!("xtask vm: booting once more");
            run_once(job, out, err)
        }
        _ => Ok(ended),
    }
}

fn run_once(job: &Job, out: &mut (dyn Write + Send), err: &mut (dyn Write + Send)) -> Result<Ended> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the virtual machine runs the host's own programs, so far on x86-64 only");
    }
    let marker = random_word()?;
    let (settings, script) = (settings(job, &marker), script(job));
    let files = [("guest.sh", GUEST), ("settings", settings.as_slice()), ("command", script.as_slice())];
    let initrd = initrd::build(&job.kernel, &files)?;

    let started = Instant::now();
    let (qemu, Channels { console, control, out: from_out, err: from_err }) =
        Qemu::start(&job.kernel, &initrd, &accelerator())?;
    let (log, (sender, events)) = (Mutex::new(Vec::new()), channel());
    let marker = format!("\x01{marker}").into_bytes();
    let (boot, how) = thread::scope(|scope| {
        scope.spawn(|| collect(console, &log));
        let outputs: [(_, &mut (dyn Write + Send)); 2] = [(from_out, out), (from_err, err)];
        for (from, to) in outputs {
            let (sender, marker) = (sender.clone(), marker.clone());
            scope.spawn(move || pass_on(from, UntilMarker::new(marker), to, &sender));
        }
        scope.spawn(move || listen(control, &sender));
        let result = supervise(&events, started, job.timeout);
        // Ends the machine, with it the sockets, with them the threads.
        drop(qemu);
        result
    });
    let log = log.into_inner().unwrap_or_else(PoisonError::into_inner);
    let kernel_log = String::from_utf8_lossy(&log).replace('\r', "");
    Ok(Ended { boot, how, kernel_log })
}

/// QEMU's name of what runs the guest's code.
fn accelerator() -> String {
    // KVM is there on many machines where it can't boot a guest (nested ones), so it is only used on request.
    std::env::var("IBV_VM_ACCEL").unwrap_or_else(|_| "tcg".into())
}

/// Whether the guest's code is emulated, so that its times say nothing.
pub(crate) fn is_emulated() -> bool {
    matches!(accelerator().as_str(), "tcg" | qemu::COUNTED)
}

/// Whether the guest's clock counts its instructions, so that its times say what programs and kernel computed.
pub(crate) fn is_counted() -> bool {
    accelerator() == qemu::COUNTED
}

fn supervise(events: &Receiver<Event>, started: Instant, timeout: Duration) -> (Option<Duration>, How) {
    let (mut boot, mut exit, mut streams) = (None, None, 2);
    let boot_limit = if is_emulated() { BOOT_LIMIT } else { KVM_BOOT_LIMIT };
    let mut deadline = started + boot_limit;
    loop {
        let how = match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Event::Said(line)) => {
                match line.split_once(' ').unwrap_or((&line, "")) {
                    ("ready", _) => {
                        boot = Some(started.elapsed());
                        deadline = Instant::now() + timeout;
                    }
                    ("fail", reason) => return (boot, How::NoBoot(reason.to_owned())),
                    ("exit", status) => {
                        exit = Some(status.parse().unwrap_or(DIED));
                        deadline = Instant::now() + DRAIN_LIMIT;
                    }
                    _ => {}
                }
                None
            }
            Ok(Event::StreamEnded) => {
                streams -= 1;
                None
            }
            Ok(Event::OutputClosed) => Some(How::OutputClosed),
            Ok(Event::Gone) if boot.is_none() => Some(How::NoBoot("it switched itself off".into())),
            Ok(Event::Gone) | Err(RecvTimeoutError::Disconnected) => {
                Some(exit.map_or(How::Died, How::Exited))
            }
            Err(RecvTimeoutError::Timeout) if boot.is_none() => {
                Some(How::NoBoot(format!("nothing heard for {} s", boot_limit.as_secs())))
            }
            Err(RecvTimeoutError::Timeout) => Some(exit.map_or(How::TimedOut, How::Exited)),
        };
        match (how, exit) {
            (Some(how), _) => return (boot, how),
            (None, Some(status)) if streams == 0 => return (boot, How::Exited(status)),
            (None, _) => {}
        }
    }
}

/// Keeps the last of the kernel's messages.
fn collect(mut console: UnixStream, log: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Some(chunk) = next(&mut console, &mut buffer) {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(chunk);
        let excess = log.len().saturating_sub(LOG_LIMIT);
        log.drain(..excess);
    }
}

fn pass_on(
    mut from: UnixStream,
    mut stream: UntilMarker,
    to: &mut (dyn Write + Send),
    events: &Sender<Event>,
) {
    let mut buffer = [0; 65536];
    while let Some(chunk) = next(&mut from, &mut buffer) {
        // Sending fails only when the machine has been given up.
        match stream.feed(chunk, to) {
            Ok(false) => continue,
            Ok(true) => drop(events.send(Event::StreamEnded)),
            Err(_) => drop(events.send(Event::OutputClosed)),
        }
        return;
    }
}

fn next<'b>(from: &mut UnixStream, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    match from.read(buffer) {
        Ok(0) | Err(_) => None,
        Ok(length) => buffer.get(..length),
    }
}

fn listen(control: UnixStream, events: &Sender<Event>) {
    let lines = BufReader::new(control).lines().map_while(io::Result::ok);
    for event in lines.map(Event::Said).chain([Event::Gone]) {
        if events.send(event).is_err() {
            return;
        }
    }
}

fn settings(job: &Job, marker: &str) -> Vec<u8> {
    let installed = job.kernel.base == Path::new("/");
    let own_modules = if installed { OsString::new() } else { job.kernel.base.clone().into() };
    let settings: [(&str, OsString); 5] = [
        ("link", job.link.name().into()),
        ("modules_base", own_modules),
        ("kernel", job.kernel.version.clone().into()),
        ("directory", job.directory.clone().into()),
        ("marker", marker.into()),
    ];
    let mut script = Vec::new();
    for (name, value) in settings {
        script.extend_from_slice(format!("{name}=").as_bytes());
        push_quoted(&mut script, value);
        script.push(b'\n');
    }
    script
}

/// Runs the command with exactly its environment; by `env`, as not every variable's name is one for the shell.
fn script(job: &Job) -> Vec<u8> {
    let mut script = b"exec env -i".to_vec();
    for (name, value) in &job.environment {
        let mut pair = name.clone();
        pair.push("=");
        pair.push(value);
        script.push(b' ');
        push_quoted(&mut script, pair);
    }
    for word in &job.command {
        script.push(b' ');
        push_quoted(&mut script, word);
    }
    script.push(b'\n');
    script
}

fn random_word() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
