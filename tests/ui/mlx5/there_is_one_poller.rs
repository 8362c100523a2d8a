use ibv::mlx5::Poller;

fn two<'a>(poller: &Poller<'a>) -> Poller<'a> {
    poller.clone()
}

fn shared(poller: &Poller<'_>) {
    std::thread::scope(|threads| {
        threads.spawn(|| poller.cq().id());
    });
}

fn main() {}
