//! Getting kernels for the guests from a Debian-like distribution's packages.

use super::needs::WantedKernel;
use crate::kernel::{self, Kernel};
use crate::program::search_path;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The wanted kernels that can't be booted yet.
pub(super) fn missing(wanted: &'static [WantedKernel]) -> Vec<&'static WantedKernel> {
    let have = kernel::with_module("rdma_rxe");
    let serves = |kernel: &Kernel, series: Option<&str>| series.is_none_or(|series| kernel.is_of(series));
    wanted.iter().filter(|wanted| !have.iter().any(|kernel| serves(kernel, wanted.series))).collect()
}

/// Downloads the kernel that `package` depends on and unpacks it into the store.
///
/// The package is not installed: that would change what the machine boots next and build an initial file system that
/// nobody needs.
pub(super) fn unpack(package: &str) -> Result<()> {
    let store = kernel::store()?;
    let folder = store.join(format!("{package}.partial"));
    // Left by a set-up that was interrupted.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let result = unpack_in(package, &folder, &store);
    let _ = fs::remove_dir_all(&folder);
    result
}

fn unpack_in(package: &str, folder: &Path, store: &Path) -> Result<()> {
    let packages = parts(package)?;
    run(Command::new("apt-get")
        .args(["-q", "-o", "APT::Sandbox::User=root", "download"])
        .args(&packages)
        .current_dir(folder))?;
    for entry in fs::read_dir(folder).context("cannot list the downloaded packages")?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(entry.path()).arg(folder))?;
        }
    }
    let modules = ["usr/lib/modules", "lib/modules"].map(|path| folder.join(path));
    let modules = modules.iter().find(|path| path.exists()).context("the package has no modules")?;
    let entry = fs::read_dir(modules).ok().and_then(|mut entries| entries.next()).transpose();
    let version = entry.ok().flatten().context("the package has no modules")?.file_name();
    let version = version.to_string_lossy();

    // Assembled aside and renamed, so that a kernel in the store is always whole.
    let kernel = folder.join("kernel");
    fs::create_dir_all(kernel.join("lib/modules")).context("cannot make the kernel's folder")?;
    fs::rename(modules.join(&*version), kernel.join("lib/modules").join(&*version))
        .context("cannot move the modules")?;
    fs::rename(folder.join(format!("boot/vmlinuz-{version}")), kernel.join("vmlinuz"))
        .context("the package has no kernel image")?;
    run(Command::new("depmod").env("PATH", search_path()).arg("-b").arg(&kernel).arg(&*version))?;
    let place = store.join(&*version);
    let _ = fs::remove_dir_all(&place);
    fs::rename(&kernel, &place).with_context(|| format!("cannot make {}", place.display()))?;
    println!("setup: kernel {version} is in {}", place.display());
    Ok(())
}

/// The packages with the files of the newest kernel that the meta-package stands for.
fn parts(package: &str) -> Result<Vec<String>> {
    let mut parts: Vec<String> = Vec::new();
    let mut open = vec![package.to_owned()];
    while let Some(name) = open.pop() {
        let output = Command::new("apt-cache").args(["depends", "--important", &name]).output();
        let output = output.context("cannot run apt-cache")?;
        for dependency in kernel_parts(&String::from_utf8_lossy(&output.stdout)) {
            if !parts.contains(&dependency) {
                parts.push(dependency.clone());
                open.push(dependency);
            }
        }
    }
    if parts.is_empty() {
        bail!("no package {package} is known; run `apt-get update`, or check the package sources");
    }
    Ok(parts)
}

/// Of the output of `apt-cache depends`: the first choice of each dependency on kernel files.
fn kernel_parts(listing: &str) -> Vec<String> {
    let names =
        listing.lines().filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "));
    let is_part = |name: &&str| {
        ["linux-image-", "linux-modules-"].iter().any(|prefix| name.starts_with(prefix))
            && !name.contains("unsigned")
    };
    names.filter(is_part).map(str::to_owned).collect()
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_files_are_fetched() {
        let debian = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n";
        assert_eq!(kernel_parts(debian), ["linux-image-6.1.0-57-amd64"]);
        let ubuntu = "linux-image-6.8.0-31-generic\n |Depends: kmod\n  Depends: linux-base\n  \
                      Depends: linux-modules-6.8.0-31-generic\n  Conflicts: linux-image-unsigned-6.8.0-31-generic\n";
        assert_eq!(kernel_parts(ubuntu), ["linux-modules-6.8.0-31-generic"]);
    }
}
