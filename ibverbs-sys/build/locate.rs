//! Finds rdma-core: by the environment's word, else by pkg-config.

use std::env;
use std::path::PathBuf;

use crate::message::missing;

/// The oldest rdma-core that this crate is written for.
pub(crate) const MINIMUM: u32 = 39;

const INCLUDE: &str = "IBV_INCLUDE_DIR";
const LIBRARY: &str = "IBV_LIB_DIR";

/// The optional parts.
#[derive(Clone, Copy)]
pub(crate) struct Features {
    pub(crate) mlx5: bool,
    pub(crate) rdmacm: bool,
}

impl Features {
    /// The macros that `wrapper.h` asks for.
    pub(crate) fn defines(self) -> Vec<&'static str> {
        let mut list = Vec::new();
        if self.mlx5 {
            list.push("IBV_SYS_MLX5");
        }
        if self.rdmacm {
            list.push("IBV_SYS_RDMACM");
        }
        list
    }

    /// The libraries' names without `lib`.
    fn libraries(self) -> Vec<&'static str> {
        let mut list = Vec::new();
        if self.rdmacm {
            list.push("rdmacm");
        }
        if self.mlx5 {
            list.push("mlx5");
        }
        // Last, because the two others need it.
        list.push("ibverbs");
        list
    }
}

/// Where rdma-core is.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) include: Vec<PathBuf>,
    pub(crate) library: Vec<PathBuf>,
    /// rdma-core's version ("44.0"); unknown if only folders were given.
    pub(crate) version: Option<String>,
    /// Whether the headers were named and the libraries not, so that they may be of different versions.
    pub(crate) headers_only: bool,
}

/// Looks for the headers and libraries of these features.
pub(crate) fn find(features: Features) -> Result<Found, String> {
    let include = folders(INCLUDE)?;
    if let Some(include) = &include {
        // Else the compiler would quietly take the system's.
        if !include.iter().any(|folder| folder.join("infiniband/verbs.h").is_file()) {
            return Err(missing(&format!("there is no infiniband/verbs.h in {INCLUDE}.")));
        }
    }
    let library = folders(LIBRARY)?;
    if let (Some(include), Some(library)) = (&include, &library) {
        return Ok(Found { include: include.clone(), library: library.clone(), ..Found::default() });
    }
    let mut found = Found::default();
    let mut unknown = Vec::new();
    for name in features.libraries() {
        let name = format!("lib{name}");
        match pkg_config::Config::new().cargo_metadata(false).env_metadata(true).probe(&name) {
            Ok(probed) => {
                extend(&mut found.include, probed.include_paths);
                extend(&mut found.library, probed.link_paths);
                if name == "libibverbs" {
                    found.version = rdma_core(&probed.version);
                }
            }
            // The headers were named; the linker's own search path may still have the library.
            Err(_) if include.is_some() => {}
            Err(pkg_config::Error::Command { .. }) => return Err(missing("pkg-config cannot be run.")),
            Err(_) => unknown.insert(0, name),
        }
    }
    if !unknown.is_empty() {
        return Err(missing(&format!("pkg-config does not know {}.", unknown.join(", "))));
    }
    if let Some(include) = include {
        // The version was that of other headers.
        found.version = None;
        found.include = include;
        found.headers_only = library.is_none();
    }
    if let Some(library) = library {
        found.library = library;
    }
    match &found.version {
        Some(version) if major(version) < MINIMUM => {
            Err(missing(&format!("rdma-core {version} is installed, which is too old.")))
        }
        _ => Ok(found),
    }
}

/// Tells the linker. The search folders first, then the libraries.
pub(crate) fn link(features: Features, folders: &[PathBuf]) {
    for folder in folders {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    for name in features.libraries() {
        println!("cargo::rustc-link-lib=dylib={name}");
    }
}

/// The folders of a variable, separated as `PATH` is. Folders that do not exist are a mistake worth a stop.
fn folders(variable: &str) -> Result<Option<Vec<PathBuf>>, String> {
    println!("cargo::rerun-if-env-changed={variable}");
    let Some(value) = env::var_os(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let list: Vec<PathBuf> = env::split_paths(&value).collect();
    match list.iter().find(|folder| !folder.is_dir()) {
        Some(folder) => Err(missing(&format!("{variable} names {}, which is no folder.", folder.display()))),
        None => Ok(Some(list)),
    }
}

fn extend(list: &mut Vec<PathBuf>, more: Vec<PathBuf>) {
    for path in more {
        if !list.contains(&path) {
            list.push(path);
        }
    }
}

/// "44.0" of pkg-config's "1.14.44.0": rdma-core puts its own version after the library's ABI version.
fn rdma_core(version: &str) -> Option<String> {
    let rest: Vec<&str> = version.split('.').skip(2).collect();
    (!rest.is_empty()).then(|| rest.join("."))
}

/// 44 of "44.0". A version that cannot be read passes.
fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX)
}
