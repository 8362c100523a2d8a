//! A message from a requester to a responder, and its answer.

use crate::bits::Syndrome;
use crate::mem::{self, Side, Space, Span};
use crate::objects::QpKind;

/// The global route header's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grh {
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// The bytes that a message carries.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    /// In somebody's memory.
    Spans(Space, Vec<Span>),
    /// Copied.
    Bytes(Vec<u8>),
}

/// A message.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) op: u8,
    /// The requester's transport.
    pub(crate) kind: QpKind,
    pub(crate) solicited: bool,
    /// Immediate data or key to invalidate, as the bytes of the WQE.
    pub(crate) imm: u32,
    pub(crate) src_qpn: u32,
    pub(crate) dst_qpn: u32,
    pub(crate) psn: u32,
    /// How far it moves the PSN.
    pub(crate) packets: u32,
    pub(crate) rkey: u32,
    pub(crate) raddr: u64,
    pub(crate) swap_add: u64,
    pub(crate) compare: u64,
    /// Bytes of payload, or bytes to read.
    pub(crate) len: u64,
    pub(crate) qkey: u32,
    pub(crate) pkey: u16,
    /// The XRC SRQ meant.
    pub(crate) srqn: u32,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) grh: Option<Grh>,
    pub(crate) payload: Payload,
}

impl Request {
    /// The payload's bytes, at most `most`.
    pub(crate) fn bytes(&self, most: u64) -> Option<Vec<u8>> {
        match &self.payload {
            Payload::Spans(space, spans) => mem::gather(*space, spans, most),
            Payload::Bytes(b) => Some(b.iter().copied().take(usize::try_from(most).unwrap_or(0)).collect()),
        }
    }

    /// Copies the payload to own memory.
    pub(crate) fn copy_to(&self, dst: &[Span]) -> Result<(), Lost> {
        let done = match &self.payload {
            Payload::Spans(space, src) => mem::transfer(Space::Own, dst, *space, src),
            Payload::Bytes(b) => mem::scatter(dst, b),
        };
        done.map_err(|side| match side {
            Side::Destination => Lost::Destination,
            Side::Source => self.unreadable(),
        })
    }

    /// Why the payload can't be read.
    pub(crate) fn unreadable(&self) -> Lost {
        match &self.payload {
            Payload::Spans(Space::Process(_), _) => Lost::Peer,
            _ => Lost::Source,
        }
    }
}

/// Why a payload did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The sender's memory is gone.
    Source,
    /// The sender is another process, whose memory can't be read: it died, or unmapped it, or the system forbids it.
    Peer,
    /// The receiver's memory is gone.
    Destination,
}

/// What a read or atomic gives back.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    None,
    /// In the responder's memory (same process).
    Spans(Vec<Span>),
    Bytes(Vec<u8>),
    /// Already where it belongs.
    Placed,
}

impl Data {
    /// Whether it may be what was asked for by a request for `len` bytes. (A process of the fabric may be broken.)
    pub(crate) fn is_of(&self, len: u64) -> bool {
        match self {
            Self::Bytes(b) => b.len() as u64 == len,
            Self::Spans(_) | Self::Placed => true,
            Self::None => false,
        }
    }
}

/// The answer to a message.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Ack(Data),
    /// The requester's syndrome.
    Nak(Syndrome),
    /// Receiver not ready; the responder's timer code.
    Rnr(u8),
    /// None, and none will come.
    Silent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_as_long_as_was_asked_for() {
        let bytes = |n| Data::Bytes(vec![0; n]);
        assert!(bytes(8).is_of(8) && bytes(0).is_of(0) && Data::Placed.is_of(100_000));
        assert!(!bytes(65).is_of(64) && !bytes(7).is_of(8) && !Data::None.is_of(8));
    }
}
