//! Posting: requests become WQEs in the ring, then a doorbell.
//!
//! # Safety
//!
//! Slots are written only after the producer said that there is room for the whole WQE: from then until the doorbell
//! they are the CPU's. What a request names is only named: the device checks keys.

#![expect(unsafe_code, reason = "the Safety section above")]

use ibv_sys as sys;

use super::barrier;
use super::batch::Batch;
use super::bits::{SEGMENT, WQE_BB, opcode, qp_record};
use super::mmio::{Block, WqeRing};
use super::qp::{DirectQueues, Fence, SendQueue};
use super::ring::unlikely;
use super::wc;
use super::wqe::{self, AddressBytes, Segment};
use crate::mr::{MrSlice, RemoteSlice, RemoteU64};
use crate::qp::Transport;
use crate::wr::encode::{Encode, Head, Limits};
use crate::wr::{Address, PostError, Recv, Scatter, SendRequest};

/// A WQE in the making. `ALONE`: it is not one of several, and is rung for when it is complete. `FENCED`: it comes
/// after the update of a key, and waits for that.
struct Writer<'q, const ALONE: bool, const FENCED: bool> {
    queue: &'q mut SendQueue,
    ring: WqeRing,
    /// Its first block, and the index of that.
    block: Block,
    index: u32,
    head: Head,
    opcode: u8,
    imm: u32,
    /// What its completion should know of it.
    note: u32,
    /// Segments so far, with the control segment.
    units: usize,
}

/// A complete WQE.
pub(super) struct Written {
    pub(super) block: Block,
}

/// Inline data that fits into the first block of every request of a connected queue pair, so that it is allowed there
/// whatever was asked for.
pub(crate) const SHORT_INLINE: usize = WQE_BB - 2 * SEGMENT - size_of::<u32>();

/// Segments of a block.
const PER_BLOCK: usize = WQE_BB / SEGMENT;

impl<'q, const ALONE: bool, const FENCED: bool> Writer<'q, ALONE, FENCED> {
    /// There must be room for one block.
    #[inline(always)]
    fn new(queue: &'q mut SendQueue) -> Self {
        let (ring, index) = (queue.ring, queue.producer.head());
        let head = Head { id: 0, flags: 0 };
        Self { queue, ring, block: ring.block(index), index, head, opcode: 0, imm: 0, note: 0, units: 1 }
    }

    #[inline(always)]
    fn offset(&self) -> usize {
        self.index as usize * WQE_BB + self.units * SEGMENT
    }

    /// There must be room for the block that it falls in.
    #[inline(always)]
    fn put(&mut self, segment: Segment) {
        // SAFETY: there is room, so the slot is ours.
        unsafe {
            if self.units < PER_BLOCK {
                self.block.put(self.units, segment);
            } else {
                self.ring.put(self.offset(), segment);
            }
        }
        self.units += 1;
    }

    /// Makes sure of room for so many more segments.
    #[inline(always)]
    fn reserve(&mut self, units: usize) -> Result<(), PostError> {
        let units = self.units + units;
        if units <= PER_BLOCK || self.queue.has_room(wqe::blocks(units)) {
            Ok(())
        } else {
            Err(PostError::QueueFull)
        }
    }

    #[inline(always)]
    fn start(&mut self, head: &Head, opcode: u8, imm: Option<u32>) {
        (self.head, self.opcode, self.imm) = (*head, opcode, imm.unwrap_or(0));
    }

    #[inline(always)]
    fn atomic(mut self, head: &Head, opcode: u8, at: &RemoteU64, swap_add: u64, compare: u64) -> Self {
        self.start(head, opcode, None);
        self.put(wqe::remote(at.addr, at.rkey));
        self.put(wqe::atomic(swap_add, compare));
        self
    }

    fn update_key(mut self, segments: &[Segment]) -> Result<Written, PostError> {
        self.reserve(segments.len())?;
        segments.iter().for_each(|segment| self.put(*segment));
        Ok(self.finish::<false>())
    }

    /// Writes the control segment, makes the slots outstanding, and rings if the WQE is alone. `SHORT`: it is known to
    /// be of one block.
    #[inline(always)]
    fn finish<const SHORT: bool>(self) -> Written {
        let Self { queue, ring, block, index, head, opcode, imm, note, units } = self;
        // what a request asks for itself is a constant
        let signaled = head.flags & sys::IBV_SEND_SIGNALED != 0;
        let flags = wqe::fm_ce_se(head.flags) | if signaled { 0 } else { queue.signal_bits };
        // one fence mode or the other
        let fence = if FENCED && head.flags & sys::IBV_SEND_FENCE == 0 { wqe::SMALL_FENCE } else { 0 };
        let flags = flags | fence;
        let control = wqe::control(index, opcode, queue.number, units as u32, flags, imm);
        // SAFETY: there is room, so the slot is ours.
        unsafe { block.put(0, control) };
        let blocks = if SHORT { 1 } else { wqe::blocks(units) };
        let next = queue.producer.push(index, head.id, blocks, note);
        if opcode == opcode::UMR {
            queue.fence = Fence::Next;
            queue.producer.forget_room();
        } else if FENCED {
            queue.fence = Fence::None;
        }
        if ALONE {
            queue.tell(next);
            // libmlx5's rule: nothing but a control segment is no use to copy
            if units == 1 || !queue.register.takes(blocks) {
                queue.ring_by_word(block);
            } else if blocks == 1 {
                // SAFETY: just written, and it fits.
                unsafe { queue.register.copy_block(block) };
                barrier::flush_line();
            } else {
                // SAFETY: as above.
                unsafe { queue.register.copy(ring, index, blocks) };
                barrier::flush_line();
            }
        }
        Written { block }
    }
}

impl<const ALONE: bool, const FENCED: bool> Encode for Writer<'_, ALONE, FENCED> {
    type Done = Written;

    #[inline(always)]
    fn send(mut self, head: &Head, imm: Option<u32>) -> Self {
        self.start(head, if imm.is_some() { opcode::SEND_IMM } else { opcode::SEND }, imm);
        self
    }

    #[inline(always)]
    fn send_inv(mut self, head: &Head, rkey: u32) -> Self {
        self.start(head, opcode::SEND_INVAL, Some(rkey));
        self
    }

    #[inline(always)]
    fn write(mut self, head: &Head, to: &RemoteSlice, imm: Option<u32>) -> Self {
        self.start(head, if imm.is_some() { opcode::RDMA_WRITE_IMM } else { opcode::RDMA_WRITE }, imm);
        self.put(wqe::remote(to.addr, to.rkey));
        self
    }

    #[inline(always)]
    fn read(mut self, head: &Head, from: &RemoteSlice) -> Self {
        self.start(head, opcode::RDMA_READ, None);
        self.put(wqe::remote(from.addr, from.rkey));
        self
    }

    #[inline(always)]
    fn cmp_swp(self, head: &Head, at: &RemoteU64, compare: u64, swap: u64) -> Self {
        self.atomic(head, opcode::ATOMIC_CS, at, swap, compare)
    }

    #[inline(always)]
    fn fetch_add(self, head: &Head, at: &RemoteU64, add: u64) -> Self {
        self.atomic(head, opcode::ATOMIC_FA, at, add, 0)
    }

    fn local_inv(mut self, head: &Head, rkey: u32) -> Result<Written, PostError> {
        self.start(head, opcode::UMR, Some(rkey));
        self.update_key(&wqe::invalidate())
    }

    fn bind_mw(mut self, head: &Head, bind: &sys::ibv_send_wr_u2_bind_mw) -> Result<Written, PostError> {
        let sys::ibv_send_wr_u2_bind_mw { mw, rkey, bind_info } = *bind;
        let sys::ibv_mw_bind_info { mr, addr, length, mw_access_flags: access } = bind_info;
        // SAFETY: window and region are alive until the request was posted.
        let (old, lkey) = unsafe { ((*mw).rkey, (*mr).lkey) };
        self.start(head, opcode::UMR, Some(old));
        self.note = wc::BIND;
        let zero_based = access & sys::IBV_ACCESS_ZERO_BASED != 0;
        // no longer than mlx5's windows can be, which `bind_mw` looks at
        let to = wqe::Binding { addr, len: length as u32, lkey, rkey, access, zero_based };
        let segments = wqe::bind(self.queue.number, &to);
        self.update_key(&segments)
    }

    #[inline(always)]
    fn ud(mut self, to: &Address<'_>) -> Self {
        // a handle of this context has one
        let address = to.ah.mlx5_address().unwrap_or(&AddressBytes::NOWHERE);
        for segment in wqe::datagram(address, to.qpn, to.qkey) {
            self.put(segment);
        }
        self
    }

    #[inline(always)]
    fn slice(mut self, data: &MrSlice<'_>) -> Result<Written, PostError> {
        self.reserve(1)?;
        let sys::ibv_sge { addr, length, lkey } = *data.as_sge();
        if length == 0 {
            unlikely();
            return Ok(self.finish::<false>());
        }
        self.put(wqe::data_of_one(addr, length, lkey));
        Ok(self.finish::<false>())
    }

    #[inline(always)]
    fn slices(mut self, data: &[MrSlice<'_>]) -> Result<Written, PostError> {
        self.reserve(data.len())?;
        for sge in MrSlice::as_sges(data) {
            if sge.length != 0 {
                self.put(wqe::data(sge.addr, sge.length, sge.lkey));
            }
        }
        Ok(self.finish::<false>())
    }

    #[inline(always)]
    fn inline(mut self, data: &[u8]) -> Result<Written, PostError> {
        const HEADER: usize = size_of::<u32>();
        let room = (PER_BLOCK * SEGMENT).saturating_sub(self.units * SEGMENT + HEADER);
        // so many are allowed on every queue pair
        let room = room.min(SHORT_INLINE);
        // the lengths that are copied in one go are looked for first
        if matches!(data.len(), 8..=16) && room >= 16 {
            // SAFETY: as below.
            unsafe { self.block.put_inline_8_to_16(self.units, wqe::inline_header(data.len() as u32), data) };
            self.units = (self.units * SEGMENT + HEADER + data.len()).div_ceil(SEGMENT);
            return Ok(self.finish::<true>());
        }
        if data.len().wrapping_sub(1) < room {
            // SAFETY: there is room for a block, so it is ours, and it all goes into that.
            unsafe { self.block.put_inline(self.units, wqe::inline_header(data.len() as u32), data) };
            self.units = (self.units * SEGMENT + HEADER + data.len()).div_ceil(SEGMENT);
            return Ok(self.finish::<true>());
        }
        let Self { queue, block, head, opcode, imm, units, .. } = self;
        let rest = Rest::new(opcode, units, head.flags, imm);
        if inline_long::<ALONE, FENCED>(queue, data, head.id, rest) {
            Ok(Written { block })
        } else {
            Err(PostError::QueueFull)
        }
    }
}

/// What else a request with long inline data is, in one register: opcode, segments so far, flags, immediate data.
#[derive(Clone, Copy)]
struct Rest(u64);

impl Rest {
    #[inline(always)]
    fn new(opcode: u8, units: usize, flags: u32, imm: u32) -> Self {
        Self(
            u64::from(opcode)
                | (units as u64 & 0xff) << 8
                | u64::from(flags & 0xffff) << 16
                | u64::from(imm) << 32,
        )
    }

    fn parts(self) -> (u8, usize, u32, u32) {
        (self.0 as u8, (self.0 >> 8) as usize & 0xff, (self.0 >> 16) as u32 & 0xffff, (self.0 >> 32) as u32)
    }
}

/// Finishes a request with inline data that does not go into its first block, or none. A function of its own, that is
/// given numbers: so the short way saves no registers, and keeps nothing in memory.
#[cold]
#[inline(never)]
fn inline_long<const ALONE: bool, const FENCED: bool>(
    queue: &mut SendQueue,
    data: &[u8],
    id: u64,
    rest: Rest,
) -> bool {
    let (opcode, units, flags, imm) = rest.parts();
    let (ring, index) = (queue.ring, queue.producer.head());
    let block = ring.block(index);
    let head = Head { id, flags };
    let mut writer = Writer::<ALONE, FENCED> { queue, ring, block, index, head, opcode, imm, note: 0, units };
    if !data.is_empty() {
        let units = wqe::inline_units(data.len());
        if writer.reserve(units).is_err() {
            return false;
        }
        // SAFETY: there is room, so the slots are ours.
        unsafe { ring.put_inline(writer.offset(), wqe::inline_header(data.len() as u32), data) };
        writer.units += units;
    }
    writer.finish::<false>();
    true
}

impl SendQueue {
    #[inline(always)]
    pub(super) fn write<'a, T: Transport, R: SendRequest<'a, T>, const ALONE: bool>(
        &mut self,
        limits: &Limits,
        request: &R,
    ) -> Result<Written, PostError> {
        request.check(limits)?;
        if !self.producer.knows_room(1) {
            unlikely();
            if !self.has_room(1) {
                return Err(PostError::QueueFull);
            }
            if self.fence == Fence::Next {
                // SAFETY: just checked.
                let written = unsafe { request.encode(Writer::<ALONE, true>::new(self)) };
                // the next one shall come here again, whether something came of this one or not
                self.producer.forget_room();
                return written;
            }
        }
        // SAFETY: just checked.
        unsafe { request.encode(Writer::<ALONE, false>::new(self)) }
    }

    /// Whether `slots` more can be filled.
    #[inline(always)]
    fn has_room(&mut self, slots: u32) -> bool {
        self.producer.has_room(slots, &self.lanes.send)
    }

    /// Takes back what was pushed since `first`.
    #[inline(always)]
    pub(super) fn roll_back(&mut self, first: u32) {
        self.producer.roll_back(first);
        if self.fence != Fence::Never {
            // what comes now may be what comes after an update
            self.fence = Fence::Next;
            self.producer.forget_room();
        }
    }

    /// Tells the device how far the ring is filled.
    #[inline(always)]
    pub(super) fn tell(&self, next: u32) {
        barrier::wqe_before_record();
        self.record.store::<{ qp_record::SEND }>(next & 0xffff);
        barrier::record_before_register();
    }

    /// Rings by the first word of the last WQE.
    #[inline(always)]
    pub(super) fn ring_by_word(&mut self, last: Block) {
        // SAFETY: just written.
        let word = unsafe { last.first_word() };
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
        self.send.write::<T, R, true>(limits, request)?;
        // SAFETY: it is posted.
        unsafe { request.posted() };
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
        let mut batch = Batch::<T>::new(self, limits);
        for request in requests {
            batch.encode(request)?;
        }
        batch.submit();
        Ok(())
    }

    /// Posts receives with one doorbell record; all, or none.
    #[inline(always)]
    pub(crate) fn post_recv<'a, D: Scatter<'a>>(
        &mut self,
        limits: &Limits,
        requests: &[Recv<D>],
    ) -> Result<(), PostError> {
        let queue = &mut self.recv;
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        if !queue.producer.has_room(count, &queue.lanes.recv) {
            return Err(PostError::QueueFull);
        }
        let (ring, stride) = (queue.ring, queue.stride);
        let next = queue.producer.push_each(requests, |index, request| {
            let Recv { id, into } = request;
            into.check_recv(limits)?;
            let start = index as usize * stride;
            put_list(MrSlice::as_sges(into.slices()), stride, |at, segment| {
                // SAFETY: there is room, so the slot is ours; a request has no more elements than its WQE.
                unsafe { ring.put(start + at, segment) };
            });
            Ok(*id)
        })?;
        barrier::wqe_before_record();
        queue.record.store::<{ qp_record::RECV }>(next & 0xffff);
        Ok(())
    }
}

/// Makes a receive's list of elements, of which `len` bytes are to be put somewhere: 16 by 16, at so many bytes from
/// the start.
#[inline(always)]
pub(super) fn put_list(sges: &[sys::ibv_sge], len: usize, put: impl Fn(usize, Segment)) {
    if let [one] = sges {
        if one.length != 0 {
            put(0, wqe::data(one.addr, one.length, one.lkey));
            if len > SEGMENT {
                put(SEGMENT, wqe::END_OF_LIST);
            }
            return;
        }
    }
    let mut at = 0;
    for sge in sges {
        if sge.length != 0 {
            put(at, wqe::data(sge.addr, sge.length, sge.lkey));
            at += SEGMENT;
        }
    }
    if at < len {
        put(at, wqe::END_OF_LIST);
    }
}
