//! Making and destroying what hangs on a context.
//!
//! # Safety
//!
//! Exported C functions: out-parameters and attribute structs are valid by C's contract, objects are looked up before
//! they are followed.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use ibv_sys as sys;

use crate::device::context_at;
use crate::record::{Kind, Modify, Registration};
use crate::universe::{Body, Channel, Cq, New, Object, Qp, Universe, misuse, set_errno, with};
use crate::{polled, wr};

/// Makes an object, unless `verb` shall fail, and returns null with errno set in that case. `parent` is what the verb
/// was given.
pub(crate) fn make<T>(
    verb: &'static str,
    (kind, parent): (Kind, usize),
    f: impl FnOnce(&mut Universe, usize, usize) -> Result<*mut T, c_int>,
) -> *mut T {
    with(|universe| {
        let object = universe.find(verb, kind, parent);
        let (hca, context) = (object.hca, object.context);
        let made = match universe.verdict(hca, verb) {
            0 => f(universe, hca, context),
            errno => Err(errno),
        };
        made.unwrap_or_else(|errno| {
            universe.note(hca, verb, None, errno);
            set_errno(errno);
            null_mut()
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    const VERB: &str = "ibv_alloc_pd";
    let at = context_at(context);
    make(VERB, (Kind::Context, at), |universe, hca, _| {
        let pd = sys::ibv_pd { context, handle: 0 };
        Ok(universe.add(
            VERB,
            hca,
            New { kind: Kind::Pd, context: at, parents: vec![at], body: Body::Plain },
            pd,
        ))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    with(|universe| universe.destroy("ibv_dealloc_pd", Kind::Pd, pd.addr()))
}

fn reg_mr(pd: *mut sys::ibv_pd, addr: *mut c_void, length: usize, access: u32) -> *mut sys::ibv_mr {
    const REMOTE_WRITES: u32 = sys::IBV_ACCESS_REMOTE_WRITE | sys::IBV_ACCESS_REMOTE_ATOMIC;
    const VERB: &str = "ibv_reg_mr";
    make(VERB, (Kind::Pd, pd.addr()), |universe, hca, at| {
        if length == 0 || access & REMOTE_WRITES != 0 && access & sys::IBV_ACCESS_LOCAL_WRITE == 0 {
            return Err(libc::EINVAL);
        }
        let key = universe.new_key(hca);
        // SAFETY: alive, since it was found.
        let context = unsafe { (*pd).context };
        let mr = sys::ibv_mr { context, pd, addr, length, handle: 0, lkey: key, rkey: key + 0x1_0000 };
        let body = Body::Mr(Registration { addr: addr.expose_provenance() as u64, length, access });
        Ok(universe.add(VERB, hca, New { kind: Kind::Mr, context: at, parents: vec![pd.addr()], body }, mr))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut sys::ibv_mr {
    reg_mr(pd, addr, length, access as u32)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_mr_iova2(
    pd: *mut sys::ibv_pd,
    addr: *mut c_void,
    length: usize,
    _iova: u64,
    access: c_uint,
) -> *mut sys::ibv_mr {
    reg_mr(pd, addr, length, access)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    with(|universe| {
        let hca = universe.find("ibv_dereg_mr", Kind::Mr, mr.addr()).hca;
        // SAFETY: alive, since it was found.
        let key = unsafe { (*mr).lkey };
        let errno = universe.destroy("ibv_dereg_mr", Kind::Mr, mr.addr());
        if errno == 0 {
            universe.free_key(hca, key);
        }
        errno
    })
}

/// Both ends, for reading and for writing; or the errno.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd), c_int> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
    }
    // SAFETY: just opened, and nobody else's.
    let [read, write] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((read, write))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    const VERB: &str = "ibv_create_comp_channel";
    let at = context_at(context);
    make(VERB, (Kind::Context, at), |universe, hca, _| {
        let (read, write) = pipe()?;
        let channel = sys::ibv_comp_channel { context, fd: read.as_raw_fd(), refcnt: 0 };
        let body = Body::Channel(Channel { read, write, events: Default::default() });
        Ok(universe.add(
            VERB,
            hca,
            New { kind: Kind::Channel, context: at, parents: vec![at], body },
            channel,
        ))
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    with(|universe| universe.destroy("ibv_destroy_comp_channel", Kind::Channel, channel.addr()))
}

/// The parts that both ways of making a completion queue share.
pub(crate) struct NewCq {
    pub(crate) verb: &'static str,
    pub(crate) context: *mut sys::ibv_context,
    pub(crate) cqe: c_int,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut sys::ibv_comp_channel,
    pub(crate) comp_vector: c_int,
    /// What is to be read, if made for `ibv_start_poll`.
    pub(crate) wc_flags: Option<u64>,
}

impl NewCq {
    pub(crate) fn make(self) -> *mut sys::ibv_cq_ex {
        let Self { verb, context, cqe, cq_context, channel, comp_vector, wc_flags } = self;
        let at = context_at(context);
        make(verb, (Kind::Context, at), |universe, hca, _| {
            let config = &universe.record(hca).config;
            if cqe <= 0 || cqe > config.device.max_cqe || !(0..config.comp_vectors).contains(&comp_vector) {
                return Err(libc::EINVAL);
            }
            let cqe = (config.grant_cqe)(cqe);
            let mut cq = sys::ibv_cq_ex { context, channel, cq_context, cqe, ..Default::default() };
            if let Some(wc_flags) = wc_flags {
                if wc_flags & !config.wc_flags != 0 {
                    return Err(libc::EOPNOTSUPP);
                }
                polled::set_pointers(&mut cq, wc_flags, config.fast);
                (config.edit_cq)(&mut cq);
            }
            let mut parents = vec![at];
            if !channel.is_null() {
                universe.find_in(verb, Kind::Channel, channel.addr(), at);
                parents.push(channel.addr());
            }
            let body = Body::Cq(Cq { channel: channel.addr(), ..Cq::default() });
            Ok(universe.add(verb, hca, New { kind: Kind::Cq, context: at, parents, body }, cq))
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    comp_vector: c_int,
) -> *mut sys::ibv_cq {
    let verb = "ibv_create_cq";
    NewCq { verb, context, cqe, cq_context, channel, comp_vector, wc_flags: None }.make().cast()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    with(|universe| {
        let channel = match &universe.find("ibv_destroy_cq", Kind::Cq, cq.addr()).body {
            Body::Cq(cq) if cq.run.is_some() => misuse("ibv_destroy_cq: after ibv_start_poll"),
            Body::Cq(cq) if cq.events_read == cq.events_acked => cq.channel,
            _ => misuse("ibv_destroy_cq would wait for ever: an event was not acknowledged"),
        };
        let errno = universe.destroy("ibv_destroy_cq", Kind::Cq, cq.addr());
        if errno == 0 && channel != 0 {
            // the kernel discards what was not read
            if let Body::Channel(channel) = &mut universe.find("ibv_destroy_cq", Kind::Channel, channel).body
            {
                channel.events.retain(|&of| of != cq.addr());
            }
        }
        errno
    })
}

/// The parts that both ways of making a queue pair share.
struct NewQp {
    verb: &'static str,
    pd: *mut sys::ibv_pd,
    init: sys::ibv_qp_init_attr,
    /// `send_ops_flags`, if made for `ibv_wr_*`.
    ops: Option<u64>,
}

impl NewQp {
    fn make(mut self) -> (*mut sys::ibv_qp, sys::ibv_qp_cap) {
        let Self { verb, pd, ops, .. } = self;
        let qp = make(verb, (Kind::Pd, pd.addr()), |universe, hca, at| {
            let (send_cq, recv_cq) = (self.init.send_cq, self.init.recv_cq);
            for cq in [send_cq, recv_cq] {
                universe.find_in(verb, Kind::Cq, cq.addr(), at);
            }
            let srq = self.init.srq;
            if !srq.is_null() {
                universe.find_in(verb, Kind::Srq, srq.addr(), at);
                if self.init.cap.max_recv_wr != 0 {
                    misuse("receives of its own for a queue pair with a shared receive queue");
                }
            }
            let qp_num = universe.new_qp_num(hca);
            let config = &universe.record(hca).config;
            (config.grant_caps)(&mut self.init.cap);
            let base = sys::ibv_qp {
                // SAFETY: alive, since it was found.
                context: unsafe { (*pd).context },
                qp_context: self.init.qp_context,
                pd,
                send_cq,
                recv_cq,
                srq,
                qp_num,
                qp_type: self.init.qp_type,
                ..Default::default()
            };
            let mut qp = sys::ibv_qp_ex { qp_base: base, ..Default::default() };
            if let Some(ops) = ops {
                let is_datagram = self.init.qp_type == sys::IBV_QPT_UD;
                wr::set_pointers(&mut qp, ops, is_datagram, config.fast);
                (config.edit_qp)(&mut qp);
            }
            let attr = sys::ibv_qp_attr { cap: self.init.cap, ..Default::default() };
            let body =
                Body::Qp(Box::new(Qp { attr, init: self.init, building: false, inline_too_long: false }));
            let mut parents = vec![pd.addr(), send_cq.addr()];
            if recv_cq != send_cq {
                parents.push(recv_cq.addr());
            }
            if !srq.is_null() {
                parents.push(srq.addr());
            }
            Ok(universe.add(verb, hca, New { kind: Kind::Qp, context: at, parents, body }, qp))
        });
        (qp.cast(), self.init.cap)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(
    pd: *mut sys::ibv_pd,
    init: *mut sys::ibv_qp_init_attr,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller's struct.
    let init = unsafe { &mut *init };
    let (qp, cap) = NewQp { verb: "ibv_create_qp", pd, init: *init, ops: None }.make();
    init.cap = cap;
    qp
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut sys::ibv_context,
    init: *mut sys::ibv_qp_init_attr_ex,
) -> *mut sys::ibv_qp {
    // SAFETY: the caller's struct.
    let ex = unsafe { &mut *init };
    let init = sys::ibv_qp_init_attr {
        qp_context: ex.qp_context,
        send_cq: ex.send_cq,
        recv_cq: ex.recv_cq,
        srq: ex.srq,
        cap: ex.cap,
        qp_type: ex.qp_type,
        sq_sig_all: ex.sq_sig_all,
    };
    if ex.comp_mask != sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS {
        misuse("ibv_create_qp_ex with another comp_mask than it knows");
    }
    let new = NewQp { verb: "ibv_create_qp_ex", pd: ex.pd, init, ops: Some(ex.send_ops_flags) };
    let (qp, cap) = new.make();
    ex.cap = cap;
    qp
}

#[unsafe(no_mangle)]
extern "C" fn ibv_qp_to_qp_ex(qp: *mut sys::ibv_qp) -> *mut sys::ibv_qp_ex {
    let extended = with(|universe| {
        let hca = universe.find("ibv_qp_to_qp_ex", Kind::Qp, qp.addr()).hca;
        universe.record(hca).config.extended
    });
    if extended { qp.cast() } else { null_mut() }
}

pub(crate) fn qp_of(object: &mut Object) -> &mut Qp {
    match &mut object.body {
        Body::Qp(qp) => qp,
        _ => misuse("a queue pair without its body"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_attr, mask: c_int) -> c_int {
    const VERB: &str = "ibv_modify_qp";
    // SAFETY: the caller's struct, which is only read.
    let (attr, mask) = (unsafe { *attr }, mask as u32);
    with(|universe| {
        let object = universe.find(VERB, Kind::Qp, qp.addr());
        let (id, hca) = (object.id, object.hca);
        let errno = universe.verdict(hca, VERB);
        let kept = &mut qp_of(universe.find(VERB, Kind::Qp, qp.addr())).attr;
        let from = kept.qp_state;
        if errno == 0 {
            merge(kept, &attr, mask);
            // SAFETY: alive, since it was found.
            unsafe { (*qp).state = kept.qp_state };
        }
        // SAFETY: as above.
        let qp_num = unsafe { (*qp).qp_num };
        universe.record(hca).modifies.push(Modify { qp_num, from, attr, mask, errno });
        universe.note(hca, VERB, Some(id), errno);
        errno
    })
}

/// Takes over what the mask names, as far as somebody can ask for it.
fn merge(kept: &mut sys::ibv_qp_attr, attr: &sys::ibv_qp_attr, mask: u32) {
    macro_rules! take {
        ($($bit:ident: $field:ident),*) => {$(
            if mask & sys::$bit != 0 {
                kept.$field = attr.$field;
            }
        )*};
    }
    take! {
        IBV_QP_STATE: qp_state, IBV_QP_PORT: port_num, IBV_QP_PATH_MTU: path_mtu, IBV_QP_DEST_QPN: dest_qp_num,
        IBV_QP_RETRY_CNT: retry_cnt, IBV_QP_RNR_RETRY: rnr_retry, IBV_QP_QKEY: qkey, IBV_QP_SQ_PSN: sq_psn,
        IBV_QP_RQ_PSN: rq_psn, IBV_QP_ACCESS_FLAGS: qp_access_flags
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut sys::ibv_qp,
    attr: *mut sys::ibv_qp_attr,
    _mask: c_int,
    init: *mut sys::ibv_qp_init_attr,
) -> c_int {
    const VERB: &str = "ibv_query_qp";
    with(|universe| {
        let object = universe.find(VERB, Kind::Qp, qp.addr());
        let (id, hca) = (object.id, object.hca);
        let kept = qp_of(object);
        let (kept_attr, kept_init) = (kept.attr, kept.init);
        let errno = universe.verdict(hca, VERB);
        if errno == 0 {
            // SAFETY: the caller's out-parameters.
            unsafe {
                attr.write(kept_attr);
                init.write(kept_init);
            }
        }
        universe.note(hca, VERB, Some(id), errno);
        errno
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    with(|universe| {
        let hca = universe.find("ibv_destroy_qp", Kind::Qp, qp.addr()).hca;
        // SAFETY: alive, since it was found.
        let qp_num = unsafe { (*qp).qp_num };
        let errno = universe.destroy("ibv_destroy_qp", Kind::Qp, qp.addr());
        if errno == 0 {
            universe.free_qp_num(hca, qp_num);
        }
        errno
    })
}

fn create_ah(
    verb: &'static str,
    pd: *mut sys::ibv_pd,
    check: impl FnOnce() -> Result<(), c_int>,
) -> *mut sys::ibv_ah {
    make(verb, (Kind::Pd, pd.addr()), |universe, hca, at| {
        check()?;
        // SAFETY: alive, since it was found.
        let ah = sys::ibv_ah { context: unsafe { (*pd).context }, pd, handle: 0 };
        Ok(universe.add(
            verb,
            hca,
            New { kind: Kind::Ah, context: at, parents: vec![pd.addr()], body: Body::Plain },
            ah,
        ))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_ah_attr) -> *mut sys::ibv_ah {
    create_ah("ibv_create_ah", pd, || {
        // SAFETY: the caller's struct.
        let attr = unsafe { *attr };
        if attr.port_num == 0 || attr.is_global == 0 && attr.dlid == 0 { Err(libc::EINVAL) } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut sys::ibv_pd,
    wc: *mut sys::ibv_wc,
    grh: *mut sys::ibv_grh,
    port: u8,
) -> *mut sys::ibv_ah {
    create_ah("ibv_create_ah_from_wc", pd, || {
        // SAFETY: the caller's structs, which are read as the real function reads them.
        let (flags, version) = unsafe { ((*wc).wc_flags, u32::from_be((*grh).version_tclass_flow) >> 28) };
        let known = flags & sys::IBV_WC_GRH == 0 || version == 6 || version == 0;
        if port == 0 || !known { Err(libc::EINVAL) } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_destroy_ah(ah: *mut sys::ibv_ah) -> c_int {
    with(|universe| universe.destroy("ibv_destroy_ah", Kind::Ah, ah.addr()))
}
