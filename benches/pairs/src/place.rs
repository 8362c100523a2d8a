//! The device, and how a process gets at it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use ibv::Context;

use crate::Result;

/// A device of this machine, or the software HCA.
#[derive(Debug)]
pub struct Place {
    /// The device's name.
    pub(crate) device: String,
    /// Its port.
    pub(crate) port: u8,
    /// On RoCE.
    pub(crate) gid_index: Option<u8>,
    /// The library that makes the device, if it is a software one.
    softhca: Option<PathBuf>,
}

impl Place {
    /// The device that `IBV_DEVICE` names, its port (`IBV_PORT`, default 1) and the GID to send from (`IBV_GID_INDEX`);
    /// without the first, the software HCA.
    pub fn find() -> Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(device) = variable("IBV_DEVICE") else { return Self::soft() };
        let port = variable("IBV_PORT").map_or(Ok(1), |port| port.parse())?;
        let ctx = Context::open(&device)?;
        let local = match variable("IBV_GID_INDEX") {
            Some(index) => ctx.local_port_with_gid(port, index.parse()?)?,
            None => ctx.local_port(port)?,
        };
        Ok(Self { device, port, gid_index: local.gid_index, softhca: None })
    }

    /// The software HCA.
    pub(crate) fn soft() -> Result<Self> {
        Ok(Self { device: "mlx5_0".to_owned(), port: 1, gid_index: None, softhca: Some(softhca()?) })
    }

    /// Whether the direct path is there, and takes this device.
    pub fn has_direct(&self) -> bool {
        #[cfg(feature = "mlx5")]
        {
            let is_mlx5 = || {
                let ctx = Context::open(&self.device)?;
                ibv::CompletionQueue::builder(&ctx, 16).build_direct().map(drop)
            };
            self.softhca.is_some() || is_mlx5().is_ok()
        }
        #[cfg(not(feature = "mlx5"))]
        false
    }

    /// For people.
    pub fn describe(&self) -> String {
        let address = self.gid_index.map_or_else(|| "LID".to_owned(), |index| format!("GID index {index}"));
        let soft = if self.softhca.is_some() { " of the software HCA under the stock libmlx5" } else { "" };
        format!("{}{soft}, port {}, {address}", self.device, self.port)
    }

    /// A program that finds the device.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some(library) = &self.softhca {
            command.env("LD_PRELOAD", library).env("SOFTHCA", "1").env("SOFTHCA_LINK", "ib");
            command.env("SOFTHCA_DEVICES", "1").env("SOFTHCA_HOST_DEVICES", "0");
        }
        command
    }

    /// The environment of two processes that shall meet, and no others.
    pub(crate) fn fabric(&self) -> Option<(&'static str, String)> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        self.softhca.as_ref().map(|_| ("SOFTHCA_FABRIC", format!("bench-{}-{run}", std::process::id())))
    }
}

/// The library that Cargo built beside this program, of which it is a dependency.
fn softhca() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let library = program.with_file_name("libsofthca.so");
    if !library.exists() {
        let advice = "run it by `cargo bench`, or name a device by IBV_DEVICE";
        return Err(format!("{} is missing: {advice}", library.display()).into());
    }
    Ok(library)
}
