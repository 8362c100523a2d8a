use ibv::{Context, Error, Rc};

fn main() -> Result<(), Error> {
    let ctx = Context::open("rxe0")?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(128)?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
    std::thread::spawn(move || drop(qp));
    Ok(())
}
