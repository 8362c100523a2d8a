//! What an attack on the safe API found once, and is refused now.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use std::sync::Arc;

use ibv::sys::*;
use ibv::{
    AddressHandle, AddressVector, BatchStorage, CompletionQueue, Context, Empty, Error, MemoryRegion,
    OwnedQp, Pages, PostError, ProtectionDomain, QueuePairBuilder, RecvStorage, RemoteAccess, Ud, UdInitAttr,
    WcStatus, WorkCompletion, recv, send,
};
use nullhca::hca;
use support_null::*;

/// rxe adds an element's length up in 32 bits: 4 GiB went out as nothing, and was reported as success.
#[test]
fn a_list_longer_than_a_message_is_refused() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let mr = pd.alloc_local(1 << 30).unwrap();
    let qp = pd.create_qp::<ibv::Rc>(&cq, &cq).send_sges(4).recv_sges(4).build().unwrap();
    let qp = qp.init(ibv::InitAttr::new(1)).unwrap().connect(&connection(&ctx)).unwrap();
    let all = mr.as_slice().unwrap();
    let refused = Err(PostError::MessageTooLong);
    qp.post(send([all, all])).unwrap();
    assert_eq!(qp.post(send([all, all, mr.slice(..1).unwrap()])), refused);
    assert_eq!(qp.post(send(&[all; 4][..])), refused);
    assert_eq!(qp.post_recv(recv([all; 4])), refused);
    assert_eq!(qp.prepare(send([all; 4])).map(drop), refused);
    let (mut sends, mut recvs) = (BatchStorage::<1, 4>::new(), RecvStorage::<1, 4>::new());
    assert_eq!(qp.batch(&mut sends).push(send([all; 4])), refused);
    assert_eq!(qp.recv_batch(&mut recvs).push(recv([all; 4])), refused);
}

#[test]
fn a_completion_that_no_poll_filled_is_an_error() {
    assert_eq!(WorkCompletion::default().result().unwrap_err().status, WcStatus::GENERAL_ERR);
}

#[test]
fn a_remote_region_without_rights_is_refused() {
    let ctx = open();
    let pd = ctx.alloc_pd().unwrap();
    let (buffer, error) =
        MemoryRegion::remote(&pd, vec![7u8; 10], RemoteAccess::empty()).unwrap_err().into_parts();
    assert_eq!(buffer.unwrap(), [7; 10]);
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

/// Other bits would make a region zero-based, or pageable.
#[test]
fn access_bits_without_a_name_do_not_reach_the_device() {
    let access = RemoteAccess::READ | RemoteAccess::from_bits_retain(!RemoteAccess::all().bits());
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    drop(MemoryRegion::remote(&pd, Pages::new(1).unwrap(), access).unwrap());
    let qp = pd.create_qp::<ibv::Rc>(&cq, &cq).build().unwrap();
    let _qp = qp.init(ibv::InitAttr::new(1).access(access)).unwrap();
    assert_eq!(hca().take_modifies().last().unwrap().attr.qp_access_flags, IBV_ACCESS_REMOTE_READ);
}

/// A service's datagram queue pair stands beside the handles that it sends to.
#[test]
fn an_owned_queue_pair_sends_to_a_handle_that_is_stored_beside_it() {
    struct Service {
        qp: OwnedQp<Ud>,
        peers: Vec<AddressHandle<'static>>,
    }
    impl Service {
        fn greet(&self) -> Result<(), PostError> {
            let mut storage = BatchStorage::<4>::new();
            let mut batch = self.qp.batch(&mut storage);
            for peer in &self.peers {
                batch.push(send(Empty).to(peer, 1, 2))?;
                self.qp.post(send(Empty).to(peer, 1, 2))?;
            }
            batch.submit()
        }
    }
    let ctx: Arc<Context> = Arc::new(open());
    let pd = Arc::new(ProtectionDomain::new(&ctx).unwrap());
    let cq = Arc::new(CompletionQueue::new(&ctx, 256).unwrap());
    let qp = QueuePairBuilder::<Ud>::new(&pd, &cq, &cq).build().unwrap();
    let qp = qp.init(UdInitAttr::new(1, 5)).unwrap().activate(0).unwrap();
    let peers = vec![AddressHandle::new(&pd, &AddressVector::lid(1, 2)).unwrap()];
    Service { qp, peers }.greet().unwrap();
    assert_eq!(hca().take_sends().len(), 2);
}
