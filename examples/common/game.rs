//! The game itself: the client serves, each side answers, and after so many exchanges it is over.

use ibv::qp::Connected;
use ibv::{
    CompletionQueue, Gather, Inline, PostRecv, PostSend, Send, SendRequest, Transport, WcStatus,
    WorkCompletion, send,
};

use super::completions::Completions;
use super::memory::{Memory, RECEIVE};
use super::payload::Payload;
use super::report::Stopwatch;
use super::{Options, Result};

/// The id of every send.
const SEND: u64 = 2;

/// How a message on a queue pair of transport `T` finds the peer.
pub(crate) trait Peer<'a, T: Transport> {
    /// The message with its destination.
    fn address<D: Gather<'a>>(&self, message: Send<D>) -> impl SendRequest<'a, T>;
}

/// A connected queue pair has one peer: there is nothing to say.
impl<'a, T: Connected> Peer<'a, T> for () {
    fn address<D: Gather<'a>>(&self, message: Send<D>) -> impl SendRequest<'a, T> {
        message
    }
}

/// All of one side but the queue pair.
pub(crate) struct Game<'a> {
    options: &'a Options,
    memory: &'a Memory<'a>,
    cq: &'a CompletionQueue<'a>,
}

impl<'a> Game<'a> {
    pub(crate) fn new(options: &'a Options, memory: &'a Memory<'a>, cq: &'a CompletionQueue<'a>) -> Self {
        Self { options, memory, cq }
    }

    /// Posts the first receives: to be done before the peer can send.
    pub(crate) fn get_ready(&self, queue: &mut impl PostRecv<'a>) -> Result<()> {
        self.post_receives(queue, self.options.rx_depth)
    }

    fn post_receives(&self, queue: &mut impl PostRecv<'a>, count: u32) -> Result<()> {
        for _ in 0..count {
            queue.post_recv(self.memory.receive()?)?;
        }
        Ok(())
    }

    /// Plays all exchanges and prints how long they took. Messages of up to `max_inline` bytes travel in the requests.
    pub(crate) fn play<Q, P>(&self, queue: &mut Q, peer: &P, max_inline: u32) -> Result<()>
    where
        Q: PostSend<'a> + PostRecv<'a>,
        P: Peer<'a, Q::Transport>,
    {
        let Options { size, iters, rx_depth, .. } = *self.options;
        let message = self.memory.message()?;
        let mut inline = if size <= max_inline as usize { vec![0; size] } else { Vec::new() };
        let mut payload = Payload::new(self.options)?;
        let mut completions = Completions::new(self.cq, self.options);
        let mut stopwatch = Stopwatch::start(self.options)?;

        let mut serve = |queue: &mut Q, payload: &mut Option<Payload>, round| -> Result<()> {
            if let Some(payload) = payload {
                payload.prepare(self.memory, round)?;
            }
            stopwatch.stamp();
            if inline.is_empty() {
                queue.post(peer.address(send(message).signaled().id(SEND)))?;
            } else {
                self.memory.read_message(&mut inline)?;
                queue.post(peer.address(send(Inline(&inline)).signaled().id(SEND)))?;
            }
            Ok(())
        };

        let is_client = self.options.host.is_some();
        let (mut posted, mut sent, mut received, mut receives) = (0, 0, 0, rx_depth);
        if is_client {
            serve(queue, &mut payload, posted)?;
            posted += 1;
        }
        while sent < iters || received < iters {
            for completion in completions.wait()? {
                if self.is_receive(completion)? {
                    if let Some(payload) = &mut payload {
                        payload.check(self.memory, received)?;
                    }
                    received += 1;
                    receives -= 1;
                    if receives <= 1 {
                        self.post_receives(queue, rx_depth - receives)?;
                        receives = rx_depth;
                    }
                } else {
                    sent += 1;
                }
                // our turn: the last message is delivered, and the answer to it is there
                let answered = if is_client { received == posted } else { received > posted };
                if answered && sent == posted && posted < iters {
                    serve(queue, &mut payload, posted)?;
                    posted += 1;
                }
            }
        }
        stopwatch.stop(self.options)
    }

    /// Whether it is a receive that completed, else it is the send.
    fn is_receive(&self, completion: &WorkCompletion) -> Result<bool> {
        let is_receive = completion.id() == RECEIVE;
        let done = completion.result().map_err(|error| {
            let what = if is_receive { "receive" } else { "send" };
            let hint = match error.status {
                WcStatus::RETRY_EXC_ERR | WcStatus::WR_FLUSH_ERR => "",
                _ => " (do both sides have the same --size?)",
            };
            format!("a {what} failed: {error}{hint}")
        })?;
        let due = self.memory.received_len();
        match done.byte_len() {
            Some(len) if len as usize != due => {
                let header = due - self.options.size;
                Err(format!(
                    "the peer's message has {} bytes, not {}: give both sides the same --size",
                    (len as usize).saturating_sub(header),
                    self.options.size
                )
                .into())
            }
            _ => Ok(is_receive),
        }
    }
}
