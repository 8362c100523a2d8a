//! The data path's functions in Rust beside their C originals: the same call must reach the provider.
//!
//! # Safety
//!
//! The functions get objects that exist and have the one function pointer which is called; that function only
//! looks at its arguments as numbers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};

use ibv_sys::*;

thread_local! {
    /// What the provider's function got.
    static GOT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Arguments and results: made from a number and read as one.
trait Word {
    fn make(number: u64) -> Self;
    fn word(&self) -> u64;
}

macro_rules! integers {
    ($($ty:ty)+) => {
        $(
            impl Word for $ty {
                fn make(number: u64) -> Self {
                    number as $ty
                }

                fn word(&self) -> u64 {
                    *self as u64
                }
            }
        )+
    };
}

integers!(u8 u16 u32 u64 usize c_int);

macro_rules! pointers {
    ($($kind:tt)+) => {
        $(
            impl<T> Word for *$kind T {
                fn make(number: u64) -> Self {
                    std::ptr::without_provenance_mut(number as usize)
                }

                fn word(&self) -> u64 {
                    self.addr() as u64
                }
            }
        )+
    };
}

pointers!(mut const);

impl Word for () {
    fn make(_: u64) {}

    fn word(&self) -> u64 {
        0
    }
}

/// What the provider's functions return.
const RESULT: u64 = 0xfedc_ba98_7654_3210;

/// Arguments with bits at all places, so that a wrong width or order shows. `start` begins anew.
fn start() {
    NUMBER.set(0);
}

fn next<W: Word>() -> W {
    NUMBER.set(NUMBER.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
    W::make(NUMBER.get())
}

/// One of each object that has data path functions.
#[derive(Default)]
struct Objects {
    context: ibv_context,
    qp: ibv_qp,
    qp_ex: ibv_qp_ex,
    cq: ibv_cq,
    cq_ex: ibv_cq_ex,
    srq: ibv_srq,
    wq: ibv_wq,
}

/// The result's type, `()` if there is none.
macro_rules! result {
    () => {
        ()
    };
    ($ty:ty) => {
        $ty
    };
}

/// Calls each function in both languages, with a provider function that notes what it gets.
macro_rules! twins {
    ($objects:ident, $covered:ident; $(
        $name:ident($object:ident: $object_ty:ty $(, $argument:ident: $ty:ty)*) $(-> $result:ty)?
            => $($place:ident).+;
    )+) => {
        $({
            unsafe extern "C" fn note($object: *mut $object_ty $(, $argument: $ty)*) -> result!($($result)?) {
                GOT.with_borrow_mut(|got| got.extend([$object.word() $(, $argument.word())*]));
                Word::make(RESULT)
            }
            $objects.$($place).+ = Some(note);

            // That both have this type is a part of the test.
            let rust: unsafe fn(*mut $object_ty $(, $ty)*) $(-> $result)? = ibv_sys::$name;
            let c: unsafe extern "C" fn(*mut $object_ty $(, $ty)*) $(-> $result)? = ibv_sys::generated::$name;
            let object = &raw mut $objects.$object;

            start();
            // SAFETY: see the module.
            let from_rust = unsafe { rust(object $(, next::<$ty>())*) }.word();
            let got_from_rust = GOT.take();
            start();
            // SAFETY: see the module.
            let from_c = unsafe { c(object $(, next::<$ty>())*) }.word();
            let got_from_c = GOT.take();

            assert_eq!(got_from_rust, got_from_c, stringify!($name));
            assert_eq!(got_from_rust.first(), Some(&object.word()), stringify!($name));
            assert_eq!(from_rust, from_c, stringify!($name));
            assert_eq!(from_rust, <result!($($result)?)>::make(RESULT).word(), stringify!($name));
            $objects.$($place).+ = None;
            assert!($covered.insert(stringify!($name)));
        })+
    };
}

#[test]
fn rust_calls_the_provider_as_c_does() {
    let mut objects = Box::new(Objects::default());
    let context = &raw mut objects.context;
    objects.qp.context = context;
    objects.cq.context = context;
    objects.srq.context = context;
    let mut covered = BTreeSet::new();

    twins! { objects, covered;
        ibv_post_send(qp: ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int => context.ops.post_send;
        ibv_post_recv(qp: ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int => context.ops.post_recv;
        ibv_wr_atomic_cmp_swp(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64) => qp_ex.wr_atomic_cmp_swp;
        ibv_wr_atomic_fetch_add(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64) => qp_ex.wr_atomic_fetch_add;
        ibv_wr_bind_mw(qp_ex: ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info) => qp_ex.wr_bind_mw;
        ibv_wr_local_inv(qp_ex: ibv_qp_ex, invalidate_rkey: u32) => qp_ex.wr_local_inv;
        ibv_wr_rdma_read(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64) => qp_ex.wr_rdma_read;
        ibv_wr_rdma_write(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64) => qp_ex.wr_rdma_write;
        ibv_wr_rdma_write_imm(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32) => qp_ex.wr_rdma_write_imm;
        ibv_wr_send(qp_ex: ibv_qp_ex) => qp_ex.wr_send;
        ibv_wr_send_imm(qp_ex: ibv_qp_ex, imm_data: __be32) => qp_ex.wr_send_imm;
        ibv_wr_send_inv(qp_ex: ibv_qp_ex, invalidate_rkey: u32) => qp_ex.wr_send_inv;
        ibv_wr_send_tso(qp_ex: ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16) => qp_ex.wr_send_tso;
        ibv_wr_set_ud_addr(qp_ex: ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) => qp_ex.wr_set_ud_addr;
        ibv_wr_set_xrc_srqn(qp_ex: ibv_qp_ex, remote_srqn: u32) => qp_ex.wr_set_xrc_srqn;
        ibv_wr_set_inline_data(qp_ex: ibv_qp_ex, addr: *mut c_void, length: usize) => qp_ex.wr_set_inline_data;
        ibv_wr_set_inline_data_list(qp_ex: ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf) => qp_ex.wr_set_inline_data_list;
        ibv_wr_set_sge(qp_ex: ibv_qp_ex, lkey: u32, addr: u64, length: u32) => qp_ex.wr_set_sge;
        ibv_wr_set_sge_list(qp_ex: ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) => qp_ex.wr_set_sge_list;
        ibv_wr_start(qp_ex: ibv_qp_ex) => qp_ex.wr_start;
        ibv_wr_complete(qp_ex: ibv_qp_ex) -> c_int => qp_ex.wr_complete;
        ibv_wr_abort(qp_ex: ibv_qp_ex) => qp_ex.wr_abort;
        ibv_poll_cq(cq: ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int => context.ops.poll_cq;
        ibv_req_notify_cq(cq: ibv_cq, solicited_only: c_int) -> c_int => context.ops.req_notify_cq;
        ibv_start_poll(cq_ex: ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int => cq_ex.start_poll;
        ibv_next_poll(cq_ex: ibv_cq_ex) -> c_int => cq_ex.next_poll;
        ibv_end_poll(cq_ex: ibv_cq_ex) => cq_ex.end_poll;
        ibv_wc_read_opcode(cq_ex: ibv_cq_ex) -> ibv_wc_opcode => cq_ex.read_opcode;
        ibv_wc_read_vendor_err(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_vendor_err;
        ibv_wc_read_byte_len(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_byte_len;
        ibv_wc_read_imm_data(cq_ex: ibv_cq_ex) -> __be32 => cq_ex.read_imm_data;
        ibv_wc_read_invalidated_rkey(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_imm_data;
        ibv_wc_read_qp_num(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_qp_num;
        ibv_wc_read_src_qp(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_src_qp;
        ibv_wc_read_wc_flags(cq_ex: ibv_cq_ex) -> c_uint => cq_ex.read_wc_flags;
        ibv_wc_read_slid(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_slid;
        ibv_wc_read_sl(cq_ex: ibv_cq_ex) -> u8 => cq_ex.read_sl;
        ibv_wc_read_dlid_path_bits(cq_ex: ibv_cq_ex) -> u8 => cq_ex.read_dlid_path_bits;
        ibv_wc_read_completion_ts(cq_ex: ibv_cq_ex) -> u64 => cq_ex.read_completion_ts;
        ibv_wc_read_completion_wallclock_ns(cq_ex: ibv_cq_ex) -> u64 => cq_ex.read_completion_wallclock_ns;
        ibv_wc_read_cvlan(cq_ex: ibv_cq_ex) -> u16 => cq_ex.read_cvlan;
        ibv_wc_read_flow_tag(cq_ex: ibv_cq_ex) -> u32 => cq_ex.read_flow_tag;
        ibv_wc_read_tm_info(cq_ex: ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) => cq_ex.read_tm_info;
        ibv_post_srq_recv(srq: ibv_srq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int => context.ops.post_srq_recv;
        ibv_post_wq_recv(wq: ibv_wq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int => wq.post_recv;
    }
    #[cfg(ibv_has_atomic_write)]
    twins! { objects, covered;
        ibv_wr_atomic_write(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void) => qp_ex.wr_atomic_write;
    }
    #[cfg(ibv_has_flush)]
    twins! { objects, covered;
        ibv_wr_flush(qp_ex: ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, kind: u8, level: u8) => qp_ex.wr_flush;
    }

    let mut all: BTreeSet<&str> = include_str!("../src/inline.rs")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("    fn ")?.split_once('(')?.0))
        .collect();
    if !cfg!(ibv_has_atomic_write) {
        all.remove("ibv_wr_atomic_write");
    }
    if !cfg!(ibv_has_flush) {
        all.remove("ibv_wr_flush");
    }
    assert_eq!(covered, all, "each function of src/inline.rs has a twin here");
    println!("{} functions", covered.len());
}
