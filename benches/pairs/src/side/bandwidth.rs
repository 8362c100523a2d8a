//! As many messages as the queues hold: the loop of perftest's `*_bw` programs.

use std::time::Instant;

use ibv::{QueuePair, RemoteSlice, WorkCompletion, read, write};

use super::Here;
use super::link;
use super::meeting::Meeting;
use crate::Result;
use crate::perftest::{DEPTH, PER_COMPLETION};
use crate::test::{Operation, Test};

/// Completions of a poll, as in perftest.
const BATCH: usize = 16;
/// Small messages walk through so many bytes, line by line, as in perftest.
const WALK: usize = 4096;
const LINE: usize = 64;

pub(super) fn run(here: &Here, meeting: &mut Meeting) -> Result<()> {
    let test = &here.test;
    let (ctx, local) = link::open(here)?;
    let pd = ctx.alloc_pd()?;
    let part = link::part(test);
    let region = pd.alloc_remote(part * test.queues as usize, link::access(test))?;
    let send_cq = link::cq_builder(&ctx, test.queues, DEPTH).build()?;
    let recv_cq = link::cq_builder(&ctx, test.queues, 1).build()?;
    let mut queues = Vec::new();
    for _ in 0..test.queues {
        let qp = pd.create_qp(&send_cq, &recv_cq).send_depth(DEPTH).recv_depth(1).build()?;
        let qp = link::connect(qp, local, test, meeting, |_| Ok(()))?;
        queues.push(Queue { qp, posted: 0, done: 0 });
    }
    let peer = link::swap_regions(region.remote_region(), meeting)?;
    meeting.join()?;
    if !meeting.is_client {
        return meeting.join();
    }
    let step = test.bytes.next_multiple_of(LINE);
    let places = if step <= WALK / 2 { WALK / step } else { 1 };
    let (iterations, per_completion) = (test.iterations, u64::from(PER_COMPLETION));
    let (mut left, mut wcs) = (iterations * u64::from(test.queues), [WorkCompletion::default(); BATCH]);
    let start = Instant::now();
    while left > 0 {
        for (index, queue) in queues.iter_mut().enumerate() {
            while queue.posted < iterations && queue.posted - queue.done < u64::from(DEPTH) {
                let at = index * part + queue.posted as usize % places * step;
                let data = region.slice(at..at + test.bytes)?;
                let remote = peer.slice(at..at + test.bytes)?;
                queue.posted += 1;
                let signaled = queue.posted % per_completion == 0 || queue.posted == iterations;
                post(test, &queue.qp, data, remote, index as u64, signaled)?;
            }
        }
        for wc in send_cq.poll(&mut wcs)? {
            wc.result()?;
            let queue = queues.get_mut(wc.id() as usize).ok_or("a completion with a foreign id")?;
            let done = per_completion.min(iterations - queue.done);
            queue.done += done;
            left -= done;
        }
    }
    println!("rate {}", (iterations * u64::from(test.queues)) as f64 / start.elapsed().as_secs_f64());
    meeting.join()
}

struct Queue<'a> {
    qp: QueuePair<'a>,
    posted: u64,
    done: u64,
}

#[inline(always)]
fn post<'a>(
    test: &Test,
    qp: &QueuePair<'a>,
    data: ibv::MrSlice<'a>,
    remote: RemoteSlice,
    id: u64,
    signaled: bool,
) -> Result<()> {
    match (test.operation, signaled) {
        (Operation::Read, true) => qp.post(read(data, remote).id(id).signaled())?,
        (Operation::Read, false) => qp.post(read(data, remote).id(id))?,
        (_, true) => qp.post(write(data, remote).id(id).signaled())?,
        (_, false) => qp.post(write(data, remote).id(id))?,
    }
    Ok(())
}
