//! What messages contain, and checking it (`--chk`).
//!
//! The C programs look at the first byte of each page, which must be 0. This server does as they do; this client fills
//! the rest with numbers that differ from round to round, and wants all of it back: every server echoes.

use std::{array, fs, io};

use super::memory::Memory;
use super::{Options, Result};

/// Every byte of a message that is not checked.
pub(crate) const FILLING: u8 = 0x7b;

/// Makes and checks messages.
pub(crate) struct Payload {
    page: usize,
    sent: Vec<u8>,
    received: Vec<u8>,
    is_client: bool,
}

impl Payload {
    /// `None` if nothing shall be checked.
    pub(crate) fn new(options: &Options) -> Result<Option<Self>> {
        if !options.check {
            return Ok(None);
        }
        Ok(Some(Self {
            page: page_size().map_err(|error| format!("cannot find out the page size: {error}"))?,
            sent: vec![0; options.size],
            received: vec![0; options.size],
            is_client: options.host.is_some(),
        }))
    }

    /// Before a message is sent.
    pub(crate) fn prepare(&mut self, memory: &Memory<'_>, round: u32) -> Result<()> {
        if !self.is_client {
            return Ok(());
        }
        // a multiplicative generator: every byte depends on place and round
        let mut state = u64::from(round) << 32 | 1;
        for (at, byte) in self.sent.iter_mut().enumerate() {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = if at % self.page == 0 { 0 } else { (state >> 56) as u8 };
        }
        memory.write_message(&self.sent)
    }

    /// After a message was received.
    pub(crate) fn check(&mut self, memory: &Memory<'_>, round: u32) -> Result<()> {
        memory.read_received(&mut self.received)?;
        let wrong = if self.is_client {
            self.received.iter().zip(&self.sent).position(|(received, sent)| received != sent)
        } else {
            self.received.iter().step_by(self.page).position(|&first| first != 0).map(|page| page * self.page)
        };
        let Some(at) = wrong else { return Ok(()) };
        let is = self.received.get(at).copied().unwrap_or_default();
        let due = self.sent.get(at).copied().filter(|_| self.is_client).unwrap_or_default();
        let hint = if self.is_client { "" } else { " (does the client run with --chk too?)" };
        Err(format!("message {}: byte {at} is {is:#04x} and should be {due:#04x}{hint}", round + 1).into())
    }
}

/// What the kernel told this process about the machine's pages.
fn page_size() -> io::Result<usize> {
    const WORD: usize = size_of::<usize>();
    const AT_PAGESZ: usize = 6;
    let auxv = fs::read("/proc/self/auxv")?;
    let mut words = auxv.chunks_exact(WORD).map(|word| {
        let mut word = word.iter().copied();
        usize::from_ne_bytes(array::from_fn(|_| word.next().unwrap_or_default()))
    });
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        if key == AT_PAGESZ && value != 0 {
            return Ok(value);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "/proc/self/auxv does not tell it"))
}
