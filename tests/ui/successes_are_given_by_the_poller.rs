use ibv::fields::WrId;
use ibv::{CompletionQueue, Extended};

fn bare(cq: &CompletionQueue<'_>) {
    let _ = cq.poll_successes(&mut [WrId::default(); 4]);
}

fn extended(cq: &CompletionQueue<'_, Extended>) {
    let _ = cq.poll_successes(&mut [WrId::default(); 4]);
}

fn main() {}
