use ibv::{BatchStorage, Error, MemoryRegion, MemoryWindow, QueuePair, Remote, RemoteAccess, bind_mw, local_inv};

fn lend<'a>(
    qp: &QueuePair<'_>,
    window: &mut MemoryWindow<'a>,
    mr: &'a MemoryRegion<'a, Remote>,
) -> Result<(), Error> {
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(bind_mw(window, mr, .., RemoteAccess::READ)?)?;
    batch.push(local_inv(window)?)?;
    batch.submit()?;
    Ok(())
}

fn main() {}
