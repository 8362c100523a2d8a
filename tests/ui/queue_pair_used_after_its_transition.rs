use ibv::{Error, QueuePair, recv, Empty};

fn after(qp: QueuePair<'_>) -> Result<(), Error> {
    let dead = qp.into_error()?;
    qp.post_recv(recv(Empty))?;
    drop(dead);
    Ok(())
}

fn main() {}
