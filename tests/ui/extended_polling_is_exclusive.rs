use ibv::Poller;

fn poll(poller: &Poller<'_>) {
    let _ = poller.poll_one();
}

fn main() {}
