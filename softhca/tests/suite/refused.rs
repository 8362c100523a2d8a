//! What is not modelled is refused, with the errno of a device that lacks it.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds, and attributes that are zero where they don't matter.
#![expect(unsafe_code, reason = "C calls")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use crate::common::*;
use ibv_sys::*;
use std::ptr::null_mut;

/// The errno of a call that gives a pointer; 0 if it gave one.
fn made<T>(p: *mut T) -> i32 {
    if p.is_null() { errno() } else { 0 }
}

fn cap() -> ibv_qp_cap {
    ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 }
}

fn qp_attributes(d: &Dev, cq: *mut ibv_cq, kind: u32) -> ibv_qp_init_attr_ex {
    let mut a = ibv_qp_init_attr_ex::default();
    (a.qp_type, a.send_cq, a.recv_cq, a.cap) = (kind, cq, cq, cap());
    (a.comp_mask, a.pd) = (IBV_QP_INIT_ATTR_PD as _, d.pd);
    a
}

const NOT: i32 = libc::EOPNOTSUPP;
const BAD: i32 = libc::EINVAL;

/// A feature's name, the errno due, and the call.
type Case<'a> = (&'a str, i32, Box<dyn Fn() -> i32 + 'a>);

/// Calls all, and compares all at once.
fn check(cases: &[Case<'_>]) {
    let got: Vec<_> = cases.iter().map(|(name, _, call)| (*name, call())).collect();
    let want: Vec<_> = cases.iter().map(|(name, errno, _)| (*name, *errno)).collect();
    assert_eq!(got, want);
}

#[test]
fn queue_pairs_of_other_kinds() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let cq = d.cq(15);
    let before = hca.objects();
    let create = |change: &dyn Fn(&mut ibv_qp_init_attr_ex)| {
        let mut a = qp_attributes(&d, cq, RC);
        change(&mut a);
        // SAFETY: domain and queue are there, and the attributes of this function.
        unsafe { made(ibv_create_qp_ex(d.ctx, &mut a)) }
    };
    let driver = |kind: u32, mut m: mlx5dv_qp_init_attr| {
        let mut a = qp_attributes(&d, cq, kind);
        // SAFETY: as above.
        unsafe { made(mlx5dv_create_qp(d.ctx, &mut a, &mut m)) }
    };
    let dc = |kind: u32| {
        let mut m = mlx5dv_qp_init_attr::default();
        m.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC as _;
        m.dc_init_attr.dc_type = kind;
        driver(IBV_QPT_DRIVER, m)
    };
    let driver_flags = |flags: u32| {
        let mut m = mlx5dv_qp_init_attr::default();
        m.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS as _;
        m.create_flags = flags;
        driver(RC, m)
    };
    check(&[
        ("raw packet", NOT, Box::new(|| create(&|a| a.qp_type = IBV_QPT_RAW_PACKET))),
        (
            "TSO",
            NOT,
            Box::new(|| {
                create(&|a| {
                    a.qp_type = IBV_QPT_RAW_PACKET;
                    a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER as u32;
                    a.max_tso_header = 64;
                })
            }),
        ),
        (
            "atomic write",
            NOT,
            Box::new(|| {
                create(&|a| {
                    a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS as u32;
                    a.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE as _;
                })
            }),
        ),
        ("DC initiator", NOT, Box::new(|| dc(MLX5DV_DCTYPE_DCI))),
        ("DC target", NOT, Box::new(|| dc(MLX5DV_DCTYPE_DCT))),
        ("tunnel offloads", NOT, Box::new(|| driver_flags(MLX5DV_QP_CREATE_TUNNEL_OFFLOADS as _))),
    ]);
    assert_eq!(hca.objects(), before);
    free_cq(cq);
    d.close();
}

#[test]
fn changes_of_a_queue_pair() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let mut a = p.a.query();
    a.alt_ah_attr = a.ah_attr;
    (a.alt_port_num, a.alt_timeout) = (1, 14);
    assert_eq!(p.a.modify(&mut a, IBV_QP_ALT_PATH), NOT, "an alternate path");
    let mut r = ibv_qp_rate_limit_attr::default();
    r.rate_limit = 1000;
    // SAFETY: the queue pair is there, and the attributes of this function.
    assert_eq!(unsafe { ibv_modify_qp_rate_limit(p.a.qp, &mut r) }, BAD, "packet pacing");
    p.close();
    d.close();
}

#[test]
fn memory_of_other_kinds() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let before = hca.objects();
    let mut mem = vec![0u8; 8192];
    let at = mem.as_mut_ptr();
    // SAFETY: the domain and the context are there; all else is of the closures, as long as it says, and only looked
    // at: each call is refused. `mem` is not used otherwise.
    unsafe {
        check(&[
            ("dmabuf", NOT, Box::new(|| made(ibv_reg_dmabuf_mr(d.pd, 0, 4096, 0, 0, 1)))),
            (
                "on-demand paging",
                NOT,
                Box::new(|| made(ibv_reg_mr(d.pd, at.cast(), 100, IBV_ACCESS_ON_DEMAND as _))),
            ),
            (
                "implicit on-demand paging",
                NOT,
                Box::new(|| made(ibv_reg_mr(d.pd, null_mut(), usize::MAX, IBV_ACCESS_ON_DEMAND as _))),
            ),
            (
                "advice",
                NOT,
                Box::new(|| {
                    let mut s = ibv_sge::default();
                    ibv_advise_mr(d.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &mut s, 1)
                }),
            ),
            (
                "device memory",
                BAD,
                Box::new(|| {
                    let mut a = ibv_alloc_dm_attr::default();
                    a.length = 64;
                    made(ibv_alloc_dm(d.ctx, &mut a))
                }),
            ),
            (
                "driver's memory keys",
                NOT,
                Box::new(|| {
                    let mut a = mlx5dv_mkey_init_attr::default();
                    (a.pd, a.max_entries) = (d.pd, 4);
                    a.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT as _;
                    made(mlx5dv_create_mkey(&mut a))
                }),
            ),
        ]);
    }
    assert_eq!(hca.objects(), before);
    d.close();
}

#[test]
fn flows_work_queues_and_raw_commands() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let cq = d.cq(15);
    let q = d.qp(UD, cq, cq);
    q.init(0);
    let before = hca.objects();
    // SAFETY: context, domain, queue and queue pair are there; all else is of the closures, as long as it says, and
    // only looked at: each call is refused. The table's work queue is zeros but for its address, and is refused before
    // it is used.
    unsafe {
        check(&[
            (
                "flow steering",
                NOT,
                Box::new(|| {
                    let mut a = ibv_flow_attr::default();
                    (a.type_, a.size, a.port) = (IBV_FLOW_ATTR_NORMAL, size_of::<ibv_flow_attr>() as u16, 1);
                    made(ibv_create_flow(q.qp, &mut a))
                }),
            ),
            (
                "counters",
                NOT,
                Box::new(|| {
                    let mut a = ibv_counters_init_attr::default();
                    made(ibv_create_counters(d.ctx, &mut a))
                }),
            ),
            (
                "work queue",
                NOT,
                Box::new(|| {
                    let mut a = ibv_wq_init_attr::default();
                    (a.wq_type, a.max_wr, a.max_sge, a.pd, a.cq) = (IBV_WQT_RQ, 4, 1, d.pd, cq);
                    made(ibv_create_wq(d.ctx, &mut a))
                }),
            ),
            (
                "RSS table",
                NOT,
                Box::new(|| {
                    let mut wq = ibv_wq::default();
                    let mut list = [&raw mut wq];
                    let mut a = ibv_rwq_ind_table_init_attr::default();
                    a.ind_tbl = list.as_mut_ptr();
                    made(ibv_create_rwq_ind_table(d.ctx, &mut a))
                }),
            ),
            (
                "tag matching",
                BAD,
                Box::new(|| {
                    let mut a = ibv_srq_init_attr_ex::default();
                    (a.attr.max_wr, a.attr.max_sge) = (4, 1);
                    a.comp_mask = (IBV_SRQ_INIT_ATTR_TYPE
                        | IBV_SRQ_INIT_ATTR_PD
                        | IBV_SRQ_INIT_ATTR_CQ
                        | IBV_SRQ_INIT_ATTR_TM) as _;
                    (a.srq_type, a.pd, a.cq) = (IBV_SRQT_TM, d.pd, cq);
                    (a.tm_cap.max_num_tags, a.tm_cap.max_ops) = (4, 4);
                    made(ibv_create_srq_ex(d.ctx, &mut a))
                }),
            ),
            (
                "DEVX object",
                NOT,
                Box::new(|| {
                    let (mut input, mut output) = ([0u8; 64], [0u8; 64]);
                    made(mlx5dv_devx_obj_create(
                        d.ctx,
                        input.as_mut_ptr().cast(),
                        64,
                        output.as_mut_ptr().cast(),
                        64,
                    ))
                }),
            ),
            (
                "DEVX memory",
                NOT,
                Box::new(|| {
                    let mut page = vec![0u8; 4096];
                    made(mlx5dv_devx_umem_reg(d.ctx, page.as_mut_ptr().cast(), 4096, 1))
                }),
            ),
            (
                "DEVX context",
                NOT,
                Box::new(|| {
                    let mut n = 0;
                    let list = ibv_get_device_list(&mut n);
                    let mut a = mlx5dv_context_attr::default();
                    a.flags = MLX5DV_CONTEXT_FLAGS_DEVX as _;
                    let rc = made(mlx5dv_open_device(*list, &mut a));
                    ibv_free_device_list(list);
                    rc
                }),
            ),
        ]);
    }
    assert_eq!(hca.objects(), before);
    q.destroy();
    free_cq(cq);
    d.close();
}

/// What the queries say agrees with that.
#[test]
fn queries_offer_nothing_of_it() {
    let (_g, _hca) = start();
    let d = Dev::open(0);
    let a = d.attributes();
    assert_eq!(a.odp_caps.general_caps, 0);
    assert_eq!(a.tso_caps.max_tso, 0);
    assert_eq!(a.rss_caps.supported_qpts, 0);
    assert_eq!(a.tm_caps.max_num_tags, 0);
    assert_eq!(a.max_dm_size, 0);
    assert_eq!((a.raw_packet_caps, a.max_wq_type_rq), (0, 0));
    assert_eq!(a.packet_pacing_caps.qp_rate_limit_max, 0);
    d.close();
}
