//! Makes the bindings of this machine's rdma-core: finds the headers and libraries, runs bindgen, compiles
//! the C shim of the static inline functions, and tells dependants what the headers have.

mod generate;
mod locate;
mod message;
mod preprocess;
mod probe;
mod rewrite;
mod tables;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders and switches that every later step needs.
pub(crate) struct Plan {
    /// `OUT_DIR`.
    pub(crate) out: PathBuf,
    /// The file that includes the C headers.
    pub(crate) wrapper: PathBuf,
    /// Folders given to the C compilers by `-I`.
    pub(crate) include: Vec<PathBuf>,
    /// Macros given to the C compilers by `-D`, one for each feature.
    pub(crate) define: Vec<&'static str>,
}

fn main() {
    // `cargo::error` fails the build by itself. An exit status would make Cargo print this program's whole
    // output under the message.
    if let Err(text) = run() {
        for line in text.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn run() -> Result<(), String> {
    let root = folder("CARGO_MANIFEST_DIR")?;
    for path in ["wrapper.h", "build"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let features = locate::Features {
        mlx5: env::var_os("CARGO_FEATURE_MLX5").is_some(),
        rdmacm: env::var_os("CARGO_FEATURE_RDMACM").is_some(),
    };
    let found = locate::find(features)?;
    println!("cargo::rustc-check-cfg=cfg(ibv_sys_headers_only)");
    if found.headers_only {
        println!("cargo::rustc-cfg=ibv_sys_headers_only");
    }
    let plan = Plan {
        out: folder("OUT_DIR")?,
        wrapper: root.join("wrapper.h"),
        include: found.include,
        define: features.defines(),
    };

    let macros = preprocess::macros(&plan, features)?;
    let mut file = generate::bindings(&plan, &macros)?;
    rewrite::pack(&mut file);
    let unnamed = rewrite::name_anonymous(&mut file);
    rewrite::add_aliases(&mut file, &macros);
    rewrite::add_shadows(&mut file, &macros);

    write(&plan.out.join("bindings.rs"), &prettyplease::unparse(&file))?;
    write(&plan.out.join("tables.rs"), &tables::render(&file, &unnamed, &macros))?;
    write(&plan.out.join("functions.rs"), &tables::render_functions(&file))?;
    probe::announce(&file, found.version.as_deref());
    generate::compile_shim(&plan)?;
    // After the shim: the linker resolves archives from left to right.
    locate::link(features, &found.library);
    Ok(())
}

fn folder(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable).map(PathBuf::from).ok_or_else(|| format!("Cargo did not set {variable}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
