//! The direct path beside libmlx5, each on queues of its own.
//!
//! Ours are as for two threads. Requests are built in what is measured; C's were built before, which is the least that
//! it can do.

mod loops;
mod own;
mod received;
mod requests;
mod shared;

use std::cell::RefCell;
use std::sync::Arc;

use ibv::mlx5::{Delivery, Poller};
use ibv::{
    CompletionQueue, Context, Error, MemoryRegion, MrSlice, Pages, ProtectionDomain, Remote, RemoteAccess,
    RemoteSlice, WorkCompletion,
};
use ibv_bench_twins::Use;

use own::Own;
use received::Received;
use requests::Requests;
use shared::Shared;

/// What all queues are made of and their requests name.
struct Place<'w> {
    /// Makes the device do all that was posted.
    work: &'w dyn Fn(),
    ctx: Arc<Context>,
    pd: Arc<ProtectionDomain<'static>>,
    mr: Arc<MemoryRegion<'static, Remote>>,
    data: MrSlice<'static>,
    landing: MrSlice<'static>,
    to: RemoteSlice,
    requests: Requests,
}

impl<'w> Place<'w> {
    fn new(work: &'w dyn Fn()) -> Result<Self, Error> {
        let ctx = Arc::new(Context::open("mlx5_0")?);
        let pd = Arc::new(ProtectionDomain::new(&ctx)?);
        let mr = Arc::new(MemoryRegion::remote(&pd, Pages::new(4096)?, RemoteAccess::WRITE)?);
        Ok(Self {
            work,
            data: mr.slice(..64)?.detach(),
            landing: mr.slice(2048..2304)?.detach(),
            to: mr.remote_region().slice(1024..1088)?,
            requests: Requests::new(&mr),
            ctx,
            pd,
            mr,
        })
    }
}

/// Makes the rows. `work` makes the device do all that was posted.
pub(crate) fn with_rows<U: Use>(work: &dyn Fn(), then: U) -> Result<U::Result, Error> {
    let place = Place::new(work)?;
    let (own, shared) = (Own::new(&place)?, Shared::new(&place)?);
    let (received, with_data) = (Received::in_memory(&place)?, Received::in_completions(&place)?);
    let mut rows = Vec::new();
    own.rows(&mut rows);
    received.row(&mut rows);
    with_data.row(&mut rows);
    shared.rows(&mut rows);
    Ok(then.rows(rows))
}

/// Reads all completions that there are.
fn clear<V: Delivery>(poller: &RefCell<Poller<'_, V>>) -> Result<(), Error> {
    let mut poller = poller.borrow_mut();
    while let Some(wc) = poller.poll() {
        wc.result()?;
    }
    Ok(())
}

/// The same.
fn clear_c(cq: &CompletionQueue<'_>) -> Result<(), Error> {
    let mut wcs = [WorkCompletion::default(); 16];
    loop {
        match cq.poll(&mut wcs)? {
            [] => return Ok(()),
            done => done.iter().try_for_each(|wc| wc.result().map(drop))?,
        }
    }
}

/// The sum of the ids of so many times `count` completions.
const fn sum_of(count: u64, operations: u64) -> u64 {
    operations * (count * (count - 1) / 2)
}

/// Adds a row. The C function's call is unsafe: see the module that it stands in.
macro_rules! row {
    (
        $rows:ident,
        $name:ident / $per_operation:literal,
        $expected:expr,
        [$before:expr, $after:expr],
        [$c_before:expr, $c_after:expr],
        |$n:ident| $ours:expr,
        $theirs:expr
    ) => {
        $rows.push(::ibv_bench_twins::Row {
            name: stringify!($name),
            per_operation: $per_operation,
            limit: u64::from(::ibv_bench_twins::DEPTH / $per_operation),
            expected: $expected,
            ours: ::ibv_bench_twins::Loop::new(move |$n| $ours).between($before, $after),
            // SAFETY: see the module.
            theirs: ::ibv_bench_twins::Loop::new(move |$n| unsafe { $theirs }).between($c_before, $c_after),
        });
    };
}
use row;
