//! The direct path beside libmlx5, each on queues of its own.
//!
//! Ours are as for two threads. Requests are built in what is measured; C's were built before, which is the least that
//! it can do.
//!
//! # Safety
//!
//! The C functions get pointers to objects that live for as long as the rows. No name is defined twice.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::RefCell;
use std::hint::black_box;

use ibv::mlx5::{Poller, ToCqe};
use ibv::sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};
use ibv::{
    CompletionQueue, Context, Direct, Error, Inline, MrSlice, QueuePair, QueuePairBuilder, Rc, Recv,
    RemoteAccess, RemoteSlice, SharedReceiveQueue, WorkCompletion, recv, send, state::Rts, write,
};
use ibv_bench_twins::{DEPTH, Hook, Loop, NOTHING, Row, Use, c, connect_to_itself, sge_of, shells, sized};

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

/// Links the requests of a list.
macro_rules! linked {
    ($list:ident) => {{
        let first = $list.as_mut_ptr();
        for (at, wr) in $list.iter_mut().enumerate().take(15) {
            wr.next = first.wrapping_add(at + 1);
        }
        first
    }};
}

/// Makes the rows. `work` makes the device do all that was posted.
pub(crate) fn with_rows<U: Use>(work: &dyn Fn(), then: U) -> Result<U::Result, Error> {
    let ctx = Context::open("mlx5_0")?;
    let pd = ctx.alloc_pd()?;
    let mr = pd.alloc_remote(4096, RemoteAccess::WRITE)?;
    let (data, landing) = (mr.slice(..64)?, mr.slice(2048..2304)?);
    let region = mr.remote_region();
    let to = region.slice(1024..1088)?;

    let direct_cq = CompletionQueue::builder(&ctx, 8 * DEPTH).build_direct()?;
    let qp = connect_to_itself(&ctx, sized(QueuePairBuilder::direct(&pd, &direct_cq, &direct_cq)).build()?)?;
    let qp = RefCell::new(qp);
    let poller = RefCell::new(Poller::new(&direct_cq)?);
    let (bytes, list) = ([7u8; 8], [data; 16]);
    let receives: [_; 16] = std::array::from_fn(|id| recv(landing).id(id as u64));

    let cq = ctx.create_cq(8 * DEPTH)?;
    let theirs = connect_to_itself(&ctx, sized(pd.create_qp::<Rc>(&cq, &cq)).build()?)?;

    // sends of these complete with the others', receives from the shared queues on queues of their own
    let (shared_cq, c_shared_cq) =
        (CompletionQueue::builder(&ctx, 8 * DEPTH).build_direct()?, ctx.create_cq(8 * DEPTH)?);
    let shared_poller = RefCell::new(Poller::new(&shared_cq)?);
    let srq = RefCell::new(SharedReceiveQueue::direct(&pd, &shared_cq, DEPTH, 1)?);
    let c_srq = SharedReceiveQueue::new(&pd, DEPTH, 1)?;
    let builder = sized(QueuePairBuilder::<Rc, _>::direct(&pd, &direct_cq, &shared_cq));
    let shared_qp = RefCell::new(connect_to_itself(&ctx, builder.srq(&srq.borrow()).build()?)?);
    let builder = sized(pd.create_qp::<Rc>(&cq, &c_shared_cq));
    let c_shared_qp = connect_to_itself(&ctx, builder.srq(&c_srq).build()?)?;

    let mut sge = sge_of(&mr, 64);
    let mut inline_sge = ibv_sge { addr: bytes.as_ptr().addr() as u64, length: 8, lkey: 0 };
    let mut landing_sge = ibv_sge { addr: sge.addr + 2048, length: 256, ..sge };
    let wr = |sge: *mut ibv_sge, flags: u32| {
        let mut wr = ibv_send_wr {
            sg_list: sge,
            num_sge: 1,
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED | flags,
            ..Default::default()
        };
        wr.wr.rdma.remote_addr = region.addr + 1024;
        wr.wr.rdma.rkey = region.rkey;
        wr
    };
    let (mut c_write, mut c_inline) = (wr(&raw mut sge, 0), wr(&raw mut inline_sge, IBV_SEND_INLINE));
    let mut c_list = [c_write; 16];
    let mut c_recv = ibv_recv_wr { sg_list: &raw mut landing_sge, num_sge: 1, ..Default::default() };
    let mut c_recv_list = [c_recv; 16];
    let (c_list, c_recv_list) = (linked!(c_list), linked!(c_recv_list));
    let (c_write, c_inline, c_recv) = (&raw mut c_write, &raw mut c_inline, &raw mut c_recv);
    // two more queue pairs, whose receives complete on a queue of their own
    let direct_received = CompletionQueue::builder(&ctx, 8 * DEPTH).build_direct()?;
    let builder = sized(QueuePairBuilder::<Rc, _>::direct(&pd, &direct_cq, &direct_received));
    let receiver = RefCell::new(connect_to_itself(&ctx, builder.build()?)?);
    let received_poller = RefCell::new(Poller::new(&direct_received)?);
    let c_received = ctx.create_cq(8 * DEPTH)?;
    let c_receiver = connect_to_itself(&ctx, sized(pd.create_qp::<Rc>(&cq, &c_received)).build()?)?;
    let c_received_cq = c_received.as_ptr();

    let mut wcs = [ibv_wc::default(); 32];
    let wcs: *mut ibv_wc = (&raw mut wcs).cast();
    let (c_qp, c_cq, c_srq_ptr) = (theirs.as_ptr(), cq.as_ptr(), c_srq.as_ptr());

    // on the direct queues, between measurements
    let done: Hook<'_> = &|_| {
        work();
        let mut poller = poller.borrow_mut();
        while let Some(wc) = poller.poll() {
            wc.result()?;
        }
        Ok(())
    };
    let sent = |requests: u64| {
        for _ in 0..requests {
            qp.borrow_mut().post(send(data).signaled())?;
        }
        done(requests)
    };
    let sent_1: Hook<'_> = &|operations| sent(operations);
    let sent_16: Hook<'_> = &|operations| sent(16 * operations);
    let completed = |operations, count| {
        for id in (0..operations).flat_map(|_| 0..count) {
            qp.borrow_mut().post(write(data, to).id(id).signaled())?;
        }
        work();
        Ok(())
    };
    let completed_1: Hook<'_> = &|operations| completed(operations, 1);
    let completed_16: Hook<'_> = &|operations| completed(operations, 16);
    let received_16: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..16) {
            receiver.borrow_mut().post_recv(recv(landing).id(id))?;
            receiver.borrow_mut().post(send(data).signaled())?;
        }
        done(operations)
    };
    // on libmlx5's
    let c_done: Hook<'_> = &|_| {
        work();
        let mut wcs = [WorkCompletion::default(); 16];
        loop {
            match cq.poll(&mut wcs)? {
                [] => return Ok(()),
                done => done.iter().try_for_each(|wc| wc.result().map(drop))?,
            }
        }
    };
    let c_sent = |requests: u64| {
        (0..requests).try_for_each(|_| theirs.post(send(data).signaled()))?;
        c_done(requests)
    };
    let c_sent_1: Hook<'_> = &|operations| c_sent(operations);
    let c_sent_16: Hook<'_> = &|operations| c_sent(16 * operations);
    let c_completed = |operations, count| {
        for id in (0..operations).flat_map(|_| 0..count) {
            theirs.post(write(data, to).id(id).signaled())?;
        }
        work();
        Ok(())
    };
    let c_completed_1: Hook<'_> = &|operations| c_completed(operations, 1);
    let c_completed_16: Hook<'_> = &|operations| c_completed(operations, 16);
    let c_received_16: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..16) {
            c_receiver.post_recv(recv(landing).id(id))?;
            c_receiver.post(send(data).signaled())?;
        }
        c_done(operations)
    };
    // on queues that get data in the completions of receives, and libmlx5's, which does by itself
    let short = mr.slice(..32)?;
    let queue = || CompletionQueue::builder(&ctx, 4 * DEPTH).build_direct_scattered();
    let (sends, receives_of_data) = (queue()?, queue()?);
    let builder = sized(QueuePairBuilder::<Rc, _>::direct(&pd, &sends, &receives_of_data));
    let with_data = RefCell::new(connect_to_itself(&ctx, builder.build()?)?);
    let (sends, data_poller) =
        (RefCell::new(Poller::new(&sends)?), RefCell::new(Poller::new(&receives_of_data)?));
    let came: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..16) {
            with_data.borrow_mut().post_recv(recv(landing).id(id))?;
            with_data.borrow_mut().post(send(short).signaled())?;
        }
        work();
        let mut sends = sends.borrow_mut();
        while let Some(wc) = sends.poll() {
            wc.result()?;
        }
        Ok(())
    };
    let (c_sends, c_receives) = (ctx.create_cq(4 * DEPTH)?, ctx.create_cq(4 * DEPTH)?);
    let builder = sized(pd.create_qp::<Rc>(&c_sends, &c_receives));
    // SAFETY: its receives have room that outlives it, which nobody else accesses.
    let c_with_data = connect_to_itself(&ctx, unsafe { builder.allow_late_copies() }.build()?)?;
    let c_data_cq = c_receives.as_ptr();
    let c_came: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..16) {
            c_with_data.post_recv(recv(landing).id(id))?;
            c_with_data.post(send(short).signaled())?;
        }
        work();
        let mut wcs = [WorkCompletion::default(); 16];
        loop {
            match c_sends.poll(&mut wcs)? {
                [] => return Ok(()),
                done => done.iter().try_for_each(|wc| wc.result().map(drop))?,
            }
        }
    };
    // on the shared queues
    let taken = |requests: u64| {
        (0..requests).try_for_each(|_| shared_qp.borrow_mut().post(send(data).signaled()))?;
        done(requests)
    };
    let taken_1: Hook<'_> = &|operations| {
        taken(operations)?;
        let mut poller = shared_poller.borrow_mut();
        while let Some(wc) = poller.poll() {
            wc.result()?;
        }
        Ok(())
    };
    let taken_16: Hook<'_> = &|operations| taken_1(16 * operations);
    let received: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..8) {
            srq.borrow_mut().post_recv(recv(landing).id(id))?;
        }
        taken(8 * operations)
    };
    let c_taken = |requests: u64| {
        (0..requests).try_for_each(|_| c_shared_qp.post(send(data).signaled()))?;
        c_done(requests)
    };
    let c_taken_1: Hook<'_> = &|operations| {
        c_taken(operations)?;
        let mut wcs = [WorkCompletion::default(); 16];
        loop {
            match c_shared_cq.poll(&mut wcs)? {
                [] => return Ok(()),
                done => done.iter().try_for_each(|wc| wc.result().map(drop))?,
            }
        }
    };
    let c_taken_16: Hook<'_> = &|operations| c_taken_1(16 * operations);
    let c_received: Hook<'_> = &|operations| {
        for id in (0..operations).flat_map(|_| 0..8) {
            c_srq.post_recv(recv(landing).id(id))?;
        }
        c_taken(8 * operations)
    };
    const fn sum_of(count: u64, operations: u64) -> u64 {
        operations * (count * (count - 1) / 2)
    }

    let mut rows = Vec::new();
    macro_rules! row {
        (
            $name:ident / $per_operation:literal,
            $expected:expr,
            [$before:expr, $after:expr],
            [$c_before:expr, $c_after:expr],
            |$n:ident| $ours:expr,
            $theirs:expr
        ) => {
            rows.push(Row {
                name: stringify!($name),
                per_operation: $per_operation,
                limit: u64::from(DEPTH / $per_operation),
                expected: $expected,
                ours: Loop::new(|$n| $ours).between($before, $after),
                // SAFETY: see the module.
                theirs: Loop::new(|$n| unsafe { $theirs }).between($c_before, $c_after),
            });
        };
    }
    row!(
        direct_write / 1,
        Some(0.70),
        [NOTHING, done],
        [NOTHING, c_done],
        |n| ours_direct_write(&mut qp.borrow_mut(), &data, &to, n),
        c::c_direct_write(c_qp, c_write, n) == 0
    );
    row!(
        direct_inline / 1,
        Some(0.75),
        [NOTHING, done],
        [NOTHING, c_done],
        |n| ours_direct_inline(&mut qp.borrow_mut(), &bytes[0], bytes.len(), &to, n),
        c::c_direct_inline(c_qp, c_inline, n) == 0
    );
    row!(
        direct_list_16 / 16,
        Some(0.40),
        [NOTHING, done],
        [NOTHING, c_done],
        |n| ours_direct_list_16(&mut qp.borrow_mut(), &list, &to, n),
        c::c_direct_list_16(c_qp, c_list, n) == 0
    );
    row!(
        direct_recv / 1,
        None,
        [NOTHING, sent_1],
        [NOTHING, c_sent_1],
        |n| ours_direct_recv(&mut qp.borrow_mut(), &landing, n),
        c::c_direct_recv(c_qp, c_recv, n) == 0
    );
    row!(
        direct_recv_list_16 / 16,
        Some(0.60),
        [NOTHING, sent_16],
        [NOTHING, c_sent_16],
        |n| ours_direct_recv_list_16(&mut qp.borrow_mut(), &receives, n),
        c::c_direct_recv_list_16(c_qp, c_recv_list, n) == 0
    );
    row!(
        direct_shared_recv / 1,
        None,
        [NOTHING, taken_1],
        [NOTHING, c_taken_1],
        |n| ours_direct_shared_recv(&mut srq.borrow_mut(), &landing, n),
        c::c_direct_shared_recv(c_srq_ptr, c_recv, n) == 0
    );
    row!(
        direct_shared_recv_list_16 / 16,
        None,
        [NOTHING, taken_16],
        [NOTHING, c_taken_16],
        |n| ours_direct_shared_recv_list_16(&mut srq.borrow_mut(), &receives, n),
        c::c_direct_shared_recv_list_16(c_srq_ptr, c_recv_list, n) == 0
    );
    row!(
        direct_shared_poll_8 / 8,
        None,
        [received, NOTHING],
        [c_received, NOTHING],
        |n| ours_direct_shared_poll_8(&mut shared_poller.borrow_mut(), n) == sum_of(8, n),
        c::c_direct_shared_poll_8(c_shared_cq.as_ptr(), wcs, n) == sum_of(8, n)
    );
    row!(
        direct_poll_1 / 1,
        None,
        [completed_1, NOTHING],
        [c_completed_1, NOTHING],
        |n| ours_direct_poll_1(&mut poller.borrow_mut(), n) == sum_of(1, n),
        c::c_direct_poll_1(c_cq, wcs, n) == sum_of(1, n)
    );
    row!(
        direct_poll_16 / 16,
        Some(0.30),
        [completed_16, NOTHING],
        [c_completed_16, NOTHING],
        |n| ours_direct_poll_16(&mut poller.borrow_mut(), n) == sum_of(16, n),
        c::c_direct_poll_16(c_cq, wcs, n) == sum_of(16, n)
    );
    row!(
        direct_poll_recv_16 / 16,
        Some(0.30),
        [received_16, NOTHING],
        [c_received_16, NOTHING],
        |n| ours_direct_poll_recv_16(&mut received_poller.borrow_mut(), n) == sum_of(16, n) + n * 16 * 64,
        c::c_direct_poll_recv_16(c_received_cq, wcs, n) == sum_of(16, n) + n * 16 * 64
    );
    row!(
        direct_poll_empty / 1,
        Some(0.30),
        [NOTHING, NOTHING],
        [NOTHING, NOTHING],
        |n| ours_direct_poll_empty(&mut poller.borrow_mut(), n) == 0,
        c::c_direct_poll_empty(c_cq, wcs, n) == 0
    );
    row!(
        direct_poll_data_16 / 16,
        None,
        [came, NOTHING],
        [c_came, NOTHING],
        |n| ours_direct_poll_data_16(&mut data_poller.borrow_mut(), n) == sum_of(16, n),
        c::c_direct_poll_data_16(c_data_cq, wcs, n) == sum_of(16, n)
    );
    Ok(then.rows(rows))
}
