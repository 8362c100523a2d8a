//! The memory that messages are in.

use ibv::{MemoryRegion, MrSlice, ProtectionDomain, Recv, recv};

use super::payload::FILLING;
use super::{Options, Result};

/// The id of every receive.
pub(crate) const RECEIVE: u64 = 1;

/// The regions that messages are received into and sent from. The server sends from where it received, so that the
/// client gets back what it sent.
pub(crate) struct Memory<'p> {
    incoming: MemoryRegion<'p>,
    /// The client's.
    outgoing: Option<MemoryRegion<'p>>,
    header: usize,
    size: usize,
}

impl<'p> Memory<'p> {
    /// For messages with a header of so many bytes before them when they are received (datagrams have one).
    pub(crate) fn new(pd: &'p ProtectionDomain<'p>, options: &Options, header: usize) -> Result<Self> {
        let region = || {
            let region = pd.alloc_local(header + options.size)?;
            region.write(header, &vec![FILLING; options.size])?;
            Ok::<_, ibv::Error>(region)
        };
        Ok(Self {
            incoming: region()?,
            outgoing: options.host.as_ref().map(|_| region()).transpose()?,
            header,
            size: options.size,
        })
    }

    /// The request to receive a message.
    pub(crate) fn receive(&self) -> Result<Recv<MrSlice<'_>>> {
        Ok(recv(self.incoming.as_slice()?).id(RECEIVE))
    }

    /// The message that is sent.
    pub(crate) fn message(&self) -> Result<MrSlice<'_>> {
        let region = self.outgoing.as_ref().unwrap_or(&self.incoming);
        Ok(region.slice(self.header..self.header + self.size)?)
    }

    /// Copies the message that is sent.
    pub(crate) fn read_message(&self, to: &mut [u8]) -> Result<()> {
        Ok(self.outgoing.as_ref().unwrap_or(&self.incoming).read(self.header, to)?)
    }

    /// Makes it another message.
    pub(crate) fn write_message(&self, from: &[u8]) -> Result<()> {
        Ok(self.outgoing.as_ref().unwrap_or(&self.incoming).write(self.header, from)?)
    }

    /// Copies the message that was received last.
    pub(crate) fn read_received(&self, to: &mut [u8]) -> Result<()> {
        Ok(self.incoming.read(self.header, to)?)
    }

    /// The length of the completed receive of a message.
    pub(crate) fn received_len(&self) -> usize {
        self.header + self.size
    }
}
