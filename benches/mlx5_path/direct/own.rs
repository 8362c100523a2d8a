//! A queue pair that is connected to itself, with one completion queue.
//!
//! # Safety
//!
//! The C functions get objects of [`Own`], from which the rows borrow, and [`Requests`](super::requests::Requests).

#![expect(unsafe_code, reason = "the Safety section above")]

use std::cell::RefCell;
use std::sync::Arc;

use ibv::mlx5::Poller;
use ibv::{CompletionQueue, Direct, Error, OwnedQp, QueuePairBuilder, Rc, recv, send, state::Rts, write};
use ibv_bench_twins::{DEPTH, NOTHING, Row, c, connect_to_itself, sized};

use super::loops::*;
use super::{Place, clear, clear_c, row, sum_of};

pub(super) struct Own<'p> {
    place: &'p Place<'p>,
    qp: RefCell<OwnedQp<Rc, Rts, Direct>>,
    poller: RefCell<Poller<'static>>,
    c_qp: OwnedQp<Rc, Rts>,
    c_cq: Arc<CompletionQueue<'static>>,
}

impl<'p> Own<'p> {
    pub(super) fn new(place: &'p Place<'p>) -> Result<Self, Error> {
        let Place { ctx, pd, .. } = place;
        let cq = Arc::new(CompletionQueue::builder(ctx, 8 * DEPTH).build_direct()?);
        let qp = sized(QueuePairBuilder::direct(pd, &cq, &cq)).build()?;
        let c_cq = Arc::new(CompletionQueue::new(ctx, 8 * DEPTH)?);
        let c_qp = sized(QueuePairBuilder::new(pd, &c_cq, &c_cq)).build()?;
        Ok(Self {
            place,
            qp: RefCell::new(connect_to_itself(ctx, qp)?),
            poller: RefCell::new(Poller::new(&cq)?),
            c_qp: connect_to_itself(ctx, c_qp)?,
            c_cq,
        })
    }

    fn done(&self) -> Result<(), Error> {
        (self.place.work)();
        clear(&self.poller)
    }

    fn c_done(&self) -> Result<(), Error> {
        (self.place.work)();
        clear_c(&self.c_cq)
    }

    /// Uses up so many receives.
    fn sent(&self, count: u64) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.qp.borrow_mut().post(send(self.place.data).signaled()))?;
        self.done()
    }

    fn c_sent(&self, count: u64) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.c_qp.post(send(self.place.data).signaled()))?;
        self.c_done()
    }

    /// Makes so many times `count` completions.
    fn completed(&self, operations: u64, count: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..count) {
            self.qp.borrow_mut().post(write(self.place.data, self.place.to).id(id).signaled())?;
        }
        (self.place.work)();
        Ok(())
    }

    fn c_completed(&self, operations: u64, count: u64) -> Result<(), Error> {
        for id in (0..operations).flat_map(|_| 0..count) {
            self.c_qp.post(write(self.place.data, self.place.to).id(id).signaled())?;
        }
        (self.place.work)();
        Ok(())
    }

    pub(super) fn rows<'r>(&'r self, rows: &mut Vec<Row<'r>>) {
        let Place { data, to, landing, requests, .. } = *self.place;
        let (c_qp, c_cq) = (self.c_qp.as_ptr(), self.c_cq.as_ptr());
        let (done, c_done) = (move |_| self.done(), move |_| self.c_done());
        row!(
            rows,
            direct_write / 1,
            Some(0.70),
            [NOTHING, done],
            [NOTHING, c_done],
            |n| ours_direct_write(&mut self.qp.borrow_mut(), &data, &to, n),
            c::c_direct_write(c_qp, requests.write, n) == 0
        );
        let bytes = [7u8; 8];
        row!(
            rows,
            direct_inline / 1,
            Some(0.75),
            [NOTHING, done],
            [NOTHING, c_done],
            |n| ours_direct_inline(&mut self.qp.borrow_mut(), &bytes[0], bytes.len(), &to, n),
            c::c_direct_inline(c_qp, requests.inline, n) == 0
        );
        let list = [data; 16];
        row!(
            rows,
            direct_list_16 / 16,
            Some(0.40),
            [NOTHING, done],
            [NOTHING, c_done],
            |n| ours_direct_list_16(&mut self.qp.borrow_mut(), &list, &to, n),
            c::c_direct_list_16(c_qp, requests.list, n) == 0
        );
        row!(
            rows,
            direct_recv / 1,
            None,
            [NOTHING, move |n| self.sent(n)],
            [NOTHING, move |n| self.c_sent(n)],
            |n| ours_direct_recv(&mut self.qp.borrow_mut(), &landing, n),
            c::c_direct_recv(c_qp, requests.recv, n) == 0
        );
        let receives: [_; 16] = std::array::from_fn(|id| recv(landing).id(id as u64));
        row!(
            rows,
            direct_recv_list_16 / 16,
            Some(0.60),
            [NOTHING, move |n| self.sent(16 * n)],
            [NOTHING, move |n| self.c_sent(16 * n)],
            |n| ours_direct_recv_list_16(&mut self.qp.borrow_mut(), &receives, n),
            c::c_direct_recv_list_16(c_qp, requests.recv_list, n) == 0
        );
        row!(
            rows,
            direct_poll_1 / 1,
            None,
            [move |n| self.completed(n, 1), NOTHING],
            [move |n| self.c_completed(n, 1), NOTHING],
            |n| ours_direct_poll_1(&mut self.poller.borrow_mut(), n) == sum_of(1, n),
            c::c_direct_poll_1(c_cq, requests.wcs, n) == sum_of(1, n)
        );
        row!(
            rows,
            direct_poll_16 / 16,
            Some(0.30),
            [move |n| self.completed(n, 16), NOTHING],
            [move |n| self.c_completed(n, 16), NOTHING],
            |n| ours_direct_poll_16(&mut self.poller.borrow_mut(), n) == sum_of(16, n),
            c::c_direct_poll_16(c_cq, requests.wcs, n) == sum_of(16, n)
        );
        row!(
            rows,
            direct_poll_empty / 1,
            Some(0.30),
            [NOTHING, NOTHING],
            [NOTHING, NOTHING],
            |n| ours_direct_poll_empty(&mut self.poller.borrow_mut(), n) == 0,
            c::c_direct_poll_empty(c_cq, requests.wcs, n) == 0
        );
    }
}
