//! Every call of `ibv_modify_qp` that the typestate makes, against the kernel's table of legal transitions.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

mod support_null;

use std::collections::BTreeMap;

use ibv::qp::attr::{
    InitModifyAttr, PathMigState, RcModifyAttr, RcRtrAttr, RcRtsAttr, RcSqdAttr, UcModifyAttr, UcRtrAttr,
    UcRtsAttr, UcSqdAttr, UdInitModifyAttr, UdModifyAttr, UdRtrAttr, UdRtsAttr, UdSqdAttr,
};
use ibv::state::{Init, Rts};
use ibv::sys::*;
use ibv::{
    AddressVector, CompletionQueue, Context, Gid, Grh, InitAttr, Mtu, ProtectionDomain, QpState, QueuePair,
    Rc, RemoteAccess, Transport, Uc, Ud, UdInitAttr,
};
use nullhca::{Modify, hca};
use support_null::*;

const RESET: u32 = IBV_QPS_RESET;
const INIT: u32 = IBV_QPS_INIT;
const RTR: u32 = IBV_QPS_RTR;
const RTS: u32 = IBV_QPS_RTS;
const SQD: u32 = IBV_QPS_SQD;
const SQE: u32 = IBV_QPS_SQE;
const ERR: u32 = IBV_QPS_ERR;
const RC_: u32 = IBV_QPT_RC;
const UC_: u32 = IBV_QPT_UC;
const UD_: u32 = IBV_QPT_UD;

const ACCESS: u32 = IBV_QP_ACCESS_FLAGS;
const ALT: u32 = IBV_QP_ALT_PATH;
const AV: u32 = IBV_QP_AV;
const CUR: u32 = IBV_QP_CUR_STATE;
const DEST_RD: u32 = IBV_QP_MAX_DEST_RD_ATOMIC;
const MIG: u32 = IBV_QP_PATH_MIG_STATE;
const NOTIFY: u32 = IBV_QP_EN_SQD_ASYNC_NOTIFY;
const PKEY: u32 = IBV_QP_PKEY_INDEX;
const PORT: u32 = IBV_QP_PORT;
const QKEY: u32 = IBV_QP_QKEY;
const RD: u32 = IBV_QP_MAX_QP_RD_ATOMIC;
const RNR: u32 = IBV_QP_RNR_RETRY;
const RETRY: u32 = IBV_QP_RETRY_CNT;
const SQ_PSN: u32 = IBV_QP_SQ_PSN;
const TIMEOUT: u32 = IBV_QP_TIMEOUT;
const TIMER: u32 = IBV_QP_MIN_RNR_TIMER;
const PEER: u32 = AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

/// From, to, type (`None`: each), required, optional: `ib_core`'s `qp_state_table`, the same in Linux 6.1 and 6.12.
const TABLE: [(u32, u32, Option<u32>, u32, u32); 40] = [
    (RESET, RESET, None, 0, 0),
    (RESET, INIT, Some(UD_), PKEY | PORT | QKEY, 0),
    (RESET, INIT, Some(UC_), PKEY | PORT | ACCESS, 0),
    (RESET, INIT, Some(RC_), PKEY | PORT | ACCESS, 0),
    (INIT, RESET, None, 0, 0),
    (INIT, INIT, Some(UD_), 0, PKEY | PORT | QKEY),
    (INIT, INIT, Some(UC_), 0, PKEY | PORT | ACCESS),
    (INIT, INIT, Some(RC_), 0, PKEY | PORT | ACCESS),
    (INIT, RTR, Some(UD_), 0, PKEY | QKEY),
    (INIT, RTR, Some(UC_), PEER, ALT | ACCESS | PKEY),
    (INIT, RTR, Some(RC_), PEER | DEST_RD | TIMER, ALT | ACCESS | PKEY),
    (INIT, ERR, None, 0, 0),
    (RTR, RESET, None, 0, 0),
    (RTR, RTS, Some(UD_), SQ_PSN, CUR | QKEY),
    (RTR, RTS, Some(UC_), SQ_PSN, CUR | ALT | ACCESS | MIG),
    (RTR, RTS, Some(RC_), TIMEOUT | RETRY | RNR | SQ_PSN | RD, CUR | ALT | ACCESS | TIMER | MIG),
    (RTR, ERR, None, 0, 0),
    (RTS, RESET, None, 0, 0),
    (RTS, RTS, Some(UD_), 0, CUR | QKEY),
    (RTS, RTS, Some(UC_), 0, CUR | ACCESS | ALT | MIG),
    (RTS, RTS, Some(RC_), 0, CUR | ACCESS | ALT | MIG | TIMER),
    (RTS, SQD, Some(UD_), 0, NOTIFY),
    (RTS, SQD, Some(UC_), 0, NOTIFY),
    (RTS, SQD, Some(RC_), 0, NOTIFY),
    (RTS, ERR, None, 0, 0),
    (SQD, RESET, None, 0, 0),
    (SQD, RTS, Some(UD_), 0, CUR | QKEY),
    (SQD, RTS, Some(UC_), 0, CUR | ALT | ACCESS | MIG),
    (SQD, RTS, Some(RC_), 0, CUR | ALT | ACCESS | TIMER | MIG),
    (SQD, SQD, Some(UD_), 0, PKEY | QKEY),
    (SQD, SQD, Some(UC_), 0, AV | ALT | ACCESS | PKEY | MIG),
    (SQD, SQD, Some(RC_), 0, {
        PORT | AV | TIMEOUT | RETRY | RNR | RD | DEST_RD | ALT | ACCESS | PKEY | TIMER | MIG
    }),
    (SQD, ERR, None, 0, 0),
    (SQE, RESET, None, 0, 0),
    (SQE, RTS, Some(UD_), 0, CUR | QKEY),
    (SQE, RTS, Some(UC_), 0, CUR | ACCESS),
    (SQE, RTS, Some(RC_), 0, 0),
    (SQE, ERR, None, 0, 0),
    (ERR, RESET, None, 0, 0),
    (ERR, ERR, None, 0, 0),
];

/// Optional attributes that the API has no way to give, on purpose: the state is known without `CUR_STATE`, and what
/// SQE → RTS could change can be changed in RTS.
fn cannot_be_said(from: u32, to: u32, qp_type: u32) -> u32 {
    match (from, to, qp_type) {
        (SQE, RTS, UC_) => ACCESS,
        (SQE, RTS, UD_) => QKEY,
        _ => CUR,
    }
}

fn row(from: u32, to: u32, qp_type: u32) -> Option<(u32, u32)> {
    let is_it = |row: &&(u32, u32, Option<u32>, u32, u32)| {
        row.0 == from && row.1 == to && row.2.is_none_or(|of| of == qp_type)
    };
    TABLE.iter().find(is_it).map(|row| (row.3, row.4))
}

/// What was seen: for each pair of states, all mask bits.
#[derive(Default)]
struct Seen(BTreeMap<(u32, u32), u32>);

impl Seen {
    fn check(&mut self, qp_type: u32, modifies: &[Modify]) {
        for Modify { from, attr, mask, .. } in modifies {
            let to = if *mask & IBV_QP_STATE == 0 { *from } else { attr.qp_state };
            let (from, mask) = (*from, *mask);
            let name = format!("{} to {} of type {qp_type}, mask {mask:#x}", QpState(from), QpState(to));
            // naming the present state again is left to where it means something
            assert!(mask & IBV_QP_STATE != 0 || from == to, "{name}");
            let (required, optional) = row(from, to, qp_type).unwrap_or_else(|| panic!("illegal: {name}"));
            assert_eq!(required & !mask, 0, "{name} lacks required attributes");
            assert_eq!(mask & !(required | optional | IBV_QP_STATE), 0, "{name} has attributes too many");
            if mask & CUR != 0 {
                assert_eq!(attr.cur_qp_state, from, "{name}");
            }
            *self.0.entry((from, to)).or_default() |= mask;
        }
    }

    /// Every legal pair has a way, and every optional attribute a setter.
    fn is_complete(&self, qp_type: u32) {
        for (from, to, of, required, optional) in TABLE {
            // RC never comes to SQE, whatever the table has for it
            if of.is_some_and(|of| of != qp_type) || (from, to, qp_type) == (SQE, RTS, RC_) {
                continue;
            }
            let name = format!("{} to {} of type {qp_type}", QpState(from), QpState(to));
            let seen = self.0.get(&(from, to)).unwrap_or_else(|| panic!("no way from {name}"));
            let unsaid = optional & cannot_be_said(from, to, qp_type);
            let expected = (required | optional | IBV_QP_STATE) & !unsaid;
            assert_eq!(*seen | IBV_QP_STATE, expected, "{name}: not every attribute can be given");
        }
    }
}

/// The transitions that are the same for all transports, out of every state.
fn through_all_states<'a, T: Transport>(
    make: impl Fn() -> QueuePair<'a, T, Init>,
    activate: impl Fn(QueuePair<'a, T, Init>) -> QueuePair<'a, T, Rts>,
    rtr: impl Fn() -> T::Rtr,
    resume: impl Fn() -> T::RtsModify,
    resume_after_send_error: impl Fn(&mut QueuePair<'a, T, Rts>),
    seen: &mut Seen,
    qp_type: u32,
) {
    let to_sqe = |qp: &QueuePair<'a, T, Rts>| hca().set_state(qp.as_ptr(), SQE);
    // out of Reset, Init, Rtr
    make().reset().unwrap().reset().unwrap();
    make().into_error().unwrap().into_error().unwrap().reset().unwrap();
    make().rtr(rtr()).unwrap().reset().unwrap();
    make().rtr(rtr()).unwrap().into_error().unwrap();
    // out of Rts
    activate(make()).reset().unwrap();
    activate(make()).into_error().unwrap();
    // out of Sqd
    activate(make()).sqd(false).unwrap().reset().unwrap();
    activate(make()).sqd(true).unwrap().into_error().unwrap();
    activate(make()).sqd(false).unwrap().resume(resume()).unwrap();
    // out of Sqe, where only the device brings it
    let mut qp = activate(make());
    to_sqe(&qp);
    resume_after_send_error(&mut qp);
    to_sqe(&qp);
    let qp = qp.reset().unwrap();
    drop(qp);
    let qp = activate(make());
    to_sqe(&qp);
    qp.into_error().unwrap();
    seen.check(qp_type, &hca().take_modifies());
}

fn objects(ctx: &Context) -> (ProtectionDomain<'_>, CompletionQueue<'_>) {
    (ctx.alloc_pd().unwrap(), ctx.create_cq(16384).unwrap())
}

fn path() -> AddressVector {
    AddressVector::global(1, Grh::new(Gid([9; 16]), 3)).sl(5)
}

fn access() -> RemoteAccess {
    RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC
}

#[test]
fn rc_keeps_to_the_kernels_table() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let mut seen = Seen::default();
    let rtr = || RcRtrAttr::new(&path(), Mtu::B1024, 1, 2);
    through_all_states(
        || rc_init(&pd, &cq),
        |qp| qp.connect(&connection(&ctx)).unwrap(),
        rtr,
        RcModifyAttr::new,
        |_| {},
        &mut seen,
        RC_,
    );
    let full = pd.create_qp::<ibv::Rc>(&cq, &cq).build().unwrap();
    let mut qp = full.init(InitAttr::new(1).access(access()).pkey_index(1)).unwrap();
    qp.modify_init(&InitModifyAttr::new()).unwrap();
    qp.modify_init(&InitModifyAttr::new().access(access()).pkey_index(0).port(1)).unwrap();
    let full = rtr().max_dest_rd_atomic(4).min_rnr_timer(31).access(access()).pkey_index(1);
    let qp = qp.rtr(full.alt_path(&path(), 1, 20)).unwrap();
    let full = RcRtsAttr::new(7).timeout(31).retry_cnt(1).rnr_retry(2).max_rd_atomic(3).access(access());
    let full = full.min_rnr_timer(1).alt_path(&path(), 0, 1).path_mig_state(PathMigState::REARM);
    let mut qp = qp.rts(full).unwrap();
    qp.modify(&RcModifyAttr::new()).unwrap();
    let changes = || {
        let changes = RcModifyAttr::new().access(access()).min_rnr_timer(3).alt_path(&path(), 0, 1);
        changes.path_mig_state(PathMigState::ARMED)
    };
    qp.modify(&changes()).unwrap();
    let mut qp = qp.sqd(true).unwrap();
    let full =
        RcSqdAttr::new().port(1).address(&path()).timeout(1).retry_cnt(2).rnr_retry(3).max_rd_atomic(4);
    let full = full.max_dest_rd_atomic(5).access(access()).pkey_index(1).min_rnr_timer(6);
    qp.modify_drained(&full.alt_path(&path(), 0, 1).path_mig_state(PathMigState::MIGRATED)).unwrap();
    qp.modify_drained(&RcSqdAttr::new()).unwrap();
    qp.resume(changes()).unwrap();
    seen.check(RC_, &hca().take_modifies());
    seen.is_complete(RC_);
}

#[test]
fn uc_keeps_to_the_kernels_table() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let mut seen = Seen::default();
    let rtr = || UcRtrAttr::new(&path(), Mtu::B1024, 1, 2);
    through_all_states(
        || uc_init(&pd, &cq),
        |qp| qp.connect(&connection(&ctx)).unwrap(),
        rtr,
        UcModifyAttr::new,
        |qp| qp.resume_after_send_error().unwrap(),
        &mut seen,
        UC_,
    );
    let full = pd.create_qp::<Uc>(&cq, &cq).build().unwrap();
    let mut qp = full.init(InitAttr::new(1).access(access()).pkey_index(1)).unwrap();
    qp.modify_init(&InitModifyAttr::new().access(access()).pkey_index(0).port(1)).unwrap();
    let qp = qp.rtr(rtr().access(access()).pkey_index(1).alt_path(&path(), 1, 20)).unwrap();
    let full = UcRtsAttr::new(7).access(access()).alt_path(&path(), 0, 1);
    let mut qp = qp.rts(full.path_mig_state(PathMigState::REARM)).unwrap();
    let changes = || {
        let changes = UcModifyAttr::new().access(access()).alt_path(&path(), 0, 1);
        changes.path_mig_state(PathMigState::ARMED)
    };
    qp.modify(&changes()).unwrap();
    let mut qp = qp.sqd(true).unwrap();
    let full = UcSqdAttr::new().address(&path()).access(access()).pkey_index(1).alt_path(&path(), 0, 1);
    qp.modify_drained(&full.path_mig_state(PathMigState::MIGRATED)).unwrap();
    qp.resume(changes()).unwrap();
    seen.check(UC_, &hca().take_modifies());
    seen.is_complete(UC_);
}

#[test]
fn ud_keeps_to_the_kernels_table() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let mut seen = Seen::default();
    through_all_states(
        || ud_init(&pd, &cq),
        |qp| qp.activate(1).unwrap(),
        UdRtrAttr::new,
        UdModifyAttr::new,
        |qp| qp.resume_after_send_error().unwrap(),
        &mut seen,
        UD_,
    );
    let full = pd.create_qp::<Ud>(&cq, &cq).build().unwrap();
    let mut qp = full.init(UdInitAttr::new(1, 2).pkey_index(1)).unwrap();
    qp.modify_init(&UdInitModifyAttr::new().pkey_index(0).port(1).qkey(3)).unwrap();
    let qp = qp.rtr(UdRtrAttr::new().pkey_index(1).qkey(4)).unwrap();
    let mut qp = qp.rts(UdRtsAttr::new(5).qkey(6)).unwrap();
    qp.modify(&UdModifyAttr::new().qkey(7)).unwrap();
    let mut qp = qp.sqd(true).unwrap();
    qp.modify_drained(&UdSqdAttr::new().pkey_index(1).qkey(8)).unwrap();
    qp.resume(UdModifyAttr::new().qkey(9)).unwrap();
    seen.check(UD_, &hca().take_modifies());
    seen.is_complete(UD_);
}

#[test]
fn a_connection_says_what_the_pingpong_programs_say() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let qp = rc_init(&pd, &cq);
    hca().take_modifies();
    let connection = connection(&ctx)
        .sl(3)
        .max_rd_atomic(5)
        .max_dest_rd_atomic(6)
        .min_rnr_timer(7)
        .timeout(8)
        .retry_cnt(2)
        .rnr_retry(1);
    qp.connect(&connection.mtu(Mtu::B4096)).unwrap();
    let [rtr, rts] = hca().take_modifies().try_into().unwrap();
    assert_eq!((rtr.from, rtr.attr.qp_state, rtr.mask), (INIT, RTR, IBV_QP_STATE | PEER | DEST_RD | TIMER));
    let to = rtr.attr;
    assert_eq!((to.path_mtu, to.dest_qp_num, to.rq_psn), (IBV_MTU_4096, 0x1234, 0xabcdef));
    assert_eq!((to.max_dest_rd_atomic, to.min_rnr_timer), (6, 7));
    let av = to.ah_attr;
    assert_eq!((av.dlid, av.sl, av.is_global, av.port_num), (0, 3, 1, 1));
    assert_eq!((av.src_path_bits, av.static_rate), (0, 0));
    // the device's GID table prefers RoCE v2 over IPv4, which is entry 3
    assert_eq!((av.grh.sgid_index, av.grh.hop_limit, av.grh.traffic_class, av.grh.flow_label), (3, 64, 0, 0));
    // SAFETY: all bytes of the union are written.
    assert_eq!(unsafe { av.grh.dgid.raw }, peer().gid.0);
    assert_eq!((rts.from, rts.attr.qp_state), (RTR, RTS));
    assert_eq!(rts.mask, IBV_QP_STATE | TIMEOUT | RETRY | RNR | SQ_PSN | RD);
    let to = rts.attr;
    assert_eq!((to.timeout, to.retry_cnt, to.rnr_retry), (8, 2, 1));
    assert_eq!((to.sq_psn, to.max_rd_atomic), (0x123456, 5));
}

#[test]
fn what_is_not_said_is_as_documented() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    rc_init(&pd, &cq).connect(&connection(&ctx)).unwrap();
    let [init, rtr, rts] = hca().take_modifies().try_into().unwrap();
    assert_eq!((init.attr.pkey_index, init.attr.port_num, init.attr.qp_access_flags), (0, 1, 0));
    assert_eq!((rtr.attr.path_mtu, rtr.attr.max_dest_rd_atomic), (IBV_MTU_1024, 1));
    assert_eq!((rtr.attr.min_rnr_timer, rtr.attr.ah_attr.sl), (12, 0));
    assert_eq!((rts.attr.timeout, rts.attr.retry_cnt, rts.attr.rnr_retry), (14, 6, 7));
    assert_eq!(rts.attr.max_rd_atomic, 1);
}

#[test]
fn a_peer_with_a_lid_alone_is_addressed_by_it() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    hca().configure(|config| {
        config.port.link_layer = IBV_LINK_LAYER_INFINIBAND as u8;
        config.port.lid = 7;
    });
    let local = ctx.local_port(1).unwrap();
    assert_eq!((local.lid, local.gid_index), (7, None));
    let peer = ibv::Endpoint { lid: 9, qpn: 1, psn: 2, gid: Gid::ZERO };
    uc_init(&pd, &cq).connect(&ibv::Connection::new(local, 3, peer)).unwrap();
    let modifies = hca().take_modifies();
    let av = modifies[1].attr.ah_attr;
    assert_eq!((av.is_global, av.dlid, av.port_num), (0, 9, 1));
    // a GID without one of our own to send from
    let refused = uc_init(&pd, &cq).connect(&ibv::Connection::new(local, 3, support_null::peer()));
    let (qp, error) = refused.unwrap_err().into_parts();
    assert!(matches!(error, ibv::Error::Invalid { .. }), "{error}");
    assert_eq!(qp.unwrap().state(), QpState::RESET);
}

#[test]
fn relaxed_ordering_is_no_attribute_of_a_queue_pair() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let qp = pd.create_qp::<ibv::Rc>(&cq, &cq).build().unwrap();
    qp.init(InitAttr::new(1).access(RemoteAccess::all())).unwrap();
    let [init] = hca().take_modifies().try_into().unwrap();
    let all = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    assert_eq!(init.attr.qp_access_flags, all);
}

#[test]
fn values_out_of_their_range_never_reach_the_device() {
    let ctx = open();
    let (pd, cq) = objects(&ctx);
    let peer_at = |qpn, psn| RcRtrAttr::new(&path(), Mtu::B1024, qpn, psn);
    let bad = [
        peer_at(1 << 24, 0),
        peer_at(0, 1 << 24),
        peer_at(0, 0).min_rnr_timer(32),
        peer_at(0, 0).alt_path(&path(), 0, 32),
        RcRtrAttr::new(&path().sl(16), Mtu::B1024, 0, 0),
    ];
    for attr in bad {
        let (qp, error) = rc_init(&pd, &cq).rtr(attr).unwrap_err().into_parts();
        assert!(matches!(error, ibv::Error::Limit { .. }), "{error}");
        assert_eq!(qp.unwrap().state(), QpState::INIT);
    }
    let rtr = || rc_init(&pd, &cq).rtr(peer_at(0xff_ffff, 0xff_ffff)).unwrap();
    let bad = [
        RcRtsAttr::new(1 << 24),
        RcRtsAttr::new(0).timeout(32),
        RcRtsAttr::new(0).retry_cnt(8),
        RcRtsAttr::new(0).rnr_retry(8),
    ];
    for attr in bad {
        assert!(matches!(rtr().rts(attr).unwrap_err().error(), ibv::Error::Limit { .. }));
    }
    let calls = hca().take_modifies();
    assert!(calls.iter().all(|call| call.errno == 0 && call.attr.qp_state != RTS));
    rtr().rts(RcRtsAttr::new(0xff_ffff).timeout(31).retry_cnt(7).rnr_retry(7)).unwrap();
}

#[test]
fn a_refused_step_advises_on_its_own_attributes() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd().unwrap(), ctx.create_cq(64).unwrap());
    let refuse = |errno| hca().fail("ibv_modify_qp", errno);
    let attr = || InitAttr::new(1);
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();

    refuse(libc::EINVAL);
    let refused = qp.init(attr()).unwrap_err();
    assert!(refused.to_string().contains("check port (from 1"), "{refused}");
    let qp = refused.into_object().unwrap().init(attr()).unwrap();
    refuse(libc::EINVAL);
    let refused = qp.connect(&connection(&ctx)).unwrap_err();
    assert!(refused.to_string().contains("RoCE needs a GRH"), "{refused}");
    let qp = refused.into_object().unwrap().init(attr()).unwrap();
    hca().script("ibv_modify_qp", &[0, libc::EINVAL]);
    let refused = qp.connect(&connection(&ctx)).unwrap_err();
    assert!(refused.to_string().contains("check `max_rd_atomic`"), "{refused}");
    let qp = refused.into_object().unwrap().init(attr()).unwrap();
    // another errno has advice of its own
    refuse(libc::ENODATA);
    let refused = qp.connect(&connection(&ctx)).unwrap_err();
    assert!(refused.to_string().contains("empty entry"), "{refused}");
    let qp = refused.into_object().unwrap().init(attr()).unwrap().connect(&connection(&ctx)).unwrap();
    refuse(libc::EINVAL);
    let refused = qp.into_error().unwrap_err();
    assert!(refused.to_string().ends_with("Invalid argument (os error 22)"), "{refused}");
    // the type does not know that the device has moved it on
    let mut qp = refused.into_object().unwrap();
    refuse(libc::EINVAL);
    let error = qp.modify(&RcModifyAttr::new()).unwrap_err();
    assert!(error.to_string().contains("which `reset` leads out of"), "{error}");
    refuse(libc::EINVAL);
    let refused = qp.sqd(false).unwrap_err();
    assert!(refused.to_string().contains("which `reset` leads out of"), "{refused}");
    let qp = refused.into_object().unwrap().sqd(false).unwrap();
    refuse(libc::EINVAL);
    let refused = qp.resume(RcModifyAttr::new()).unwrap_err();
    assert!(refused.to_string().contains("`QpAttr::is_draining`"), "{refused}");
}
