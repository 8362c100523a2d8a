use ibv::mlx5::Poller;
use ibv::{CompletionQueue, Direct, Error};

fn early(cq: CompletionQueue<'_, Direct>) -> Result<(), Error> {
    let mut poller = Poller::new(&cq)?;
    drop(cq);
    poller.poll();
    Ok(())
}

fn main() {}
