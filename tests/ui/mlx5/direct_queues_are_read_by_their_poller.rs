use ibv::{CompletionQueue, Direct, WorkCompletion};

fn poll(cq: &CompletionQueue<'_, Direct>) {
    let _ = cq.poll(&mut [WorkCompletion::default(); 4]);
}

fn main() {}
