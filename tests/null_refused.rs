//! Posts that the provider refuses, polls that fail, and what is known afterwards.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support_null;

use ibv::sys::*;
use ibv::{
    BatchStorage, Empty, Error, PostError, RecvStorage, WcOpcode, WcStatus, WorkCompletion, recv, send,
};
use nullhca::{Bad, PostFault, hca};
use support_null::*;

fn refuse(accept: usize, errno: i32, bad: Bad) {
    hca().refuse_post(PostFault { accept, errno, bad });
}

#[test]
fn a_full_queue_says_how_many_were_accepted() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    let (mut sends, mut recvs) = (BatchStorage::<8>::new(), RecvStorage::<8>::new());
    for accepted in 0..8 {
        refuse(accepted, libc::ENOMEM, Bad::Nth);
        let mut batch = qp.batch(&mut sends);
        (0..8).for_each(|id| batch.push(send(Empty).id(id)).unwrap());
        let error = batch.submit().unwrap_err();
        assert_eq!(error.accepted(), Some(accepted as u32));
        assert!(error.is_queue_full() && error.to_string().contains("full"), "{error}");
        assert_eq!(hca().take_sends(), [hca_ids(accepted)]);

        refuse(accepted, libc::ENOMEM, Bad::Nth);
        let mut batch = qp.recv_batch(&mut recvs);
        (0..8).for_each(|id| batch.push(recv(Empty).id(id)).unwrap());
        assert_eq!(batch.submit().unwrap_err().accepted(), Some(accepted as u32));
    }
    refuse(0, libc::ENOMEM, Bad::Nth);
    assert_eq!(qp.post(send(Empty)), Err(PostError::Device { errno: libc::ENOMEM, accepted: Some(0) }));
    refuse(0, libc::EINVAL, Bad::Nth);
    let error = qp.post_recv(recv(Empty)).unwrap_err();
    assert_eq!(
        (error.accepted(), error.errno(), error.is_queue_full()),
        (Some(0), Some(libc::EINVAL), false)
    );
}

/// SENDs of no bytes with the ids 0 to `count`.
fn hca_ids(count: usize) -> Vec<nullhca::SendWr> {
    let wr = |wr_id| nullhca::SendWr { wr_id, opcode: IBV_WR_SEND, ..Default::default() };
    (0..count as u64).map(wr).collect()
}

#[test]
fn a_bad_wr_that_means_nothing_tells_nothing() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    let (mut sends, mut recvs) = (BatchStorage::<4>::new(), RecvStorage::<4>::new());
    let prepared = qp.prepare(send(Empty)).unwrap();
    for bad in [Bad::Null, Bad::Untouched, Bad::Foreign, Bad::Misaligned] {
        let unknown = |result: Result<(), PostError>| {
            let error = result.unwrap_err();
            assert_eq!(error, PostError::Device { errno: libc::EIO, accepted: None }, "{bad:?}");
            assert!(error.to_string().contains("in flight"), "{error}");
        };
        refuse(1, libc::EIO, bad);
        let mut batch = qp.batch(&mut sends);
        (0..4).for_each(|_| batch.push(send(Empty)).unwrap());
        unknown(batch.submit());
        refuse(1, libc::EIO, bad);
        let mut batch = qp.recv_batch(&mut recvs);
        (0..4).for_each(|_| batch.push(recv(Empty)).unwrap());
        unknown(batch.submit());
        refuse(0, libc::EIO, bad);
        unknown(qp.post(send(Empty)));
        refuse(0, libc::EIO, bad);
        unknown(qp.post_recv(recv(Empty)));
        refuse(0, libc::EIO, bad);
        unknown(qp.post_prepared(&prepared));
    }
    // a pointer past the last request of a single post
    refuse(0, libc::EIO, Bad::PastTheEnd);
    assert_eq!(qp.post(send(Empty)).unwrap_err().accepted(), None);
    refuse(0, libc::EIO, Bad::PastTheEnd);
    assert_eq!(qp.post_recv(recv(Empty)).unwrap_err().accepted(), None);
}

#[test]
fn a_negative_errno_is_read_as_what_it_means() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    refuse(0, -libc::ENOMEM, Bad::Nth);
    let error = qp.post(send(Empty)).unwrap_err();
    assert!(error.is_queue_full());
    assert_eq!(error.errno(), Some(libc::ENOMEM));
}

#[test]
fn the_device_may_have_moved_the_queue_pair() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(256).unwrap());
    let qp = rc(&pd, &cq);
    hca().set_state(qp.as_ptr(), IBV_QPS_ERR);
    // what mlx5 does: the post succeeds, and will be flushed
    qp.post(send(Empty).id(4)).unwrap();
    assert_eq!(qp.query().unwrap().state(), ibv::QpState::ERROR);
    let wc =
        ibv_wc { wr_id: 4, status: IBV_WC_WR_FLUSH_ERR, vendor_err: 0xf9, qp_num: 7, ..Default::default() };
    hca().complete(cq.as_ptr(), wc);
    let mut wcs = [WorkCompletion::default(); 4];
    let [done] = cq.poll(&mut wcs).unwrap() else { unreachable!() };
    let error = done.result().unwrap_err();
    assert_eq!(
        (error.id, error.status, error.vendor_err, error.qp_num),
        (4, WcStatus::WR_FLUSH_ERR, 0xf9, 7)
    );
    // what rxe does: it is refused
    hca().set_state(qp.as_ptr(), IBV_QPS_RESET);
    assert_eq!(qp.post(send(Empty)), Err(PostError::Device { errno: libc::EINVAL, accepted: Some(0) }));
    // and the way back
    let qp = qp.reset().unwrap().init(ibv::InitAttr::new(1)).unwrap();
    qp.connect(&connection(&ctx)).unwrap().post(send(Empty)).unwrap();
}

#[test]
fn a_failing_poll_is_no_completion() {
    let ctx = open();
    let cq = ctx.create_cq(16).unwrap();
    let mut wcs = [WorkCompletion::default(); 4];
    hca().complete(cq.as_ptr(), ibv_wc { wr_id: 9, ..Default::default() });
    hca().fail("ibv_poll_cq", 22);
    let error = cq.poll(&mut wcs).unwrap_err();
    assert_eq!(error.code(), -22);
    assert!(matches!(Error::from(error), Error::Poll(_)));
    assert_eq!(cq.poll(&mut wcs).unwrap().len(), 1);
}

#[test]
fn a_poll_takes_what_there_is_and_what_fits() {
    let ctx = open();
    let cq = ctx.create_cq(16).unwrap();
    for wr_id in 0..5 {
        hca().complete(cq.as_ptr(), ibv_wc { wr_id, ..Default::default() });
    }
    let mut wcs = [WorkCompletion::default(); 3];
    let ids = |wcs: &[WorkCompletion]| wcs.iter().map(WorkCompletion::id).collect::<Vec<_>>();
    assert_eq!(ids(cq.poll(&mut []).unwrap()), []);
    assert_eq!(ids(cq.poll(&mut wcs).unwrap()), [0, 1, 2]);
    assert_eq!(ids(cq.poll(&mut wcs).unwrap()), [3, 4]);
    assert_eq!(ids(cq.poll(&mut wcs).unwrap()), []);
}

#[test]
fn a_completion_shows_what_is_valid_and_no_more() {
    let wc = |opcode, wc_flags| ibv_wc {
        opcode,
        wc_flags,
        byte_len: 77,
        src_qp: 5,
        slid: 6,
        sl: 3,
        qp_num: 8,
        u1: ibv_wc_u1 { imm_data: 0x0102_0304_u32.to_be() },
        ..Default::default()
    };
    let ctx = open();
    let cq = ctx.create_cq(16).unwrap();
    let mut wcs = [WorkCompletion::default(); 8];
    let all = IBV_WC_WITH_IMM | IBV_WC_WITH_INV | IBV_WC_GRH;
    let queued = [
        wc(IBV_WC_SEND, all),
        wc(IBV_WC_RDMA_READ, 0),
        wc(IBV_WC_RECV, IBV_WC_WITH_IMM | IBV_WC_GRH),
        wc(IBV_WC_RECV, 0),
        wc(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM),
        wc(IBV_WC_RECV, IBV_WC_WITH_INV),
        wc(IBV_WC_FETCH_ADD, 0),
        wc(99, 0),
    ];
    queued.into_iter().for_each(|wc| hca().complete(cq.as_ptr(), wc));
    let done = cq.poll(&mut wcs).unwrap();
    let [send, read, recv_imm, recv, write_imm, inv, add, unknown] =
        std::array::from_fn(|at| done[at].result().unwrap());
    assert_eq!(
        (send.opcode(), send.is_recv(), send.byte_len(), send.imm()),
        (WcOpcode::SEND, false, None, None)
    );
    assert_eq!((send.src_qp(), send.slid(), send.sl(), send.invalidated_rkey()), (None, None, None, None));
    assert_eq!((read.opcode(), read.byte_len()), (WcOpcode::RDMA_READ, Some(77)));
    assert_eq!((recv_imm.byte_len(), recv_imm.imm()), (Some(77), Some(0x0102_0304)));
    assert_eq!((recv_imm.has_grh(), recv_imm.src_qp(), recv_imm.slid()), (true, Some(5), Some(6)));
    assert_eq!((recv_imm.sl(), recv_imm.invalidated_rkey()), (Some(3), None));
    assert_eq!((recv.imm(), recv.has_grh(), recv.is_recv()), (None, false, true));
    assert_eq!((write_imm.opcode(), write_imm.imm()), (WcOpcode::RECV_RDMA_WITH_IMM, Some(0x0102_0304)));
    assert_eq!((inv.invalidated_rkey(), inv.imm()), (Some(0x0102_0304_u32.to_be()), None));
    assert_eq!(add.byte_len(), Some(77));
    // what newer libraries may report
    assert_eq!((unknown.opcode(), unknown.byte_len()), (WcOpcode(99), None));
    assert!(format!("{unknown:?}").contains("99"));
    hca().complete(cq.as_ptr(), ibv_wc { status: 1000, ..Default::default() });
    let [failed] = cq.poll(&mut wcs).unwrap() else { unreachable!() };
    let error = failed.result().unwrap_err();
    assert_eq!(error.status, WcStatus(1000));
    assert!(format!("{failed:?} {error}").contains("1000"));
}
