//! Queue pairs whose receives complete on a queue of their own, where the data may come, too.
//!
//! # Safety
//!
//! The C functions get objects of [`Received`], from which the rows borrow, and
//! [`Requests`](super::requests::Requests). Late copies go to a region that outlives the queue pair, and that only
//! devices access.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::RefCell;
use std::sync::Arc;

use ibv::mlx5::{Delivery, Poller, ToCqe};
use ibv::{
    CompletionQueue, CompletionQueueBuilder, Direct, Error, MrSlice, OwnedQp, QueuePairBuilder, Rc, recv,
    send, state::Rts,
};
use ibv_bench_twins::{DEPTH, NOTHING, Row, c, connect_to_itself, sized};

use super::loops::*;
use super::{Place, clear, clear_c, row, sum_of};

pub(super) struct Received<'p, V: Delivery> {
    place: &'p Place<'p>,
    /// What is sent.
    data: MrSlice<'static>,
    qp: RefCell<OwnedQp<Rc, Rts, Direct<V>>>,
    sends: RefCell<Poller<'static, V>>,
    poller: RefCell<Poller<'static, V>>,
    c_qp: OwnedQp<Rc, Rts>,
    c_sends: Arc<CompletionQueue<'static>>,
    c_receives: Arc<CompletionQueue<'static>>,
}

type Build<V> = fn(CompletionQueueBuilder<'static>) -> Result<CompletionQueue<'static, Direct<V>>, Error>;

impl<'p, V: Delivery> Received<'p, V> {
    /// libmlx5 has short data come in the completions by itself: it is allowed to copy that late where ours has, too.
    fn new(place: &'p Place<'p>, data: MrSlice<'static>, build: Build<V>, late: bool) -> Result<Self, Error> {
        let Place { ctx, pd, .. } = place;
        let cq = || build(CompletionQueue::builder(ctx, 8 * DEPTH)).map(Arc::new);
        let (sends, receives) = (cq()?, cq()?);
        let qp = sized(QueuePairBuilder::direct(pd, &sends, &receives)).build()?;
        let c_cq = || CompletionQueue::new(ctx, 8 * DEPTH).map(Arc::new);
        let (c_sends, c_receives) = (c_cq()?, c_cq()?);
        let builder = sized(QueuePairBuilder::new(pd, &c_sends, &c_receives));
        // SAFETY: see the module.
        let builder = if late { unsafe { builder.allow_late_copies() } } else { builder };
        Ok(Self {
            place,
            data,
            qp: RefCell::new(connect_to_itself(ctx, qp)?),
            sends: RefCell::new(Poller::new(&sends)?),
            poller: RefCell::new(Poller::new(&receives)?),
            c_qp: connect_to_itself(ctx, builder.build()?)?,
            c_sends,
            c_receives,
        })
    }

    /// Has so many times 16 receives complete.
    fn came(&self, operations: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..16) {
            self.qp.borrow_mut().post_recv(recv(self.place.landing).id(id))?;
            self.qp.borrow_mut().post(send(self.data).signaled())?;
        }
        (self.place.work)();
        clear(&self.sends)
    }

    fn c_came(&self, operations: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..16) {
            self.c_qp.post_recv(recv(self.place.landing).id(id))?;
            self.c_qp.post(send(self.data).signaled())?;
        }
        (self.place.work)();
        clear_c(&self.c_sends)
    }
}

impl<'p> Received<'p, ibv::mlx5::ToMemory> {
    pub(super) fn in_memory(place: &'p Place<'p>) -> Result<Self, Error> {
        Self::new(place, place.data, CompletionQueueBuilder::build_direct, false)
    }

    pub(super) fn row<'r>(&'r self, rows: &mut Vec<Row<'r>>) {
        let (c_cq, wcs) = (self.c_receives.as_ptr(), self.place.requests.wcs);
        let sum = |n| sum_of(16, n) + n * 16 * 64;
        row!(
            rows,
            direct_poll_recv_16 / 16,
            Some(0.30),
            [move |n| self.came(n), NOTHING],
            [move |n| self.c_came(n), NOTHING],
            |n| ours_direct_poll_recv_16(&mut self.poller.borrow_mut(), n) == sum(n),
            c::c_direct_poll_recv_16(c_cq, wcs, n) == sum(n)
        );
    }
}

impl<'p> Received<'p, ToCqe> {
    pub(super) fn in_completions(place: &'p Place<'p>) -> Result<Self, Error> {
        let data = place.mr.slice(..32)?.detach();
        Self::new(place, data, CompletionQueueBuilder::build_direct_scattered, true)
    }

    pub(super) fn row<'r>(&'r self, rows: &mut Vec<Row<'r>>) {
        let (c_cq, wcs) = (self.c_receives.as_ptr(), self.place.requests.wcs);
        row!(
            rows,
            direct_poll_data_16 / 16,
            None,
            [move |n| self.came(n), NOTHING],
            [move |n| self.c_came(n), NOTHING],
            |n| ours_direct_poll_data_16(&mut self.poller.borrow_mut(), n) == sum_of(16, n),
            c::c_direct_poll_data_16(c_cq, wcs, n) == sum_of(16, n)
        );
    }
}
