// A direct shared receive queue's slots are freed by its poller, so only direct queue pairs take from it.

use ibv::{CompletionQueue, Direct, Error, ProtectionDomain, Rc, SharedReceiveQueue};

fn make<'a>(
    pd: &'a ProtectionDomain<'a>,
    cq: &'a CompletionQueue<'a>,
    srq: &SharedReceiveQueue<'a, Direct>,
) -> Result<(), Error> {
    pd.create_qp::<Rc>(cq, cq).srq(srq).build()?;
    Ok(())
}

fn main() {}
