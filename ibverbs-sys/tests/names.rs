//! Every function of the headers can be called from Rust, under its C name.

mod support;

use std::collections::BTreeSet;

#[expect(unused_imports, reason = "that they compile is the test")]
mod bound {
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

/// Functions behind macros of the same name; `src/compat.rs` has what the macros do.
#[expect(unused_imports, reason = "that they compile is the test")]
mod shadowed {
    pub(crate) use ibv_sys::{ibv_query_port, ibv_reg_mr, ibv_reg_mr_iova};
}
const SHADOWED: [&str; 3] = ["ibv_query_port", "ibv_reg_mr", "ibv_reg_mr_iova"];

/// The functions that `src/inline.rs` has in Rust.
fn hot() -> BTreeSet<String> {
    let lines = include_str!("../src/inline.rs").lines();
    let names = lines.filter_map(|line| line.strip_prefix("    fn ")?.split_once('('));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The data path: one indirect call each.
fn is_hot(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "ibv_post_send",
        "ibv_post_recv",
        "ibv_post_srq_recv",
        "ibv_post_wq_recv",
        "ibv_poll_cq",
        "ibv_req_notify_cq",
        "ibv_start_poll",
        "ibv_next_poll",
        "ibv_end_poll",
    ];
    NAMES.contains(&name) || name.starts_with("ibv_wr_") || name.starts_with("ibv_wc_read_")
}

#[test]
fn all_functions_of_the_headers_are_bound() {
    // What compiles and links: `bound::imports`, and for the three `shadowed`.
    let bound: BTreeSet<&str> = bound::FUNCTIONS.iter().copied().chain(SHADOWED).collect();
    let mut lost = Vec::new();
    for declared in support::declarations() {
        let functions: Vec<_> = declared.functions.iter().map(|(name, _)| name.as_str()).collect();
        if !functions.is_empty() {
            let inlines = declared.functions.iter().filter(|(_, inline)| *inline).count();
            println!("{}: {} functions, {inlines} of them static inline", declared.header, functions.len());
        }
        lost.extend(functions.iter().filter(|name| !bound.contains(*name)).map(|name| (*name).to_owned()));
        if declared.header == "infiniband/verbs.h" {
            // Helpers of the macros are not public.
            let public = functions.iter().filter(|name| !name.starts_with('_') && **name != "verbs_get_ctx");
            println!("verbs.h: {} public names", public.clone().count());
            if ibv_sys_version().starts_with("44.") {
                assert_eq!(public.count(), 156);
            }
        }
    }
    assert_eq!(lost, [""; 0], "declared in the headers, and not in the crate");
    for name in SHADOWED {
        assert!(!bound::FUNCTIONS.contains(&name), "{name} must not be the exported symbol");
    }
}

/// Macros with parameters: each is a function here, a macro here, or one of those that mean nothing in Rust.
#[test]
fn no_macro_is_lost() {
    const MACROS: [&str; 2] = ["verbs_get_ctx_op", "vext_field_avail"];
    // Declarations in C's syntax, static providers, and fields of the device's own structs in C's syntax: the
    // functions below the last kind, `_devx_set` and its like, are bound.
    const NOT_RUST: [&str; 4] = ["RDMA_UAPI_PTR", "_RDMA_STATIC_PREFIX", "DEVX_", "__devx_"];

    let bound: BTreeSet<&str> = bound::FUNCTIONS.iter().copied().chain(SHADOWED).chain(MACROS).collect();
    let names = support::macros().into_iter().filter(|(_, has_parameters)| *has_parameters);
    let lost: Vec<_> = names
        .map(|(name, _)| name)
        .filter(|name| {
            !bound.contains(name.as_str()) && !NOT_RUST.iter().any(|start| name.starts_with(start))
        })
        .collect();
    assert_eq!(lost, [""; 0], "defined in the headers, and not in the crate");
}

#[test]
fn the_data_path_is_rust() {
    let hot = hot();
    // By name in `pub use inline::{…}` or `pub use inline::NAME`, which goes before the glob of `generated`.
    let exported: BTreeSet<&str> = include_str!("../src/lib.rs")
        .split("pub use inline::")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .flat_map(|list| list.trim_matches(['{', '}']).split(','))
        .map(str::trim)
        .collect();
    let mut inlines = BTreeSet::new();
    for declared in support::declarations() {
        if declared.header == "infiniband/verbs.h" {
            inlines
                .extend(declared.functions.into_iter().filter(|(_, inline)| *inline).map(|(name, _)| name));
        }
    }
    for name in inlines.iter().filter(|name| is_hot(name)) {
        assert!(hot.contains(name), "{name} of verbs.h has no Rust version");
    }
    for name in &hot {
        assert!(exported.contains(name.as_str()), "src/lib.rs exports the C version of {name}");
    }
}

#[test]
#[cfg_attr(ibv_sys_headers_only, ignore = "IBV_INCLUDE_DIR without IBV_LIB_DIR: versions may differ")]
fn all_functions_link() {
    #[cfg(not(ibv_sys_headers_only))]
    for (name, address) in bound::addresses() {
        assert_ne!(address, 0, "{name}");
    }
}

/// rdma-core's version, empty if unknown.
fn ibv_sys_version() -> &'static str {
    option_env!("IBV_SYS_RDMA_CORE").unwrap_or_default()
}
