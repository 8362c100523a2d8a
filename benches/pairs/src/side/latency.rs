//! One message after the other, each timed: the loops of perftest's `*_lat` programs.

use ibv::{
    Backend, Inline, LocalPort, MemoryRegion, MrSlice, MrU64, PostError, PostRecv, PostSend, QueuePair, Rc,
    Remote, RemoteSlice, RemoteU64, cmp_swp, fetch_add, read, recv, send, state, write,
};
#[cfg(feature = "mlx5")]
use ibv::{QueuePairBuilder, mlx5::Poller};

use super::link::{self, Completions, Wait};
use super::meeting::Meeting;
use super::{Here, Stamps, computing};
use crate::Result;
use crate::test::{Operation, Test};

/// Receives that are posted, as in perftest.
const RECEIVES: u64 = 512;

pub(super) fn run(here: &Here, meeting: &mut Meeting) -> Result<()> {
    let test = &here.test;
    let (ctx, local) = link::open(here)?;
    let pd = ctx.alloc_pd()?;
    let part = link::part(test);
    let region = pd.alloc_remote(2 * part, link::access(test))?;
    let receives = if test.operation == Operation::Send { RECEIVES.min(test.iterations) as u32 } else { 1 };
    #[cfg(feature = "mlx5")]
    if test.direct {
        let send_cq = link::cq_builder(&ctx, 1, 1).build_direct()?;
        let recv_cq = link::cq_builder(&ctx, 1, receives).build_direct()?;
        let builder = QueuePairBuilder::direct(&pd, &send_cq, &recv_cq);
        let qp = builder.send_depth(1).recv_depth(receives).inline(link::inline(test)).build()?;
        let (sends, received) = (Poller::new(&send_cq)?, Poller::new(&recv_cq)?);
        return play(test, meeting, local, &region, receives, qp, sends, received);
    }
    if test.direct {
        return Err("the direct path needs the feature mlx5".into());
    }
    let channels = match test.events {
        true => [Some(ctx.create_comp_channel()?), Some(ctx.create_comp_channel()?)],
        false => [None, None],
    };
    let cq = |depth, channel| match channel {
        Some(channel) => link::cq_builder(&ctx, 1, depth).channel(channel).build(),
        None => link::cq_builder(&ctx, 1, depth).build(),
    };
    let [of_sends, of_receives] = &channels;
    let (send_cq, recv_cq) = (cq(1, of_sends.as_ref())?, cq(receives, of_receives.as_ref())?);
    let builder = pd.create_qp(&send_cq, &recv_cq);
    let qp = builder.send_depth(1).recv_depth(receives).inline(link::inline(test)).build()?;
    let (sends, received) = (Completions::of(&send_cq)?, Completions::of(&recv_cq)?);
    play(test, meeting, local, &region, receives, qp, sends, received)
}

/// Connects, and plays.
#[expect(clippy::too_many_arguments, reason = "what a side is made of")]
fn play<'a, B: Backend>(
    test: &Test,
    meeting: &mut Meeting,
    local: LocalPort,
    region: &'a MemoryRegion<'a, Remote>,
    receives: u32,
    qp: QueuePair<'a, Rc, state::Reset, B>,
    mut sends: impl Wait,
    mut received: impl Wait,
) -> Result<()>
where
    QueuePair<'a, Rc, state::Rts, B>: PostSend<'a, Transport = Rc>,
{
    let part = link::part(test);
    let out = region.slice(..test.bytes)?;
    let into = region.slice(part..part + test.bytes)?;
    let mut qp = link::connect(qp, local, test, meeting, |qp| {
        if test.operation == Operation::Send {
            for _ in 0..receives {
                qp.post_recv(recv(into))?;
            }
        }
        Ok(())
    })?;
    let peer = link::swap_regions(region.remote_region(), meeting)?;
    let mut stamps = Stamps::new(test);
    let is_client = meeting.is_client;
    meeting.join()?;
    match test.operation {
        Operation::Send => {
            let message = Message::new(test, out);
            computing(test.iterations, || {
                ping_pong(test, is_client, &mut stamps, |turn| match turn {
                    Turn::Hear(number) => {
                        received.wait()?;
                        if number + u64::from(receives) <= test.iterations {
                            qp.post_recv(recv(into))?;
                        }
                        Ok(())
                    }
                    Turn::Say(_) => {
                        message.send(&mut qp)?;
                        sends.wait()
                    }
                })
            })?;
        }
        Operation::Write => {
            let mut message = Message::new(test, out);
            let to = peer.slice(part..part + test.bytes)?;
            // the last byte tells that a message is there: devices write in order
            let last = test.bytes - 1;
            computing(test.iterations, || {
                ping_pong(test, is_client, &mut stamps, |turn| match turn {
                    Turn::Hear(number) => {
                        let mut byte = [0];
                        loop {
                            region.read(part + last, &mut byte)?;
                            if byte == [number as u8] {
                                return Ok(());
                            }
                        }
                    }
                    Turn::Say(number) => {
                        match &mut message {
                            Message::Inline(bytes) => {
                                if let Some(byte) = bytes.last_mut() {
                                    *byte = number as u8;
                                }
                            }
                            Message::Region(_) => region.write(last, &[number as u8])?,
                        }
                        message.write(&mut qp, to)?;
                        sends.wait()
                    }
                })
            })?;
        }
        operation => {
            if is_client {
                let at = peer.u64_at(part)?;
                let from = peer.slice(part..part + test.bytes)?;
                let word = region.u64_at(0)?;
                computing(test.iterations, || {
                    for _ in 0..test.iterations {
                        stamps.take();
                        one_sided(operation, &mut qp, out, from, word, at)?;
                        sends.wait()?;
                    }
                    Ok(())
                })?;
            } else {
                // the server's processor has no part in it
                computing(test.iterations, || meeting.join())?;
            }
        }
    }
    if is_client {
        stamps.print(test.operation);
    }
    // the server of a one-sided operation was in this place before
    if test.operation.is_two_sided() || is_client { meeting.join() } else { Ok(()) }
}

#[inline(always)]
fn one_sided<'a>(
    operation: Operation,
    qp: &mut impl PostSend<'a, Transport = Rc>,
    into: MrSlice<'a>,
    from: RemoteSlice,
    word: MrU64<'a>,
    at: RemoteU64,
) -> Result<(), PostError> {
    match operation {
        Operation::FetchAdd => qp.post(fetch_add(word, at, 1).signaled()),
        Operation::CmpSwp => qp.post(cmp_swp(word, at, 0, 0).signaled()),
        _ => qp.post(read(into, from).signaled()),
    }
}

/// What travels.
enum Message<'a> {
    Inline(Vec<u8>),
    Region(MrSlice<'a>),
}

impl<'a> Message<'a> {
    fn new(test: &Test, out: MrSlice<'a>) -> Self {
        if test.inline { Self::Inline(vec![0; test.bytes]) } else { Self::Region(out) }
    }

    #[inline(always)]
    fn send(&self, qp: &mut impl PostSend<'a, Transport = Rc>) -> Result<(), PostError> {
        match self {
            Self::Inline(bytes) => qp.post(send(Inline(bytes)).signaled()),
            Self::Region(slice) => qp.post(send(*slice).signaled()),
        }
    }

    #[inline(always)]
    fn write(&self, qp: &mut impl PostSend<'a, Transport = Rc>, to: RemoteSlice) -> Result<(), PostError> {
        match self {
            Self::Inline(bytes) => qp.post(write(Inline(bytes), to).signaled()),
            Self::Region(slice) => qp.post(write(*slice, to).signaled()),
        }
    }
}

/// Whose turn it is, and the how manieth message it is about, from 1.
enum Turn {
    Hear(u64),
    Say(u64),
}

/// The client begins, each answers.
#[inline(always)]
fn ping_pong(
    test: &Test,
    is_client: bool,
    stamps: &mut Stamps,
    mut turn: impl FnMut(Turn) -> Result<()>,
) -> Result<()> {
    let (mut said, mut heard) = (0, 0);
    while said < test.iterations || heard < test.iterations {
        if heard < test.iterations && !(said == 0 && is_client) {
            heard += 1;
            turn(Turn::Hear(heard))?;
        }
        if said < test.iterations {
            stamps.take();
            said += 1;
            turn(Turn::Say(said))?;
        }
    }
    Ok(())
}
