use ibv::{MemoryRegion, PostSend, ProtectionDomain, Rc, send};

fn attack<'a>(queue: &mut impl PostSend<'a, Transport = Rc>, pd: &'a ProtectionDomain<'a>) {
    let Ok(mr): Result<MemoryRegion<'_>, _> = pd.alloc_local(4096) else { return };
    if let Ok(slice) = mr.slice(..) {
        let _ = queue.post(send(slice));
    }
}

fn main() {}
