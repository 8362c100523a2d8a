//! Direct verbs: the only calls of libmlx5 for the direct path.
//!
//! # Safety
//!
//! Objects passed to the calls are alive and of libmlx5, which [`check_mlx5`] says of their context; structs that the
//! calls fill are ours. `mlx5dv_init_obj` hands a queue over: from then on the library's own post and poll are not
//! called on it any more.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use ibv_sys as sys;

use super::bits::{SEGMENT, av, cq_record};
use super::cqe_ring::CqeRing;
use super::mmio::{ArmRegister, BlueFlame, Record, WqeRing};
use super::wqe::AddressBytes;
use crate::context::Context;
use crate::error::{Error, Result, VerbError};
use crate::raw::{Raw, check};

/// An error unless libmlx5 drives `ctx`'s device.
pub(super) fn check_mlx5(ctx: &Context) -> Result<()> {
    if ctx.provider().is_mlx5() {
        return Ok(());
    }
    let asked = format!("{}: the direct path drives mlx5 devices alone, `Basic` all", ctx.device_name());
    Err(VerbError::new("mlx5dv_is_supported", libc::EOPNOTSUPP, asked).into())
}

/// An error if libmlx5 would make a queue whose WQEs have to be signed: it asks whether `switch` is set, be it to 0.
pub(super) fn check_unsigned(switch: &'static str) -> Result<()> {
    match std::env::var_os(switch) {
        None => Ok(()),
        Some(_) => Err(Error::invalid(switch, "set", "unset: signed WQEs are not written here")),
    }
}

fn strange(what: &'static str) -> Error {
    VerbError::new("mlx5dv_init_obj", libc::EOPNOTSUPP, format!("{what} of an unknown form")).into()
}

fn init(obj: &mut sys::mlx5dv_obj, kind: sys::mlx5dv_obj_type) -> Result<()> {
    // SAFETY: the callers fill the members of `kind` with a living object and room for the answer.
    let result = unsafe { sys::mlx5dv_init_obj(obj, kind.into()) };
    check("mlx5dv_init_obj", result, String::new)
}

/// A completion queue's ring, record and register.
#[derive(Clone, Copy, Debug)]
pub(super) struct CqParts {
    pub(super) ring: CqeRing,
    pub(super) record: Record,
    pub(super) register: ArmRegister,
    pub(super) number: u32,
}

/// `mlx5dv_query_device`—The short form that compressed completions of this device shall have. Either is read here: the
/// hash and the checksum are of packets that queue pairs of ours do not get.
pub(super) fn short_form(ctx: &Context) -> Result<u8> {
    let mask = u64::from(sys::MLX5DV_CONTEXT_MASK_CQE_COMPRESION);
    let mut device = sys::mlx5dv_context { comp_mask: mask, ..Default::default() };
    // SAFETY: the context is open and of libmlx5, and the struct is ours.
    let result = unsafe { sys::mlx5dv_query_device(ctx.as_ptr(), &raw mut device) };
    check("mlx5dv_query_device", result, String::new)?;
    let caps = device.cqe_comp_caps;
    let known = [sys::MLX5DV_CQE_RES_FORMAT_HASH, sys::MLX5DV_CQE_RES_FORMAT_CSUM];
    let can = device.comp_mask & mask != 0 && caps.max_num != 0;
    let format = known.into_iter().find(|format| can && caps.supported_format & format != 0);
    format.and_then(|format| u8::try_from(format).ok()).ok_or_else(|| {
        VerbError::new("mlx5dv_create_cq", libc::EOPNOTSUPP, "the device does not compress completions")
            .into()
    })
}

/// `mlx5dv_create_cq`—A completion queue of entries of `entry_size` bytes, `compressed` in the short form of that
/// number.
///
/// # Safety
///
/// `channel` is null, or a completion channel of the same context that outlives the queue.
pub(super) unsafe fn create_cq(
    ctx: &Context,
    entries: u32,
    entry_size: u16,
    compressed: Option<u8>,
    cq_context: *mut std::ffi::c_void,
    channel: *mut sys::ibv_comp_channel,
    comp_vector: u32,
) -> Result<Raw<sys::ibv_cq>> {
    let mut attr =
        sys::ibv_cq_init_attr_ex { cqe: entries, cq_context, channel, comp_vector, ..Default::default() };
    let mut dv = sys::mlx5dv_cq_init_attr {
        comp_mask: sys::MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE.into(),
        cqe_size: entry_size,
        ..Default::default()
    };
    if let Some(format) = compressed {
        dv.comp_mask |= u64::from(sys::MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE);
        dv.cqe_comp_res_format = format;
    }
    // SAFETY: the context is open and of libmlx5; the structs are only read.
    let cq = unsafe { sys::mlx5dv_create_cq(ctx.as_ptr(), &raw mut attr, &raw mut dv) };
    // an ibv_cq_ex starts with its ibv_cq (`ibv_cq_ex_to_cq` is this cast)
    // SAFETY: `cq` is new, or null with errno set.
    unsafe { Raw::new("mlx5dv_create_cq", cq.cast(), || format!("{entries} entries of {entry_size} bytes")) }
}

/// `mlx5dv_init_obj`—Takes a new completion queue over.
///
/// # Safety
///
/// The parts are used only while `cq` is alive; no queue pair is attached to it yet.
pub(super) unsafe fn take_cq(cq: &Raw<sys::ibv_cq>) -> Result<CqParts> {
    let mut out = sys::mlx5dv_cq::default();
    let mut obj = sys::mlx5dv_obj::default();
    obj.cq.in_ = cq.as_ptr();
    obj.cq.out = &raw mut out;
    init(&mut obj, sys::MLX5DV_OBJ_CQ)?;
    let strange = || strange("a completion queue");
    let buf = NonNull::new(out.buf.cast()).ok_or_else(strange)?;
    let record = NonNull::new(out.dbrec).ok_or_else(strange)?;
    let page = NonNull::new(out.cq_uar.cast::<u8>()).ok_or_else(strange)?;
    // SAFETY: a ring that nothing completes to yet; a record and a register page that live as long as the queue.
    unsafe {
        let ring = CqeRing::new(buf, out.cqe_cnt, out.cqe_size).ok_or_else(strange)?;
        let register = ArmRegister::new(page.add(cq_record::DOORBELL).cast());
        Ok(CqParts { ring, record: Record::new(record), register, number: out.cqn })
    }
}

/// How many completion events of this queue were acknowledged: all that were got, since each is at once.
///
/// # Safety
///
/// `cq` is alive.
pub(super) unsafe fn events_of(cq: NonNull<sys::ibv_cq>) -> u32 {
    // SAFETY: a field of the living queue, which C writes under a lock and Rust reads atomically.
    unsafe {
        let field = &raw mut (*cq.as_ptr()).comp_events_completed;
        std::sync::atomic::AtomicU32::from_ptr(field).load(std::sync::atomic::Ordering::Acquire)
    }
}

/// A thread domain, and the parent domain of it and a protection domain: a register of one's own.
#[derive(Debug)]
pub(crate) struct OwnDomain {
    // the parent domain goes before its thread domain
    parent: Raw<sys::ibv_pd>,
    _thread: Raw<sys::ibv_td>,
}

impl OwnDomain {
    /// `ibv_alloc_td`, `ibv_alloc_parent_domain`.
    ///
    /// # Safety
    ///
    /// `pd` is alive, of `ctx`, and outlives this.
    pub(super) unsafe fn new(ctx: &Context, pd: *mut sys::ibv_pd) -> Result<Self> {
        let mut attr = sys::ibv_td_init_attr::default();
        // SAFETY: the context is open; `attr` is only read.
        let td = unsafe { sys::ibv_alloc_td(ctx.as_ptr(), &raw mut attr) };
        // SAFETY: `td` is new, or null with errno set.
        let thread = unsafe { Raw::new("ibv_alloc_td", td, String::new) }?;
        let mut attr = sys::ibv_parent_domain_init_attr { pd, td: thread.as_ptr(), ..Default::default() };
        // SAFETY: the context is open, and both domains are of it; `attr` is only read.
        let parent = unsafe { sys::ibv_alloc_parent_domain(ctx.as_ptr(), &raw mut attr) };
        // SAFETY: `parent` is new, or null with errno set.
        let parent = unsafe { Raw::new("ibv_alloc_parent_domain", parent, String::new) }?;
        Ok(Self { parent, _thread: thread })
    }
}

/// What a queue pair shall be.
pub(super) struct QpWanted {
    pub(super) kind: sys::ibv_qp_type,
    pub(super) send_cq: *mut sys::ibv_cq,
    pub(super) recv_cq: *mut sys::ibv_cq,
    /// Null if it has receives of its own.
    pub(super) srq: *mut sys::ibv_srq,
    pub(super) cap: sys::ibv_qp_cap,
    pub(super) send_ops: u32,
    pub(super) signal_all: bool,
    /// Whether short data shall come in completions.
    pub(super) scatters: bool,
    pub(super) context: *mut c_void,
}

/// `mlx5dv_create_qp`—A queue pair in a domain of its own; null with errno set if there is none. Gives its sizes too.
///
/// # Safety
///
/// The completion queues and the shared receive queue are alive, of `ctx`, and outlive it; so does `domain`.
pub(super) unsafe fn create_qp(
    ctx: &Context,
    domain: &OwnDomain,
    wanted: &QpWanted,
) -> (*mut sys::ibv_qp, sys::ibv_qp_cap) {
    let mut attr = sys::ibv_qp_init_attr_ex {
        qp_context: wanted.context,
        send_cq: wanted.send_cq,
        recv_cq: wanted.recv_cq,
        srq: wanted.srq,
        cap: wanted.cap,
        qp_type: wanted.kind,
        sq_sig_all: wanted.signal_all.into(),
        pd: domain.parent.as_ptr(),
        comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags: wanted.send_ops.into(),
        ..Default::default()
    };
    let mut dv = sys::mlx5dv_qp_init_attr {
        comp_mask: sys::MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS.into(),
        // allowed, not only left as it is: else it depends on the environment, and on whether all sends are signaled
        create_flags: if wanted.scatters {
            sys::MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE
        } else {
            sys::MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE
        },
        ..Default::default()
    };
    // SAFETY: by the caller's promise; the structs are ours.
    let qp = unsafe { sys::mlx5dv_create_qp(ctx.as_ptr(), &raw mut attr, &raw mut dv) };
    (qp, attr.cap)
}

/// A queue pair's rings, record and register.
#[derive(Debug)]
pub(crate) struct QpParts {
    pub(super) send: Option<WqeRing>,
    pub(super) send_blocks: u32,
    pub(super) recv: Option<WqeRing>,
    pub(super) recv_count: u32,
    pub(super) recv_stride: u32,
    pub(super) record: Record,
    pub(super) register: BlueFlame,
}

/// `mlx5dv_init_obj`—Takes a new queue pair over.
///
/// # Safety
///
/// `qp` is alive and was made by [`create_qp`]; the parts are used only while it is.
pub(super) unsafe fn take_qp(qp: NonNull<sys::ibv_qp>) -> Result<QpParts> {
    let mut out = sys::mlx5dv_qp::default();
    let mut obj = sys::mlx5dv_obj::default();
    obj.qp.in_ = qp.as_ptr();
    obj.qp.out = &raw mut out;
    init(&mut obj, sys::MLX5DV_OBJ_QP)?;
    let strange = || strange("a queue pair");
    let record = NonNull::new(out.dbrec).ok_or_else(strange)?;
    let register = NonNull::new(out.bf.reg.cast()).ok_or_else(strange)?;
    // SAFETY: rings, record and register live as long as the queue pair, and the register is its own: it was made in
    // a thread domain of its own.
    unsafe {
        Ok(QpParts {
            send: ring(out.sq.buf, out.sq.wqe_cnt, out.sq.stride).ok_or_else(strange)?,
            send_blocks: out.sq.wqe_cnt,
            recv: ring(out.rq.buf, out.rq.wqe_cnt, out.rq.stride).ok_or_else(strange)?,
            recv_count: out.rq.wqe_cnt,
            recv_stride: out.rq.stride,
            record: Record::new(record),
            register: BlueFlame::new(register, out.bf.size).ok_or_else(strange)?,
        })
    }
}

/// A shared receive queue's WQEs and record.
#[derive(Clone, Copy, Debug)]
pub(super) struct SrqParts {
    pub(super) ring: WqeRing,
    /// Slots in its chain: the first so many.
    pub(super) slots: u32,
    /// Bytes from one to the next.
    pub(super) stride: u32,
    pub(super) record: Record,
}

/// `mlx5dv_init_obj`—Takes a new shared receive queue over.
///
/// # Safety
///
/// `srq` is alive, of libmlx5, and nothing was posted on it; the parts are used only while it is alive.
pub(super) unsafe fn take_srq(srq: NonNull<sys::ibv_srq>) -> Result<SrqParts> {
    let mut out = sys::mlx5dv_srq::default();
    let mut obj = sys::mlx5dv_obj::default();
    obj.srq.in_ = srq.as_ptr();
    obj.srq.out = &raw mut out;
    init(&mut obj, sys::MLX5DV_OBJ_SRQ)?;
    let strange = || strange("a shared receive queue");
    let record = NonNull::new(out.dbrec).ok_or_else(strange)?;
    // in the beginning the chain leads through all slots from the head to the tail; behind that are spare ones
    let slots = out.tail.checked_add(1).filter(|slots| *slots >= 2 && out.head == 0).ok_or_else(strange)?;
    if !out.stride.is_power_of_two() || (out.stride as usize) < 2 * SEGMENT {
        return Err(strange());
    }
    // SAFETY: WQEs and record live as long as the queue.
    unsafe {
        let ring = ring(out.buf, slots, out.stride).flatten().ok_or_else(strange)?;
        Ok(SrqParts { ring, slots, stride: out.stride, record: Record::new(record) })
    }
}

/// A ring of WQEs, or that there is none; `None` if it has a form that is not known here.
///
/// # Safety
///
/// As [`WqeRing::new`].
unsafe fn ring(buf: *mut std::ffi::c_void, count: u32, stride: u32) -> Option<Option<WqeRing>> {
    if count == 0 {
        return Some(None);
    }
    let len = (count as usize).checked_mul(stride as usize)?;
    if count > 1 << 15 || !count.is_power_of_two() {
        return None;
    }
    // SAFETY: by the caller's promise.
    unsafe { WqeRing::new(NonNull::new(buf.cast())?, len) }.map(Some)
}

/// `mlx5dv_init_obj`—The address vector of a handle, if it is one of libmlx5's.
///
/// # Safety
///
/// `ah` is alive, and of `ctx`.
pub(crate) unsafe fn address_of(ctx: &Context, ah: *mut sys::ibv_ah) -> Option<AddressBytes> {
    if !ctx.provider().is_mlx5() {
        return None;
    }
    let mut out = sys::mlx5dv_ah { av: null_mut(), comp_mask: 0 };
    let mut obj = sys::mlx5dv_obj::default();
    obj.ah.in_ = ah;
    obj.ah.out = &raw mut out;
    init(&mut obj, sys::MLX5DV_OBJ_AH).ok()?;
    let av = NonNull::new(out.av)?;
    // SAFETY: the handle's address vector, of 48 bytes, which the library wrote when it was made.
    Some(AddressBytes(unsafe { av.cast::<[u64; av::LEN / 8]>().read_unaligned() }))
}

const _: () = assert!(size_of::<sys::mlx5_wqe_av>() == av::LEN && size_of::<c_int>() == 4);
