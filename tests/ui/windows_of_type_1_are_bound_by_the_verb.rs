use ibv::{Error, MemoryRegion, MemoryWindow, QueuePair, Remote, RemoteAccess, Type1, bind_mw};

fn lend<'a>(
    qp: &QueuePair<'_>,
    window: &mut MemoryWindow<'a, Type1>,
    mr: &'a MemoryRegion<'a, Remote>,
) -> Result<(), Error> {
    qp.post(bind_mw(window, mr, .., RemoteAccess::READ)?)?;
    Ok(())
}

fn main() {}
