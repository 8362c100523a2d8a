use ibv::{Inline, QueuePair, RemoteSlice, read, recv};

fn receive(qp: &QueuePair<'_>, from: RemoteSlice, buffer: &mut [u8]) {
    let _ = qp.post_recv(recv(Inline(buffer)));
    let _ = qp.post(read(Inline(buffer), from));
}

fn main() {}
