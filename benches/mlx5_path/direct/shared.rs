//! Shared receive queues, whose receives complete on a queue of their own.
//!
//! # Safety
//!
//! The C functions get objects of [`Shared`], from which the rows borrow, and
//! [`Requests`](super::requests::Requests).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::RefCell;
use std::sync::Arc;

use ibv::mlx5::Poller;
use ibv::{
    CompletionQueue, Direct, Error, OwnedQp, QueuePairBuilder, Rc, SharedReceiveQueue, WithSrq, recv, send,
    state::Rts,
};
use ibv_bench_twins::{DEPTH, NOTHING, Row, c, connect_to_itself, sized};

use super::loops::*;
use super::{Place, clear, clear_c, row, sum_of};

pub(super) struct Shared<'p> {
    place: &'p Place<'p>,
    srq: RefCell<SharedReceiveQueue<'static, Direct>>,
    qp: RefCell<OwnedQp<WithSrq<Rc>, Rts, Direct>>,
    sends: RefCell<Poller<'static>>,
    poller: RefCell<Poller<'static>>,
    c_srq: SharedReceiveQueue<'static>,
    c_qp: OwnedQp<WithSrq<Rc>, Rts>,
    c_sends: Arc<CompletionQueue<'static>>,
    c_receives: Arc<CompletionQueue<'static>>,
}

impl<'p> Shared<'p> {
    pub(super) fn new(place: &'p Place<'p>) -> Result<Self, Error> {
        let Place { ctx, pd, .. } = place;
        let cq = || CompletionQueue::builder(ctx, 8 * DEPTH).build_direct().map(Arc::new);
        let (sends, receives) = (cq()?, cq()?);
        let poller = Poller::new(&receives)?;
        let srq = SharedReceiveQueue::direct(pd, &receives, DEPTH, 1)?;
        let qp = sized(QueuePairBuilder::<Rc, _>::direct(pd, &sends, &receives)).srq(&srq).build()?;
        let c_cq = || CompletionQueue::new(ctx, 8 * DEPTH).map(Arc::new);
        let (c_sends, c_receives) = (c_cq()?, c_cq()?);
        let c_srq = SharedReceiveQueue::new(pd, DEPTH, 1)?;
        let c_qp = sized(QueuePairBuilder::<Rc>::new(pd, &c_sends, &c_receives)).srq(&c_srq).build()?;
        Ok(Self {
            place,
            qp: RefCell::new(connect_to_itself(ctx, qp)?),
            srq: RefCell::new(srq),
            sends: RefCell::new(Poller::new(&sends)?),
            poller: RefCell::new(poller),
            c_qp: connect_to_itself(ctx, c_qp)?,
            c_srq,
            c_sends,
            c_receives,
        })
    }

    /// Uses up so many receives, which complete.
    fn taken(&self, count: u64) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.qp.borrow_mut().post(send(self.place.data).signaled()))?;
        (self.place.work)();
        clear(&self.sends)
    }

    fn c_taken(&self, count: u64) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.c_qp.post(send(self.place.data).signaled()))?;
        (self.place.work)();
        clear_c(&self.c_sends)
    }

    fn done(&self, count: u64) -> Result<(), Error> {
        self.taken(count)?;
        clear(&self.poller)
    }

    fn c_done(&self, count: u64) -> Result<(), Error> {
        self.c_taken(count)?;
        clear_c(&self.c_receives)
    }

    /// Has so many times 8 receives complete.
    fn came(&self, operations: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..8) {
            self.srq.borrow_mut().post_recv(recv(self.place.landing).id(id))?;
        }
        self.taken(8 * operations)
    }

    fn c_came(&self, operations: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..8) {
            self.c_srq.post_recv(recv(self.place.landing).id(id))?;
        }
        self.c_taken(8 * operations)
    }

    pub(super) fn rows<'r>(&'r self, rows: &mut Vec<Row<'r>>) {
        let Place { landing, requests, .. } = *self.place;
        let (c_srq, c_cq) = (self.c_srq.as_ptr(), self.c_receives.as_ptr());
        row!(
            rows,
            direct_shared_recv / 1,
            None,
            [NOTHING, move |n| self.done(n)],
            [NOTHING, move |n| self.c_done(n)],
            |n| ours_direct_shared_recv(&mut self.srq.borrow_mut(), &landing, n),
            c::c_direct_shared_recv(c_srq, requests.recv, n) == 0
        );
        let receives: [_; 16] = std::array::from_fn(|id| recv(landing).id(id as u64));
        row!(
            rows,
            direct_shared_recv_list_16 / 16,
            None,
            [NOTHING, move |n| self.done(16 * n)],
            [NOTHING, move |n| self.c_done(16 * n)],
            |n| ours_direct_shared_recv_list_16(&mut self.srq.borrow_mut(), &receives, n),
            c::c_direct_shared_recv_list_16(c_srq, requests.recv_list, n) == 0
        );
        row!(
            rows,
            direct_shared_poll_8 / 8,
            None,
            [move |n| self.came(n), NOTHING],
            [move |n| self.c_came(n), NOTHING],
            |n| ours_direct_shared_poll_8(&mut self.poller.borrow_mut(), n) == sum_of(8, n),
            c::c_direct_shared_poll_8(c_cq, requests.wcs, n) == sum_of(8, n)
        );
    }
}
