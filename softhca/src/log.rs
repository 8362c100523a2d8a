//! The log: one line per WQE, doorbell and CQE. Off by default; lines are made only if it is on.
//!
//! # Safety
//!
//! One system call, which reads a local buffer of the length given.
#![expect(unsafe_code, reason = "writes to the host's standard error")]

use crate::config::LogTarget;
use crate::interpose::real;
use std::fs::File;
use std::io::Write as _;

/// Tells the user something, if standard error can be written: the program that we run in must not end for it, as
/// it would by `eprintln!`.
pub(crate) fn tell(text: &str) {
    let line = format!("softhca{text}\n");
    let e = real::errno();
    // SAFETY: the bytes of a local string.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    real::set_errno(e);
}

/// Where lines go.
#[derive(Debug, Default)]
pub(crate) struct Log {
    sink: Sink,
}

#[derive(Debug, Default)]
enum Sink {
    #[default]
    Off,
    Stderr,
    File(File),
    Memory(Vec<String>),
}

impl Log {
    pub(crate) fn new(target: &LogTarget) -> Result<Self, String> {
        let sink = match target {
            LogTarget::Off => Sink::Off,
            LogTarget::Stderr => Sink::Stderr,
            LogTarget::Memory => Sink::Memory(Vec::new()),
            LogTarget::File(path) => {
                let f = File::options().create(true).append(true).open(path);
                // The copy's number is 3 or more: the program may have closed its standard streams.
                Sink::File(f.and_then(|f| f.try_clone()).map_err(|e| format!("{path}: {e}"))?)
            }
        };
        Ok(Self { sink })
    }

    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.sink, Sink::Off)
    }

    pub(crate) fn line(&mut self, ns: u64, text: &str) {
        match &mut self.sink {
            Sink::Off => {}
            Sink::Stderr => tell(&format!(" {ns:>9} {text}")),
            Sink::File(f) => {
                // A log that can't be written is not worth failing for.
                let _ = writeln!(f, "{ns:>9} {text}");
            }
            Sink::Memory(v) => v.push(text.to_owned()),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        match &mut self.sink {
            Sink::Memory(v) => std::mem::take(v),
            _ => Vec::new(),
        }
    }
}
