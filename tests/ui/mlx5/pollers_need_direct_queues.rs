use ibv::mlx5::Poller;
use ibv::{CompletionQueue, Extended};

fn bare<'a>(cq: &'a CompletionQueue<'a>) {
    let _ = Poller::new(cq);
}

fn extended<'a>(cq: &'a CompletionQueue<'a, Extended>) {
    let _ = Poller::new(cq);
}

fn main() {}
