//! The data path allocates nothing. A program of its own, since it has an allocator of its own.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

use ibv::{
    AddressVector, Arm, BatchStorage, CompletionQueue, DynQueuePair, Empty, InitAttr, Inline, PostError, Rc,
    RecvStorage, WorkCompletion, cmp_swp, fetch_add, read, recv, send, send_imm, write, write_imm,
};
use nullhca::{hca, set_completions};
use support_null::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u32> = const { Cell::new(0) };
    /// What is larger can't be had.
    static LARGEST: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn count() {
    // gone when a thread ends, which does not count
    _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

fn is_there(size: usize) -> bool {
    LARGEST.try_with(|largest| size <= largest.get()).unwrap_or(true)
}

// SAFETY: the system's allocator does the work; null is "no memory".
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: handed on.
        if is_there(layout.size()) { unsafe { System.alloc(layout) } } else { null_mut() }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: handed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: handed on.
        if is_there(size) { unsafe { System.realloc(at, layout, size) } } else { null_mut() }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[track_caller]
fn allocates_nothing<R>(what: &str, f: impl FnOnce() -> R) -> R {
    let before = ALLOCATIONS.get();
    let result = f();
    assert_eq!(ALLOCATIONS.get() - before, 0, "{what}");
    result
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.get();
    drop(Box::new(1));
    assert_eq!(ALLOCATIONS.get() - before, 2);
}

#[test]
fn nothing_of_the_data_path_allocates() {
    // the provider must not either, and so does nothing
    hca().configure(|config| config.fast = true);
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = CompletionQueue::builder(&ctx, 1024).channel(&channel).build().unwrap();
    let mr = pd.alloc_local(4096).unwrap();
    let ah = pd.create_ah(&AddressVector::lid(1, 2)).unwrap();
    let part = mr.slice(..64).unwrap();
    let (to, word, at) = (REMOTE.slice(..64).unwrap(), mr.u64_at(0).unwrap(), REMOTE.u64_at(0).unwrap());
    let qp = rc(&pd, &cq);
    allocates_nothing("slicing", || {
        mr.slice(1..2).unwrap().slice(..1).unwrap();
        mr.slice(5000..).unwrap_err();
        REMOTE.slice(5000..).unwrap_err();
    });
    allocates_nothing("single posts", || {
        qp.post(send(part)).unwrap();
        qp.post(send_imm([part; 4], 1)).unwrap();
        qp.post(send(Inline(&[0; 64]))).unwrap();
        qp.post(write(part, to)).unwrap();
        qp.post(write_imm(Empty, to, 1)).unwrap();
        qp.post(read(part, to)).unwrap();
        qp.post(cmp_swp(word, at, 1, 2)).unwrap();
        qp.post(fetch_add(word, at, 1)).unwrap();
        qp.post(send([part; 5])).unwrap_err();
    });
    allocates_nothing("receives", || {
        qp.post_recv(recv(part)).unwrap();
        let mut storage = RecvStorage::<16>::new();
        let mut batch = qp.recv_batch(&mut storage);
        (0..16).for_each(|id| batch.push(recv(part).id(id)).unwrap());
        batch.submit().unwrap();
    });
    allocates_nothing("a batch", || {
        let mut storage = BatchStorage::<16>::new();
        let mut batch = qp.batch(&mut storage);
        (0..16).for_each(|id| batch.push(write(part, to).id(id)).unwrap());
        batch.push(send(part)).unwrap_err();
        batch.submit().unwrap();
    });
    let mut prepared = qp.prepare(write([mr.slice(..16).unwrap(); 4], to)).unwrap();
    allocates_nothing("a prepared request", || {
        prepared.set_id(3);
        qp.post_prepared(&prepared).unwrap();
    });
    let mut wcs = [WorkCompletion::default(); 16];
    set_completions(cq.as_ptr(), 9);
    allocates_nothing("polling", || {
        let mut bytes = 0;
        for wc in cq.poll(&mut wcs).unwrap() {
            bytes += wc.result().unwrap().byte_len().unwrap();
        }
        assert_eq!(bytes, 9 * 64);
    });
    let mut bytes = [0; 4096];
    allocates_nothing("access by the CPU", || {
        mr.write(0, &bytes).unwrap();
        mr.read(0, &mut bytes).unwrap();
        mr.store_u64(0, mr.load_u64(8).unwrap() + mr.fetch_add_u64(16, 1).unwrap()).unwrap();
        mr.read(1, &mut bytes).unwrap_err();
    });
    let mut extended = rc_extended(&pd, &cq);
    let datagrams = ud(&pd, &cq);
    allocates_nothing("other queue pairs", || {
        extended.post(write(part, to)).unwrap();
        extended.post_list(&[write(part, to); 16]).unwrap();
        datagrams.post(send(part).to(&ah, 1, 2)).unwrap();
    });
    let dynamic = DynQueuePair::from(qp);
    allocates_nothing("a dynamic one", || dynamic.post(send(part)).unwrap());
    // events: the null provider itself allocates there, so only that nothing fails
    cq.arm(Arm::Any).unwrap();
}

/// On a provider whose `ibv_wr_*` are not called, a list is copied.
#[test]
fn a_list_that_there_is_no_memory_for_posts_nothing() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(1024).unwrap());
    let mr = pd.alloc_local(64).unwrap();
    let qp = pd.create_qp::<Rc>(&cq, &cq).extended().build().unwrap().init(InitAttr::new(1)).unwrap();
    let mut qp = qp.connect(&connection(&ctx)).unwrap();
    let list: Vec<_> = (0..300).map(|id| send(mr.slice(..8).unwrap()).id(id)).collect();
    qp.post_list(&list[..3]).unwrap();
    LARGEST.set(4096);
    let refused = qp.post_list(&list);
    LARGEST.set(usize::MAX);
    assert_eq!(refused, Err(PostError::Device { errno: libc::ENOBUFS, accepted: Some(0) }));
    assert!(!refused.unwrap_err().is_queue_full(), "polling would not help");
    qp.post(list[0]).unwrap();
    qp.post_list(&list).unwrap();
    let posted: Vec<_> = hca().take_sends().iter().map(Vec::len).collect();
    assert_eq!(posted, [3, 1, 300]);
}
