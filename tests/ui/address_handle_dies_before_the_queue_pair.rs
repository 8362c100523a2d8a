use ibv::{AddressHandle, AddressVector, Error, Inline, ProtectionDomain, QueuePair, Ud, send};

fn to<'a>(qp: &QueuePair<'a, Ud>, pd: &'a ProtectionDomain<'a>, address: &AddressVector) -> Result<(), Error> {
    let ah = AddressHandle::new(pd, address)?;
    qp.post(send(Inline(b"hello")).to(&ah, 1, 2))?;
    Ok(())
}

fn main() {}
