use ibv::fields::QpNum;
use ibv::{CompletionQueue, Extended, Poller};

fn poll(cq: &CompletionQueue<'_, Extended>) {
    let _ = Poller::<(QpNum, u32)>::new(cq);
}

fn main() {}
