//! Who keeps what alive, in which order things go, and what happens when they will not.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ibv::{
    AddressHandle, AddressVector, Arena, Buffer, CompletionChannel, CompletionQueue, Connection, Context,
    Error, InitAttr, MemoryRegion, OwnedQp, Pages, Peers, ProtectionDomain, QueuePair, QueuePairBuilder,
    RawBuffer, RawMemory, Rc, Refused, RegionArena, Remote, RemoteAccess, WorkCompletion, recv, send,
};
use nullhca::Kind::{self, Ah, Channel, Cq, Mr, Pd, Qp};
use nullhca::{Live, Registration, hca};
use support_null::*;

/// The kinds of what was destroyed, in order.
fn order() -> Vec<Kind> {
    hca().destroyed().into_iter().map(|id| id.kind).collect()
}

#[test]
fn borrowed_objects_go_before_what_they_borrow() {
    {
        let ctx = open();
        let channel = ctx.create_comp_channel().unwrap();
        let pd = ctx.alloc_pd().unwrap();
        let cq = CompletionQueue::builder(&ctx, 256).channel(&channel).build().unwrap();
        let _mr = pd.alloc_local(64).unwrap();
        let _ah = pd.create_ah(&AddressVector::lid(1, 2)).unwrap();
        let _qp = rc(&pd, &cq);
    }
    assert_eq!(order(), [Qp, Ah, Mr, Cq, Pd, Channel, Kind::Context]);
    assert_eq!(hca().live(), Live::default());
    assert!(hca().calls().iter().all(|call| call.errno == 0));
}

#[test]
fn shared_parents_stay_for_as_long_as_they_are_needed() {
    let qp: OwnedQp = {
        let ctx = Arc::new(open());
        let channel = Arc::new(CompletionChannel::new(&ctx).unwrap());
        let cq = Arc::new(CompletionQueue::builder(&ctx, 256).channel(&channel).build().unwrap());
        let pd = Arc::new(ProtectionDomain::new(ctx.clone()).unwrap());
        let qp = QueuePairBuilder::<Rc>::new(&pd, &cq, cq.clone()).build().unwrap();
        qp.init(InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap()
    };
    assert_eq!(order(), []);
    assert_eq!(hca().live(), Live { contexts: 1, pds: 1, cqs: 1, channels: 1, qps: 1, ..Live::default() });
    std::thread::spawn(move || drop(qp)).join().unwrap();
    let order = order();
    assert_eq!((order.first(), order.last()), (Some(&Qp), Some(&Kind::Context)));
    assert_eq!((order.len(), hca().live()), (5, Live::default()));
    assert!(hca().calls().iter().all(|call| call.errno == 0));
}

#[test]
fn borrowed_and_shared_parents_mix() {
    let ctx = Arc::new(open());
    {
        let pd = ctx.alloc_pd().unwrap();
        let cq = Arc::new(CompletionQueue::new(&ctx, 256).unwrap());
        let mr = MemoryRegion::local(&pd, vec![0; 64]).unwrap();
        let qp = pd.create_qp::<Rc>(cq.clone(), &cq).build().unwrap();
        let ah = AddressHandle::new(&pd, &AddressVector::lid(1, 2)).unwrap();
        drop(cq);
        assert_eq!(hca().live().cqs, 1);
        drop(qp);
        assert_eq!(order(), [Qp, Cq]);
        drop((mr, ah));
    }
    assert_eq!(order(), [Qp, Cq, Mr, Ah, Pd]);
}

#[test]
fn everything_can_be_closed_by_hand() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let cq = CompletionQueue::builder(&ctx, 256).channel(&channel).build().unwrap();
    let mr = pd.alloc_remote(64, RemoteAccess::READ).unwrap();
    let ah = pd.create_ah(&AddressVector::lid(1, 2)).unwrap();
    rc(&pd, &cq).close().unwrap();
    ah.close().unwrap();
    mr.close().unwrap();
    cq.close().unwrap();
    channel.close().unwrap();
    pd.close().unwrap();
    ctx.close().unwrap();
    assert_eq!(order(), [Qp, Ah, Mr, Cq, Channel, Pd, Kind::Context]);
    assert_eq!(hca().live(), Live::default());
    // each once: nothing is destroyed again on drop
    assert!(hca().calls().iter().all(|call| call.errno == 0));
}

/// The verbs of `object`'s close fail once: it comes back as it was, and can be closed again.
fn comes_back<T>(verb: &'static str, object: T, close: impl Fn(T) -> Result<(), Refused<T>>) {
    hca().fail(verb, libc::EBUSY);
    let refused = close(object).unwrap_err();
    assert_eq!(refused.error().errno(), Some(libc::EBUSY), "{verb}");
    assert!(refused.to_string().contains(verb), "{refused}");
    close(refused.into_object().unwrap()).unwrap();
    let calls: Vec<i32> =
        hca().calls().iter().filter(|call| call.verb == verb).map(|call| call.errno).collect();
    assert_eq!(calls, [libc::EBUSY, 0], "{verb}");
}

#[test]
fn a_failing_close_gives_the_object_back() {
    let ctx = open();
    let channel = ctx.create_comp_channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let cq = CompletionQueue::builder(&ctx, 256).channel(&channel).build().unwrap();
    comes_back("ibv_destroy_qp", rc(&pd, &cq), QueuePair::close);
    comes_back("ibv_dereg_mr", pd.alloc_local(64).unwrap(), MemoryRegion::close);
    comes_back("ibv_destroy_ah", pd.create_ah(&AddressVector::lid(1, 2)).unwrap(), AddressHandle::close);
    comes_back("ibv_destroy_cq", cq, CompletionQueue::close);
    comes_back("ibv_destroy_comp_channel", channel, CompletionChannel::close);
    comes_back("ibv_dealloc_pd", pd, ProtectionDomain::close);
    comes_back("ibv_close_device", ctx, Context::close);
    assert_eq!(hca().live(), Live::default());
}

#[test]
fn a_failing_destroy_leaks_and_nothing_else() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(256).unwrap();
    hca().fail("ibv_destroy_qp", libc::EIO);
    drop(rc(&pd, &cq));
    assert_eq!(hca().live().qps, 1);
    assert_eq!(hca().count("ibv_destroy_qp"), 1, "it is not tried again and again");
    // what hangs on it cannot go either: it is busy, and leaked
    let refused = cq.close().unwrap_err();
    assert_eq!(refused.error().errno(), Some(libc::EBUSY));
    drop(refused);
    assert_eq!(pd.close().unwrap_err().error().errno(), Some(libc::EBUSY));
    drop(ctx);
    assert_eq!(hca().live(), Live { pds: 1, cqs: 1, qps: 1, ..Live::default() });
}

#[test]
fn a_leaked_queue_pair_keeps_its_room() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(128).unwrap();
    hca().fail("ibv_destroy_qp", libc::EIO);
    drop(rc(&pd, &cq));
    cq.poll(&mut [WorkCompletion::default(); 1]).unwrap();
    // 128 entries, of which the leaked one may fill as many as it was promised at any time
    let error = pd.create_qp::<Rc>(&cq, &cq).send_depth(32).recv_depth(32).build().unwrap_err();
    assert!(matches!(error, Error::CqRoom { free: 0, .. }), "{error}");
}

/// A buffer that tells when it is freed.
struct Watched {
    bytes: Box<[u8]>,
    freed: &'static AtomicUsize,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: as `Box<[u8]>`, which it is.
unsafe impl Buffer for Watched {
    type Meta = &'static AtomicUsize;

    fn into_raw(mut self) -> RawBuffer<Self::Meta> {
        let freed = self.freed;
        let bytes = std::mem::take(&mut self.bytes);
        std::mem::forget(self);
        let RawBuffer { start, len, .. } = bytes.into_raw();
        RawBuffer { start, len, meta: freed }
    }

    unsafe fn from_raw(raw: RawBuffer<Self::Meta>) -> Self {
        let RawBuffer { start, len, meta } = raw;
        // SAFETY: the parts came from a box.
        let bytes = unsafe { <Box<[u8]> as Buffer>::from_raw(RawBuffer { start, len, meta: () }) };
        Self { bytes, freed: meta }
    }
}

fn watched() -> (Watched, &'static AtomicUsize) {
    let freed: &'static AtomicUsize = Box::leak(Box::new(AtomicUsize::new(0)));
    (Watched { bytes: vec![7; 4096].into(), freed }, freed)
}

#[test]
fn memory_is_freed_after_its_region_and_never_before() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let (buffer, freed) = watched();
    let mr = MemoryRegion::local(&pd, buffer).unwrap();
    let addr = mr.memory().as_ptr() as u64;
    assert!(hca().device_writes(addr, b"from the device"));
    let mut read = [0; 15];
    mr.read(0, &mut read).unwrap();
    assert_eq!(&read, b"from the device");
    drop(mr);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
    assert!(!hca().device_writes(addr, b"too late"));
}

#[test]
fn memory_whose_region_will_not_go_is_never_freed() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let (buffer, freed) = watched();
    let mr = MemoryRegion::local(&pd, buffer).unwrap();
    let addr = mr.memory().as_ptr() as u64;
    hca().fail("ibv_dereg_mr", libc::EBUSY);
    drop(mr);
    assert_eq!((freed.load(Ordering::Relaxed), hca().live().mrs), (0, 1));
    // the device goes on writing there, which harms nobody (ASan and memcheck would see it)
    assert!(hca().device_writes(addr, &[9; 4096]));

    // the same for a mapping
    let mr = pd.alloc_local(8192).unwrap();
    let start = mr.memory();
    hca().fail("ibv_dereg_mr", libc::EBUSY);
    drop(mr);
    assert!(hca().device_writes(start.as_ptr() as u64, &[9; 8192]));
    // SAFETY: leaked, so the mapping is there, and nobody else has it.
    assert_eq!(unsafe { start.as_ptr().add(8191).read() }, 9);
    let again = pd.alloc_local(8192).unwrap();
    assert_ne!(again.memory(), start, "the leaked mapping is not handed out again");
}

#[test]
fn a_buffer_comes_back_when_its_region_is_gone() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let mr = MemoryRegion::local(&pd, vec![1u8; 100]).unwrap();
    mr.write(10, b"hello").unwrap();
    hca().fail("ibv_dereg_mr", libc::EBUSY);
    let refused = mr.into_buffer().unwrap_err();
    let mr = refused.into_object().unwrap();
    // still a region like any other
    let mut bytes = [0; 5];
    mr.read(10, &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    let buffer = mr.into_buffer().unwrap();
    assert_eq!((buffer.len(), &buffer[10..15], hca().live().mrs), (100, &b"hello"[..], 0));
    // with a shared domain: it is let go as well
    let pd = Arc::new(ProtectionDomain::new(Arc::new(open())).unwrap());
    let mr = MemoryRegion::local(&pd, buffer).unwrap();
    assert_eq!(Arc::strong_count(&pd), 2);
    mr.into_buffer().unwrap();
    assert_eq!(Arc::strong_count(&pd), 1);
}

#[test]
fn a_buffer_that_cannot_be_registered_comes_back() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    hca().fail("ibv_reg_mr", libc::ENOMEM);
    let (buffer, error) = MemoryRegion::local(&pd, vec![3u8; 10]).unwrap_err().into_parts();
    assert_eq!(error.errno(), Some(libc::ENOMEM));
    assert!(error.to_string().contains("ulimit -l"), "{error}");
    assert_eq!(buffer.unwrap(), [3; 10]);
    let refused = MemoryRegion::local(&pd, Vec::<u8>::new()).unwrap_err();
    assert!(matches!(refused.error(), Error::Invalid { .. }));
    hca().configure(|config| config.device.max_mr_size = 4096);
    let small = open();
    let pd = small.alloc_pd().unwrap();
    let refused = MemoryRegion::remote(&pd, Pages::new(4097).unwrap(), RemoteAccess::READ).unwrap_err();
    assert!(matches!(refused.error(), Error::Limit { asked: 4097, limit: 4096, .. }));
    assert_eq!(refused.into_object().unwrap().len(), 4097);
    assert_eq!(hca().live().mrs, 0);
}

#[test]
fn regions_have_the_access_that_their_kind_says() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let mut memory = [0u8; 64];
    let start = NonNull::from(&mut memory).cast::<u8>();
    // SAFETY: the array outlives the region and is not used meanwhile.
    let borrowed = unsafe { RawMemory::new(start, 64) };
    let local = MemoryRegion::local(&pd, borrowed).unwrap();
    let remote: MemoryRegion<'_, Remote, _> =
        MemoryRegion::remote(&pd, Pages::new(10).unwrap(), RemoteAccess::all()).unwrap();
    let mut seen = hca().registrations();
    seen.sort_by_key(|registration| registration.length);
    let addr = |at: NonNull<u8>| at.as_ptr() as u64;
    let all = 1 | RemoteAccess::all().bits();
    assert_eq!(
        seen,
        [
            Registration { addr: addr(remote.memory()), length: 10, access: all },
            Registration { addr: addr(local.memory()), length: 64, access: 1 },
        ]
    );
    let region = remote.remote_region();
    assert_eq!((region.addr, region.len, region.rkey), (addr(remote.memory()), 10, remote.rkey()));
    assert_ne!(remote.rkey(), remote.lkey());
}

#[test]
fn a_failing_creation_leaves_nothing_behind() {
    let failed = |made: Result<(), Error>, errno| assert_eq!(made.unwrap_err().errno(), Some(errno));
    hca().fail("ibv_get_device_list", libc::ENOSYS);
    failed(Context::open("null0").map(drop), libc::ENOSYS);
    hca().fail("ibv_open_device", libc::EACCES);
    failed(Context::open("null0").map(drop), libc::EACCES);
    hca().fail("ibv_query_device_ex", libc::EIO);
    failed(Context::open("null0").map(drop), libc::EIO);
    assert_eq!(hca().live(), Live::default());
    let ctx = open();
    hca().fail("ibv_alloc_pd", libc::ENOMEM);
    failed(ctx.alloc_pd().map(drop), libc::ENOMEM);
    hca().fail("ibv_create_cq", libc::ENOMEM);
    failed(ctx.create_cq(1).map(drop), libc::ENOMEM);
    hca().fail("ibv_create_comp_channel", libc::EMFILE);
    failed(ctx.create_comp_channel().map(drop), libc::EMFILE);
    let pd = ctx.alloc_pd().unwrap();
    hca().fail("ibv_create_ah", libc::ETIMEDOUT);
    failed(pd.create_ah(&AddressVector::lid(1, 2)).map(drop), libc::ETIMEDOUT);
    let cq = ctx.create_cq(128).unwrap();
    hca().fail("ibv_create_qp", libc::EOPNOTSUPP);
    failed(pd.create_qp::<Rc>(&cq, &cq).build().map(drop), libc::EOPNOTSUPP);
    assert_eq!(hca().live(), Live { contexts: 1, pds: 1, cqs: 1, ..Live::default() });
}

// What follows leaks on purpose. The attack is the same each time: an object is forgotten, everything that can still be
// dropped is dropped, and the device goes on with what it was told. (Run it under ASan or memcheck too.)

#[test]
fn a_forgotten_queue_pair_does_no_harm() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(256).unwrap();
    let (buffer, freed) = watched();
    let mr = MemoryRegion::local(&pd, buffer).unwrap();
    let addr = mr.memory().as_ptr() as u64;
    let qp = rc(&pd, &cq);
    qp.post_recv(recv(mr.slice(..).unwrap())).unwrap();
    std::mem::forget(qp);
    // the region's end is the fence: from here on the device cannot write, whatever is posted
    drop(mr);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
    assert!(!hca().device_writes(addr, &[0; 16]));
    // its parents are busy, and are leaked
    assert_eq!(cq.close().unwrap_err().error().errno(), Some(libc::EBUSY));
    assert_eq!(pd.close().unwrap_err().error().errno(), Some(libc::EBUSY));
}

#[test]
fn a_forgotten_region_is_never_freed() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let cq = ctx.create_cq(256).unwrap();
    let (buffer, freed) = watched();
    let mr = MemoryRegion::local(&pd, buffer).unwrap();
    let addr = mr.memory().as_ptr() as u64;
    {
        let qp = rc(&pd, &cq);
        qp.post(send(mr.slice(..).unwrap())).unwrap();
    }
    std::mem::forget(mr);
    drop(cq);
    drop(pd);
    drop(ctx);
    // the context is closed under it, as the real one can be; the memory stays
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    assert_eq!(hca().live(), Live { pds: 1, mrs: 1, ..Live::default() });
    assert!(hca().device_writes(addr, &[1; 4096]));
}

#[test]
fn other_forgotten_objects_do_no_harm() {
    // a queue
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let channel = ctx.create_comp_channel().unwrap();
    let cq = CompletionQueue::builder(&ctx, 256).channel(&channel).build().unwrap();
    drop(rc(&pd, &cq));
    hca().raise_event(cq.as_ptr());
    let id = cq.id();
    std::mem::forget(cq);
    // its events still arrive, as a number that nobody follows
    assert_eq!(channel.try_event().unwrap(), Some(id));
    assert_eq!(channel.close().unwrap_err().error().errno(), Some(libc::EBUSY));
    drop(pd);
    drop(ctx);
    // a channel, an address handle, a domain, a context
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    std::mem::forget(ctx.create_comp_channel().unwrap());
    std::mem::forget(pd.create_ah(&AddressVector::lid(1, 2)).unwrap());
    std::mem::forget(pd);
    drop(ctx);
    std::mem::forget(open());
    std::mem::forget(ibv::devices().unwrap());
}

#[test]
fn a_forgotten_batch_or_prepared_request_does_no_harm() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(64).unwrap();
    let qp = rc(&pd, &cq);
    let mut storage = ibv::BatchStorage::<2>::new();
    let mut batch = qp.batch(&mut storage);
    batch.push(send(mr.slice(..).unwrap())).unwrap();
    #[expect(clippy::forget_non_drop, reason = "whatever it becomes")]
    std::mem::forget(batch);
    let mut batch = qp.batch(&mut storage);
    batch.push(send(ibv::Empty).id(3)).unwrap();
    batch.submit().unwrap();
    std::mem::forget(qp.prepare(send(mr.slice(..).unwrap())).unwrap());
    let calls = hca().take_sends();
    assert_eq!((calls.len(), calls[0].len(), calls[0][0].wr_id), (1, 1, 3));
}

#[test]
fn an_arena_lends_for_as_long_as_it_lives() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let (regions, peers) = (RegionArena::new(), Peers::new());
    assert!(regions.is_empty());
    {
        let qp = ud(&pd, &cq);
        for _ in 0..100 {
            let mr = regions.add(pd.alloc_local(64).unwrap());
            let ah = peers.add(pd.create_ah(&AddressVector::lid(1, 2)).unwrap());
            qp.post(send(mr.slice(..).unwrap()).to(ah, 1, 2)).unwrap();
        }
        assert_eq!((regions.len(), hca().live().mrs, hca().live().ahs), (100, 100, 100));
    }
    drop((regions, peers));
    assert_eq!((hca().live().mrs, hca().live().ahs), (0, 0));
    // from several threads
    let arena: Arena<MemoryRegion<'_>> = Arena::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let lent: Vec<_> = (0..50).map(|_| arena.add(pd.alloc_local(8).unwrap())).collect();
                assert!(lent.iter().all(|mr| mr.len() == 8));
            });
        }
    });
    assert_eq!(arena.len(), 200);
}

#[test]
fn a_datagrams_sender_can_be_answered() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(256).unwrap();
    let qp = ud(&pd, &cq);
    qp.post_recv(recv(mr.slice(..).unwrap())).unwrap();
    let mut wcs = [WorkCompletion::default(); 2];
    let wc = ibv::sys::ibv_wc {
        opcode: ibv::sys::IBV_WC_RECV,
        wc_flags: ibv::sys::IBV_WC_GRH,
        byte_len: 50,
        ..Default::default()
    };
    hca().complete(cq.as_ptr(), wc);
    hca().complete(cq.as_ptr(), ibv::sys::ibv_wc::default());
    let done = cq.poll(&mut wcs).unwrap();
    let mut grh = [0; ibv::GRH_LEN];
    mr.read(0, &mut grh).unwrap();
    grh[0] = 0x60;
    let received = done[0].result().unwrap();
    let ah = AddressHandle::from_datagram(&pd, &received, &grh, 1).unwrap();
    assert!(hca().id(ah.as_ptr()).is_some());
    // of no known form
    grh[0] = 0x50;
    let error = AddressHandle::from_datagram(&pd, &received, &grh, 1).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    // a send's completion names nobody
    let sent = done[1].result().unwrap();
    assert!(matches!(AddressHandle::from_datagram(&pd, &sent, &grh, 1), Err(Error::Invalid { .. })));
}

#[test]
fn a_struct_can_hold_all_of_it() {
    struct Service {
        qp: OwnedQp,
        mr: MemoryRegion<'static>,
        pd: Arc<ProtectionDomain<'static>>,
    }
    fn start() -> Result<Service, Error> {
        let ctx = Arc::new(Context::open("null0")?);
        let pd = Arc::new(ProtectionDomain::new(&ctx)?);
        let cq = Arc::new(CompletionQueue::new(&ctx, 128)?);
        let mr = MemoryRegion::local(&pd, Pages::new(64)?)?;
        let local = ctx.local_port(1)?;
        let qp = QueuePairBuilder::<Rc>::new(&pd, &cq, &cq).build()?;
        let qp = qp.init(InitAttr::new(1))?.connect(&Connection::new(local, 0, peer()))?;
        Ok(Service { qp, mr, pd })
    }
    let Service { qp, mr, pd } = start().unwrap();
    drop(pd);
    drop(mr);
    drop(qp);
    assert_eq!(hca().live(), Live::default());
    assert!(hca().calls().iter().all(|call| call.errno == 0));
}
