//! The loops that are measured, each in Rust and in C, over the null provider.
//!
//! | who | what with them |
//! |---|---|
//! | `counts` here, under callgrind, by `cargo xtask bench counts` | instructions, exactly |
//! | `benches/data_path.rs` | nanoseconds, as ratios |
//! | `tests/null_twins.rs` | that both ask the provider for the same |
//!
//! # Safety
//!
//! The C functions get pointers to objects that live for as long as the rows.

#![expect(unsafe_code, reason = "the Safety section above")]

mod c;
mod shells;

use c::*;
use ibv::sys::{IBV_SEND_SIGNALED, ibv_send_wr, ibv_sge, ibv_wc};
use ibv::{
    AddressVector, Connection, Context, Endpoint, Error, Gid, InitAttr, QueuePair, Rc, RemoteRegion, Ud,
    UdInitAttr, WorkCompletion, write,
};
use shells::*;

/// A loop in both languages.
pub struct Row<'r> {
    /// The functions are `ours_NAME` and `c_NAME`.
    pub name: &'static str,
    /// How many requests or completions an operation is about.
    pub per_operation: u32,
    /// Ours, so many times; false if it failed.
    pub ours: Box<dyn FnMut(u64) -> bool + 'r>,
    /// The twin in C; false if it failed.
    pub theirs: Box<dyn FnMut(u64) -> bool + 'r>,
}

impl std::fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What is to be done with the rows. (A trait, since the rows borrow from where they are made.)
pub trait Use {
    /// What comes of it.
    type Result;

    /// The rows. Those that poll find their completions only on the data path that does nothing.
    fn rows(self, rows: Vec<Row<'_>>) -> Self::Result;
}

/// The element that a slice is, as the C twins take it.
fn sge_of(region: &ibv::MemoryRegion<'_>, length: u32) -> ibv_sge {
    ibv_sge { addr: region.memory().as_ptr() as u64, length, lkey: region.lkey() }
}

const PEER: Endpoint = Endpoint { lid: 0, qpn: 0x1234, psn: 0, gid: Gid([9; 16]) };

/// Makes the rows on the null provider: on its data path that does nothing (`fast`), or on the one that records.
///
/// # Errors
///
/// Those of making the objects: none is expected.
pub fn with_rows<U: Use>(fast: bool, then: U) -> Result<U::Result, Error> {
    nullhca::hca().configure(|config| config.fast = fast);
    let ctx = Context::open("null0")?;
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(4096)?;
    let queues = [ctx.create_cq(16)?, ctx.create_cq(16)?, ctx.create_cq(16)?];
    let mr = pd.alloc_local(4096)?;
    let ah = pd.create_ah(&AddressVector::lid(1, 2))?;
    let connection = Connection::new(ctx.local_port(1)?, 0, PEER);
    let basic = pd.create_qp::<Rc>(&cq, &cq).inline(64).build()?.init(InitAttr::new(1))?;
    let basic: QueuePair<'_> = basic.connect(&connection)?;
    let make_extended = || {
        let qp = pd.create_qp::<Rc>(&cq, &cq).extended().build()?.init(InitAttr::new(1))?;
        Ok::<_, Error>(qp.connect(&connection)?)
    };
    let (mut extended, mut extended_list) = (make_extended()?, make_extended()?);
    let datagrams = pd.create_qp::<Ud>(&cq, &cq).build()?.init(UdInitAttr::new(1, 0))?.activate(0)?;
    let [queue_1, queue_16, queue_empty] = &queues;
    if fast {
        nullhca::set_completions(queue_1.as_ptr(), 1);
        nullhca::set_completions(queue_16.as_ptr(), 16);
    }

    let data = mr.slice(..64)?;
    let word = mr.u64_at(0)?;
    let region = RemoteRegion { addr: 0x7000_0000_0000, len: 4096, rkey: 0x55aa };
    let to = region.slice(..64)?;
    let at = region.u64_at(0)?;
    let bytes = [7u8; 32];
    let mut prepared = basic.prepare(write(data, to).signaled())?;
    let requests = [write(data, to).signaled(); 16];

    let remote = c::Remote { addr: region.addr, length: 64, rkey: region.rkey };
    let (sge, word_sge) = (sge_of(&mr, 64), sge_of(&mr, 8));
    let c_requests = [c::Request { data: sge, to: remote, id: 0, flags: IBV_SEND_SIGNALED }; 16];
    let (mut kept_sge, mut kept) = (sge, ibv_send_wr::default());
    let kept = &raw mut kept;
    let (c_to, sge, word_sge) = (&raw const remote, &raw const sge, &raw const word_sge);
    // SAFETY: the request and its element live until the end of this function.
    unsafe { c::c_prepare_write(kept, &raw mut kept_sge, c_to) };
    let (qp, ud) = (basic.as_ptr(), datagrams.as_ptr());
    let (qp_ex, qp_ex_list) = (extended.as_ptr().cast(), extended_list.as_ptr().cast());

    let mut wcs =
        ([WorkCompletion::default(); 1], [WorkCompletion::default(); 16], [WorkCompletion::default(); 32]);
    let mut c_wcs = [ibv_wc::default(); 32];
    let c_wcs = (&raw mut c_wcs).cast();

    let mut rows = Vec::new();
    macro_rules! row {
        ($name:ident / $per_operation:literal, |$n:ident| $ours:expr, $theirs:expr) => {
            rows.push(Row {
                name: stringify!($name),
                per_operation: $per_operation,
                ours: Box::new(|$n| $ours),
                // SAFETY: see the module.
                theirs: Box::new(|$n| unsafe { $theirs }),
            });
        };
    }
    row!(post_write / 1, |n| ours_post_write(&basic, &data, &to, n), c_post_write(qp, sge, c_to, n) == 0);
    row!(
        designated_write / 1,
        |n| ours_post_write(&basic, &data, &to, n),
        c_designated_write(qp, sge, c_to, n) == 0
    );
    row!(
        post_send_inline / 1,
        |n| ours_post_send_inline(&basic, &bytes[0], bytes.len(), n),
        c_post_send_inline(qp, bytes.as_ptr().cast(), bytes.len(), n) == 0
    );
    row!(
        post_fetch_add / 1,
        |n| ours_post_fetch_add(&basic, &word, &at, 3, n),
        c_post_fetch_add(qp, word_sge, c_to, 3, n) == 0
    );
    row!(
        post_ud_send / 1,
        |n| ours_post_ud_send(&datagrams, &data, &ah, 1, 2, n),
        c_post_ud_send(ud, sge, ah.as_ptr(), 1, 2, n) == 0
    );
    row!(
        post_prepared / 1,
        |n| ours_post_prepared(&basic, &mut prepared, n),
        c_post_prepared(qp, kept, n) == 0
    );
    row!(
        write_list_16 / 16,
        |n| ours_write_list_16(&basic, &data, &to, n),
        c_write_list_16(qp, sge, c_to, n) == 0
    );
    row!(
        write_distinct_16 / 16,
        |n| ours_write_distinct_16(&basic, &[data; 16], &[to; 16], n),
        c_write_distinct_16(qp, [*sge; 16].as_ptr(), [remote; 16].as_ptr(), n) == 0
    );
    row!(post_recv / 1, |n| ours_post_recv(&basic, &data, n), c_post_recv(qp, sge, n) == 0);
    row!(recv_list_16 / 16, |n| ours_recv_list_16(&basic, &data, n), c_recv_list_16(qp, sge, n) == 0);
    row!(wr_write / 1, |n| ours_wr_write(&mut extended, &data, &to, n), c_wr_write(qp_ex, sge, c_to, n) == 0);
    row!(
        wr_write_list_16 / 16,
        |n| ours_wr_write_list_16(&mut extended_list, &requests, n),
        c_wr_write_list_16(qp_ex_list, c_requests.as_ptr(), n) == 0
    );
    /// The ids of a poll of the data path that does nothing count from 0.
    const fn sum_of(count: u64, operations: u64) -> u64 {
        operations * (count * count.saturating_sub(1) / 2)
    }
    let [cq_1, cq_16, cq_empty] = [queue_1.as_ptr(), queue_16.as_ptr(), queue_empty.as_ptr()];
    row!(
        poll_1 / 1,
        |n| ours_poll_1(queue_1, &mut wcs.0, n) == sum_of(1, n),
        c_poll_1(cq_1, c_wcs, n) == sum_of(1, n)
    );
    row!(
        poll_16 / 16,
        |n| ours_poll_16(queue_16, &mut wcs.1, n) == sum_of(16, n),
        c_poll_16(cq_16, c_wcs, n) == sum_of(16, n)
    );
    row!(
        poll_empty / 1,
        |n| ours_poll_empty(queue_empty, &mut wcs.2, n) == 0,
        c_poll_empty(cq_empty, c_wcs, n) == 0
    );
    Ok(then.rows(rows))
}
