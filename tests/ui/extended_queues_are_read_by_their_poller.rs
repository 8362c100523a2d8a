use ibv::{CompletionQueue, Extended, WorkCompletion};

fn poll(cq: &CompletionQueue<'_, Extended>) {
    let _ = cq.poll(&mut [WorkCompletion::default(); 4]);
}

fn main() {}
