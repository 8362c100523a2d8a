use ibv::{AddressHandle, AddressVector, BatchStorage, Error, Inline, ProtectionDomain, QueuePair, Ud, send};

fn list(qp: &QueuePair<'_, Ud>, pd: &ProtectionDomain<'_>, to: &AddressVector) -> Result<(), Error> {
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    {
        let ah = AddressHandle::new(pd, to)?;
        batch.push(send(Inline(b"hello")).to(&ah, 1, 2))?;
    }
    batch.submit()?;
    Ok(())
}

fn main() {}
