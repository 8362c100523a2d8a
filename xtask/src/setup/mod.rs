//! `cargo xtask setup`: installs what is missing, quickly if that is nothing.

mod kernels;
mod needs;
mod probe;

use crate::program;
use anyhow::{Context as _, Result, bail};
pub(crate) use needs::Part;
use needs::{NEEDS, Need, WantedKernel, wanted_kernels};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

const HELP: &str = "\
cargo xtask setup [--check]

Installs the system packages that building and testing ibv need and that are missing, by apt or dnf (as root or with
sudo), and fetches kernels for the virtual machine into ~/.cache/ibv/kernels, without installing them.

  --check   only say what is missing; exit status 1 if anything is";

/// What installs packages here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Apt,
    Dnf,
}

/// What is missing.
#[derive(Debug)]
struct Missing {
    needs: Vec<&'static Need>,
    kernels: Vec<&'static WantedKernel>,
}

/// `cargo xtask setup`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let mut check = false;
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => check = true,
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if check {
        let missing = Missing::find(Part::ALL);
        if !missing.is_nothing() {
            print!("missing:\n{}", missing.list());
            return Ok(ExitCode::FAILURE);
        }
    } else {
        ensure(Part::ALL)?;
    }
    println!("setup: everything is there");
    Ok(ExitCode::SUCCESS)
}

/// Installs what is missing for these parts; silent if nothing is.
pub(crate) fn ensure(parts: &[Part]) -> Result<()> {
    let missing = Missing::find(parts);
    if missing.is_nothing() {
        return Ok(());
    }
    let manager = Manager::find();
    println!("setup: missing\n{}", missing.list());
    let Some(manager) = manager else {
        bail!("neither apt nor dnf is here: install the above by hand (in brackets: Debian's names)");
    };
    manager.install(&missing)?;
    let left = Missing::find(parts);
    if !left.is_nothing() {
        bail!("still missing after the installation:\n{}", left.list());
    }
    Ok(())
}

impl Missing {
    fn find(parts: &[Part]) -> Self {
        let (id, version) = distribution(&fs::read_to_string("/etc/os-release").unwrap_or_default());
        let is_wanted = |need: &&Need| parts.contains(&need.part) && !need.probe.found();
        let kernels = match parts.contains(&Part::Vm) {
            true => kernels::missing(wanted_kernels(&id, &version)),
            false => Vec::new(),
        };
        Self { needs: NEEDS.iter().filter(is_wanted).collect(), kernels }
    }

    fn is_nothing(&self) -> bool {
        self.needs.is_empty() && self.kernels.is_empty()
    }

    fn list(&self) -> String {
        let needs = self.needs.iter().map(|need| format!("  {} [{}]\n", need.what, need.apt.join(", ")));
        let kernels = self.kernels.iter().map(|kernel| {
            let series = kernel.series.map_or_else(String::new, |series| format!(" {series}"));
            format!("  a kernel{series} with rdma_rxe (vm) [{}]\n", kernel.package)
        });
        needs.chain(kernels).collect()
    }

    /// The packages to install, each once.
    fn packages(&self, manager: Manager) -> Vec<&'static str> {
        let names = self.needs.iter().flat_map(|need| match manager {
            Manager::Apt => need.apt,
            Manager::Dnf => need.dnf,
        });
        let mut packages: Vec<&str> = names.copied().collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    }
}

impl Manager {
    fn find() -> Option<Self> {
        let managers = [("apt-get", Self::Apt), ("dnf", Self::Dnf)];
        managers.into_iter().find(|(name, _)| program::find(name).is_some()).map(|(_, manager)| manager)
    }

    fn install(self, missing: &Missing) -> Result<()> {
        let mut packages = missing.packages(self);
        match self {
            Self::Apt => {
                if !has_package_lists() {
                    as_root(&["apt-get", "-q", "update"])?;
                }
                let mut install = vec![
                    "env",
                    "DEBIAN_FRONTEND=noninteractive",
                    "apt-get",
                    "-q",
                    "-y",
                    "-o",
                    "DPkg::Lock::Timeout=300",
                    "install",
                    "--no-install-recommends",
                ];
                install.append(&mut packages);
                let get = || {
                    if !missing.needs.is_empty() {
                        as_root(&install)?;
                    }
                    missing.kernels.iter().try_for_each(|kernel| kernels::unpack(kernel.package))
                };
                // Old lists name packages that the servers no longer have.
                get().or_else(|error| {
                    println!("setup: {error:#}; trying again with fresh package lists");
                    as_root(&["apt-get", "-q", "update"])?;
                    get()
                })
            }
            Self::Dnf => {
                packages.extend(missing.kernels.iter().flat_map(|kernel| ["kernel-core", kernel.package]));
                let mut install = vec!["dnf", "-y", "install", "--setopt=install_weak_deps=False"];
                install.append(&mut packages);
                as_root(&install).context(
                    "RHEL and its clones have neither a QEMU nor a kernel with 9p, which the virtual machine needs; \
                     there, test on a real device with IBV_TEST_DEVICE",
                )
            }
        }
    }
}

/// Runs a command as root, by sudo if need be.
fn as_root(command: &[&str]) -> Result<()> {
    let shown = command.join(" ");
    // The owner of our own entry is whom we run as.
    let is_root = fs::metadata("/proc/self").context("no /proc here")?.uid() == 0;
    // `env` is there only to have a program in either case.
    let by = if is_root { "env" } else { "sudo" };
    if program::find(by).is_none() {
        bail!("run this as root, or install sudo:\n  {shown}");
    }
    println!("setup: {shown}");
    let status = Command::new(by).args(command).status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Fresh container images have none.
fn has_package_lists() -> bool {
    let lists = fs::read_dir(Path::new("/var/lib/apt/lists")).into_iter().flatten().flatten();
    lists.into_iter().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// `ID` and `VERSION_ID` of an os-release file; a derivative counts as the first distribution it is like.
fn distribution(release: &str) -> (String, String) {
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let known = ["debian", "ubuntu", "fedora", "rhel"];
    let (id, like) = (value("ID"), value("ID_LIKE"));
    if known.contains(&id.as_str()) {
        return (id, value("VERSION_ID"));
    }
    let like = like.split_whitespace().find(|name| known.contains(name));
    // A derivative counts its versions in its own way.
    (like.map_or(id, str::to_owned), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_and_their_derivatives_are_known() {
        let of = |release: &str| distribution(release);
        let pair = |id: &str, version: &str| (id.to_owned(), version.to_owned());
        assert_eq!(of("NAME=\"x\"\nVERSION_ID=\"12\"\nID=debian\n"), pair("debian", "12"));
        assert_eq!(of("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=\"21\"\n"), pair("ubuntu", ""));
        assert_eq!(
            of("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\nVERSION_ID=\"9.4\"\n"),
            pair("rhel", "")
        );
        assert_eq!(of("ID=arch\n"), pair("arch", ""));
        assert_eq!(of(""), pair("", ""));
    }

    #[test]
    fn a_package_is_named_once() {
        let missing = Missing { needs: NEEDS.iter().collect(), kernels: Vec::new() };
        for manager in [Manager::Apt, Manager::Dnf] {
            let packages = missing.packages(manager);
            let mut unique = packages.clone();
            unique.dedup();
            assert_eq!(packages, unique);
        }
        assert!(missing.packages(Manager::Apt).contains(&"libclang-dev"));
        assert!(missing.list().contains("libclang (build: bindgen) [libclang-dev]"));
    }
}
