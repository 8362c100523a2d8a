//! Limits of the process: locked memory, open files.

use ibv::{CompletionChannel, Context, Error, MemoryRegion, Pages};

use crate::child::{is_child, within};
use crate::rig::{Rig, device_name, scenario};

#[test]
fn the_limit_of_locked_memory_is_told_with_its_name() {
    const LIMIT: usize = 256 << 10;
    if !is_child() {
        let limit = format!("--memlock={LIMIT}:{LIMIT}");
        return within(&["setpriv", "--bounding-set=-ipc_lock", "--", "prlimit", &limit, "--"]);
    }
    let rig = Rig::open();
    let pd = rig.ctx.alloc_pd().unwrap();
    let small = pd.alloc_local(LIMIT / 2).unwrap();
    let mut pages = Pages::new(LIMIT).unwrap();
    pages[0] = 7;
    let (pages, error) = MemoryRegion::local(&pd, pages).unwrap_err().into_parts();
    assert_eq!(pages.unwrap()[0], 7, "the buffer comes back");
    assert_eq!(error.errno(), Some(libc::ENOMEM));
    let text = error.to_string();
    assert!(text.contains("ibv_reg_mr") && text.contains("ulimit -l"), "{text}");
    assert!(text.contains(&format!("{LIMIT} bytes")), "{text}");
    // what it held is free again
    drop(small);
    pd.alloc_local(LIMIT / 2).unwrap();
}

#[test]
fn too_many_open_files_are_told() {
    if !is_child() {
        return within(&["prlimit", "--nofile=20:20", "--"]);
    }
    let rig = Rig::open();
    let mut channels = Vec::new();
    let error = loop {
        match CompletionChannel::new(&rig.ctx) {
            Ok(channel) => channels.push(channel),
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), Some(libc::EMFILE), "{error}");
    assert!(!channels.is_empty() && channels.len() < 20);
    // whatever libibverbs makes of it
    assert!(Context::open(&device_name().unwrap()).is_err());
    channels.truncate(channels.len() - 6);
    rig.ctx.create_comp_channel().unwrap();
    Context::open(&device_name().unwrap()).unwrap();
}

#[test]
fn impossible_regions() {
    scenario(|rig| {
        let parts = rig.parts();
        assert!(matches!(parts.pd.alloc_local(0), Err(Error::Invalid { .. })));
        let mr = parts.zeros(100);
        assert!(mr.slice(..101).is_err() && mr.slice(101..).is_err() && mr.slice(100..).is_ok());
        assert!(mr.read(99, &mut [0; 2]).is_err() && mr.write(usize::MAX, &[1]).is_err());
        assert!(mr.load_u64(96).is_err() && mr.store_u64(4, 1).is_err());
    });
}
