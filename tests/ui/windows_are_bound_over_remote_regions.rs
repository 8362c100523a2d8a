use ibv::{Error, Local, MemoryRegion, MemoryWindow, QueuePair, RemoteAccess, bind_mw};

fn lend<'a>(
    qp: &QueuePair<'_>,
    window: &mut MemoryWindow<'a>,
    mr: &'a MemoryRegion<'a, Local>,
) -> Result<(), Error> {
    qp.post(bind_mw(window, mr, .., RemoteAccess::READ)?)?;
    Ok(())
}

fn main() {}
