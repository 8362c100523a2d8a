use ibv::{BatchStorage, Empty, Error, QueuePair, send};

fn list(qp: QueuePair<'_>) -> Result<(), Error> {
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(send(Empty))?;
    let _dead = qp.into_error()?;
    batch.submit()?;
    Ok(())
}

fn main() {}
