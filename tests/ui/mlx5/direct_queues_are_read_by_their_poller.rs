use ibv::{Arm, CompletionQueue, Direct, WorkCompletion};

fn poll(cq: &CompletionQueue<'_, Direct>) {
    let _ = cq.poll(&mut [WorkCompletion::default(); 4]);
}

fn arm(cq: &CompletionQueue<'_, Direct>) {
    let _ = cq.arm(Arm::Any);
}

fn main() {}
