use ibv::{Error, ProtectionDomain, QueuePair, send};

fn keep<'a>(qp: &QueuePair<'a>, pd: &ProtectionDomain<'a>) -> Result<(), Error> {
    let mr = pd.alloc_local(64)?;
    let hello = qp.prepare(send(mr.slice(..)?))?;
    drop(mr);
    qp.post_prepared(&hello)?;
    Ok(())
}

fn main() {}
