//! Extended operations: when they are called, and when not.
//!
//! # Safety
//!
//! The device is a `verbs_context` of our own, complete as far as the functions look.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use ibv_sys::*;

/// A device without a library behind it.
fn device() -> Box<verbs_context> {
    let mut device = Box::new(verbs_context::default());
    device.sz = size_of::<verbs_context>();
    device.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    device
}

/// As the functions want it: they subtract from this pointer, so it must be made from the whole device's.
fn context(device: &mut verbs_context) -> *mut ibv_context {
    let device: *mut verbs_context = device;
    // SAFETY: in bounds of the device.
    unsafe { &raw mut (*device).context }
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

unsafe extern "C" fn alloc_td(_: *mut ibv_context, _: *mut ibv_td_init_attr) -> *mut ibv_td {
    ptr::dangling_mut()
}

#[test]
fn an_operation_is_called_only_where_the_library_has_it() {
    let mut device = device();
    device.alloc_td = Some(alloc_td);
    let needed = size_of::<verbs_context>() - offset_of!(verbs_context, alloc_td);

    // (size of the library's table, whether it has the operation)
    for (size, has) in [
        (usize::MAX, true),
        (size_of::<verbs_context>(), true),
        (needed, true),
        (needed - 1, false),
        (0, false),
    ] {
        device.sz = size;
        let context = context(&mut device);
        // SAFETY: see the module.
        let (td, extended) =
            unsafe { (ibv_alloc_td(context, ptr::null_mut()), verbs_get_ctx_op!(context, alloc_td)) };
        let error = errno();
        assert_eq!(!td.is_null(), has, "{size}");
        assert_eq!(!extended.is_null(), has, "{size}");
        if !has {
            assert_eq!(error, Some(libc::EOPNOTSUPP));
        }
    }
}

#[test]
fn an_operation_of_an_older_abi_or_without_function_is_not_called() {
    let mut without = device();
    let mut old = device();
    old.alloc_td = Some(alloc_td);
    old.context.abi_compat = ptr::null_mut();
    for device in [&mut without, &mut old] {
        let context = context(device);
        // SAFETY: see the module.
        unsafe {
            assert!(ibv_alloc_td(context, ptr::null_mut()).is_null());
            assert!(verbs_get_ctx_op!(context, alloc_td).is_null());
        }
    }
}

thread_local! {
    static LENGTH: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    LENGTH.set(length);
    // SAFETY: the caller of `ibv_query_port` passed a valid one.
    unsafe { (*attr).port_cap_flags2 = 0xabcd };
    c_int::from(port)
}

#[test]
fn query_port_asks_for_the_whole_struct() {
    let mut device = device();
    device.query_port = Some(query_port);
    let mut attr = ibv_port_attr::default();
    // SAFETY: see the module.
    assert_eq!(unsafe { ibv_query_port(context(&mut device), 3, &raw mut attr) }, 3);
    assert_eq!(LENGTH.get(), size_of::<ibv_port_attr>());
    assert_eq!(attr.port_cap_flags2, 0xabcd);
}

#[test]
fn fields_of_longer_structs() {
    let before = offset_of!(ibv_port_attr, port_cap_flags2);
    assert!(!vext_field_avail!(ibv_port_attr, port_cap_flags2, before));
    assert!(vext_field_avail!(ibv_port_attr, port_cap_flags2, size_of::<ibv_port_attr>()));
}
