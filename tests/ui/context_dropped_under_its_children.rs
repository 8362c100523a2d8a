use ibv::{Context, Error};

fn main() -> Result<(), Error> {
    let ctx = Context::open("rxe0")?;
    let pd = ctx.alloc_pd()?;
    drop(ctx);
    drop(pd);
    Ok(())
}
