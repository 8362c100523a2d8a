use ibv::{Context, Error, QueuePair, RemoteAccess, Type2, bind_mw};

fn lend(qp: &QueuePair<'_>) -> Result<(), Error> {
    let ctx = Context::open("rxe0")?;
    let pd = ctx.alloc_pd()?;
    let mut window = pd.alloc_mw::<Type2>()?;
    let mr = pd.alloc_remote(4096, RemoteAccess::MW_BIND)?;
    qp.post(bind_mw(&mut window, &mr, .., RemoteAccess::READ)?)?;
    Ok(())
}

fn main() {}
