//! What two processes do.

use std::fmt;
use std::str::FromStr;

use crate::Result;

/// What is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One message after the other, each timed.
    Latency,
    /// As many as the queues hold.
    Bandwidth,
}

/// What is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the operations' own names")]
pub enum Operation {
    Send,
    Write,
    Read,
    FetchAdd,
    CmpSwp,
    /// No verbs at all: a TCP socket.
    Tcp,
}

/// A test: what both processes have to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "not published")]
pub struct Test {
    /// Latency or bandwidth.
    pub kind: Kind,
    /// What is posted.
    pub operation: Operation,
    /// Length of a message.
    pub bytes: usize,
    /// Whether it travels in the request.
    pub inline: bool,
    /// Whether a process sleeps until its completion comes.
    pub events: bool,
    /// Whether ours goes without libmlx5.
    pub direct: bool,
    /// How many messages: each way, or of each queue pair.
    pub iterations: u64,
    /// Queue pairs.
    pub queues: u32,
}

const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::Send, "SEND"),
    (Operation::Write, "WRITE"),
    (Operation::Read, "READ"),
    (Operation::FetchAdd, "FETCH_ADD"),
    (Operation::CmpSwp, "CMP_SWP"),
    (Operation::Tcp, "TCP"),
];

impl Operation {
    /// Whether the peer's program answers, so that a round trip is two messages.
    pub fn is_two_sided(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::Tcp)
    }

    /// Whether it is on 8 bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwp)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = OPERATIONS.iter().find(|(operation, _)| operation == self);
        f.pad(name.map_or("?", |(_, name)| name))
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = OPERATIONS.iter().find(|(_, of)| *of == name);
        known.map(|(operation, _)| *operation).ok_or_else(|| format!("{name}: no operation"))
    }
}

/// How many words a test is.
pub(crate) const WORDS: usize = 8;

impl Test {
    /// A test of latency.
    pub fn latency(operation: Operation, bytes: usize) -> Self {
        Self {
            kind: Kind::Latency,
            operation,
            bytes,
            inline: false,
            events: false,
            direct: false,
            iterations: 0,
            queues: 1,
        }
    }

    /// A test of bandwidth.
    pub fn bandwidth(operation: Operation, bytes: usize, queues: u32) -> Self {
        Self { kind: Kind::Bandwidth, queues, ..Self::latency(operation, bytes) }
    }

    /// As words for a process.
    pub(crate) fn words(&self) -> [String; WORDS] {
        [
            if self.kind == Kind::Latency { "latency" } else { "bandwidth" }.to_owned(),
            self.operation.to_string(),
            self.bytes.to_string(),
            self.inline.to_string(),
            self.events.to_string(),
            self.direct.to_string(),
            self.iterations.to_string(),
            self.queues.to_string(),
        ]
    }

    /// Back from its words.
    pub(crate) fn parse(words: &[String; WORDS]) -> Result<Self> {
        let [kind, operation, bytes, inline, events, direct, iterations, queues] = words;
        Ok(Self {
            kind: if kind == "latency" { Kind::Latency } else { Kind::Bandwidth },
            operation: operation.parse()?,
            bytes: bytes.parse()?,
            inline: inline.parse()?,
            events: events.parse()?,
            direct: direct.parse()?,
            iterations: iterations.parse()?,
            queues: queues.parse()?,
        })
    }
}

/// For tables.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if !self.operation.is_atomic() {
            write!(f, " {}", self.bytes)?;
        }
        if self.inline {
            write!(f, " inline")?;
        }
        if self.events {
            write!(f, " events")?;
        }
        if self.direct {
            write!(f, " direct")?;
        }
        if self.kind == Kind::Bandwidth {
            write!(f, " {} QP", self.queues)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_comes_back_from_its_words() {
        for (operation, _) in OPERATIONS {
            let test = Test {
                inline: true,
                direct: true,
                iterations: 12,
                queues: 64,
                ..Test::latency(operation, 4096)
            };
            assert_eq!(Test::parse(&test.words()).unwrap(), test);
        }
        assert_eq!(Test { inline: true, ..Test::latency(Operation::Send, 64) }.to_string(), "SEND 64 inline");
        assert!("WRITES".parse::<Operation>().is_err());
    }
}
