use ibv::{Context, Error, SharedReceiveQueue, recv};

fn main() -> Result<(), Error> {
    let ctx = Context::open("rxe0")?;
    let pd = ctx.alloc_pd()?;
    let srq = SharedReceiveQueue::new(&pd, 16, 1)?;
    let mr = pd.alloc_local(4096)?;
    srq.post_recv(recv(mr.slice(..)?))?;
    Ok(())
}
