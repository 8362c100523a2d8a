use ibv::{CompletionQueue, Poller};

fn poll<'a>(cq: &'a CompletionQueue<'a>) {
    let _ = Poller::<()>::new(cq);
}

fn main() {}
