//! Our loops.
//!
//! # Safety
//!
//! No name is defined twice.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::hint::black_box;

use ibv::mlx5::{Poller, ToCqe};
use ibv::{
    Direct, Inline, MrSlice, QueuePair, Rc, Recv, RemoteSlice, SharedReceiveQueue, recv, state::Rts, write,
};
use ibv_bench_twins::shells;

type Queue<'a> = QueuePair<'a, Rc, Rts, Direct>;
type Srq<'a> = SharedReceiveQueue<'a, Direct>;

shells! {
    fn ours_direct_write<'a>(qp: &mut Queue<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| qp.post(write(*data, *to).signaled().id(id))
    }

    fn ours_direct_inline<'a>(qp: &mut Queue<'a>, data: &u8, len: usize, to: &RemoteSlice) -> bool {
        // SAFETY: the caller's bytes.
        |id| qp.post(write(Inline(unsafe { std::slice::from_raw_parts(data, len) }), *to).signaled().id(id))
    }

    fn ours_direct_list_16<'a>(qp: &mut Queue<'a>, data: &[MrSlice<'a>; 16], to: &RemoteSlice) -> bool {
        |id| {
            let mut batch = qp.batch();
            for data in data {
                batch.push(write(*data, *to).signaled().id(id))?;
            }
            batch.submit();
            Ok(())
        }
    }

    fn ours_direct_recv<'a>(qp: &mut Queue<'a>, into: &MrSlice<'a>) -> bool {
        |id| qp.post_recv(recv(*into).id(id))
    }

    fn ours_direct_recv_list_16<'a>(qp: &mut Queue<'a>, requests: &[Recv<MrSlice<'a>>; 16]) -> bool {
        |_id| qp.post_recv_list(requests)
    }

    fn ours_direct_shared_recv<'a>(srq: &mut Srq<'a>, into: &MrSlice<'a>) -> bool {
        |id| srq.post_recv(recv(*into).id(id))
    }

    fn ours_direct_shared_recv_list_16<'a>(srq: &mut Srq<'a>, requests: &[Recv<MrSlice<'a>>; 16]) -> bool {
        |_id| srq.post_recv_list(requests)
    }

    fn ours_direct_poll_1<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| {
            let wc = poller.poll()?;
            wc.result().ok()?;
            Some(wc.id())
        }
    }

    fn ours_direct_poll_16<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| { poll::<16>(poller) }
    }

    fn ours_direct_shared_poll_8<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| { poll::<8>(poller) }
    }

    fn ours_direct_poll_recv_16<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| {
            let mut sum = 0;
            for _ in 0..16 {
                let Some(wc) = poller.poll() else { break };
                let len = wc.result().ok()?.byte_len().unwrap_or(0);
                sum += wc.id() + u64::from(len);
            }
            Some(sum)
        }
    }

    fn ours_direct_poll_empty<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| { Some(poller.poll().map_or(0, |wc| wc.id() + 1)) }
    }

    fn ours_direct_poll_data_16<'a>(poller: &mut Poller<'a, ToCqe>) -> u64 {
        |_id| {
            let mut sum = 0;
            for _ in 0..16 {
                let Some(wc) = poller.poll() else { break };
                let data = wc.result().ok()?.scattered()?;
                // at hand, as C's is in memory
                black_box(&*data);
                sum += wc.id();
            }
            Some(sum)
        }
    }
}

/// Takes so many completions; the sum of their ids.
#[inline(always)]
fn poll<const COUNT: usize>(poller: &mut Poller<'_>) -> Option<u64> {
    let mut sum = 0;
    for _ in 0..COUNT {
        let Some(wc) = poller.poll() else { break };
        wc.result().ok()?;
        sum += wc.id();
    }
    Some(sum)
}
