use ibv::{Error, MemoryRegion, MemoryWindow, QueuePair, Remote, RemoteAccess, bind_mw};

fn lend<'a>(
    qp: &QueuePair<'_>,
    window: &mut MemoryWindow<'a>,
    mr: &'a MemoryRegion<'a, Remote>,
) -> Result<(), Error> {
    let bind = qp.prepare(bind_mw(window, mr, .., RemoteAccess::READ)?)?;
    qp.post_prepared(&bind)?;
    Ok(())
}

fn main() {}
