//! The joint between requests and backends.

use ibv_sys as sys;

use super::error::PostError;
use super::request::Address;
use crate::mr::{MrSlice, RemoteSlice, RemoteU64};

/// What every request carries, in the form in which an `ibv_qp_ex` has it: where a request lies in memory, all of it is
/// one copy, if it is given by reference.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Head {
    /// `wr_id`.
    pub id: u64,
    /// `enum ibv_send_flags`.
    pub flags: u32,
}

const _: () = {
    use std::mem::offset_of;
    const fn same_distance(ours: usize, theirs: usize) -> bool {
        ours == theirs - offset_of!(sys::ibv_qp_ex, wr_id)
    }
    assert!(same_distance(offset_of!(Head, flags), offset_of!(sys::ibv_qp_ex, wr_flags)));
    assert!(same_distance(size_of::<Head>(), offset_of!(sys::ibv_qp_ex, wr_atomic_cmp_swp)));
    assert!(offset_of!(Head, id) == 0);
};

/// What a backend must be able to write, in the order: one operation, [`ud`](Self::ud) on UD, one of the data calls.
/// What concerns windows has no data, and is one call.
///
/// Each step takes the writer and gives it back, so that nothing is written twice; [`Done`](Self::Done) proves that
/// the data came last. Elements and inline bytes are in the request, or what that points to, and may be read while it
/// is there. It was checked against the queue pair's [`Limits`] before; what remains to fail is a list's own room.
/// After an error nothing of the request may reach the device.
pub trait Encode: Sized {
    /// What a complete request leaves behind.
    type Done;

    /// `IBV_WR_SEND`, or `IBV_WR_SEND_WITH_IMM`.
    fn send(self, head: &Head, imm: Option<u32>) -> Self;
    /// `IBV_WR_SEND_WITH_INV`.
    fn send_inv(self, head: &Head, rkey: u32) -> Self;
    /// `IBV_WR_RDMA_WRITE`, or `IBV_WR_RDMA_WRITE_WITH_IMM`.
    fn write(self, head: &Head, to: &RemoteSlice, imm: Option<u32>) -> Self;
    /// `IBV_WR_RDMA_READ`.
    fn read(self, head: &Head, from: &RemoteSlice) -> Self;
    /// `IBV_WR_ATOMIC_CMP_AND_SWP`.
    fn cmp_swp(self, head: &Head, at: &RemoteU64, compare: u64, swap: u64) -> Self;
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
    fn fetch_add(self, head: &Head, at: &RemoteU64, add: u64) -> Self;

    /// `IBV_WR_LOCAL_INV`.
    fn local_inv(self, head: &Head, rkey: u32) -> Result<Self::Done, PostError>;
    /// `IBV_WR_BIND_MW`, of a window of type 2: it will have the key in `bind`, and has the one in its C object.
    fn bind_mw(self, head: &Head, bind: &sys::ibv_send_wr_u2_bind_mw) -> Result<Self::Done, PostError>;

    /// Where a datagram goes.
    fn ud(self, to: &Address<'_>) -> Self;

    /// One element.
    fn slice(self, data: &MrSlice<'_>) -> Result<Self::Done, PostError>;
    /// Several elements, or none.
    fn slices(self, data: &[MrSlice<'_>]) -> Result<Self::Done, PostError>;
    /// Bytes to be copied into the request.
    fn inline(self, data: &[u8]) -> Result<Self::Done, PostError>;
}

/// What a post needs of a queue pair: kept together, and at hand.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The context, which address handles and windows must be of.
    pub context: *mut sys::ibv_context,
    /// Which operations it has (`enum ibv_qp_create_send_ops_flags`). Those that are every device's are not looked at.
    pub ops: sys::ibv_qp_create_send_ops_flags,
    /// Elements of a send request.
    pub max_send_sge: u32,
    /// Elements of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data, in the form that they are compared in.
    pub max_inline: usize,
}

impl Limits {
    #[inline(always)]
    pub(crate) fn send_sges(&self, asked: usize) -> Result<(), PostError> {
        if asked <= self.max_send_sge as usize {
            Ok(())
        } else {
            Err(PostError::TooManySges { max: self.max_send_sge })
        }
    }

    #[inline(always)]
    pub(crate) fn recv_sges(&self, asked: usize) -> Result<(), PostError> {
        if asked <= self.max_recv_sge as usize {
            Ok(())
        } else {
            Err(PostError::TooManySges { max: self.max_recv_sge })
        }
    }

    #[inline(always)]
    pub(crate) fn inline(&self, asked: usize) -> Result<(), PostError> {
        if asked <= self.max_inline {
            Ok(())
        } else {
            // made of 32 bits
            Err(PostError::InlineTooLong { max: self.max_inline as u32 })
        }
    }

    #[inline(always)]
    pub(crate) fn op(&self, op: sys::ibv_qp_create_send_ops_flags) -> Result<(), PostError> {
        if self.ops & op != 0 { Ok(()) } else { Err(PostError::Unsupported) }
    }

    /// A provider takes any `ibv_mw` for one of its own.
    #[inline(always)]
    pub(crate) fn window(&self, context: *mut sys::ibv_context) -> Result<(), PostError> {
        if context == self.context { Ok(()) } else { Err(PostError::OtherContext) }
    }

    /// A provider takes any `ibv_ah` for one of its own, so another context's must not get there.
    #[inline(always)]
    pub(crate) fn address(&self, to: &Address<'_>) -> Result<(), PostError> {
        if to.ah.context_ptr() == self.context { Ok(()) } else { Err(PostError::OtherContext) }
    }
}
