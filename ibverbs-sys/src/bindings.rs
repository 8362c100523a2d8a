//! What bindgen made of the headers, and the C library's types that they use.
//!
//! # Safety
//!
//! The only code in it is bindgen's: zeroing `Default`s of C structs (an integer, a pointer or an optional
//! function may be zero), and access to arrays at the end of structs.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::indexing_slicing,
    clippy::use_self,
    clippy::semicolon_if_nothing_returned,
    clippy::doc_markdown,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    reason = "generated code with C names"
)]

pub use libc::{
    FILE, off_t, pthread_cond_t, pthread_mutex_t, sa_family_t, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage, socklen_t, timespec,
};

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
