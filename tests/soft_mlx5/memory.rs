//! A look into the memory of both sides' queues.
//!
//! # Safety
//!
//! libmlx5 tells address and size of what it made for an object. It is mapped as long as the object is, and each test
//! holds its objects for as long as it looks.
#![expect(unsafe_code, reason = "the Safety section above")]

use ibv::{Backend, CompletionQueue, CqKind, Transport, state, sys};

use super::rig::Qp;

/// What libmlx5 tells of an object of this kind: `name` says which, and where the answer goes.
fn told(kind: u32, name: impl FnOnce(&mut sys::mlx5dv_obj)) {
    let mut obj = sys::mlx5dv_obj::default();
    name(&mut obj);
    // SAFETY: the callers name an object that is there, of this kind, and have room for the answer.
    assert_eq!(unsafe { sys::mlx5dv_init_obj(&raw mut obj, kind.into()) }, 0);
}

/// Memory of a queue pair, as libmlx5 tells it.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) sq: *mut u8,
    pub(crate) blocks: usize,
    pub(crate) rq: *mut u8,
    pub(crate) rq_len: usize,
    pub(crate) receives: usize,
    pub(crate) record: *mut u32,
    pub(crate) register: *mut u8,
    pub(crate) register_size: usize,
}

impl Memory {
    pub(crate) fn of<T: Transport, S: state::State, B: Backend>(qp: &Qp<T, B, S>) -> Self {
        let mut out = sys::mlx5dv_qp::default();
        told(sys::MLX5DV_OBJ_QP, |obj| (obj.qp.in_, obj.qp.out) = (qp.as_ptr(), &raw mut out));
        Self {
            sq: out.sq.buf.cast(),
            blocks: out.sq.wqe_cnt as usize,
            rq: out.rq.buf.cast(),
            rq_len: (out.rq.wqe_cnt * out.rq.stride) as usize,
            receives: out.rq.wqe_cnt as usize,
            record: out.dbrec,
            register: out.bf.reg.cast(),
            register_size: out.bf.size as usize,
        }
    }

    /// A byte of the send queue, which goes round.
    pub(crate) fn send_byte(&self, at: usize) -> u8 {
        // SAFETY: in the ring of so many blocks of 64 bytes (see the module).
        unsafe { self.sq.add(at % (self.blocks * 64)).read_volatile() }
    }

    /// Makes one bit of it another one.
    pub(crate) fn spoil_send_bit(&self, bit: usize) {
        // SAFETY: as above; the device runs when the test lets it.
        unsafe {
            let byte = self.sq.add(bit / 8 % (self.blocks * 64));
            byte.write_volatile(byte.read_volatile() ^ 1 << (bit % 8));
        }
    }

    /// The receive queue.
    pub(crate) fn recv_ring(&self) -> Vec<u8> {
        // SAFETY: in the ring (see the module).
        (0..self.rq_len).map(|at| unsafe { self.rq.add(at).read_volatile() }).collect()
    }

    /// A byte of one half of the register.
    pub(crate) fn register_byte(&self, half: usize, at: usize) -> u8 {
        assert!(half < 2 && at < self.register_size);
        // SAFETY: in the register, of two halves of that size (see the module).
        unsafe { self.register.add(half * self.register_size + at).read_volatile() }
    }

    /// (receives, blocks).
    pub(crate) fn record(&self) -> (u32, u32) {
        // SAFETY: a record has two words.
        let word = |at| u32::from_be(unsafe { self.record.add(at).read_volatile() });
        (word(0), word(1))
    }

    pub(crate) fn clear(&self) {
        // SAFETY: the rings and the register, as long as they are (see the module); nothing is posted meanwhile.
        unsafe {
            self.sq.write_bytes(0, self.blocks * 64);
            self.rq.write_bytes(0, self.rq_len);
            self.register.write_bytes(0, 2 * self.register_size);
        }
    }
}

/// Memory of a shared receive queue, as libmlx5 tells it: of the slots that are in its chain.
#[derive(Clone, Copy)]
pub(crate) struct SharedMemory {
    buf: *mut u8,
    record: *mut u32,
    pub(crate) stride: usize,
    pub(crate) slots: u32,
}

impl SharedMemory {
    /// Nothing may have been posted yet.
    pub(crate) fn of(srq: *mut sys::ibv_srq) -> Self {
        let mut out = sys::mlx5dv_srq::default();
        told(sys::MLX5DV_OBJ_SRQ, |obj| (obj.srq.in_, obj.srq.out) = (srq, &raw mut out));
        Self { buf: out.buf.cast(), record: out.dbrec, stride: out.stride as usize, slots: out.tail + 1 }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots as usize * self.stride
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len());
        // SAFETY: in the ring (see the module).
        unsafe { self.buf.add(at).read_volatile() }
    }

    /// Receives posted.
    pub(crate) fn record(&self) -> u32 {
        // SAFETY: the queue's record (see the module).
        u32::from_be(unsafe { self.record.read_volatile() })
    }
}

/// Entries of a completion queue, as libmlx5 tells them.
pub(crate) struct Entries {
    buf: *mut u8,
    count: usize,
    size: usize,
}

impl Entries {
    pub(crate) fn of<K: CqKind>(cq: &CompletionQueue<'static, K>) -> Self {
        let mut out = sys::mlx5dv_cq::default();
        told(sys::MLX5DV_OBJ_CQ, |obj| (obj.cq.in_, obj.cq.out) = (cq.as_ptr(), &raw mut out));
        Self { buf: out.buf.cast(), count: out.cqe_cnt as usize, size: out.cqe_size as usize }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How long each is.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes of entry `index`, which goes round.
    fn bytes<const N: usize>(&self, index: usize, at: usize) -> *mut [u8; N] {
        assert!(at + N <= self.size);
        // SAFETY: in the ring of so many entries of this size (see the module).
        unsafe { self.buf.add(index % self.count * self.size + at).cast() }
    }

    pub(crate) fn get<const N: usize>(&self, index: usize, at: usize) -> [u8; N] {
        // SAFETY: in the entry (see the module).
        unsafe { self.bytes(index, at).read_volatile() }
    }

    /// Writes what the device would. It runs when the test lets it, and who polls reads what comes.
    pub(crate) fn put<const N: usize>(&self, index: usize, at: usize, value: [u8; N]) {
        // SAFETY: in the entry (see the module).
        unsafe { self.bytes(index, at).write_volatile(value) }
    }
}
