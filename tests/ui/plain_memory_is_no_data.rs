use ibv::{QueuePair, recv, send};

fn plain(qp: &QueuePair<'_>, bytes: &[u8], room: &mut [u8]) {
    let _ = qp.post(send(bytes));
    let _ = qp.post_recv(recv(room));
}

fn main() {}
