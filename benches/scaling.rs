//! `cargo bench --bench scaling [--features mlx5]`: how the cost of a post grows with the number of queue pairs, the
//! depth of a queue, the elements of a request and the registered regions, beside the same calls of C.
//!
//! Posts are WRITEs through the stock libmlx5 on the software HCA, which works only between the samples: nothing but
//! building the request and writing it into the ring is measured; with the feature `mlx5`, the same on the direct path,
//! without libmlx5. Samples of all rows, ours and C's, take turns, so that
//! whatever else the machine does meets all alike; the numbers are the least of each, and medians. What more queues and
//! rings cost is their memory, for which the processor's caches are too small: C pays that too. What has to be flat is
//! the ratio.
//!
//! # Safety
//!
//! C's requests name queue pairs and regions that live until the end.

#![expect(unsafe_code, reason = "calls the C functions")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a benchmark")]

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::Instant;

use ibv::{
    Backend, CompletionQueue, Connection, Context, Endpoint, InitAttr, Local, MemoryRegion, MrSlice,
    ProtectionDomain, QueuePair, Rc, RemoteAccess, RemoteRegion, RemoteSlice, WorkCompletion, state, sys,
    write,
};
use serde_json::json;
use softhca::{Config, Hca};

/// Posts of a sample, then the device works.
const POSTS: usize = 64;
/// Samples of each row, of ours and of C.
const SAMPLES: usize = 2000;
const BYTES: usize = 64;
/// Of the direct completion queue, which has to hold what all rings could.
#[cfg(feature = "mlx5")]
const DIRECT_ENTRIES: u32 = 1 << 16;

/// The rows: what grows, and to what.
const ROWS: [(&str, [u32; 4]); 4] = [
    ("queue pairs", [1, 4, 16, 64]),
    ("queue depth", [64, 256, 1024, 4096]),
    ("elements", [1, 2, 4, 8]),
    ("regions", [1, 16, 256, 4096]),
];

/// Where requests write, for ours and for C.
#[derive(Clone, Copy)]
struct Target {
    slice: RemoteSlice,
    region: RemoteRegion,
}

/// Who posts: ours through libmlx5, C, and ours on the direct path.
const SIDES: [&str; 2 + cfg!(feature = "mlx5") as usize] = [
    "ours",
    "theirs",
    #[cfg(feature = "mlx5")]
    "direct",
];

/// One row.
struct Row<'a> {
    what: &'static str,
    value: u32,
    /// Ours and C's are not the same: who came later would find them in the processor's caches.
    queues: [Vec<QueuePair<'a>>; 2],
    #[cfg(feature = "mlx5")]
    direct: Vec<QueuePair<'a, Rc, state::Rts, ibv::Direct>>,
    /// What requests send, in turn.
    data: Vec<Vec<MrSlice<'a>>>,
    to: Target,
    /// Which of `data` is next.
    next: usize,
    /// Nanoseconds of each side.
    times: [Vec<f64>; SIDES.len()],
}

/// All that the rows are made from.
struct Rig<'a> {
    ctx: &'a Context,
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
    #[cfg(feature = "mlx5")]
    direct: &'a CompletionQueue<'a, ibv::Direct>,
    regions: &'a [MemoryRegion<'a, Local>],
    to: Target,
}

impl<'a> Rig<'a> {
    /// Connects a queue pair to itself.
    fn connect<B: Backend>(
        &self,
        qp: QueuePair<'a, Rc, state::Reset, B>,
    ) -> QueuePair<'a, Rc, state::Rts, B> {
        let local = self.ctx.local_port(1).unwrap();
        let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
        let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE)).unwrap();
        qp.connect(&Connection::new(local, 0, peer)).unwrap()
    }

    fn row(&self, what: &'static str, value: u32) -> Row<'a> {
        let of = |name: &str, usual: u32| if what == name { value } else { usual };
        let (elements, depth) = (of("elements", 1), of("queue depth", 64));
        let count = 0..of("queue pairs", 1);
        let part = BYTES / elements as usize;
        let data = self.regions[..of("regions", 1) as usize].iter().map(|region| {
            let parts = (0..elements as usize).map(|at| region.slice(at * part..(at + 1) * part).unwrap());
            parts.collect()
        });
        let queue = || {
            let builder = self.pd.create_qp::<Rc>(self.cq, self.cq);
            self.connect(builder.send_depth(depth).recv_depth(1).send_sges(elements).build().unwrap())
        };
        #[cfg(feature = "mlx5")]
        let direct = || {
            let builder = ibv::QueuePairBuilder::direct(self.pd, self.direct, self.direct);
            self.connect(builder.send_depth(depth).recv_depth(1).send_sges(elements).build().unwrap())
        };
        Row {
            what,
            value,
            queues: [0, 1].map(|_| count.clone().map(|_| queue()).collect()),
            #[cfg(feature = "mlx5")]
            direct: count.map(|_| direct()).collect(),
            data: data.collect(),
            to: self.to,
            next: 0,
            times: Default::default(),
        }
    }
}

impl Row<'_> {
    /// [`POSTS`] of a side.
    fn sample(&mut self, side: usize) {
        let Self { what, queues: [ours, theirs], data, to, next, .. } = self;
        // a list is what the row is about, or C's only way
        let one = *what != "elements";
        let took = match SIDES[side] {
            "theirs" => time(theirs, data, *to, next, |qp, data, to| post(qp.as_ptr(), data, to)),
            #[cfg(feature = "mlx5")]
            "direct" if one => time(&mut self.direct, data, *to, next, |qp, data, to| {
                qp.post(write(data[0], to.slice).signaled()).unwrap();
            }),
            #[cfg(feature = "mlx5")]
            "direct" => time(&mut self.direct, data, *to, next, |qp, data, to| {
                qp.post(write(data, to.slice).signaled()).unwrap();
            }),
            _ if one => time(ours, data, *to, next, |qp, data, to| {
                qp.post(write(data[0], to.slice).signaled()).unwrap();
            }),
            _ => time(ours, data, *to, next, |qp, data, to| {
                qp.post(write(data, to.slice).signaled()).unwrap();
            }),
        };
        self.times[side].push(took);
    }
}

/// Nanoseconds of a post, of which there are [`POSTS`].
fn time<'a, Q>(
    queues: &mut [Q],
    data: &[Vec<MrSlice<'a>>],
    to: Target,
    next: &mut usize,
    mut post: impl FnMut(&mut Q, &[MrSlice<'a>], &Target),
) -> f64 {
    let (queues, data, to) = (black_box(queues), black_box(data), black_box(to));
    let (mut queue, mut at) = (0, *next);
    let start = Instant::now();
    for _ in 0..POSTS {
        post(&mut queues[queue], &data[at], &to);
        // a division is as expensive as a third of a post
        queue = if queue + 1 == queues.len() { 0 } else { queue + 1 };
        at = if at + 1 == data.len() { 0 } else { at + 1 };
    }
    let took = start.elapsed();
    *next = at;
    took.as_secs_f64() * 1e9 / POSTS as f64
}

/// As C does it: the fields that matter, one by one.
#[inline(always)]
fn post(qp: *mut sys::ibv_qp, data: &[MrSlice<'_>], to: &Target) {
    let mut request = MaybeUninit::<sys::ibv_send_wr>::uninit();
    let (wr, mut bad) = (request.as_mut_ptr(), null_mut());
    // SAFETY: the fields that a WRITE has are set before the call; slices are `ibv_sge`s, of regions that are alive.
    let result = unsafe {
        (*wr).wr_id = 0;
        (*wr).next = null_mut();
        (*wr).sg_list = data.as_ptr().cast_mut().cast();
        (*wr).num_sge = data.len() as i32;
        (*wr).opcode = sys::IBV_WR_RDMA_WRITE;
        (*wr).send_flags = sys::IBV_SEND_SIGNALED;
        (*wr).wr.rdma.remote_addr = to.region.addr;
        (*wr).wr.rdma.rkey = to.region.rkey;
        sys::ibv_post_send(qp, wr, &raw mut bad)
    };
    assert_eq!(result, 0, "ibv_post_send");
}

/// Takes the completions of a sample.
fn take(cq: &CompletionQueue<'_>) {
    let (mut wcs, mut done) = ([WorkCompletion::default(); POSTS], 0);
    while done < POSTS {
        let found = cq.poll(&mut wcs).unwrap();
        assert!(!found.is_empty(), "{done} of {POSTS} completions");
        assert!(found.iter().all(|wc| wc.result().is_ok()), "a post failed");
        done += found.len();
    }
}

/// Least and median.
fn summary(samples: &[f64]) -> [f64; 2] {
    let mut samples = samples.to_vec();
    samples.sort_by(f64::total_cmp);
    [samples[0], samples[samples.len() / 2]]
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let hca = Hca::start(Config::new()).unwrap();
    let ctx = Context::open("mlx5_0").unwrap();
    let pd = ctx.alloc_pd().unwrap();
    // never more than a sample's completions are outstanding
    let cq = CompletionQueue::builder(&ctx, 2 * POSTS as u32).overcommit().build().unwrap();
    let target = pd.alloc_remote(BYTES, RemoteAccess::WRITE).unwrap();
    let count = ROWS.iter().filter(|(what, _)| *what == "regions").map(|(_, values)| values[3]).sum::<u32>();
    let regions: Vec<_> = (0..count).map(|_| pd.alloc_local(4096).unwrap()).collect();
    let region = target.remote_region();
    let to = Target { slice: region.slice(..).unwrap(), region };
    #[cfg(feature = "mlx5")]
    let direct = CompletionQueue::builder(&ctx, DIRECT_ENTRIES).build_direct().unwrap();
    #[cfg(feature = "mlx5")]
    let mut poller = ibv::mlx5::Poller::new(&direct).unwrap();
    let rig = Rig {
        ctx: &ctx,
        pd: &pd,
        cq: &cq,
        #[cfg(feature = "mlx5")]
        direct: &direct,
        regions: &regions,
        to,
    };
    let mut rows: Vec<Row<'_>> =
        ROWS.iter().flat_map(|(what, values)| values.map(|value| rig.row(what, value))).collect();
    for sample in 0..=SAMPLES {
        if sample % 500 == 0 {
            eprintln!("scaling: {sample}/{SAMPLES}");
        }
        for row in &mut rows {
            for turn in 0..SIDES.len() {
                // none always comes first
                let side = (sample + turn) % SIDES.len();
                row.sample(side);
                hca.run_until_idle();
                match SIDES[side] {
                    #[cfg(feature = "mlx5")]
                    "direct" => (0..POSTS).for_each(|_| {
                        poller.poll().expect("a completion for each post").result().map(drop).unwrap();
                    }),
                    _ => take(&cq),
                }
            }
        }
        if sample == 0 {
            // the first touch of everything
            rows.iter_mut().flat_map(|row| &mut row.times).for_each(Vec::clear);
        }
    }
    if !json {
        println!("{:20} {:>15} {:>15} {:>12} {:>15}", "ns/post, min/median", "ours", "C", "ratio", "direct");
    }
    for Row { what, value, times, .. } in &rows {
        let times = times.each_ref().map(|times| summary(times));
        let of = |side| SIDES.iter().position(|name| *name == side).map(|side| times[side]);
        let (ours, theirs, direct) = (of("ours").unwrap(), of("theirs").unwrap(), of("direct"));
        if json {
            println!(
                "{}",
                json!({ "what": what, "value": value, "ours": ours, "theirs": theirs, "direct": direct })
            );
        } else {
            let pair = |[least, median]: [f64; 2]| format!("{least:.1} / {median:.1}");
            let ratio = format!("{:.2} / {:.2}", ours[0] / theirs[0], ours[1] / theirs[1]);
            let direct = direct.map_or_else(|| "-".to_owned(), pair);
            let name = format!("{value} {what}");
            println!("{name:20} {:>15} {:>15} {ratio:>12} {direct:>15}", pair(ours), pair(theirs));
        }
    }
}
