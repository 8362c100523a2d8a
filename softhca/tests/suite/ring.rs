//! What direct verbs tell and make: the memory of queue pairs, and the rings of completion queues, for tests that look
//! at the entries themselves.
//!
//! # Safety
//!
//! C calls with objects that the test made and holds. A ring's address and size come from `mlx5dv_init_obj`.
#![expect(unsafe_code, reason = "reads and writes a completion queue's ring")]
#![allow(clippy::borrow_as_ptr, clippy::unnecessary_cast, reason = "arguments of C functions")]

use crate::common::*;
use ibv_sys::*;

const COMPRESSED: u8 = 3;

/// A completion queue of `n` entries of `size` bytes; null if it is refused.
pub(crate) fn create(
    d: &Dev,
    n: u32,
    size: u16,
    format: Option<u8>,
    ch: *mut ibv_comp_channel,
) -> *mut ibv_cq {
    let mut a = ibv_cq_init_attr_ex::default();
    a.cqe = n;
    a.channel = ch;
    let mut m = mlx5dv_cq_init_attr::default();
    m.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE as _;
    m.cqe_size = size;
    if let Some(format) = format {
        m.comp_mask |= MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE as u64;
        m.cqe_comp_res_format = format;
    }
    // SAFETY: objects that the test holds (see the module), and attributes of this function.
    unsafe { mlx5dv_create_cq(d.ctx, &mut a, &mut m).cast() }
}

/// What `mlx5dv_query_device` says to a question for `mask`.
pub(crate) fn capabilities(d: &Dev, mask: u64) -> mlx5dv_context {
    let mut c = mlx5dv_context::default();
    c.comp_mask = mask;
    // SAFETY: objects that the test holds (see the module).
    assert_eq!(unsafe { mlx5dv_query_device(d.ctx, &mut c) }, 0);
    c
}

/// Rings, record and register of a queue pair.
pub(crate) fn memory(q: &Qp) -> mlx5dv_qp {
    let mut dv = mlx5dv_qp::default();
    let mut o = mlx5dv_obj::default();
    o.qp.in_ = q.qp;
    o.qp.out = &mut dv;
    // SAFETY: a queue pair that the test holds (see the module), and room for what is said of it.
    assert_eq!(unsafe { mlx5dv_init_obj(&mut o, MLX5DV_OBJ_QP as _) }, 0);
    dv
}

/// A queue's ring, as far as it was looked at.
pub(crate) struct Ring {
    dv: mlx5dv_cq,
    seen: u32,
}

/// Ring and record of a shared receive queue.
pub(crate) fn shared_memory(srq: *mut ibv_srq) -> mlx5dv_srq {
    let mut dv = mlx5dv_srq::default();
    let mut o = mlx5dv_obj::default();
    o.srq.in_ = srq;
    o.srq.out = &mut dv;
    // SAFETY: a queue that the test holds (see the module), and room for what is said of it.
    assert_eq!(unsafe { mlx5dv_init_obj(&mut o, MLX5DV_OBJ_SRQ as _) }, 0);
    dv
}

impl Ring {
    pub(crate) fn of(cq: *mut ibv_cq) -> Self {
        let mut dv = mlx5dv_cq::default();
        let mut o = mlx5dv_obj::default();
        o.cq.in_ = cq;
        o.cq.out = &mut dv;
        // SAFETY: a queue that the test holds (see the module), and room for what is said of it.
        assert_eq!(unsafe { mlx5dv_init_obj(&mut o, MLX5DV_OBJ_CQ as _) }, 0);
        Self { dv, seen: 0 }
    }

    /// The queue's number.
    pub(crate) fn number(&self) -> u32 {
        self.dv.cqn
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.dv.buf.cast()
    }

    /// The second half of an entry of 128 bytes, or a whole one of 64.
    fn entry(&self, i: u32) -> *mut u8 {
        let at = (i & (self.dv.cqe_cnt - 1)) * self.dv.cqe_size + (self.dv.cqe_size - 64);
        // SAFETY: in the ring, of `cqe_cnt` entries, a power of two, of `cqe_size` bytes.
        unsafe { self.dv.buf.cast::<u8>().add(at as usize) }
    }

    /// Its 64 bytes.
    pub(crate) fn get(&self, i: u32) -> [u8; 64] {
        // SAFETY: in the entry, which is mapped as long as the queue is there.
        std::array::from_fn(|k| unsafe { self.entry(i).add(k).read_volatile() })
    }

    fn owner(&self, i: u32) -> u8 {
        u8::from(i & self.dv.cqe_cnt != 0)
    }

    /// The format of the entry at place `i`: 1 and 2 if up to 32 or 64 bytes of data lie in it.
    pub(crate) fn format(&self, i: u32) -> u8 {
        self.get(i)[63] >> 2 & 3
    }

    /// The first half of an entry of 128 bytes.
    pub(crate) fn extra(&self, i: u32) -> [u8; 64] {
        assert_eq!(self.dv.cqe_size, 128);
        // SAFETY: the 64 bytes before the second half of an entry of 128.
        std::array::from_fn(|k| unsafe { self.entry(i).sub(64 - k).read_volatile() })
    }

    /// Replaces each session by the completions that it stands for. Gives how many each entry stood for.
    pub(crate) fn expand(&mut self) -> Vec<u32> {
        let mut sessions = Vec::new();
        loop {
            let title = self.get(self.seen);
            if title[63] >> 4 == 15 || title[63] & 1 != self.owner(self.seen) {
                return sessions;
            }
            let n = if title[63] >> 2 & 3 == COMPRESSED {
                u32::from_be_bytes([title[44], title[45], title[46], title[47]])
            } else {
                1
            };
            if n > 1 {
                // All arrays are read before anything is written.
                let places = (0..n).step_by(8).map(|k| self.get(self.seen + k.max(1)));
                let minis: Vec<[u8; 8]> = places
                    .flat_map(|a| a.chunks_exact(8).map(|m| m.try_into().unwrap()).collect::<Vec<_>>())
                    .collect();
                for (k, mini) in (0..n).zip(minis) {
                    let mut cqe = title;
                    cqe[44..48].copy_from_slice(&mini[4..8]);
                    if title[63] >> 4 == 0 {
                        cqe[60..62].copy_from_slice(&mini[0..2]);
                        cqe[56] = mini[2];
                    } else {
                        assert_eq!(mini[..4], [0; 4], "neither hash nor checksum");
                        let counter = u16::from_be_bytes([title[60], title[61]]).wrapping_add(k as u16);
                        cqe[60..62].copy_from_slice(&counter.to_be_bytes());
                    }
                    cqe[63] = title[63] & 0xf2 | self.owner(self.seen + k);
                    for (b, v) in cqe.iter().enumerate() {
                        // SAFETY: in the entry; the device gave it away when it wrote the title, and takes it back when
                        // the test has polled it.
                        unsafe { self.entry(self.seen + k).add(b).write_volatile(*v) };
                    }
                }
            }
            sessions.push(n);
            self.seen += n;
        }
    }
}
