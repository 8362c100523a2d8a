use ibv::{BatchStorage, Inline, PostError, ProtectionDomain, QueuePair, RemoteSlice, write};

fn region<'a>(qp: &QueuePair<'a>, pd: &'a ProtectionDomain<'a>, to: RemoteSlice) -> Result<(), ibv::Error> {
    let mr = pd.alloc_local(64)?;
    let slice = mr.slice(..)?;
    Ok(qp.post(write(&slice, to))?)
}

fn inline(qp: &QueuePair<'_>, storage: &mut BatchStorage<2>, to: RemoteSlice) -> Result<(), PostError> {
    let mut batch = qp.batch(storage);
    {
        let data = Inline(b"gone");
        batch.push(write(&data, to))?;
    }
    batch.submit()
}

fn main() {}
