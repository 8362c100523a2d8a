//! Our side of the twins.
//!
//! # Safety
//!
//! No name is defined twice.

#![expect(unsafe_code, reason = "the Safety section above")]
#![expect(
    clippy::redundant_closure_call,
    reason = "a `?` in a shell's operation ends that, and not the shell"
)]

use ibv::fields::{ByteLen, QpNum};
use ibv::{
    AddressHandle, Arm, BatchStorage, CompletionQueue, Error, Extended, ExtendedCompletion, Inline,
    MemoryRegion, MrSlice, MrU64, Pages, PollCq, Poller, Prepared, ProtectionDomain, QueuePair, Rc,
    RecvStorage, RemoteSlice, RemoteU64, Ud, WcOpcode, WorkCompletion, Write, fetch_add, recv, send,
    state::Rts, write,
};

use crate::shell::Register;
use crate::shells;

/// What is read of completions where more than id and status is.
pub(crate) type Fields = (WcOpcode, ByteLen, QpNum);

shells! {
    fn ours_post_write<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| qp.post(write(*data, *to).id(id).signaled())
    }

    fn ours_post_unsignaled<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| qp.post(write(*data, *to).id(id))
    }

    fn ours_post_send<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>) -> bool {
        |id| qp.post(send(*data).id(id).signaled())
    }

    fn ours_post_send_inline<'a>(qp: &QueuePair<'a>, data: &u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        |id| qp.post(send(Inline(unsafe { std::slice::from_raw_parts(data, len) })).id(id).signaled())
    }

    fn ours_post_fetch_add<'a>(qp: &QueuePair<'a>, data: &MrU64<'a>, at: &RemoteU64, add: u64) -> bool {
        |id| qp.post(fetch_add(*data, *at, add).id(id).signaled())
    }

    fn ours_post_ud_send<'a>(
        qp: &QueuePair<'a, Ud>,
        data: &MrSlice<'a>,
        ah: &'a AddressHandle<'a>,
        qpn: u32,
        qkey: u32,
    ) -> bool {
        |id| qp.post(send(*data).to(ah, qpn, qkey).id(id).signaled())
    }

    fn ours_post_prepared<'a>(qp: &QueuePair<'a>, request: &mut Prepared<'a, Rc>) -> bool {
        |id| {
            request.set_id(id);
            qp.post_prepared(request)
        }
    }

    fn ours_write_list_16<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>, to: &RemoteSlice) -> bool {
        |id| {
            let mut storage = BatchStorage::<16>::new();
            let mut batch = qp.batch(&mut storage);
            for _ in 0..15 {
                batch.push(write(*data, *to).id(id))?;
            }
            batch.push(write(*data, *to).id(id).signaled())?;
            batch.submit()
        }
    }

    fn ours_write_distinct_16<'a>(
        qp: &QueuePair<'a>,
        data: &[MrSlice<'a>; 16],
        to: &[RemoteSlice; 16],
    ) -> bool {
        |id| {
            let mut storage = BatchStorage::<16>::new();
            let mut batch = qp.batch(&mut storage);
            let ([data @ .., last_data], [to @ .., last_to]) = (data, to);
            for (data, to) in data.iter().zip(to) {
                batch.push(write(*data, *to).id(id))?;
            }
            batch.push(write(*last_data, *last_to).id(id).signaled())?;
            batch.submit()
        }
    }

    fn ours_post_recv<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>) -> bool {
        |id| qp.post_recv(recv(*data).id(id))
    }

    fn ours_recv_list_16<'a>(qp: &QueuePair<'a>, data: &MrSlice<'a>) -> bool {
        |id| {
            let mut storage = RecvStorage::<16>::new();
            let mut batch = qp.recv_batch(&mut storage);
            for _ in 0..16 {
                batch.push(recv(*data).id(id))?;
            }
            batch.submit()
        }
    }

    fn ours_wr_write<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        data: &MrSlice<'a>,
        to: &RemoteSlice,
    ) -> bool {
        |id| qp.post(write(data, *to).id(id).signaled())
    }

    fn ours_wr_write_value<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        data: &MrSlice<'a>,
        to: &RemoteSlice,
    ) -> bool {
        |id| qp.post(write(*data, *to).id(id).signaled())
    }

    fn ours_wr_send_inline<'a>(qp: &mut QueuePair<'a, Rc, Rts, Extended>, data: &u8, len: usize) -> bool {
        // SAFETY: the caller's bytes.
        |id| qp.post(send(Inline(unsafe { std::slice::from_raw_parts(data, len) })).id(id).signaled())
    }

    fn ours_wr_write_list_16<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        requests: &[Write<MrSlice<'a>>; 16],
    ) -> bool {
        |_id| qp.post_list(requests)
    }

    fn ours_untrusted_write<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        data: &MrSlice<'a>,
        to: &RemoteSlice,
    ) -> bool {
        // opaque once more: else the compiler makes one function of this and `ours_wr_write`
        |id| Register::opaque(&mut *qp).post(write(data, *to).id(id).signaled())
    }

    fn ours_untrusted_list_16<'a>(
        qp: &mut QueuePair<'a, Rc, Rts, Extended>,
        requests: &[Write<MrSlice<'a>>; 16],
    ) -> bool {
        |_id| Register::opaque(&mut *qp).post_list(requests)
    }

    fn ours_poll_1<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 1]) -> u64 {
        || cq.poll(wcs)
    }

    fn ours_poll_16<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 16]) -> u64 {
        || cq.poll(wcs)
    }

    fn ours_poll_empty<'a>(cq: &CompletionQueue<'a>, wcs: &mut [WorkCompletion; 32]) -> u64 {
        || cq.poll(wcs)
    }

    fn ours_poll_ex_1<'a>(poller: &mut Poller<'a>) -> u64 {
        |_id| {
            let wc = poller.poll_one().ok()??;
            wc.result().ok()?;
            Some(wc.id())
        }
    }

    fn ours_poll_ex_16<'a>(poller: &mut Poller<'a>, wcs: &mut [ExtendedCompletion<()>; 16]) -> u64 {
        || poller.poll(wcs)
    }

    fn ours_poll_ex_ids_16<'a>(poller: &mut Poller<'a>, wcs: &mut [WorkCompletion; 16]) -> u64 {
        || poller.poll_into(wcs)
    }

    fn ours_poll_ex_empty<'a>(poller: &mut Poller<'a>, wcs: &mut [ExtendedCompletion<()>; 32]) -> u64 {
        || poller.poll(wcs)
    }

    fn ours_poll_ex_fields_16<'a>(
        poller: &mut Poller<'a, Fields>,
        wcs: &mut [ExtendedCompletion<Fields>; 16],
    ) -> u64 {
        |_id| {
            let mut sum = 0u64;
            for wc in poller.poll(wcs).ok()? {
                let (_, ByteLen(bytes), QpNum(qp)) = wc.result().ok()?;
                sum += wc.id() + u64::from(qp) + u64::from(bytes.unwrap_or(0));
            }
            Some(sum)
        }
    }

    fn ours_arm<'a>(cq: &CompletionQueue<'a>) -> bool {
        |_id| -> Error { cq.arm(Arm::Any) }
    }

    fn ours_register<'a>(pd: &ProtectionDomain<'a>, memory: &mut Option<Pages>) -> bool {
        |_id| -> Error {
            if let Some(pages) = memory.take() {
                let mr = MemoryRegion::local(pd, pages)?;
                *memory = Some(mr.into_buffer()?);
            }
            Ok(())
        }
    }

    fn ours_create_qp<'a>(pd: &ProtectionDomain<'a>, cq: &CompletionQueue<'a>) -> bool {
        |_id| -> Error { Ok(pd.create_qp::<Rc>(cq, cq).build()?.close()?) }
    }
}
