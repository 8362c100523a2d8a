//! The kernels a guest can boot: those the system has installed and those that `setup` unpacked.

mod image;

use crate::program::search_path;
use anyhow::{Context as _, Result, bail};
use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel image with its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// As `uname -r` would print it.
    pub(crate) version: String,
    /// The file to boot.
    pub(crate) image: PathBuf,
    /// The folder that has `lib/modules/VERSION`; `/` for a kernel the system has installed.
    pub(crate) base: PathBuf,
}

/// Where `setup` unpacks kernels, one folder each with `vmlinuz` and `lib/modules/VERSION`.
///
/// They are not installed into the system: an installed kernel would become what the machine boots next.
pub(crate) fn store() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: no place to keep kernels")?;
    Ok(cache.join("ibv/kernels"))
}

/// All kernels that can be booted by this user and have `module`, the oldest first.
pub(crate) fn with_module(module: &str) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    if let Ok(store) = store() {
        for version in names(&store) {
            let base = store.join(&version);
            kernels.push(Kernel { image: base.join("vmlinuz"), version, base });
        }
    }
    for version in names(Path::new("/lib/modules")) {
        let places = [format!("/boot/vmlinuz-{version}"), format!("/lib/modules/{version}/vmlinuz")];
        for image in places {
            kernels.push(Kernel { version: version.clone(), image: image.into(), base: "/".into() });
        }
    }
    // Debian and Ubuntu differ in who may read /boot: an image that this user can't read is no use.
    kernels.retain(|kernel| fs::File::open(&kernel.image).is_ok() && kernel.has(module));
    kernels.sort_by(|a, b| compare_versions(&a.version, &b.version));
    kernels.dedup_by(|a, b| a.version == b.version);
    kernels
}

/// The oldest bootable kernel of a series (`6.1`), or of all, that has `module`.
pub(crate) fn pick(series: Option<&str>, module: &str) -> Result<Kernel> {
    let kernels = with_module(module);
    let found = kernels.iter().find(|kernel| series.is_none_or(|series| kernel.is_of(series)));
    if let Some(kernel) = found {
        return Ok(kernel.clone());
    }
    if module == "siw" {
        bail!(
            "no installed kernel has the module siw (Debian's kernels come without it); \
             use --link rxe, or a kernel built with CONFIG_RDMA_SIW=m"
        );
    }
    let have: Vec<&str> = kernels.iter().map(|kernel| kernel.version.as_str()).collect();
    let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
    match series {
        Some(series) => {
            bail!("no kernel {series} with the module {module} (found: {have}); run `cargo xtask setup`")
        }
        None => bail!("no kernel with the module {module} that you may read; run `cargo xtask setup`"),
    }
}

impl Kernel {
    /// Whether this is a kernel of `series`: 6.1.5 is one of 6.1, 6.12 is not.
    pub(crate) fn is_of(&self, series: &str) -> bool {
        self.version.strip_prefix(series).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// The file to give to QEMU: unpacked, and kept so, where that works.
    pub(crate) fn boot_image(&self) -> PathBuf {
        let unpacked = || {
            let folder = store()?.join(&self.version);
            let target = folder.join("vmlinux");
            let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
            let is_fresh =
                changed(&target).is_ok_and(|ours| changed(&self.image).is_ok_and(|image| image <= ours));
            if !is_fresh {
                fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
                image::unpack(&self.image, &target)?;
            }
            Ok::<_, anyhow::Error>(target)
        };
        // Any image boots, if more slowly.
        unpacked().unwrap_or_else(|_| self.image.clone())
    }

    fn has(&self, module: &str) -> bool {
        let list = self.base.join("lib/modules").join(&self.version).join("modules.dep");
        fs::read_to_string(list).is_ok_and(|list| list.contains(&format!("/{module}.ko")))
    }

    /// The files to load for `modules`, in an order that satisfies every dependency. What is built in needs none.
    pub(crate) fn load_order(&self, modules: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in modules {
            let output = Command::new("modprobe")
                .env("PATH", search_path())
                .arg("-d")
                .arg(&self.base)
                .args(["-S", &self.version, "--show-depends", module])
                .output()
                .context("cannot run modprobe; run `cargo xtask setup`")?;
            if !output.status.success() {
                bail!(
                    "kernel {} cannot be used: {}",
                    self.version,
                    String::from_utf8_lossy(&output.stderr).trim()
                );
            }
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let file = line.strip_prefix("insmod ").and_then(|rest| rest.split_whitespace().next());
                if let Some(file) = file.map(PathBuf::from) {
                    if !files.contains(&file) {
                        files.push(file);
                    }
                }
            }
        }
        Ok(files)
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Orders versions by their numbers: 6.2 before 6.12.
fn compare_versions(a: &str, b: &str) -> Ordering {
    fn parts(version: &str) -> impl Iterator<Item = Result<u64, &str>> {
        version.split(|c: char| !c.is_ascii_alphanumeric()).map(|part| part.parse().map_err(|_| part))
    }
    parts(a).cmp(parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_number() {
        let mut versions = ["6.12.117+deb12-amd64", "6.1.0-9-amd64", "6.2.0", "5.10.1", "6.1.0-57-amd64"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(versions, ["5.10.1", "6.1.0-9-amd64", "6.1.0-57-amd64", "6.2.0", "6.12.117+deb12-amd64"]);
    }

    #[test]
    fn a_series_is_no_prefix() {
        let kernel = |version: &str| Kernel { version: version.into(), image: "".into(), base: "".into() };
        assert!(kernel("6.1.0-57-amd64").is_of("6.1"));
        assert!(kernel("6.1-rc1").is_of("6.1"));
        assert!(kernel("6.1.0").is_of("6.1.0"));
        assert!(!kernel("6.12.1").is_of("6.1"));
        assert!(!kernel("16.1.1").is_of("6.1"));
    }
}
