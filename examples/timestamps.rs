//! When the device completed each request, by its own clock: `cargo run --example timestamps mlx5_0`.
//!
//! An extended completion queue is read field by field, and its completions say what those of `ibv_poll_cq` cannot. Not
//! every device has timestamps; making the queue fails then.

use std::error::Error;

use ibv::fields::Timestamp;
use ibv::{
    CompletionQueue, Connection, Context, ExtendedCompletion, InitAttr, Poller, Rc, RemoteAccess, random_psn,
    write,
};

/// Lengths of the WRITEs.
const LENGTHS: [usize; 6] = [64, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18];

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).ok_or("usage: timestamps DEVICE")?;
    let ctx = Context::open(&device)?;
    let local = ctx.local_port(1)?;
    let pd = ctx.alloc_pd()?;
    let from = pd.alloc_local(1 << 18)?;
    let to = pd.alloc_remote(1 << 18, RemoteAccess::WRITE)?;

    // said twice: what the device shall be able to tell, and what is read of each completion beside id and status
    let cq = CompletionQueue::builder(&ctx, 128).build_extended::<Timestamp>()?;
    let mut poller = Poller::<Timestamp>::new(&cq)?;

    let attr = InitAttr::new(local.port).access(RemoteAccess::WRITE);
    let here = pd.create_qp::<Rc>(&cq, &cq).build()?.init(attr)?;
    let there = pd.create_qp::<Rc>(&cq, &cq).build()?.init(attr)?;
    let (here_psn, there_psn) = (random_psn(), random_psn());
    let (here_end, there_end) = (here.endpoint(&local, here_psn), there.endpoint(&local, there_psn));
    let here = here.connect(&Connection::new(local, here_psn, there_end))?;
    let _there = there.connect(&Connection::new(local, there_psn, here_end))?;

    for (id, len) in (0..).zip(LENGTHS) {
        here.post(write(from.slice(..len)?, to.remote_region().slice(..len)?).signaled().id(id))?;
    }

    let mut times = Vec::new();
    let mut wcs = [ExtendedCompletion::default(); 8];
    while times.len() < LENGTHS.len() {
        for wc in poller.poll(&mut wcs)? {
            let Timestamp(ticks) = wc.result()?;
            times.push(ticks);
        }
    }
    let ticks_per_us = ctx.device_attr().hca_core_clock_khz() as f64 / 1000.0;
    for (ends, len) in times.windows(2).zip(LENGTHS.iter().skip(1)) {
        let [before, end] = ends else { continue };
        println!("{len:>6} bytes: {:.2} us after the one before", (end - before) as f64 / ticks_per_us);
    }
    Ok(())
}
