//! Posting: requests become WQEs in the ring, then a doorbell.
//!
//! # Safety
//!
//! Slots are written only after the producer said that there is room for the whole WQE: from then until the doorbell
//! they are the CPU's. What a request names is only named: the device checks keys.

#![expect(unsafe_code, reason = "the Safety section above")]

use ibv_sys as sys;

use super::barrier;
use super::bits::{SEGMENT, WQE_BB, opcode, qp_record};
use super::qp::{DirectQueues, RecvQueue, SendQueue};
use super::wqe::{self, Segment};
use crate::mr::{MrSlice, RemoteSlice, RemoteU64};
use crate::qp::Transport;
use crate::wr::encode::{Encode, Head, Limits};
use crate::wr::{Address, PostError, Recv, Scatter, SendRequest};

/// A WQE in the making. `VECTOR`: by stores of 16 bytes, which a BlueFlame copy can then load at once.
struct Writer<'q, const VECTOR: bool> {
    queue: &'q mut SendQueue,
    limits: &'q Limits,
    head: Head,
    opcode: u8,
    imm: u32,
    /// Segments so far, with the control segment.
    units: usize,
}

/// A complete WQE: its size.
struct Written {
    units: usize,
}

impl<'q, const VECTOR: bool> Writer<'q, VECTOR> {
    /// There must be room for one block.
    #[inline(always)]
    fn new(queue: &'q mut SendQueue, limits: &'q Limits) -> Self {
        Self { queue, limits, head: Head { id: 0, flags: 0 }, opcode: 0, imm: 0, units: 1 }
    }

    #[inline(always)]
    fn offset(&self) -> usize {
        self.queue.producer.head() as usize * WQE_BB + self.units * SEGMENT
    }

    /// There must be room for the block that it falls in.
    #[inline(always)]
    fn put(&mut self, segment: Segment) {
        // SAFETY: there is room, so the slot is ours.
        unsafe { self.queue.ring.put::<VECTOR>(self.offset(), segment) };
        self.units += 1;
    }

    /// Makes sure of room for so many more segments.
    #[inline(always)]
    fn reserve(&mut self, units: usize) -> Result<(), PostError> {
        let blocks = wqe::blocks(self.units + units);
        if blocks <= 1 || self.queue.producer.has_room(blocks, &self.queue.lanes.send) {
            Ok(())
        } else {
            Err(PostError::QueueFull)
        }
    }

    #[inline(always)]
    fn start(&mut self, head: Head, opcode: u8, imm: Option<u32>) {
        (self.head, self.opcode, self.imm) = (head, opcode, imm.unwrap_or(0));
    }

    #[inline(always)]
    fn atomic(mut self, head: Head, opcode: u8, at: &RemoteU64, swap_add: u64, compare: u64) -> Self {
        self.start(head, opcode, None);
        self.put(wqe::remote(at.addr, at.rkey));
        self.put(wqe::atomic(swap_add, compare));
        self
    }

    /// Writes the control segment, and makes the slots outstanding.
    #[inline(always)]
    fn finish(self) -> Written {
        let Self { queue, head, opcode, imm, units, .. } = self;
        let index = queue.producer.head();
        let flags = queue.signal_bits | wqe::fm_ce_se(head.flags);
        let control = wqe::control(index, opcode, queue.number, units as u32, flags, imm);
        // SAFETY: there is room, so the slot is ours.
        unsafe { queue.ring.put::<VECTOR>(index as usize * WQE_BB, control) };
        queue.producer.push(head.id, wqe::blocks(units));
        Written { units }
    }
}

impl<const VECTOR: bool> Encode for Writer<'_, VECTOR> {
    type Done = Written;

    #[inline(always)]
    fn send(mut self, head: Head, imm: Option<u32>) -> Self {
        self.start(head, if imm.is_some() { opcode::SEND_IMM } else { opcode::SEND }, imm);
        self
    }

    #[inline(always)]
    fn write(mut self, head: Head, to: &RemoteSlice, imm: Option<u32>) -> Self {
        self.start(head, if imm.is_some() { opcode::RDMA_WRITE_IMM } else { opcode::RDMA_WRITE }, imm);
        self.put(wqe::remote(to.addr, to.rkey));
        self
    }

    #[inline(always)]
    fn read(mut self, head: Head, from: &RemoteSlice) -> Self {
        self.start(head, opcode::RDMA_READ, None);
        self.put(wqe::remote(from.addr, from.rkey));
        self
    }

    #[inline(always)]
    fn cmp_swp(self, head: Head, at: &RemoteU64, compare: u64, swap: u64) -> Self {
        self.atomic(head, opcode::ATOMIC_CS, at, swap, compare)
    }

    #[inline(always)]
    fn fetch_add(self, head: Head, at: &RemoteU64, add: u64) -> Self {
        self.atomic(head, opcode::ATOMIC_FA, at, add, 0)
    }

    #[inline(always)]
    fn ud(mut self, to: &Address<'_>) -> Result<Self, PostError> {
        self.limits.address(to)?;
        let address = to.ah.mlx5_address().ok_or(PostError::OtherContext)?;
        for segment in wqe::datagram(address, to.qpn, to.qkey) {
            self.put(segment);
        }
        Ok(self)
    }

    #[inline(always)]
    fn slice(mut self, data: &MrSlice<'_>) -> Result<Written, PostError> {
        self.reserve(1)?;
        let sys::ibv_sge { addr, length, lkey } = *data.as_sge();
        if length != 0 {
            self.put(wqe::data(addr, length, lkey));
        }
        Ok(self.finish())
    }

    #[inline(always)]
    fn slices(mut self, data: &[MrSlice<'_>]) -> Result<Written, PostError> {
        self.limits.send_sges(data.len())?;
        self.reserve(data.len())?;
        for sge in MrSlice::as_sges(data) {
            if sge.length != 0 {
                self.put(wqe::data(sge.addr, sge.length, sge.lkey));
            }
        }
        Ok(self.finish())
    }

    #[inline(always)]
    fn inline(mut self, data: &[u8]) -> Result<Written, PostError> {
        self.limits.inline(data.len())?;
        let units = wqe::inline_units(data.len());
        self.reserve(units)?;
        if !data.is_empty() {
            // SAFETY: there is room, so the slots are ours.
            unsafe { self.queue.ring.put_inline(self.offset(), wqe::inline_header(data.len() as u32), data) };
            self.units += units;
        }
        Ok(self.finish())
    }
}

impl SendQueue {
    #[inline(always)]
    fn write<'a, T: Transport, R: SendRequest<'a, T>, const VECTOR: bool>(
        &mut self,
        limits: &Limits,
        request: &R,
    ) -> Result<Written, PostError> {
        if !self.producer.has_room(1, &self.lanes.send) {
            return Err(PostError::QueueFull);
        }
        request.encode(Writer::<VECTOR>::new(self, limits))
    }

    /// Tells the device how far the ring is filled.
    #[inline(always)]
    fn tell(&self) {
        barrier::wqe_before_record();
        self.record.store::<{ qp_record::SEND }>(self.producer.head() & 0xffff);
        barrier::record_before_register();
    }

    /// Rings by the first word of the WQE at `index`, the last one.
    #[inline(always)]
    fn ring_by_word(&mut self, index: u32) {
        // SAFETY: just written.
        let word = unsafe { self.ring.first_word(index) };
        self.register.ring(word);
        barrier::flush_register();
    }
}

impl DirectQueues {
    /// Posts one request.
    #[inline(always)]
    pub(crate) fn post<'a, T: Transport, R: SendRequest<'a, T>>(
        &mut self,
        limits: &Limits,
        request: &R,
    ) -> Result<(), PostError> {
        let Some(queue) = &mut self.send else { return Err(PostError::QueueFull) };
        let index = queue.producer.head();
        let Written { units } = queue.write::<T, R, true>(limits, request)?;
        queue.tell();
        if queue.register.takes(units) {
            // SAFETY: just written, and it fits.
            unsafe { queue.register.copy(queue.ring, index, wqe::blocks(units)) };
        } else {
            queue.ring_by_word(index);
        }
        Ok(())
    }

    /// Posts requests with one doorbell; all, or none.
    #[inline(always)]
    pub(crate) fn post_list<'a, T: Transport, R: SendRequest<'a, T>>(
        &mut self,
        limits: &Limits,
        requests: &[R],
    ) -> Result<(), PostError> {
        let [one] = requests else { return self.post_several::<T, R>(limits, requests) };
        self.post(limits, one)
    }

    #[inline(always)]
    fn post_several<'a, T: Transport, R: SendRequest<'a, T>>(
        &mut self,
        limits: &Limits,
        requests: &[R],
    ) -> Result<(), PostError> {
        let Some(queue) = &mut self.send else { return Err(PostError::QueueFull) };
        let first = queue.producer.head();
        let mut last = first;
        for request in requests {
            last = queue.producer.head();
            if let Err(error) = queue.write::<T, R, false>(limits, request) {
                queue.producer.roll_back(first);
                return Err(error);
            }
        }
        if queue.producer.head() != first {
            queue.tell();
            queue.ring_by_word(last);
        }
        Ok(())
    }

    /// Posts receives with one doorbell record; all, or none.
    #[inline(always)]
    pub(crate) fn post_recv<'a, D: Scatter<'a>>(
        &mut self,
        limits: &Limits,
        requests: &[Recv<D>],
    ) -> Result<(), PostError> {
        let Some(queue) = &mut self.recv else { return Err(PostError::QueueFull) };
        let first = queue.producer.head();
        for request in requests {
            if let Err(error) = queue.write(limits, request) {
                queue.producer.roll_back(first);
                return Err(error);
            }
        }
        barrier::wqe_before_record();
        queue.record.store::<{ qp_record::RECV }>(queue.producer.head() & 0xffff);
        Ok(())
    }
}

impl RecvQueue {
    #[inline(always)]
    fn write<'a, D: Scatter<'a>>(&mut self, limits: &Limits, request: &Recv<D>) -> Result<(), PostError> {
        let (id, into) = request.parts();
        let sges = MrSlice::as_sges(into.slices());
        limits.recv_sges(sges.len())?;
        if !self.producer.has_room(1, &self.lanes.recv) {
            return Err(PostError::QueueFull);
        }
        let start = self.producer.head() as usize * self.stride;
        let mut at = 0;
        for sge in sges {
            if sge.length != 0 {
                // SAFETY: there is room, so the slot is ours; a request has no more elements than a WQE has room for.
                unsafe { self.ring.put::<false>(start + at, wqe::data(sge.addr, sge.length, sge.lkey)) };
                at += SEGMENT;
            }
        }
        if at < self.stride {
            // SAFETY: as above.
            unsafe { self.ring.put::<false>(start + at, wqe::END_OF_LIST) };
        }
        self.producer.push(id, 1);
        Ok(())
    }
}
