//! Latency of RDMA WRITE on the mlx5 direct path: two queue pairs of this process play ping-pong.
//!
//! `cargo run --release --features mlx5 --example mlx5_write_lat [DEVICE [ITERATIONS [BYTES]]]`
//!
//! Each side writes a message whose last 8 bytes are its number, and waits until the peer's number has come into its
//! own memory, as `ib_write_lat` does. Prints the time of one way, half a round trip.

use std::error::Error;
use std::time::Instant;

use ibv::mlx5::Poller;
use ibv::{
    CompletionQueue, Connection, Context, Direct, Endpoint, InitAttr, LocalPort, MemoryRegion,
    ProtectionDomain, QueuePair, QueuePairBuilder, Rc, Remote, RemoteAccess, state, write,
};

type Side<'a> = QueuePair<'a, Rc, state::Rts, Direct>;

/// A completion every so many messages is enough to keep the send queue from filling up.
const SIGNAL_EVERY: u64 = 16;

fn connect<'a>(
    qp: QueuePair<'a, Rc, state::Reset, Direct>,
    local: LocalPort,
    peer: u32,
) -> Result<Side<'a>, ibv::Error> {
    let peer = Endpoint { lid: local.lid, qpn: peer, psn: 0, gid: local.gid };
    let qp = qp.init(InitAttr::new(local.port).access(RemoteAccess::WRITE))?;
    Ok(qp.connect(&Connection::new(local, 0, peer))?)
}

/// Says `number` to the peer.
fn say<'a>(
    qp: &mut Side<'a>,
    from: &'a MemoryRegion<'_, Remote>,
    to: &MemoryRegion<'_, Remote>,
    number: u64,
) -> Result<(), Box<dyn Error>> {
    from.store_u64(from.len() - 8, number)?;
    let request = write(from.slice(..)?, to.remote_region().slice(..)?).id(number);
    qp.post(if number % SIGNAL_EVERY == 0 { request.signaled() } else { request })?;
    Ok(())
}

/// Waits for it, and looks after completions meanwhile.
fn hear(mr: &MemoryRegion<'_, Remote>, poller: &mut Poller<'_>, number: u64) -> Result<(), Box<dyn Error>> {
    while mr.load_u64(mr.len() - 8)? != number {
        if let Some(wc) = poller.poll() {
            wc.result()?;
        }
    }
    Ok(())
}

fn region<'a>(pd: &'a ProtectionDomain<'_>, len: usize) -> Result<MemoryRegion<'a, Remote>, ibv::Error> {
    pd.alloc_remote(len, RemoteAccess::WRITE)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or_else(|| "mlx5_0".to_owned());
    let iterations: u64 = args.next().map_or(Ok(100_000), |arg| arg.parse())?;
    let bytes: usize = args.next().map_or(Ok(8), |arg| arg.parse())?;
    let len = bytes.next_multiple_of(8).max(8);

    let ctx = Context::open(&device)?;
    let local = ctx.local_port(1)?;
    let pd = ctx.alloc_pd()?;
    let cq = CompletionQueue::builder(&ctx, 512).build_direct()?;
    // what each sends, and where it hears the other
    let (out_a, out_b) = (region(&pd, len)?, region(&pd, len)?);
    let (in_a, in_b) = (region(&pd, len)?, region(&pd, len)?);
    let mut poller = Poller::new(&cq)?;
    let make = || QueuePairBuilder::<Rc, Direct>::direct(&pd, &cq, &cq).send_depth(64).build();
    let (a, b) = (make()?, make()?);
    let (number_a, number_b) = (a.qp_num(), b.qp_num());
    let (mut a, mut b) = (connect(a, local, number_b)?, connect(b, local, number_a)?);

    let mut times = Vec::new();
    for number in 1..=iterations {
        let start = Instant::now();
        say(&mut a, &out_a, &in_b, number)?;
        hear(&in_b, &mut poller, number)?;
        say(&mut b, &out_b, &in_a, number)?;
        hear(&in_a, &mut poller, number)?;
        times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied().unwrap_or(f64::NAN);
    println!("{len} bytes, {iterations} iterations on {device}");
    println!(
        "one way: min {:.2} us, median {:.2}, 99 % {:.2}, max {:.2}",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}
