//! Contexts: thread domains, imports, what a closed one leaves; and buffers that the CPU owns.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds.
#![expect(unsafe_code, reason = "C calls")]

use crate::common::*;
use ibv_sys::*;

#[test]
fn a_thread_domain_has_its_own_register() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut t = ibv_td_init_attr::default();
    // SAFETY: the context is open, and `t` of this function.
    let td = unsafe { ibv_alloc_td(d.ctx, &mut t) };
    assert!(!td.is_null(), "errno {}", errno());
    let mut a = ibv_parent_domain_init_attr::default();
    (a.pd, a.td) = (d.pd, td);
    // SAFETY: as above; both domains are of this context.
    let parent = unsafe { ibv_alloc_parent_domain(d.ctx, &mut a) };
    assert!(!parent.is_null(), "errno {}", errno());
    let cq = d.cq(8);
    let own = Dev { pd: parent, ..copy(&d) };
    let (x, y) = (own.qp(RC, cq, cq), d.qp(RC, cq, cq));
    x.up(y.num, &d, &d, Path::default());
    y.up(x.num, &d, &d, Path::default());
    x.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [], 0, 0));
    hca.run_until_idle();
    assert_eq!(drain(cq), [(1, 0)]);
    x.destroy();
    y.destroy();
    free_cq(cq);
    // SAFETY: the queue pair in it is gone, and then the domain that held the other.
    unsafe {
        assert_eq!(ibv_dealloc_pd(parent), 0);
        assert_eq!(ibv_dealloc_td(td), 0);
    }
    d.close();
}

fn copy(d: &Dev) -> Dev {
    Dev { ctx: d.ctx, pd: d.pd, port: d.port, gid: d.gid, gid_index: d.gid_index }
}

#[test]
fn a_context_can_be_imported_and_outlives_its_opener() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let mut mem = vec![0u8; 64];
    let m = d.mr(&mut mem, ALL);
    // SAFETY: what is imported is there, and given back before what it is of; the first context and its objects are not
    // used after it was closed, only the one made of its descriptor.
    unsafe {
        let fd = libc::dup((*d.ctx).cmd_fd);
        let ctx = ibv_import_device(fd);
        assert!(!ctx.is_null(), "errno {}", errno());
        let pd = ibv_import_pd(ctx, (*d.pd).handle);
        assert!(!pd.is_null(), "errno {}", errno());
        let mr = ibv_import_mr(pd, (*m.mr).handle);
        assert!(!mr.is_null());
        assert_eq!(((*mr).lkey, (*mr).rkey), ((*m.mr).lkey, (*m.mr).rkey));
        ibv_unimport_mr(mr);
        ibv_unimport_pd(pd);
        m.dereg();
        d.close();
        // The other descriptor keeps it alive.
        let again = ibv_alloc_pd(ctx);
        assert!(!again.is_null(), "errno {}", errno());
        assert_eq!(ibv_dealloc_pd(again), 0);
        assert_eq!(ibv_close_device(ctx), 0);
    }
    assert_eq!(hca.take_violations().0, 0);
}

/// A duplicate that no call has come by, whatever its number.
#[test]
fn a_context_lives_as_long_as_a_duplicate_of_its_descriptor() {
    const HIGH: i32 = 1500;
    let (_g, hca) = start();
    let d = Dev::open(0);
    // SAFETY: room for the limit, and an open descriptor; the first context is not used after it was closed.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised), 0);
        let fd = libc::fcntl((*d.ctx).cmd_fd, libc::F_DUPFD_CLOEXEC, HIGH);
        assert!(fd >= HIGH, "errno {}", errno());
        d.close();
        assert_eq!(hca.objects().contexts, 1);
        let ctx = ibv_import_device(fd);
        assert!(!ctx.is_null(), "errno {}", errno());
        assert_eq!(ibv_close_device(ctx), 0);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    assert_eq!(hca.objects().contexts, 0);
}

#[test]
fn a_closed_context_leaves_nothing_and_its_keys_are_dead() {
    let (_g, hca) = start();
    let nothing = hca.objects();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    let held = hca.objects();
    assert_eq!((held.contexts, held.pds, held.regions, held.cqs, held.qps), (1, 1, 2, 2, 2));
    let other = Dev::open(0);
    let leaked = Pair::new(&other, RC);
    // The whole context goes with all its objects, as when a process dies.
    // SAFETY: what libmlx5 has of its objects is never used again, but for the numbers of a region (`leaked`).
    assert_eq!(unsafe { ibv_close_device(other.ctx) }, 0);
    assert_eq!(hca.objects(), held);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 8)], leaked.mb.addr, leaked.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(drain(p.ca), [(1, IBV_WC_REM_ACCESS_ERR)]);
    d.event();
    p.close();
    d.close();
    std::mem::forget(leaked);
    assert_eq!(hca.objects(), nothing);
    assert_eq!(nothing.contexts, 0);
}

#[test]
fn cpu_owned_buffers_are_watched() {
    let (_g, hca) = start();
    let d = Dev::open(0);
    let p = Pair::new(&d, RC);
    hca.cpu_owns(p.mb.addr as usize + 64, 64);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 1, &mut [p.ma.sge(0, 64)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(hca.take_violations().0, 0);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 2, &mut [p.ma.sge(0, 65)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    let (n, text) = hca.take_violations();
    assert_eq!(n, 1, "{text:?}");
    hca.cpu_releases(p.mb.addr as usize + 64);
    p.a.send(rdma(IBV_WR_RDMA_WRITE, 3, &mut [p.ma.sge(0, 65)], p.mb.addr, p.mb.rkey()));
    hca.run_until_idle();
    assert_eq!(hca.take_violations().0, 0);
    p.close();
    d.close();
}
