use ibv::{Local, MemoryRegion, RemoteRegion};

fn tell(mr: &MemoryRegion<'_, Local>) -> RemoteRegion {
    mr.remote_region()
}

fn main() {}
