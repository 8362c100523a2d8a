use ibv::{MemoryRegion, ProtectionDomain, QueuePair, send};

fn post_short<'s>(qp: &QueuePair<'s>, mr: &'s MemoryRegion<'s>) {
    if let Ok(slice) = mr.slice(..) {
        let _ = qp.post(send(slice));
    }
}

fn attack<'a>(qp: &QueuePair<'a>, pd: &ProtectionDomain<'a>) {
    let Ok(mr) = pd.alloc_local(4096) else { return };
    post_short(qp, &mr);
}

fn main() {}
