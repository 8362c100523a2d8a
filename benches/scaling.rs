//! `cargo bench --bench scaling`: how the cost of a post grows with the number of queue pairs, the depth of a queue, the
//! elements of a request and the registered regions, beside the same calls of C.
//!
//! Posts are WRITEs through the stock libmlx5 on the software HCA, which works only between the samples: nothing but
//! building the request and writing it into the ring is measured. Samples of all rows, ours and C's, take turns, so that
//! whatever else the machine does meets all alike; the numbers are the least of each, and medians. What more queues and
//! rings cost is their memory, for which the processor's caches are too small: C pays that too. What has to be flat is the
//! ratio.
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
    CompletionQueue, Connection, Context, Endpoint, InitAttr, Local, MemoryRegion, MrSlice, ProtectionDomain,
    QueuePair, Rc, RemoteAccess, RemoteRegion, RemoteSlice, WorkCompletion, sys, write,
};
use serde_json::json;
use softhca::{Config, Hca};

/// Posts of a sample, then the device works.
const POSTS: usize = 64;
/// Samples of each row, of ours and of C.
const SAMPLES: usize = 2000;
const BYTES: usize = 64;

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

/// One row.
struct Row<'a> {
    what: &'static str,
    value: u32,
    queues: Vec<QueuePair<'a>>,
    /// What requests send, in turn.
    data: Vec<Vec<MrSlice<'a>>>,
    to: Target,
    /// Which of `data` is next.
    next: usize,
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// All that the rows are made from.
struct Rig<'a> {
    ctx: &'a Context,
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
    regions: &'a [MemoryRegion<'a, Local>],
    to: Target,
}

impl<'a> Rig<'a> {
    /// A queue pair that is connected to itself.
    fn queue(&self, depth: u32, elements: u32) -> QueuePair<'a> {
        let local = self.ctx.local_port(1).unwrap();
        let builder = self.pd.create_qp::<Rc>(self.cq, self.cq);
        let qp = builder.send_depth(depth).recv_depth(1).send_sges(elements).build().unwrap();
        let peer = Endpoint { lid: local.lid, qpn: qp.qp_num(), psn: 0, gid: local.gid };
        let qp = qp.init(InitAttr::new(1).access(RemoteAccess::WRITE)).unwrap();
        qp.connect(&Connection::new(local, 0, peer)).unwrap()
    }

    fn row(&self, what: &'static str, value: u32) -> Row<'a> {
        let of = |name: &str, usual: u32| if what == name { value } else { usual };
        let elements = of("elements", 1);
        let queues = (0..of("queue pairs", 1)).map(|_| self.queue(of("queue depth", 64), elements)).collect();
        let part = BYTES / elements as usize;
        let data = (0..of("regions", 1) as usize)
            .map(|at| {
                let region = &self.regions[at];
                (0..elements as usize)
                    .map(|part_at| region.slice(part_at * part..(part_at + 1) * part).unwrap())
                    .collect()
            })
            .collect();
        Row { what, value, queues, data, to: self.to, next: 0, ours: Vec::new(), theirs: Vec::new() }
    }
}

impl<'a> Row<'a> {
    /// Nanoseconds of a post, of which there are [`POSTS`].
    fn sample(&mut self, mut post: impl FnMut(&QueuePair<'a>, &[MrSlice<'a>], &Target)) -> f64 {
        let (queues, data, to) = (black_box(&self.queues[..]), black_box(&self.data[..]), black_box(self.to));
        let (mut queue, mut next) = (0, self.next);
        let start = Instant::now();
        for _ in 0..POSTS {
            post(&queues[queue], &data[next], &to);
            // a division is as expensive as a third of a post
            queue = if queue + 1 == queues.len() { 0 } else { queue + 1 };
            next = if next + 1 == data.len() { 0 } else { next + 1 };
        }
        let took = start.elapsed();
        self.next = next;
        took.as_secs_f64() * 1e9 / POSTS as f64
    }

    fn sample_ours(&mut self) {
        let one = self.data[0].len() == 1 && self.what != "elements";
        let took = if one {
            self.sample(|qp, data, to| qp.post(write(data[0], to.slice).signaled()).unwrap())
        } else {
            self.sample(|qp, data, to| qp.post(write(data, to.slice).signaled()).unwrap())
        };
        self.ours.push(took);
    }

    fn sample_theirs(&mut self) {
        let took = self.sample(|qp, data, to| post(qp.as_ptr(), data, to));
        self.theirs.push(took);
    }
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

/// Lets the device work, and takes its completions.
fn step(hca: &Hca, cq: &CompletionQueue<'_>) {
    hca.run_until_idle();
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
    let rig = Rig { ctx: &ctx, pd: &pd, cq: &cq, regions: &regions, to };
    let mut rows: Vec<Row<'_>> =
        ROWS.iter().flat_map(|(what, values)| values.map(|value| rig.row(what, value))).collect();
    for sample in 0..=SAMPLES {
        if sample % 500 == 0 {
            eprintln!("scaling: {sample}/{SAMPLES}");
        }
        for row in &mut rows {
            // who comes second finds the queues in the processor's caches
            for ours in [sample % 2 == 0, sample % 2 != 0] {
                if ours {
                    row.sample_ours();
                } else {
                    row.sample_theirs();
                }
                step(&hca, &cq);
            }
        }
        if sample == 0 {
            // the first touch of everything
            rows.iter_mut().for_each(|row| [&mut row.ours, &mut row.theirs].into_iter().for_each(Vec::clear));
        }
    }
    if !json {
        println!("{:20} {:>15} {:>15} {:>12}", "ns/post, min/median", "ours", "C", "ratio");
    }
    for row in &rows {
        let (ours, theirs) = (summary(&row.ours), summary(&row.theirs));
        if json {
            println!("{}", json!({ "what": row.what, "value": row.value, "ours": ours, "theirs": theirs }));
        } else {
            let pair = |[least, median]: [f64; 2]| format!("{least:.1} / {median:.1}");
            let ratio = format!("{:.2} / {:.2}", ours[0] / theirs[0], ours[1] / theirs[1]);
            let name = format!("{} {}", row.value, row.what);
            println!("{name:20} {:>15} {:>15} {ratio:>12}", pair(ours), pair(theirs));
        }
    }
}
