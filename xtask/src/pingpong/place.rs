//! Where the ping-pong runs.

use super::device::{self, Device};
use crate::kernel::{self, Kernel};
use crate::run::{self, Tee};
use crate::{cargo, vm};
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// For all sizes; `run.sh` limits each.
const LIMIT: Duration = Duration::from_secs(700);

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A device of this machine, else the software HCA.
    Best,
    /// This device of this machine.
    Named(String),
    Soft,
    Rxe,
}

/// What it is.
#[derive(Debug)]
pub(super) enum Place {
    /// A device of this machine.
    Here(Device),
    /// The software HCA, made by this library.
    Soft(PathBuf),
    /// `rxe0` in a virtual machine.
    Guest(Kernel),
}

impl Wanted {
    pub(super) fn new(name: Option<String>) -> Self {
        match name.as_deref() {
            None | Some("") => Self::Best,
            Some("soft") => Self::Soft,
            Some("rxe") => Self::Rxe,
            Some(name) => Self::Named(name.to_owned()),
        }
    }
}

impl Place {
    /// Finds, or builds, what is wanted.
    pub(super) fn find(wanted: &Wanted) -> Result<Self> {
        let here = match wanted {
            Wanted::Best => device::find(None)?,
            Wanted::Named(name) => device::find(Some(name))?,
            Wanted::Soft => None,
            Wanted::Rxe => return Ok(Self::Guest(kernel::pick(None, vm::Link::Rxe.module())?)),
        };
        Ok(match here {
            Some(device) => Self::Here(device),
            None => Self::Soft(cargo::release_library("softhca")?),
        })
    }

    pub(super) fn device(&self) -> Device {
        match self {
            Self::Here(device) => device.clone(),
            Self::Soft(_) => Device { name: "mlx5_0".into(), port: 1, gid_index: None },
            Self::Guest(_) => Device { name: "rxe0".into(), port: 1, gid_index: Some(1) },
        }
    }

    /// Round trips of each size that take seconds there.
    pub(super) fn iterations(&self) -> u32 {
        match self {
            Self::Here(_) | Self::Soft(_) => 10_000,
            Self::Guest(_) => 1000,
        }
    }

    pub(super) fn describe(&self) -> String {
        let Device { name, port, gid_index } = self.device();
        let address = gid_index.map_or_else(|| "LID".into(), |index| format!("GID index {index}"));
        let place = match self {
            Self::Here(_) => String::new(),
            Self::Soft(_) => {
                " of the software HCA under the stock libmlx5 (its times say nothing about hardware)".into()
            }
            Self::Guest(kernel) if vm::is_emulated() => {
                format!(" in a VM (kernel {}, emulated: times mean nothing alone)", kernel.version)
            }
            Self::Guest(kernel) => format!(" in a VM (kernel {})", kernel.version),
        };
        format!("device  {name}, port {port}, {address}{place}")
    }

    /// Runs a command there; what it printed.
    pub(super) fn run(&self, words: Vec<OsString>) -> Result<String> {
        let mut out = Tee::new(io::sink());
        let end = match self {
            Self::Here(_) | Self::Soft(_) => {
                let mut words = words.into_iter();
                let mut command = cargo::bare(words.next().context("no command")?);
                command.args(words).envs(self.environment());
                run::run(&mut command, LIMIT, &mut out, &mut io::stderr())?
            }
            Self::Guest(kernel) => {
                let job = vm::Job {
                    kernel: kernel.clone(),
                    link: vm::Link::Rxe,
                    timeout: LIMIT,
                    directory: std::env::current_dir().context("the current folder is gone")?,
                    environment: vm::environment(),
                    command: words,
                };
                let ended = vm::run(&job, &mut out, &mut io::stderr())?;
                ended.report(&job);
                ended.verdict()
            }
        };
        if let Err(how) = end {
            bail!("the ping-pong failed ({how}); it had printed:\n{}", out.text());
        }
        Ok(out.text())
    }

    /// What puts the software HCA under a program: one device, on a fabric that no other run has. Its mode, log and
    /// faults are the user's.
    fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Self::Soft(library) = self else { return Vec::new() };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let fabric = format!("xtask-{}-{}", std::process::id(), now.as_nanos());
        vec![
            ("LD_PRELOAD", library.into()),
            ("SOFTHCA", "1".into()),
            ("SOFTHCA_LINK", "ib".into()),
            ("SOFTHCA_DEVICES", "1".into()),
            ("SOFTHCA_HOST_DEVICES", "0".into()),
            ("SOFTHCA_FABRIC", fabric.into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_and_rxe_are_not_names_of_devices() {
        let wanted = |name: &str| Wanted::new(Some(name.into()));
        assert_eq!([wanted("soft"), wanted("rxe")], [Wanted::Soft, Wanted::Rxe]);
        assert_eq!(wanted("mlx5_1"), Wanted::Named("mlx5_1".into()));
        assert_eq!([wanted(""), Wanted::new(None)], [Wanted::Best, Wanted::Best]);
    }

    #[test]
    fn only_the_software_hca_is_put_under_programs() {
        let place = Place::Soft("/x/libsofthca.so".into());
        let value = |name: &str| {
            place.environment().into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        assert_eq!(value("LD_PRELOAD").unwrap(), "/x/libsofthca.so");
        assert!(value("SOFTHCA_FABRIC") != value("SOFTHCA_FABRIC"), "each run has its own");
        assert!(place.describe().contains("nothing about hardware"));
        let here = Place::Here(Device { name: "mlx5_0".into(), port: 1, gid_index: Some(3) });
        assert!(here.environment().is_empty());
        assert_eq!(here.describe(), "device  mlx5_0, port 1, GID index 3");
    }
}
