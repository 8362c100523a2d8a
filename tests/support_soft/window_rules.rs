//! Memory windows at their edges, on a device that keeps to the specification.

use ibv::{
    Inline, MemoryRegion, QueuePair, Rc, Remote, RemoteAccess, RemoteRegion, Type2, WcStatus, bind_mw,
    local_inv, write,
};

use crate::rig::{Parts, contents, failure, scenario, success};

const WRITE: RemoteAccess = RemoteAccess::WRITE;

fn region<'p>(parts: &'p Parts<'_>) -> MemoryRegion<'p, Remote> {
    parts.pd.alloc_remote(256, RemoteAccess::MW_BIND).unwrap()
}

/// `b` writes at `at`, counted from the start of `part`.
fn poke(b: &QueuePair<'_>, part: RemoteRegion, at: i64, bytes: &[u8]) {
    let there = RemoteRegion { addr: part.addr.wrapping_add_signed(at), len: bytes.len() as u64, ..part };
    b.post(write(Inline(bytes), there.slice(..).unwrap()).signaled().id(9)).unwrap();
}

#[test]
fn not_a_byte_beside_the_window() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = region(&parts);
        for (at, bytes, inside) in [
            (0, &b"x"[..], true),
            (63, b"y", true),
            (64, b"!", false),
            (-1, b"!", false),
            (60, b"12345", false),
        ] {
            let [a, b] = parts.pair::<Rc>();
            let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
            let bind = bind_mw(&mut window, &mr, 64..128, WRITE).unwrap().signaled().id(1);
            let part = bind.remote_region();
            a.post(bind).unwrap();
            success(&parts.a_cq, 1);
            poke(&b, part, at, bytes);
            if inside {
                success(&parts.b_cq, 9);
            } else {
                assert_eq!(failure(&parts.b_cq, 9), WcStatus::REM_ACCESS_ERR);
            }
            drop(window);
            drop((a, b));
            parts.sweep();
        }
        let bytes = contents(&mr);
        assert_eq!((bytes[64], bytes[127]), (b'x', b'y'));
        assert!(!bytes.contains(&b'!') && !bytes.contains(&b'1'));
    });
}

#[test]
fn a_window_is_served_by_its_own_queue_pair_alone() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = region(&parts);
        let ([a, b], [_other_a, other_b]) = (parts.pair::<Rc>(), parts.pair::<Rc>());
        let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
        let bind = bind_mw(&mut window, &mr, .., WRITE).unwrap().signaled().id(1);
        let part = bind.remote_region();
        a.post(bind).unwrap();
        success(&parts.a_cq, 1);
        poke(&b, part, 0, b"by the right one");
        success(&parts.b_cq, 9);
        poke(&other_b, part, 0, b"by a wrong one");
        assert_eq!(failure(&parts.b_cq, 9), WcStatus::REM_ACCESS_ERR);
        assert_eq!(&contents(&mr)[..16], b"by the right one");
        // when its queue pair is gone, nobody serves it
        drop((a, b));
        parts.sweep();
        let [_a, b] = parts.pair::<Rc>();
        poke(&b, part, 0, b"by whoever has the number now");
        assert_eq!(failure(&parts.b_cq, 9), WcStatus::REM_ACCESS_ERR);
        assert_eq!(&contents(&mr)[..16], b"by the right one");
    });
}

#[test]
fn binds_that_the_device_refuses() {
    scenario(|rig| {
        let parts = rig.parts();
        let mr = region(&parts);
        // while it is bound
        let [a, b] = parts.pair::<Rc>();
        let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
        a.post(bind_mw(&mut window, &mr, ..8, WRITE).unwrap()).unwrap();
        a.post(bind_mw(&mut window, &mr, ..8, WRITE).unwrap().id(1)).unwrap();
        assert_eq!(failure(&parts.a_cq, 1), WcStatus::MW_BIND_ERR);
        drop((a, b));
        parts.sweep();
        // of another protection domain than the queue pair's
        let other = rig.ctx.alloc_pd().unwrap();
        let theirs = other.alloc_remote(64, RemoteAccess::MW_BIND).unwrap();
        let mut window = other.alloc_mw::<Type2>().unwrap();
        let [a, b] = parts.pair::<Rc>();
        a.post(bind_mw(&mut window, &theirs, .., WRITE).unwrap().id(2)).unwrap();
        assert_eq!(failure(&parts.a_cq, 2), WcStatus::MW_BIND_ERR);
        drop((a, b));
        parts.sweep();
        // an invalidate by a queue pair that has not bound it
        let ([a, _b], [c, _d]) = (parts.pair::<Rc>(), parts.pair::<Rc>());
        let mut window = parts.pd.alloc_mw::<Type2>().unwrap();
        a.post(bind_mw(&mut window, &mr, ..8, WRITE).unwrap().signaled().id(3)).unwrap();
        success(&parts.a_cq, 3);
        c.post(local_inv(&mut window).unwrap().id(4)).unwrap();
        assert_eq!(failure(&parts.a_cq, 4), WcStatus::MW_BIND_ERR);
    });
}
