//! What is recorded: plain copies of what the functions were given.

use ibv_sys as sys;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An array of devices.
    DeviceList,
    /// A context.
    Context,
    /// A protection domain.
    Pd,
    /// A memory region.
    Mr,
    /// A completion channel.
    Channel,
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// An address handle.
    Ah,
    /// A memory window.
    Mw,
    /// A shared receive queue.
    Srq,
}

/// An object, by its kind and the order of its making among those of its kind and [`Hca`](crate::Hca), from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Its kind.
    pub kind: Kind,
    /// Its number.
    pub number: u32,
}

/// A call of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub verb: &'static str,
    /// What it made, destroyed or worked on, unless it failed to make it.
    pub object: Option<Id>,
    /// 0, or how it failed.
    pub errno: i32,
}

/// A call of `ibv_modify_qp`.
#[derive(Clone, Copy, Debug)]
pub struct Modify {
    /// The queue pair.
    pub qp_num: u32,
    /// Its state before.
    pub from: sys::ibv_qp_state,
    /// The attributes; those without their bit in the mask mean nothing.
    pub attr: sys::ibv_qp_attr,
    /// `enum ibv_qp_attr_mask`.
    pub mask: u32,
    /// 0, or how it failed.
    pub errno: i32,
}

/// A call of `ibv_reg_mr` or one of its variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The memory.
    pub addr: u64,
    /// Its length.
    pub length: usize,
    /// `enum ibv_access_flags`.
    pub access: u32,
}

/// `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Key.
    pub lkey: u32,
}

impl From<&sys::ibv_sge> for Sge {
    fn from(sge: &sys::ibv_sge) -> Self {
        Self { addr: sge.addr, length: sge.length, lkey: sge.lkey }
    }
}

/// `wr.rdma` of `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// `wr.atomic` of `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
    /// The value to compare with, or to add.
    pub compare_add: u64,
    /// The new value of a compare-and-swap; 0 for others.
    pub swap: u64,
}

/// `wr.ud` of `struct ibv_send_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdTo {
    /// The address handle.
    pub ah: Id,
    /// Queue pair number.
    pub qpn: u32,
    /// Q_Key.
    pub qkey: u32,
}

/// A bind of a memory window: `bind_mw` of `struct ibv_send_wr`, or `struct ibv_mw_bind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The window.
    pub mw: Id,
    /// Its key before.
    pub old_rkey: u32,
    /// Its key afterwards.
    pub rkey: u32,
    /// The region.
    pub mr: Id,
    /// Address of the part.
    pub addr: u64,
    /// Length of the part in bytes.
    pub length: u64,
    /// `enum ibv_access_flags`.
    pub access: u32,
}

/// A `struct ibv_send_wr`: the fields that its opcode and the queue pair's transport give a meaning, and no others
/// are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendWr {
    /// `wr_id`.
    pub wr_id: u64,
    /// `opcode`.
    pub opcode: sys::ibv_wr_opcode,
    /// `send_flags`.
    pub send_flags: u32,
    /// `imm_data` as it stands in memory, so in network order; of every request, since providers copy it unasked.
    pub imm_data: [u8; 4],
    /// The elements; of inline data too, whose address is 0 here and whose bytes are in `inline`.
    pub sges: Vec<Sge>,
    /// The bytes of inline data.
    pub inline: Vec<u8>,
    /// Of READ and WRITE.
    pub remote: Option<Remote>,
    /// Of atomics.
    pub atomic: Option<Atomic>,
    /// Of UD.
    pub ud: Option<UdTo>,
    /// `invalidate_rkey` of a SEND with invalidate, or a local invalidate; `imm_data` is 0 then.
    pub invalidate: Option<u32>,
    /// Of binds.
    pub bind: Option<Bind>,
}

/// A `struct ibv_recv_wr`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecvWr {
    /// `wr_id`.
    pub wr_id: u64,
    /// The elements.
    pub sges: Vec<Sge>,
}

/// A call of an `ibv_wr_*` function. An operation carries the queue pair's `wr_id` and `wr_flags` at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrCall {
    /// `ibv_wr_start`.
    Start,
    /// `ibv_wr_complete`.
    Complete,
    /// `ibv_wr_abort`.
    Abort,
    /// `ibv_wr_send`.
    Send {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
    },
    /// `ibv_wr_send_imm`.
    SendImm {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// In network order.
        imm: [u8; 4],
    },
    /// `ibv_wr_send_inv`.
    SendInv {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// The key.
        rkey: u32,
    },
    /// `ibv_wr_local_inv`.
    LocalInv {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// The key.
        rkey: u32,
    },
    /// `ibv_wr_bind_mw`.
    BindMw {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// What is bound.
        bind: Bind,
    },
    /// `ibv_wr_rdma_write`.
    Write {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// Where to.
        to: Remote,
    },
    /// `ibv_wr_rdma_write_imm`.
    WriteImm {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// Where to.
        to: Remote,
        /// In network order.
        imm: [u8; 4],
    },
    /// `ibv_wr_rdma_read`.
    Read {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// Where from.
        from: Remote,
    },
    /// `ibv_wr_atomic_cmp_swp`.
    CmpSwp {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// The operands.
        atomic: Atomic,
    },
    /// `ibv_wr_atomic_fetch_add`.
    FetchAdd {
        /// `wr_id`.
        id: u64,
        /// `wr_flags`.
        flags: u32,
        /// The operands.
        atomic: Atomic,
    },
    /// `ibv_wr_set_ud_addr`.
    SetUdAddr(UdTo),
    /// `ibv_wr_set_sge`.
    SetSge(Sge),
    /// `ibv_wr_set_sge_list`.
    SetSgeList(Vec<Sge>),
    /// `ibv_wr_set_inline_data`.
    SetInline(Vec<u8>),
}

/// How many objects of each kind are alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the number of what it is called")]
pub struct Live {
    pub lists: u32,
    pub contexts: u32,
    pub pds: u32,
    pub mrs: u32,
    pub channels: u32,
    pub cqs: u32,
    pub qps: u32,
    pub ahs: u32,
    pub mws: u32,
    pub srqs: u32,
}

impl Live {
    pub(crate) fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::DeviceList => &mut self.lists,
            Kind::Context => &mut self.contexts,
            Kind::Pd => &mut self.pds,
            Kind::Mr => &mut self.mrs,
            Kind::Channel => &mut self.channels,
            Kind::Cq => &mut self.cqs,
            Kind::Qp => &mut self.qps,
            Kind::Ah => &mut self.ahs,
            Kind::Mw => &mut self.mws,
            Kind::Srq => &mut self.srqs,
        } += 1;
    }
}

/// How a post is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostFault {
    /// Requests that are posted before one is refused.
    pub accept: usize,
    /// What the call returns.
    pub errno: i32,
    /// What becomes of `bad_wr`.
    pub bad: Bad,
}

/// What a refusing provider does with `bad_wr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Points it at the request that was refused.
    Nth,
    /// Sets it to null.
    Null,
    /// Leaves it as it was.
    Untouched,
    /// Points it at something else.
    Foreign,
    /// Points it into the middle of the refused request.
    Misaligned,
    /// Points it just past the last request, if they stand in one array.
    PastTheEnd,
}
