use ibv::QueuePair;

fn twice<'a>(qp: &QueuePair<'a>) -> QueuePair<'a> {
    qp.clone()
}

fn main() {}
