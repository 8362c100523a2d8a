//! The loops that are measured, each in Rust and in C, over a provider that does nothing or a device.
//!
//! | file | what |
//! |---|---|
//! | `shell` | how a function is made that can be counted |
//! | `loops`, `c` | the loops in Rust, and the declarations of those in C (`benches/c/twins.c`) |
//! | `row` | a loop in both languages, with what is done between measurements |
//! | `program` | what `benches/data_path.rs` and `benches/mlx5_path` do with the rows: run them to be counted, or time them |
//! | `time` | nanoseconds, as ratios |
//!
//! `tests/null_twins.rs` shows that both sides ask the provider for the same.
//!
//! # Safety
//!
//! The C functions get pointers to objects that live for as long as the rows.

#![expect(unsafe_code, reason = "the Safety section above")]

pub mod c;
mod loops;
mod program;
mod row;
pub mod shell;
mod time;

use std::cell::RefCell;

use c::*;
use ibv::sys::{IBV_SEND_SIGNALED, ibv_cq, ibv_send_wr, ibv_sge, ibv_wc};
use ibv::{
    AddressVector, Backend, CompletionChannel, CompletionQueue, Connected, Connection, Context, Endpoint,
    Error, ExtendedCompletion, InitAttr, MrSlice, Pages, Poller, QueuePair, QueuePairBuilder, Rc,
    RemoteAccess, Ud, UdInitAttr, WorkCompletion, Write, recv, send, state, write,
};
use loops::*;
pub use program::{Act, program};
pub use row::{Hook, Loop, NOTHING, Row, Use};

/// What carries out what is posted.
#[derive(Clone, Copy)]
pub enum Provider<'p> {
    /// Nobody: posts return at once, and `set_completions` makes a queue have so many completions at each poll.
    Nobody {
        /// The device's name.
        device: &'p str,
        /// As said.
        set_completions: fn(*mut ibv_cq, u32),
    },
    /// A device, whenever `work` is called.
    Device {
        /// Its name.
        device: &'p str,
        /// Does all that was posted.
        work: &'p dyn Fn(),
    },
}

impl std::fmt::Debug for Provider<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.device())
    }
}

impl Provider<'_> {
    fn device(&self) -> &str {
        match self {
            Self::Nobody { device, .. } | Self::Device { device, .. } => device,
        }
    }
}

/// The depth of the queues that are measured.
pub const DEPTH: u32 = 256;

/// A queue pair connected to itself.
///
/// # Errors
///
/// Those of the transitions: none is expected.
pub fn connect_to_itself<'a, T: Connected<Init = InitAttr>, B: Backend>(
    ctx: &Context,
    qp: QueuePair<'a, T, state::Reset, B>,
) -> Result<QueuePair<'a, T, state::Rts, B>, Error> {
    let local = ctx.local_port(1)?;
    let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
    let access = RemoteAccess::WRITE | RemoteAccess::ATOMIC;
    let qp = qp.init(InitAttr::new(1).access(access))?;
    Ok(qp.connect(&Connection::new(local, 0, peer))?)
}

/// The sizes of all queue pairs that are measured.
pub fn sized<T: ibv::Transport, B: Backend>(
    builder: QueuePairBuilder<'_, T, B>,
) -> QueuePairBuilder<'_, T, B> {
    builder.send_depth(DEPTH).recv_depth(DEPTH).inline(64)
}

/// The element that a slice is, as the C twins take it.
pub fn sge_of<K: ibv::RegionKind>(region: &ibv::MemoryRegion<'_, K>, length: u32) -> ibv_sge {
    ibv_sge { addr: region.memory().as_ptr() as u64, length, lkey: region.lkey() }
}

/// Makes the rows on a provider's device.
///
/// # Errors
///
/// Those of making the objects: none is expected.
pub fn with_rows<U: Use>(provider: Provider<'_>, then: U) -> Result<U::Result, Error> {
    let ctx = Context::open(provider.device())?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(32 * DEPTH)?;
    let queues = [ctx.create_cq(16)?, ctx.create_cq(16)?, ctx.create_cq(16)?];
    let make_polled = || CompletionQueue::builder(&ctx, 4 * DEPTH).build_extended::<Fields>();
    let polled = [make_polled()?, make_polled()?, make_polled()?];
    let channel = CompletionChannel::new(&ctx)?;
    let small = ctx.create_cq(64)?;
    let armed = CompletionQueue::builder(&ctx, 16).channel(&channel).build()?;
    let mr = pd.alloc_remote(4096, RemoteAccess::WRITE | RemoteAccess::ATOMIC)?;
    let ah = pd.create_ah(&AddressVector::lid(1, ctx.local_port(1)?.lid.max(1)))?;
    let basic = connect_to_itself(&ctx, sized(pd.create_qp::<Rc>(&cq, &cq)).build()?)?;
    let of_polled = connect_to_itself(&ctx, sized(pd.create_qp::<Rc>(&polled[0], &polled[0])).build()?)?;
    let builder = || sized(pd.create_qp::<Rc>(&cq, &cq).extended());
    let make_extended = || {
        // SAFETY: the rows post no more than their queue holds before it is polled (`limit`), and what is inline fits
        connect_to_itself(&ctx, unsafe { builder().trust_wr() }.build()?)
    };
    let extended = [make_extended()?, make_extended()?, make_extended()?, make_extended()?];
    let make_untrusted = || connect_to_itself(&ctx, builder().build()?);
    let [mut untrusted, mut untrusted_list] = [make_untrusted()?, make_untrusted()?];
    let datagrams = sized(pd.create_qp::<Ud>(&cq, &cq)).build()?.init(UdInitAttr::new(1, 2))?.activate(0)?;

    let data = mr.slice(..64)?;
    let word = mr.u64_at(0)?;
    let region = mr.remote_region();
    let to = region.slice(1024..1088)?;
    let at = region.u64_at(1024)?;
    let landing = mr.slice(2048..2304)?;
    let bytes = [7u8; 32];
    let mut prepared = basic.prepare(write(data, to).signaled())?;
    let requests = [write(data, to).signaled(); 16];

    let remote = c::Remote { addr: region.addr + 1024, length: 64, rkey: region.rkey };
    let (sge, word_sge, landing_sge) = (sge_of(&mr, 64), sge_of(&mr, 8), {
        let mut sge = sge_of(&mr, 256);
        sge.addr += 2048;
        sge
    });
    let c_requests = [c::Request { data: sge, to: remote, id: 0, flags: IBV_SEND_SIGNALED }; 16];
    let (mut kept_sge, mut kept) = (sge, ibv_send_wr::default());
    let kept = &raw mut kept;
    let (c_to, sge, word_sge, landing_sge) =
        (&raw const remote, &raw const sge, &raw const word_sge, &raw const landing_sge);
    // SAFETY: the request and its element live until the end of this function.
    unsafe { c::c_prepare_write(kept, &raw mut kept_sge, c_to) };
    let (qp, ud) = (basic.as_ptr(), datagrams.as_ptr());
    let [qp_ex, qp_ex_value, qp_ex_inline, qp_ex_list] = extended.each_ref().map(|qp| qp.as_ptr().cast());
    let [mut extended, mut extended_value, extended_inline, mut extended_list] = extended;
    // it is asked to receive what it sent
    let extended_inline = RefCell::new(extended_inline);
    let (ud_number, ud_key) = (datagrams.qp_num(), 2);

    let mut wcs =
        ([WorkCompletion::default(); 1], [WorkCompletion::default(); 16], [WorkCompletion::default(); 32]);
    let mut c_wcs = [ibv_wc::default(); 32];
    let c_wcs = (&raw mut c_wcs).cast();
    let mut pages = Some(Pages::new(4096)?);
    let memory = Pages::new(4096)?;
    let memory = memory.as_ptr().cast_mut();

    // what is done on a device between measurements
    let (work, is_device): (&dyn Fn(), _) = match provider {
        Provider::Nobody { .. } => (&|| {}, false),
        Provider::Device { work, .. } => (work, true),
    };
    let done: Hook<'_> = &|_| {
        work();
        let mut wcs = [WorkCompletion::default(); 16];
        loop {
            match cq.poll(&mut wcs)? {
                [] => return Ok(()),
                done => done.iter().try_for_each(|wc| wc.result().map(drop))?,
            }
        }
    };
    let done_unsignaled: Hook<'_> = &|operations| {
        basic.post(write(data, to).signaled())?;
        done(operations)
    };
    let received: Hook<'_> =
        &|operations| Ok((0..operations).try_for_each(|_| basic.post_recv(recv(landing)))?);
    let received_extended: Hook<'_> = &|operations| {
        Ok((0..operations).try_for_each(|_| extended_inline.borrow().post_recv(recv(landing)))?)
    };
    let received_datagrams: Hook<'_> =
        &|operations| Ok((0..operations).try_for_each(|_| datagrams.post_recv(recv(landing)))?);
    let sent = |requests| {
        (0..requests).try_for_each(|_| basic.post(send(data)))?;
        done_unsignaled(requests)
    };
    let sent_1: Hook<'_> = &|operations| sent(operations);
    let sent_16: Hook<'_> = &|operations| sent(16 * operations);
    // ids that count from 0 in each poll
    fn complete<'q>(
        qp: &QueuePair<'q>,
        request: Write<MrSlice<'q>>,
        operations: u64,
        count: u64,
    ) -> Result<(), Error> {
        let mut ids = (0..operations).flat_map(|_| 0..count);
        Ok(ids.try_for_each(|id| qp.post(request.id(id).signaled()))?)
    }
    let completed = |operations, count| complete(&basic, write(data, to), operations, count).map(|()| work());
    let completed_1: Hook<'_> = &|operations| completed(operations, 1);
    let completed_16: Hook<'_> = &|operations| completed(operations, 16);
    let to_poll =
        |operations, count| complete(&of_polled, write(data, to), operations, count).map(|()| work());
    let polled_1: Hook<'_> = &|operations| to_poll(operations, 1);
    let polled_16: Hook<'_> = &|operations| to_poll(operations, 16);
    const fn sum_of(count: u64, operations: u64) -> u64 {
        operations * (count * (count - 1) / 2)
    }
    // on a device all completions come to one queue
    if let Provider::Nobody { set_completions, .. } = provider {
        set_completions(queues[0].as_ptr(), 1);
        set_completions(queues[1].as_ptr(), 16);
        set_completions(polled[0].as_ptr(), 1);
        set_completions(polled[1].as_ptr(), 16);
    }
    let [queue_1, queue_16, queue_empty] = if is_device { [&cq; 3] } else { queues.each_ref() };
    let [cq_1, cq_16, cq_empty] = [queue_1, queue_16, queue_empty].map(CompletionQueue::as_ptr);

    // a queue that was never used is sooner seen to be empty, so ours and theirs look at one that was not
    let [polled_one, polled_list, polled_empty] = polled.each_ref();
    let polled_list = if is_device { polled_one } else { polled_list };
    let [ex_1, ex_16, ex_empty] = [polled_one, polled_list, polled_empty].map(|cq| cq.as_ptr().cast());
    let mut ex_wcs = ([ExtendedCompletion::default(); 16], [ExtendedCompletion::default(); 32]);
    let mut bare_wcs = [WorkCompletion::default(); 16];
    let mut fields_wcs = [ExtendedCompletion::default(); 16];
    // bytes are none, of WRITEs; the provider that does nothing receives, but has no bytes nor number
    let numbers = if is_device { 16 * u64::from(of_polled.qp_num()) } else { 0 };

    let mut rows = Vec::new();
    macro_rules! row {
        ($name:ident / $per_operation:literal, $before:expr, $after:expr, |$n:ident| $ours:expr, $theirs:expr) => {
            let (before, after) = if is_device { ($before, $after) } else { (NOTHING, NOTHING) };
            rows.push(Row {
                name: stringify!($name),
                per_operation: $per_operation,
                limit: if is_device { u64::from(DEPTH / $per_operation) } else { u64::MAX },
                expected: None,
                ours: Loop::new(|$n| $ours).between(before, after),
                // SAFETY: see the module.
                theirs: Loop::new(|$n| unsafe { $theirs }).between(before, after),
            });
        };
    }
    row!(
        post_write / 1,
        NOTHING,
        done,
        |n| ours_post_write(&basic, &data, &to, n),
        c_post_write(qp, sge, c_to, n) == 0
    );
    row!(
        post_unsignaled / 1,
        NOTHING,
        done_unsignaled,
        |n| ours_post_unsignaled(&basic, &data, &to, n),
        c_post_unsignaled(qp, sge, c_to, n) == 0
    );
    row!(
        designated_write / 1,
        NOTHING,
        done,
        |n| ours_post_write(&basic, &data, &to, n),
        c_designated_write(qp, sge, c_to, n) == 0
    );
    row!(post_send / 1, received, done, |n| ours_post_send(&basic, &data, n), c_post_send(qp, sge, n) == 0);
    row!(
        post_send_inline / 1,
        received,
        done,
        |n| ours_post_send_inline(&basic, &bytes[0], bytes.len(), n),
        c_post_send_inline(qp, bytes.as_ptr().cast(), bytes.len(), n) == 0
    );
    row!(
        post_fetch_add / 1,
        NOTHING,
        done,
        |n| ours_post_fetch_add(&basic, &word, &at, 3, n),
        c_post_fetch_add(qp, word_sge, c_to, 3, n) == 0
    );
    row!(
        post_ud_send / 1,
        received_datagrams,
        done,
        |n| ours_post_ud_send(&datagrams, &data, &ah, ud_number, ud_key, n),
        c_post_ud_send(ud, sge, ah.as_ptr(), ud_number, ud_key, n) == 0
    );
    row!(
        post_prepared / 1,
        NOTHING,
        done,
        |n| ours_post_prepared(&basic, &mut prepared, n),
        c_post_prepared(qp, kept, n) == 0
    );
    row!(
        write_list_16 / 16,
        NOTHING,
        done,
        |n| ours_write_list_16(&basic, &data, &to, n),
        c_write_list_16(qp, sge, c_to, n) == 0
    );
    row!(
        write_distinct_16 / 16,
        NOTHING,
        done,
        |n| ours_write_distinct_16(&basic, &[data; 16], &[to; 16], n),
        c_write_distinct_16(qp, [*sge; 16].as_ptr(), [remote; 16].as_ptr(), n) == 0
    );
    row!(
        post_recv / 1,
        NOTHING,
        sent_1,
        |n| ours_post_recv(&basic, &landing, n),
        c_post_recv(qp, landing_sge, n) == 0
    );
    row!(
        recv_list_16 / 16,
        NOTHING,
        sent_16,
        |n| ours_recv_list_16(&basic, &landing, n),
        c_recv_list_16(qp, landing_sge, n) == 0
    );
    row!(
        wr_write / 1,
        NOTHING,
        done,
        |n| ours_wr_write(&mut extended, &data, &to, n),
        c_wr_write(qp_ex, sge, c_to, n) == 0
    );
    row!(
        wr_write_value / 1,
        NOTHING,
        done,
        |n| ours_wr_write_value(&mut extended_value, &data, &to, n),
        c_wr_write_value(qp_ex_value, sge, c_to, n) == 0
    );
    row!(
        wr_send_inline / 1,
        received_extended,
        done,
        |n| ours_wr_send_inline(&mut extended_inline.borrow_mut(), &bytes[0], bytes.len(), n),
        c_wr_send_inline(qp_ex_inline, bytes.as_ptr().cast(), bytes.len(), n) == 0
    );
    row!(
        wr_write_list_16 / 16,
        NOTHING,
        done,
        |n| ours_wr_write_list_16(&mut extended_list, &requests, n),
        c_wr_write_list_16(qp_ex_list, c_requests.as_ptr(), n) == 0
    );
    row!(
        untrusted_write / 1,
        NOTHING,
        done,
        |n| ours_untrusted_write(&mut untrusted, &data, &to, n),
        c_post_write(qp, sge, c_to, n) == 0
    );
    row!(
        untrusted_list_16 / 16,
        NOTHING,
        done,
        |n| ours_untrusted_list_16(&mut untrusted_list, &requests, n),
        c_untrusted_list_16(qp, c_requests.as_ptr(), n) == 0
    );
    row!(
        poll_1 / 1,
        completed_1,
        NOTHING,
        |n| ours_poll_1(queue_1, &mut wcs.0, n) == sum_of(1, n),
        c_poll_1(cq_1, c_wcs, n) == sum_of(1, n)
    );
    row!(
        poll_16 / 16,
        completed_16,
        NOTHING,
        |n| ours_poll_16(queue_16, &mut wcs.1, n) == sum_of(16, n),
        c_poll_16(cq_16, c_wcs, n) == sum_of(16, n)
    );
    row!(
        poll_empty / 1,
        NOTHING,
        NOTHING,
        |n| ours_poll_empty(queue_empty, &mut wcs.2, n) == 0,
        c_poll_empty(cq_empty, c_wcs, n) == 0
    );
    row!(
        poll_ex_1 / 1,
        polled_1,
        NOTHING,
        |n| Poller::new(polled_one).is_ok_and(|mut poller| ours_poll_ex_1(&mut poller, n) == sum_of(1, n)),
        c_poll_ex_1(ex_1, n) == sum_of(1, n)
    );
    row!(
        poll_ex_16 / 16,
        polled_16,
        NOTHING,
        |n| Poller::new(polled_list)
            .is_ok_and(|mut poller| ours_poll_ex_16(&mut poller, &mut ex_wcs.0, n) == sum_of(16, n)),
        c_poll_ex_16(ex_16, n) == sum_of(16, n)
    );
    row!(
        poll_ex_ids_16 / 16,
        polled_16,
        NOTHING,
        |n| Poller::new(polled_list).is_ok_and(|mut poller| ours_poll_ex_ids_16(
            &mut poller,
            &mut bare_wcs,
            n
        ) == sum_of(16, n)),
        c_poll_ex_ids_16(ex_16.cast(), c_wcs, n) == sum_of(16, n)
    );
    row!(
        poll_ex_fields_16 / 16,
        polled_16,
        NOTHING,
        |n| Poller::new(polled_list).is_ok_and(|mut poller| {
            ours_poll_ex_fields_16(&mut poller, &mut fields_wcs, n) == sum_of(16, n) + n * numbers
        }),
        c_poll_ex_fields_16(ex_16, n) == sum_of(16, n) + n * numbers
    );
    row!(
        poll_ex_empty / 1,
        NOTHING,
        NOTHING,
        |n| Poller::new(polled_empty).is_ok_and(|mut poller| ours_poll_ex_empty(
            &mut poller,
            &mut ex_wcs.1,
            n
        ) == 0),
        c_poll_ex_empty(ex_empty, n) == 0
    );
    row!(arm / 1, NOTHING, NOTHING, |n| ours_arm(&armed, n), c_arm(armed.as_ptr(), n) == 0);
    if is_device {
        row!(
            register / 1,
            NOTHING,
            NOTHING,
            |n| ours_register(&pd, &mut pages, n),
            c_register(pd.as_ptr(), memory.cast(), 4096, n) == 0
        );
        row!(
            create_qp / 1,
            NOTHING,
            NOTHING,
            |n| ours_create_qp(&pd, &small, n),
            c_create_qp(pd.as_ptr(), small.as_ptr(), n) == 0
        );
    }
    Ok(then.rows(rows))
}
