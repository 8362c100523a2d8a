use ibv::{AddressHandle, AddressVector, Error, Inline, Prepared, ProtectionDomain, QueuePair, Ud, send};

fn keep<'a>(
    qp: &QueuePair<'a, Ud>,
    pd: &ProtectionDomain<'a>,
    to: &AddressVector,
) -> Result<Prepared<'a, Ud>, Error> {
    let ah = AddressHandle::new(pd, to)?;
    Ok(qp.prepare(send(Inline(b"hello")).to(&ah, 1, 2))?)
}

fn main() {}
