//! A connected queue pair with its queues and memory.

use ibv::{
    Arm, CompletionChannel, CompletionQueue, Connection, Context, Endpoint, InitAttr, LocalPort, QueuePair,
    QueuePairBuilder, Rc, RemoteAccess, RemoteRegion, WorkCompletion, random_psn,
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

/// Makes a queue pair and connects it to the peer's; `before` is what has to be done before the peer can send.
pub(super) fn connect<'a>(
    builder: QueuePairBuilder<'a, Rc>,
    local: LocalPort,
    test: &Test,
    meeting: &mut Meeting,
    before: impl FnOnce(&QueuePair<'a, Rc, ibv::state::Init>) -> Result<()>,
) -> Result<QueuePair<'a>> {
    let inline = if test.inline { test.bytes as u32 } else { 0 };
    let qp = builder.inline(inline).build()?.init(InitAttr::new(local.port).access(access(test)))?;
    before(&qp)?;
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

/// A completion queue for so many queues of a depth, with its event channel, if there is one.
pub(super) fn create_cq<'a>(
    ctx: &'a Context,
    queues: u32,
    depth: u32,
    channel: Option<&'a CompletionChannel<'a>>,
) -> Result<CompletionQueue<'a>> {
    let builder = CompletionQueue::builder(ctx, queues * CompletionQueue::entries_for(depth.max(SHORT)));
    Ok(match channel {
        Some(channel) => builder.channel(channel).build()?,
        None => builder.build()?,
    })
}

/// Completions, one at a time.
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

    /// Waits for one: asleep if the queue has a channel, and then in perftest's order, which needs an event for each.
    #[inline(always)]
    pub(super) fn wait(&mut self) -> Result<()> {
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
