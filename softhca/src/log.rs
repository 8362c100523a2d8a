//! The log: one line per WQE, doorbell and CQE. Off by default; lines are made only if it is on.

use crate::config::LogTarget;
use std::fs::File;
use std::io::Write as _;

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
                Sink::File(f.map_err(|e| format!("{path}: {e}"))?)
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
            Sink::Stderr => eprintln!("softhca {ns:>9} {text}"),
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
