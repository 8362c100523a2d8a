//! What regions can be made of, and regions that come up while a queue pair runs.

use std::ptr::NonNull;

use ibv::{Buffer, Error, Local, MemoryRegion, Pages, RawMemory, Rc, RegionArena, recv, send, write};

use crate::rig::{Rig, contents, pattern, scenario, success};

/// Sends from and receives into a region of `buffer`, and gives it back.
fn through<B: Buffer>(rig: &Rig, buffer: B) -> B {
    let parts = rig.parts();
    let from = parts.filled(5000, 3);
    let mr = MemoryRegion::local(&parts.pd, buffer).unwrap();
    assert_eq!(mr.len(), 5000);
    assert!(contents(&mr) == pattern(5000, 2), "registration changes nothing");
    {
        let back = parts.zeros(5000);
        let [a, b] = parts.pair::<Rc>();
        b.post_recv(recv(back.slice(..).unwrap()).id(1)).unwrap();
        a.post(send(mr.slice(..).unwrap()).signaled().id(2)).unwrap();
        success(&parts.a_cq, 2);
        success(&parts.b_cq, 1);
        assert!(contents(&back) == pattern(5000, 2));
        b.post_recv(recv(mr.slice(..).unwrap()).id(3)).unwrap();
        a.post(send(from.slice(..).unwrap()).signaled().id(4)).unwrap();
        success(&parts.a_cq, 4);
        success(&parts.b_cq, 3);
    }
    mr.into_buffer().unwrap()
}

#[test]
fn a_vec() {
    scenario(|rig| {
        let mut vec = Vec::with_capacity(9000);
        vec.extend(pattern(5000, 2));
        let at = vec.as_ptr();
        let vec = through(rig, vec);
        assert!(vec == pattern(5000, 3));
        assert_eq!((vec.as_ptr(), vec.capacity()), (at, 9000));
    });
}

#[test]
fn a_boxed_slice() {
    scenario(|rig| {
        assert!(through(rig, pattern(5000, 2).into_boxed_slice())[..] == pattern(5000, 3));
    });
}

#[test]
fn pages() {
    scenario(|rig| {
        let mut pages = Pages::new(5000).unwrap();
        pages.copy_from_slice(&pattern(5000, 2));
        assert!(through(rig, pages)[..] == pattern(5000, 3));
    });
}

#[test]
fn memory_of_somebody_else() {
    scenario(|rig| {
        let bytes = Box::leak(pattern(5000, 2).into_boxed_slice());
        let start = NonNull::from(&mut *bytes).cast::<u8>();
        #[expect(unsafe_code, reason = "this is what RawMemory asks for")]
        // SAFETY: leaked, initialised, and not used by anybody else until the region has been closed below.
        let memory = unsafe { RawMemory::new(start, 5000) };
        through(rig, memory);
        let slice = std::ptr::slice_from_raw_parts_mut(start.as_ptr(), 5000);
        #[expect(unsafe_code, reason = "taking back what was leaked")]
        // SAFETY: from the box above, and the region is closed.
        let bytes = unsafe { Box::from_raw(slice) };
        assert!(bytes[..] == pattern(5000, 3));
    });
}

#[test]
fn a_refused_buffer_comes_back() {
    scenario(|rig| {
        let pd = rig.ctx.alloc_pd().unwrap();
        let (buffer, error) = MemoryRegion::local(&pd, Vec::new()).unwrap_err().into_parts();
        assert_eq!(buffer.unwrap(), Vec::<u8>::new());
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    });
}

#[test]
fn regions_come_up_while_running() {
    scenario(|rig| {
        let parts = rig.parts();
        let (locals, remotes) = (RegionArena::<Local>::new(), RegionArena::new());
        let [a, b] = parts.pair::<Rc>();
        for round in 0..10 {
            let from = locals.add(parts.filled(100, round));
            let to = locals.add(parts.zeros(100));
            let place = remotes.add(parts.open(100));
            b.post_recv(recv(to.slice(..).unwrap()).id(1)).unwrap();
            a.post(write(from.slice(..).unwrap(), place.remote_region().slice(..).unwrap()).id(2)).unwrap();
            a.post(send(from.slice(..).unwrap()).signaled().id(3)).unwrap();
            success(&parts.a_cq, 3);
            success(&parts.b_cq, 1);
            assert_eq!(contents(to), pattern(100, round));
            assert_eq!(contents(place), pattern(100, round));
        }
        assert_eq!((locals.len(), remotes.len()), (20, 10));
    });
}
