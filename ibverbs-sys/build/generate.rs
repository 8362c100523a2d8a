//! Runs bindgen, and the C compiler on the functions that have no symbol.

use std::collections::HashSet;
use std::path::PathBuf;

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};

use crate::Plan;
use crate::message::missing;
use crate::preprocess::{Macro, headers};

/// Exported symbols that the headers hide behind a macro of the same name; `src/compat.rs` has the functions
/// that C programs get when they write these names. (`rewrite::add_shadows` does the same for all macros that
/// only rename; of these, two do more, and the third is worth its documentation.)
pub(crate) const SHADOWED: [&str; 3] = ["ibv_query_port", "ibv_reg_mr", "ibv_reg_mr_iova"];

/// Types of the C library: `libc` has them, and a user wants to pass libc's own.
const LIBC: [&str; 13] = [
    "pthread_mutex_t",
    "pthread_cond_t",
    "timespec",
    "sockaddr",
    "sockaddr_in",
    "sockaddr_in6",
    "sockaddr_storage",
    "FILE",
    "in_addr",
    "in6_addr",
    "socklen_t",
    "sa_family_t",
    "off_t",
];

/// What the C library makes those types of.
const INTERNAL: &str = "_IO_.*|__pthread_.*|__atomic_wide.*|__(off|off64|time|syscall_slong|socklen)_t|in6_addr.*|in_(addr|port)_t";

/// Objects that the library allocates and knows by their address: a copy would be a different, broken object.
const OBJECTS: &str = "ibv_(context|device|pd|td|mr|mw|dm|dmah|ah|cq|cq_ex|qp|qp_ex|srq|wq|xrcd|flow|flow_action\
                       |counters|comp_cntr|comp_channel|rwq_ind_table)|rdma_cm_id|rdma_event_channel|rdma_cm_event";

#[derive(Debug)]
struct Callbacks {
    /// Macros whose value C takes as unsigned 64 bits; bindgen would take the smallest type that fits, and a
    /// value with the top bit as negative.
    unsigned: HashSet<String>,
}

impl ParseCallbacks for Callbacks {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        self.unsigned.contains(name).then_some(IntKind::U64)
    }

    /// Of the types taken from `libc`: all are `Copy` and `Debug`, none is `Default`.
    fn blocklisted_type_implements_trait(&self, name: &str, derive: DeriveTrait) -> Option<ImplementsTrait> {
        let name = name.trim_start_matches("struct ");
        if !LIBC.contains(&name) {
            return None;
        }
        Some(match derive {
            DeriveTrait::Copy | DeriveTrait::Debug if name != "FILE" => ImplementsTrait::Yes,
            _ => ImplementsTrait::No,
        })
    }

    /// The header's comment as preformatted text: rustdoc must not read kernel-doc as Markdown.
    fn process_comment(&self, comment: &str) -> Option<String> {
        Some(format!("```text\n{}\n```", comment.trim().replace("```", "'''")))
    }
}

/// The bindings as Rust source.
pub(crate) fn bindings(plan: &Plan, macros: &[Macro]) -> Result<syn::File, String> {
    // bindgen panics without libclang. This is the same loader, in the same thread, and says it politely.
    clang_sys::load().map_err(|error| missing(&format!("libclang cannot be loaded: {}.", gist(&error))))?;

    let unsigned = macros.iter().filter(|item| item.body.to_uppercase().contains("ULL"));
    let callbacks = Callbacks { unsigned: unsigned.map(|item| item.name.clone()).collect() };
    let mut builder = bindgen::Builder::default()
        .header(plan.wrapper.display().to_string())
        .clang_args(plan.include.iter().map(|folder| format!("-I{}", folder.display())))
        // The headers are in the system's folders, whose comments clang drops otherwise.
        .clang_arg("-fretain-comments-from-system-headers")
        .clang_args(plan.define.iter().map(|name| format!("-D{name}")))
        .use_core()
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .anon_fields_prefix("u")
        .derive_default(true)
        .impl_debug(true)
        // Constants that fail to compile if rustc places a field elsewhere than clang.
        .layout_tests(true)
        .no_copy(OBJECTS)
        .wrap_static_fns(true)
        .wrap_static_fns_path(shim(plan))
        .formatter(bindgen::Formatter::None)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(callbacks));
    for header in headers() {
        builder = builder.allowlist_file(format!(".*/{}", header.replace('.', "\\.")));
    }
    for name in SHADOWED {
        builder = builder.blocklist_function(name);
    }
    for name in LIBC {
        builder = builder.blocklist_type(name);
    }
    builder = builder.blocklist_type(INTERNAL);
    let text = builder
        .generate()
        .map_err(|error| missing(&format!("libclang cannot read the headers: {error}")))?
        .to_string();
    syn::parse_file(&text).map_err(|error| format!("bindgen's output is no Rust: {error}"))
}

/// Compiles the functions that bindgen wrote for the static inlines.
pub(crate) fn compile_shim(plan: &Plan) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.file(shim(plan)).includes(&plan.include).warnings(false);
    for name in &plan.define {
        build.define(name, None);
    }
    build
        .try_compile("ibv_sys_inlines")
        .map_err(|error| missing(&format!("the C shim does not compile: {error}")))
}

fn shim(plan: &Plan) -> PathBuf {
    plan.out.join("inlines.c")
}

/// The loader's message without its advice, which ours gives.
fn gist(text: &str) -> &str {
    text.split_once(", set the").map_or(text, |(gist, _)| gist)
}
