//! Memory that was registered and then unmapped or protected: the device's accesses fail, the program goes on.
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use super::ring::{Ring, memory};
use crate::common::*;
use ibv_sys::*;

const PAGE: usize = 4096;

/// How the middle one of three registered pages goes.
const WAYS: [Option<i32>; 2] = [None, Some(libc::PROT_NONE)];

/// Three registered pages with a hole.
fn hole(d: &Dev, protection: Option<i32>) -> Mr {
    let pages = Pages::new(3);
    let m = d.mr_at(pages.at, 3 * PAGE, ALL);
    match protection {
        None => pages.unmap(1, 1),
        Some(prot) => pages.protect(1, 1, prot),
    }
    m
}

fn events(d: &Dev) -> Vec<i32> {
    std::iter::from_fn(|| Some(d.event()).filter(|e| *e >= 0)).collect()
}

/// Completions as (id, status).
type Said = Vec<(u64, u32)>;

/// Posts a request on a new pair with a hole in a region of each side; gives what both completion queues say, and
/// the events.
fn outcome(kind: u32, protection: Option<i32>, post: impl Fn(&Dev, &Pair, &Mr)) -> (Said, Said, Vec<i32>) {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, kind);
    let m = hole(&d, protection);
    post(&d, &p, &m);
    hca.run_until_idle();
    let said = (drain(p.ca), drain(p.cb), events(&d));
    p.close();
    // The device is as good as before.
    let p = Pair::new(&d, RC);
    p.b.recv(1, &mut [p.mb.sge(0, 100)]);
    p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
    hca.run_until_idle();
    assert_eq!((drain(p.ca), drain(p.cb)), (vec![(1, 0)], vec![(1, 0)]));
    p.close();
    m.dereg();
    d.close();
    assert_eq!(hca.take_violations().1, [""; 0]);
    said
}

const ACCESS: [i32; 1] = [IBV_EVENT_QP_ACCESS_ERR as i32];

#[test]
fn unmapped_sources_are_local_protection_errors() {
    for way in WAYS {
        // Short enough to lie in the completion, and not; wholly and partly in the hole.
        for (at, len) in [(PAGE, 8), (PAGE - 4, 8), (PAGE, 500), (0, 2 * PAGE as u32), (2 * PAGE - 1, 1000)] {
            let send = |_: &Dev, p: &Pair, m: &Mr| {
                p.b.recv(5, &mut [p.mb.sge(0, 8192)]);
                p.a.send(wr(IBV_WR_SEND, 1, &mut [m.sge(at, len)]));
            };
            for kind in [RC, UC] {
                let (a, b, e) = outcome(kind, way, send);
                assert_eq!((a, b, e), (vec![(1, IBV_WC_LOC_PROT_ERR)], vec![], vec![]), "{kind} {at} {len}");
            }
            let (a, b, e) = outcome(RC, way, |_, p, m| {
                p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [m.sge(at, len)], p.mb.addr, p.mb.rkey()));
            });
            assert_eq!((a, b, e), (vec![(1, IBV_WC_LOC_PROT_ERR)], vec![], vec![]));
        }
        let (a, b, e) = outcome(UD, way, |d, p, m| {
            p.b.recv(5, &mut [p.mb.sge(0, 8192)]);
            let ah = d.ah(d);
            let mut sges = [m.sge(PAGE - 1, 100)];
            let mut w = wr(IBV_WR_SEND, 1, &mut sges);
            w.wr.ud = ibv_send_wr_wr_ud { ah, remote_qpn: p.b.num, remote_qkey: QKEY };
            p.a.send(w);
            free_ah(ah);
        });
        assert_eq!((a, b, e), (vec![(1, IBV_WC_LOC_PROT_ERR)], vec![], vec![]));
    }
}

#[test]
fn unmapped_answers_are_local_protection_errors() {
    for way in WAYS {
        let (a, b, e) = outcome(RC, way, |_, p, m| {
            p.a.send(rdma(IBV_WR_RDMA_READ, 1, &mut [m.sge(PAGE - 9, 100)], p.mb.addr, p.mb.rkey()));
            p.a.send(rdma(IBV_WR_RDMA_READ, 2, &mut [p.ma.sge(0, 100)], p.mb.addr, p.mb.rkey()));
        });
        let want = vec![(1, IBV_WC_LOC_PROT_ERR), (2, IBV_WC_WR_FLUSH_ERR)];
        assert_eq!((a, b, e), (want, vec![], vec![]));
        let (a, ..) = outcome(RC, way, |_, p, m| {
            let word = p.mb.addr.next_multiple_of(8);
            let mut sges = [m.sge(PAGE, 8)];
            p.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &mut sges, word, p.mb.rkey(), 1, 0));
        });
        assert_eq!(a, [(1, IBV_WC_LOC_PROT_ERR)]);
    }
}

#[test]
fn unmapped_receive_buffers_fail_the_receiver() {
    for way in WAYS {
        let (a, b, _) = outcome(RC, way, |_, p, m| {
            p.b.recv(5, &mut [m.sge(PAGE - 40, 8000 - 4096)]);
            p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
        });
        assert_eq!((a, b), (vec![(1, IBV_WC_REM_OP_ERR)], vec![(5, IBV_WC_LOC_PROT_ERR)]));
    }
    // An unreliable sender learns nothing.
    let (a, b, _) = outcome(UC, None, |_, p, m| {
        p.b.recv(5, &mut [m.sge(PAGE, 2000)]);
        p.a.send(wr(IBV_WR_SEND, 1, &mut [p.ma.sge(0, 100)]));
    });
    assert_eq!((a, b), (vec![(1, 0)], vec![(5, IBV_WC_LOC_PROT_ERR)]));
}

#[test]
fn unmapped_targets_are_remote_access_errors() {
    for way in WAYS {
        for op in [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ] {
            for (at, len) in [(PAGE, 8), (PAGE - 4, 8), (PAGE, 2000)] {
                let (a, b, e) = outcome(RC, way, |_, p, m| {
                    p.a.send(rdma(op, 1, &mut [p.ma.sge(0, len)], m.addr + at as u64, m.rkey()));
                });
                assert_eq!(
                    (a, b, e),
                    (vec![(1, IBV_WC_REM_ACCESS_ERR)], vec![], ACCESS.to_vec()),
                    "{op} {at}"
                );
            }
        }
        for op in [IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP] {
            let (a, b, e) = outcome(RC, way, |_, p, m| {
                p.a.send(atomic(op, 1, &mut [p.ma.sge(0, 8)], m.addr + PAGE as u64, m.rkey(), 0, 1));
            });
            assert_eq!((a, b, e), (vec![(1, IBV_WC_REM_ACCESS_ERR)], vec![], ACCESS.to_vec()), "{op}");
        }
    }
    // What can be read only, can be read.
    let (a, ..) = outcome(RC, Some(libc::PROT_READ), |_, p, m| {
        p.a.send(rdma(IBV_WR_RDMA_READ, 1, &mut [p.ma.sge(0, 8000)], m.addr, m.rkey()));
        p.a.send(rdma(IBV_WR_RDMA_WRITE, 2, &mut [p.ma.sge(0, 8000)], m.addr, m.rkey()));
    });
    assert_eq!(a, [(1, 0), (2, IBV_WC_REM_ACCESS_ERR)]);
}

/// The rings of libmlx5 stand on pages of their own.
#[test]
fn unmapped_rings_kill_their_queues_only() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    for queue in ["completions", "sends", "receives"] {
        let p = Pair::new(&d, RC);
        let at = match queue {
            "completions" => Ring::of(p.ca).start(),
            "sends" => memory(&p.a).sq.buf.cast::<u8>(),
            _ => memory(&p.b).rq.buf.cast::<u8>(),
        };
        let page = Pages { at: at.wrapping_sub(at.addr() % PAGE) };
        p.b.recv(1, &mut [p.mb.sge(0, 100)]);
        p.a.send(wr(IBV_WR_SEND, 2, &mut [p.ma.sge(0, 100)]));
        page.protect(0, 1, libc::PROT_NONE);
        hca.run_until_idle();
        let said = events(&d);
        page.protect(0, 1, read_write);
        let (fatal, cq) = (IBV_EVENT_QP_FATAL as i32, IBV_EVENT_CQ_ERR as i32);
        match queue {
            "completions" => {
                assert_eq!((said, drain(p.ca)), (vec![cq, fatal], vec![]));
                assert_eq!(p.a.query().qp_state, IBV_QPS_ERR);
            }
            "sends" => {
                assert_eq!((said, drain(p.ca)), (vec![fatal], vec![]));
                assert_eq!(p.a.query().qp_state, IBV_QPS_ERR);
            }
            _ => {
                assert_eq!((said, drain(p.ca)), (vec![fatal], vec![(2, IBV_WC_REM_OP_ERR)]));
                assert_eq!(p.b.query().qp_state, IBV_QPS_ERR);
            }
        }
        p.close();
    }
    let p = Pair::new(&d, RC);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 100)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    one(p.ca);
    p.close();
    d.close();
}
