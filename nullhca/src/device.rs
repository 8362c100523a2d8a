//! Devices and contexts.
//!
//! # Safety
//!
//! Exported C functions: out-parameters are valid by C's contract, contexts are looked up before they are followed.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use ibv_sys as sys;

use crate::cold::pipe;
use crate::notices::Notices;
use crate::record::Kind;
use crate::universe::{Body, New, Universe, misuse, set_errno, with};
use crate::{fast, path, polled, srq, window};

/// A device as libraries make them: the driver's functions follow, by which libmlx5 knows its own.
#[repr(C)]
struct Device {
    device: sys::ibv_device,
    driver: *const c_void,
}

struct Devices([Device; 2]);

// SAFETY: written once, before anybody has them.
unsafe impl Send for Devices {}
// SAFETY: as above.
unsafe impl Sync for Devices {}

fn devices() -> &'static [Device; 2] {
    static DEVICES: OnceLock<Devices> = OnceLock::new();
    let set = |field: &mut [c_char], text: &str| {
        field.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from as c_char);
    };
    let device = |number: u32| {
        let (node_type, transport_type) = (sys::IBV_NODE_CA, sys::IBV_TRANSPORT_IB);
        let mut device = sys::ibv_device { node_type, transport_type, ..Default::default() };
        set(&mut device.name, &format!("null{number}"));
        set(&mut device.dev_name, &format!("uverbs{number}"));
        set(&mut device.ibdev_path, &format!("/sys/class/infiniband/null{number}"));
        Device { device, driver: null() }
    };
    &DEVICES.get_or_init(|| Devices([device(0), device(1)])).0
}

/// Which device of the two it is.
fn number(device: *mut sys::ibv_device) -> usize {
    match devices().iter().position(|known| std::ptr::eq(&raw const known.device, device)) {
        Some(number) => number,
        None => misuse("no such device"),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut sys::ibv_device {
    const VERB: &str = "ibv_get_device_list";
    let (list, number) = with(|universe| {
        let hca = universe.current();
        let errno = universe.verdict(hca, VERB);
        if errno != 0 {
            universe.note(hca, VERB, None, errno);
            set_errno(errno);
            return (null_mut(), 0);
        }
        let number = universe.record(hca).config.devices.min(2);
        let mut list = [null_mut(); 3];
        for (to, from) in list.iter_mut().zip(devices()).take(number) {
            *to = std::ptr::from_ref(from).cast_mut().cast::<sys::ibv_device>();
        }
        (
            universe.add(
                VERB,
                hca,
                New { kind: Kind::DeviceList, context: 0, parents: Vec::new(), body: Body::Plain },
                list,
            ),
            number,
        )
    });
    if !count.is_null() {
        // SAFETY: the caller's out-parameter.
        unsafe { *count = number as c_int };
    }
    list.cast()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_free_device_list(list: *mut *mut sys::ibv_device) {
    with(|universe| universe.destroy("ibv_free_device_list", Kind::DeviceList, list.addr()));
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_name(device: *mut sys::ibv_device) -> *const c_char {
    number(device);
    // SAFETY: one of the two devices.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(device: *mut sys::ibv_device) -> u64 {
    let number = number(device) as u64;
    with(|universe| {
        let hca = universe.current();
        (u64::from_be(universe.record(hca).config.device.node_guid) + number).to_be()
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(device: *mut sys::ibv_device) -> c_int {
    number(device) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> sys::ibv_fork_status {
    with(|universe| {
        let hca = universe.current();
        universe.record(hca).config.fork_status
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    with(|universe| {
        let hca = universe.current();
        let errno = universe.verdict(hca, "ibv_fork_init");
        universe.note(hca, "ibv_fork_init", None, errno);
        errno
    })
}

#[unsafe(no_mangle)]
extern "C" fn ibv_open_device(device: *mut sys::ibv_device) -> *mut sys::ibv_context {
    number(device);
    with(|universe| {
        let hca = universe.current();
        let errno = universe.verdict(hca, "ibv_open_device");
        if errno != 0 {
            universe.note(hca, "ibv_open_device", None, errno);
            set_errno(errno);
            return null_mut();
        }
        let config = &universe.record(hca).config;
        let (fast, extended, comp_vectors) = (config.fast, config.extended, config.comp_vectors);
        let has_cq_ex = config.wc_flags != 0;
        let mut verbs = sys::verbs_context {
            sz: size_of::<sys::verbs_context>(),
            query_port: Some(query_port),
            query_device_ex: Some(query_device_ex),
            ..Default::default()
        };
        if extended {
            verbs.create_qp_ex = Some(crate::cold::create_qp_ex);
        }
        if has_cq_ex {
            verbs.create_cq_ex = Some(polled::create_cq_ex);
        }
        verbs.context.device = device;
        verbs.context.cmd_fd = -1;
        let ends = match pipe() {
            Ok(ends) => ends,
            Err(errno) => {
                set_errno(errno);
                return null_mut();
            }
        };
        verbs.context.async_fd = ends.0.as_raw_fd();
        verbs.context.num_comp_vectors = comp_vectors;
        verbs.context.abi_compat = sys::__VERBS_ABI_IS_EXTENDED;
        let ops = &mut verbs.context.ops;
        ops.alloc_mw = Some(window::alloc_mw);
        ops.bind_mw = Some(window::bind_mw);
        ops.dealloc_mw = Some(window::dealloc_mw);
        if fast {
            ops.req_notify_cq = Some(fast::nullhca_fast_req_notify_cq);
            ops.post_send = Some(fast::nullhca_fast_post_send);
            ops.post_recv = Some(fast::nullhca_fast_post_recv);
            ops.poll_cq = Some(fast::nullhca_fast_poll_cq);
        } else {
            ops.req_notify_cq = Some(crate::events::req_notify_cq);
            ops.post_send = Some(path::post_send);
            ops.post_recv = Some(path::post_recv);
            ops.post_srq_recv = Some(srq::post_srq_recv);
            ops.poll_cq = Some(path::poll_cq);
        }
        let verbs = add_context(universe, hca, verbs, Notices::new(ends));
        // SAFETY: just made; the context is a field of it.
        unsafe { &raw mut (*verbs).context }
    })
}

/// A context is known by the address of its `ibv_context`, which stands in the middle of what was allocated.
fn add_context(
    universe: &mut Universe,
    hca: usize,
    verbs: sys::verbs_context,
    notices: Notices,
) -> *mut sys::verbs_context {
    universe.add(
        "ibv_open_device",
        hca,
        New { kind: Kind::Context, context: 0, parents: Vec::new(), body: Body::Context(notices) },
        verbs,
    )
}

/// The address that a context has in the table.
pub(crate) fn context_at(context: *mut sys::ibv_context) -> usize {
    context.addr().wrapping_sub(std::mem::offset_of!(sys::verbs_context, context))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_close_device(context: *mut sys::ibv_context) -> c_int {
    // like libibverbs, whatever hangs on it
    with(|universe| universe.destroy("ibv_close_device", Kind::Context, context_at(context)))
}

/// Finds the context, notes the call, and answers with `f` unless it shall fail: 0 or the errno.
fn query(
    verb: &'static str,
    context: *mut sys::ibv_context,
    f: impl FnOnce(&mut Universe, usize) -> c_int,
) -> c_int {
    with(|universe| {
        let object = universe.find(verb, Kind::Context, context_at(context));
        let (id, hca) = (object.id, object.hca);
        let errno = match universe.verdict(hca, verb) {
            0 => f(universe, hca),
            errno => errno,
        };
        universe.note(hca, verb, Some(id), errno);
        errno
    })
}

/// "-1 and errno" of an errno.
fn minus_one(errno: c_int) -> c_int {
    if errno == 0 {
        return 0;
    }
    set_errno(errno);
    -1
}

unsafe extern "C" fn query_device_ex(
    context: *mut sys::ibv_context,
    _input: *const sys::ibv_query_device_ex_input,
    attr: *mut sys::ibv_device_attr_ex,
    size: usize,
) -> c_int {
    query("ibv_query_device_ex", context, |universe, hca| {
        if size < size_of::<sys::ibv_device_attr>() {
            return libc::EINVAL;
        }
        // SAFETY: the caller's struct has `size` bytes, of which this is the beginning.
        unsafe { (&raw mut (*attr).orig_attr).write(universe.record(hca).config.device) };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_device_attr,
) -> c_int {
    query("ibv_query_device", context, |universe, hca| {
        // SAFETY: the caller's out-parameter.
        unsafe { attr.write(universe.record(hca).config.device) };
        0
    })
}

unsafe extern "C" fn query_port(
    context: *mut sys::ibv_context,
    port: u8,
    attr: *mut sys::ibv_port_attr,
    size: usize,
) -> c_int {
    query("ibv_query_port", context, |universe, hca| {
        let config = &universe.record(hca).config;
        if port == 0 || port > config.device.phys_port_cnt || size < size_of::<sys::ibv_port_attr>() {
            return libc::EINVAL;
        }
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { attr.write(config.port) };
        0
    })
}

/// The old symbol, which only knows the first 48 bytes of the struct.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut sys::ibv_context,
    port: u8,
    attr: *mut sys::_compat_ibv_port_attr,
) -> c_int {
    const KNOWN: usize = 48;
    let mut whole = sys::ibv_port_attr::default();
    // SAFETY: a struct of that size.
    let result = unsafe { query_port(context, port, &raw mut whole, size_of_val(&whole)) };
    // SAFETY: the caller's struct begins with so many bytes, and ours has more.
    unsafe { std::ptr::copy_nonoverlapping((&raw const whole).cast::<u8>(), attr.cast::<u8>(), KNOWN) };
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut sys::ibv_context,
    port: u8,
    index: c_int,
    gid: *mut sys::ibv_gid,
) -> c_int {
    minus_one(query("ibv_query_gid", context, |universe, hca| {
        let config = &universe.record(hca).config;
        if port == 0 || port > config.device.phys_port_cnt || !(0..config.port.gid_tbl_len).contains(&index) {
            return libc::EINVAL;
        }
        let is_it =
            |entry: &&sys::ibv_gid_entry| entry.port_num == port.into() && entry.gid_index == index as u32;
        let found = config.gids.iter().find(is_it).map_or_else(sys::ibv_gid::default, |entry| entry.gid);
        // SAFETY: the caller's out-parameter.
        unsafe { gid.write(found) };
        0
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut sys::ibv_context,
    entries: *mut sys::ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    let mut count = 0;
    let errno = query("ibv_query_gid_table", context, |universe, hca| {
        let config = &universe.record(hca).config;
        let room = config.port.gid_tbl_len as usize * usize::from(config.device.phys_port_cnt);
        if flags != 0
            || entry_size != size_of::<sys::ibv_gid_entry>()
            || max_entries < room.min(config.gids.len())
        {
            return libc::EINVAL;
        }
        for (at, entry) in config.gids.iter().enumerate() {
            // SAFETY: the caller's array has room for them.
            unsafe { entries.add(at).write(*entry) };
        }
        count = config.gids.len() as isize;
        0
    });
    if errno == 0 { count } else { -(errno as isize) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut sys::ibv_context,
    _port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    minus_one(query("ibv_query_pkey", context, |universe, hca| {
        let pkeys = &universe.record(hca).config.pkeys;
        match usize::try_from(index).ok().and_then(|index| pkeys.get(index)) {
            Some(found) => {
                // SAFETY: the caller's out-parameter.
                unsafe { pkey.write(found.to_be()) };
                0
            }
            None => libc::ENOENT,
        }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(context: *mut sys::ibv_context, _port: u8, pkey: u16) -> c_int {
    let mut index = 0;
    let errno = query("ibv_get_pkey_index", context, |universe, hca| {
        let wanted = u16::from_be(pkey);
        match universe.record(hca).config.pkeys.iter().position(|&known| known == wanted) {
            Some(found) => {
                index = found as c_int;
                0
            }
            None => libc::ENOENT,
        }
    });
    if errno == 0 { index } else { minus_one(errno) }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node_type: sys::ibv_node_type) -> *const c_char {
    match node_type {
        sys::IBV_NODE_CA => c"channel adapter",
        _ => c"another node type",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: sys::ibv_wc_status) -> *const c_char {
    match status {
        sys::IBV_WC_SUCCESS => c"success",
        sys::IBV_WC_WR_FLUSH_ERR => c"flushed",
        sys::IBV_WC_RETRY_EXC_ERR => c"retries exceeded",
        _ => c"another status",
    }
    .as_ptr()
}
