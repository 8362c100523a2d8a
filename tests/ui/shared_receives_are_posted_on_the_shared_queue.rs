use ibv::{MrSlice, PostError, QueuePair, Rc, WithSrq, recv};

fn wrong<'a>(qp: &QueuePair<'a, WithSrq<Rc>>, room: MrSlice<'a>) -> Result<(), PostError> {
    qp.post_recv(recv(room))
}

fn main() {}
