use ibv::{Context, Error, InitAttr, Rc, RegionArena, recv};

fn main() -> Result<(), Error> {
    let ctx = Context::open("rxe0")?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(128)?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?.init(InitAttr::new(1))?;
    let regions = RegionArena::new();
    qp.post_recv(recv(regions.add(pd.alloc_local(4096)?).slice(..)?))?;
    Ok(())
}
