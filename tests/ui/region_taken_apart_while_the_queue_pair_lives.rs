use ibv::{Error, MemoryRegion, QueuePair, send};

fn back<'a>(qp: &QueuePair<'a>, mr: MemoryRegion<'a>) -> Result<(), Error> {
    qp.post(send(mr.slice(..)?))?;
    let _buffer = mr.into_buffer()?;
    Ok(())
}

fn main() {}
