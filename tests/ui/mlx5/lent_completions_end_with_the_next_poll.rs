use ibv::mlx5::Poller;

fn mixed_up(poller: &mut Poller<'_>) -> Option<(u64, u64)> {
    let first = poller.poll()?;
    let second = poller.poll()?;
    Some((first.id(), second.id()))
}

fn main() {}
