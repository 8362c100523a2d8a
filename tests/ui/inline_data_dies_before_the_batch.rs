use ibv::{BatchStorage, Inline, PostError, QueuePair, send};

fn list(qp: &QueuePair<'_>) -> Result<(), PostError> {
    let mut storage = BatchStorage::<4>::new();
    let mut batch = qp.batch(&mut storage);
    {
        let text = String::from("short-lived");
        batch.push(send(Inline(text.as_bytes())))?;
    }
    batch.submit()
}

fn main() {}
