use ibv::{Error, MemoryRegion, QueuePair, RemoteRegion, fetch_add};

fn count<'a>(qp: &QueuePair<'a>, mr: &'a MemoryRegion<'a>, peer: &RemoteRegion) -> Result<(), Error> {
    qp.post(fetch_add(mr.slice(..8)?, peer.u64_at(0)?, 1))?;
    Ok(())
}

fn main() {}
