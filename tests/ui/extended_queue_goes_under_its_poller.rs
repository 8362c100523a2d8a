use ibv::{CompletionQueue, Context, Poller};

fn main() -> Result<(), ibv::Error> {
    let ctx = Context::open("mlx5_0")?;
    let cq = CompletionQueue::builder(&ctx, 16).build_extended::<()>()?;
    let mut poller = Poller::<()>::new(&cq)?;
    drop(cq);
    let _ = poller.poll_one()?;
    Ok(())
}
