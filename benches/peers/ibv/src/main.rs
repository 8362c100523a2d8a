//! `ibv` itself, counted as the others are.

use std::process::ExitCode;

use ibv::state::{Reset, Rts};
use ibv::{
    Backend, BatchStorage, CompletionQueue, Connection, Context, Endpoint, Extended, ExtendedCompletion,
    InitAttr, Inline, MrSlice, PollCq, Poller, QueuePair, QueuePairBuilder, Rc, RecvStorage, RemoteAccess,
    RemoteSlice, WorkCompletion, Write, recv, send, write,
};
use ibv_bench_peers::{
    DEPTH, INLINE, LANDING, LENGTH, Link, MEMORY, Peer, TO, ids, opaque_mut, polls, repeat,
};

type Result<T = ()> = std::result::Result<T, ibv::Error>;

struct Objects {
    basic: QueuePair<'static>,
    extended: QueuePair<'static, Rc, Rts, Extended>,
    data: MrSlice<'static>,
    landing: MrSlice<'static>,
    to: RemoteSlice,
    inline: Inline<'static>,
    requests: [Write<MrSlice<'static>>; 16],
    sends: &'static CompletionQueue<'static>,
    recvs: &'static CompletionQueue<'static>,
    extended_sends: Poller<'static>,
    extended_recvs: Poller<'static>,
    /// Which of the queue pairs the row is about.
    is_extended: bool,
}

/// What a poll puts completions into.
trait Room {
    fn new() -> Self;
}

impl Room for () {
    fn new() {}
}

impl<const N: usize> Room for [WorkCompletion; N] {
    fn new() -> Self {
        [WorkCompletion::default(); N]
    }
}

impl<const N: usize> Room for [ExtendedCompletion<()>; N] {
    fn new() -> Self {
        [ExtendedCompletion::default(); N]
    }
}

/// What a poll finds: the id of a success.
trait Done {
    fn success(&self) -> u64;
}

impl Done for WorkCompletion {
    #[inline(always)]
    fn success(&self) -> u64 {
        self.result().expect("a success");
        self.id()
    }
}

impl Done for ExtendedCompletion<()> {
    #[inline(always)]
    fn success(&self) -> u64 {
        self.result().expect("a success");
        self.id()
    }
}

/// A function for each row, so that what one loop keeps in registers does not depend on the others. `post`: does
/// something so many times, with the number of each and the fields of which the compiler knows nothing; `poll`: takes
/// so many completions off a queue, into room of that type.
macro_rules! rows {
    (
        post { $($post:ident / $requests:literal |$id:ident, $($field:ident),*| $operation:expr;)* }
        poll { $($poll:ident / $found:literal |$cq:ident, $wcs:ident: $room:ty| $found_by:expr;)* }
    ) => {
        const ROWS: &[(&str, u32)] = &[
            $((stringify!($post), $requests),)*
            $((stringify!($poll), if $found == 0 { 1 } else { $found }),)*
        ];

        impl Objects {
            fn row(row: &str) -> Option<fn(&mut Self, u64)> {
                match row {
                    $(stringify!($post) => Some(Self::$post),)*
                    $(stringify!($poll) => Some(Self::$poll),)*
                    _ => None,
                }
            }

            $(#[inline(never)]
            fn $post(&mut self, operations: u64) {
                repeat(operations, |$id| {
                    let Self { $($field,)* .. } = opaque_mut(&mut *self);
                    $operation.expect("success");
                });
            })*

            $(#[inline(never)]
            fn $poll(&mut self, operations: u64) {
                let mut $wcs = <$room as Room>::new();
                let sum = polls(operations, |sum| {
                    let Self { $cq, .. } = opaque_mut(&mut *self);
                    let $wcs = opaque_mut(&mut $wcs);
                    // one may be found, or a list of them
                    $found_by.expect("a poll").into_iter().for_each(|wc| *sum += wc.success());
                });
                assert_eq!(sum, ids(operations * $found));
            })*
        }
    };
}

rows! {
    post {
        post_write / 1 |id, basic, data, to| basic.post(write(*data, *to).id(id).signaled());
        post_send / 1 |id, basic, data| basic.post(send(*data).id(id).signaled());
        post_send_inline / 1 |id, basic, inline| basic.post(send(&*inline).id(id).signaled());
        write_list_16 / 16 |id, basic, data, to| {
            let mut storage = BatchStorage::<16>::new();
            let mut batch = basic.batch(&mut storage);
            let pushed = (0..15).try_for_each(|_| batch.push(write(*data, *to).id(id)));
            pushed.and_then(|()| batch.push(write(*data, *to).id(id).signaled())).and_then(|()| batch.submit())
        };
        post_recv / 1 |id, basic, landing| basic.post_recv(recv(*landing).id(id));
        recv_list_16 / 16 |id, basic, landing| {
            let mut storage = RecvStorage::<16>::new();
            let mut batch = basic.recv_batch(&mut storage);
            (0..16).try_for_each(|_| batch.push(recv(*landing).id(id))).and_then(|()| batch.submit())
        };
        wr_write / 1 |id, extended, data, to| extended.post(write(&*data, *to).id(id).signaled());
        wr_send_inline / 1 |id, extended, inline| extended.post(send(&*inline).id(id).signaled());
        wr_write_list_16 / 16 |_id, extended, requests| extended.post_list(requests);
    }
    poll {
        poll_1 / 1 |sends, wcs: [WorkCompletion; 1]| sends.poll(wcs);
        poll_16 / 16 |sends, wcs: [WorkCompletion; 16]| sends.poll(wcs);
        poll_empty / 0 |sends, wcs: [WorkCompletion; 32]| sends.poll(wcs);
        poll_ex_1 / 1 |extended_sends, _wc: ()| extended_sends.poll_one();
        poll_ex_ids_16 / 16 |extended_sends, wcs: [WorkCompletion; 16]| extended_sends.poll_into(wcs);
        poll_ex_empty / 0 |extended_sends, wcs: [ExtendedCompletion<()>; 32]| extended_sends.poll(wcs);
    }
}

impl Peer for Objects {
    fn rows(&self) -> &'static [(&'static str, u32)] {
        ROWS
    }

    fn run(&mut self, row: &str, operations: u64) {
        Self::row(row).expect("a row")(self, operations);
    }

    fn receive(&mut self, requests: u64) {
        if self.is_extended {
            repeat(requests, |id| self.extended.post_recv(recv(self.landing).id(id)).expect("success"));
        } else {
            self.post_recv(requests);
        }
    }

    fn send(&mut self, requests: u64) {
        if self.is_extended {
            repeat(requests, |id| self.extended.post(send(self.data).id(id).signaled()).expect("success"));
        } else {
            self.post_send(requests);
        }
    }

    fn drain(&mut self) {
        for cq in [self.sends, self.recvs] {
            let mut wcs = [WorkCompletion::default(); 16];
            loop {
                let done = cq.poll(&mut wcs).expect("a poll");
                for wc in done {
                    wc.result().expect("a success");
                }
                if done.is_empty() {
                    break;
                }
            }
        }
        for poller in [&mut self.extended_sends, &mut self.extended_recvs] {
            while let Some(wc) = poller.poll_one().expect("a poll") {
                wc.result().expect("a success");
            }
        }
    }
}

/// For as long as the program runs.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn sized<B: Backend>(builder: QueuePairBuilder<'static, Rc, B>) -> QueuePairBuilder<'static, Rc, B> {
    builder.send_depth(DEPTH).recv_depth(DEPTH).inline(64)
}

fn connected<B: Backend>(
    ctx: &Context,
    qp: QueuePair<'static, Rc, Reset, B>,
) -> Result<QueuePair<'static, Rc, Rts, B>> {
    let local = ctx.local_port(1)?;
    let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
    let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE))?;
    Ok(qp.connect(&Connection::new(local, 0, peer))?)
}

fn objects(row: &str) -> Result<Objects> {
    let ctx = kept(Context::open("mlx5_0")?);
    let pd = kept(ctx.alloc_pd()?);
    let mr = kept(pd.alloc_remote(MEMORY, RemoteAccess::WRITE)?);
    let cq = || ctx.create_cq(2 * DEPTH).map(kept);
    let (sends, recvs) = (cq()?, cq()?);
    let polled = || CompletionQueue::builder(ctx, 2 * DEPTH).build_extended::<()>().map(kept);
    let (polled_sends, polled_recvs) = (polled()?, polled()?);
    let polled = sized(pd.create_qp::<Rc>(polled_sends, polled_recvs).extended());
    let (data, to) = (mr.slice(..LENGTH)?, mr.remote_region().slice(TO..TO + LENGTH)?);
    let mut requests = [write(data, to); 16];
    requests[15] = requests[15].signaled();
    Ok(Objects {
        basic: connected(ctx, sized(pd.create_qp::<Rc>(sends, recvs)).build()?)?,
        // SAFETY: no row posts more than the queue holds before it is polled
        extended: connected(ctx, unsafe { polled.trust_wr() }.build()?)?,
        data,
        landing: mr.slice(LANDING..LANDING + LENGTH)?,
        to,
        inline: Inline(&[7; INLINE]),
        requests,
        sends,
        recvs,
        extended_sends: Poller::new(polled_sends)?,
        extended_recvs: Poller::new(polled_recvs)?,
        is_extended: row.starts_with("wr_") || row.starts_with("poll_ex"),
    })
}

fn open(row: &str) -> Box<dyn Peer> {
    Box::new(objects(row).expect("objects"))
}

fn main() -> ExitCode {
    ibv_bench_peers::main(Link::InfiniBand, open)
}
