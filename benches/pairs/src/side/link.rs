//! A connected queue pair with its queues and memory.

use ibv::{
    Arm, Backend, CompletionQueue, CompletionQueueBuilder, Connection, Context, Endpoint, InitAttr,
    LocalPort, QueuePair, Rc, RemoteAccess, RemoteRegion, WorkCompletion, random_psn, state,
};

use super::Here;
use super::meeting::Meeting;
use crate::Result;
use crate::test::Test;

/// Each side's region has two parts of this, at least: what it sends, and what it gets.
const PART: usize = 4096;

/// Bytes of one of the two parts of a region.
pub(super) fn part(test: &Test) -> usize {
    test.bytes.next_multiple_of(PART)
}

/// Opens the device.
pub(super) fn open(here: &Here) -> Result<(Context, LocalPort)> {
    let ctx = Context::open(&here.device)?;
    let local = match here.gid_index {
        Some(index) => ctx.local_port_with_gid(here.port, index.into())?,
        None => ctx.local_port(here.port)?,
    };
    Ok((ctx, local))
}

/// What the peer may do, beyond sending.
pub(super) fn access(test: &Test) -> RemoteAccess {
    let access = RemoteAccess::READ | RemoteAccess::WRITE;
    if test.operation.is_atomic() { access | RemoteAccess::ATOMIC } else { access }
}

/// Bytes that travel in a request.
pub(super) fn inline(test: &Test) -> u32 {
    if test.inline { test.bytes as u32 } else { 0 }
}

/// Connects a queue pair to the peer's; `before` is what has to be done before the peer can send.
pub(super) fn connect<'a, B: Backend>(
    qp: QueuePair<'a, Rc, state::Reset, B>,
    local: LocalPort,
    test: &Test,
    meeting: &mut Meeting,
    before: impl FnOnce(&mut QueuePair<'a, Rc, state::Init, B>) -> Result<()>,
) -> Result<QueuePair<'a, Rc, state::Rts, B>> {
    let mut qp = qp.init(InitAttr::new(local.port).access(access(test)))?;
    before(&mut qp)?;
    let psn = random_psn();
    let peer = Endpoint::from_wire(&meeting.swap(&qp.endpoint(&local, psn).to_wire())?)?;
    Ok(qp.connect(&Connection::new(local, psn, peer))?)
}

/// The peer's region, for ours.
pub(super) fn swap_regions(ours: RemoteRegion, meeting: &mut Meeting) -> Result<RemoteRegion> {
    Ok(RemoteRegion::from_wire(&meeting.swap(&ours.to_wire())?)?)
}

/// Providers make short rings longer than asked for.
const SHORT: u32 = 16;

/// A completion queue for so many queues of a depth.
pub(super) fn cq_builder<'a>(ctx: &'a Context, queues: u32, depth: u32) -> CompletionQueueBuilder<'a> {
    CompletionQueue::builder(ctx, queues * CompletionQueue::entries_for(depth.max(SHORT)))
}

/// Something that completions come from, one at a time.
pub(super) trait Wait {
    /// Waits for one, of success.
    fn wait(&mut self) -> Result<()>;
}

#[cfg(feature = "mlx5")]
impl Wait for ibv::mlx5::Poller<'_> {
    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        loop {
            if let Some(wc) = self.poll() {
                wc.result()?;
                return Ok(());
            }
        }
    }
}

/// Those of a queue that the provider reads.
pub(super) struct Completions<'c> {
    cq: &'c CompletionQueue<'c>,
    wcs: [WorkCompletion; 1],
}

impl<'c> Completions<'c> {
    /// The queue must be empty: what comes from now on raises an event.
    pub(super) fn of(cq: &'c CompletionQueue<'c>) -> Result<Self> {
        if cq.channel().is_some() {
            cq.arm(Arm::Any)?;
        }
        Ok(Self { cq, wcs: [WorkCompletion::default()] })
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<bool> {
        match self.cq.poll(&mut self.wcs)? {
            [wc] => {
                wc.result()?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl Wait for Completions<'_> {
    /// Asleep if the queue has a channel, and then in perftest's order, which needs an event for each.
    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        match self.cq.channel() {
            None => {
                while !self.poll()? {}
                Ok(())
            }
            Some(channel) => loop {
                channel.wait()?;
                self.cq.arm(Arm::Any)?;
                // an event may be about a completion that was found by the one before
                if self.poll()? {
                    return Ok(());
                }
            },
        }
    }
}
