use ibv::{CompletionQueue, Error, WorkCompletion};

fn mixed_up(cq: &CompletionQueue<'_>) -> Result<u64, Error> {
    let mut wcs = [WorkCompletion::default(); 4];
    let first = cq.poll(&mut wcs)?;
    let second = cq.poll(&mut wcs)?;
    Ok(first.iter().chain(second).map(WorkCompletion::id).sum())
}

fn main() {}
