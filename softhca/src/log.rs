//! The log: one line per WQE, doorbell and CQE. Off by default; lines are made only if it is on.
//!
//! # Safety
//!
//! One system call, which reads a local buffer of the length given.
#![expect(unsafe_code, reason = "writes to the host's standard error")]

use crate::config::LogTarget;
use crate::interpose::{fds, real};
use std::fs::File;
use std::os::fd::{IntoRawFd, RawFd};

/// Tells the user something, if standard error can be written: the program that we run in must not end for it, as
/// it would by `eprintln!`.
pub(crate) fn tell(text: &str) {
    write(2, &format!("softhca{text}\n"));
}

fn write(fd: RawFd, line: &str) {
    let e = real::errno();
    // SAFETY: the bytes of a string that outlives the call.
    unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
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
    File(RawFd),
    Memory(Vec<String>),
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Self::File(fd) = self {
            fds::disown(*fd);
        }
    }
}

impl Log {
    pub(crate) fn new(target: &LogTarget) -> Result<Self, String> {
        let sink = match target {
            LogTarget::Off => Sink::Off,
            LogTarget::Stderr => Sink::Stderr,
            LogTarget::Memory => Sink::Memory(Vec::new()),
            LogTarget::File(path) => {
                let f = File::options().create(true).append(true).open(path);
                let f =
                    f.map_err(|e| format!("SOFTHCA_LOG: {path}: {e}: name a file that can be written"))?;
                let fd = fds::own(f.into_raw_fd());
                Sink::File(fd.map_err(|e| format!("{path}: {}", std::io::Error::from_raw_os_error(e)))?)
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
            // A log that can't be written is not worth failing for.
            Sink::File(fd) => write(*fd, &format!("{ns:>9} {text}\n")),
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
