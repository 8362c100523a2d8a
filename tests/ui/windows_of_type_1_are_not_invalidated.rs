use ibv::{Error, MemoryWindow, QueuePair, Type1, local_inv};

fn take_back(qp: &QueuePair<'_>, window: &mut MemoryWindow<'_, Type1>) -> Result<(), Error> {
    qp.post(local_inv(window)?)?;
    Ok(())
}

fn main() {}
