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
    /// On one processor, the library by which who waits for the peer hands it over.
    handover: Option<PathBuf>,
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
        Ok(Self { device, port, gid_index: local.gid_index, softhca: None, handover: handover()? })
    }

    /// The software HCA.
    pub(crate) fn soft() -> Result<Self> {
        let softhca = Some(beside("libsofthca.so")?);
        Ok(Self { device: "mlx5_0".to_owned(), port: 1, gid_index: None, softhca, handover: handover()? })
    }

    /// Whether there is but one processor: who polls a socket keeps it there until the scheduler takes it away.
    pub fn has_one_processor(&self) -> bool {
        self.handover.is_some()
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
        let one = if self.has_one_processor() { ", one processor, handed over by who waits" } else { "" };
        format!("{}{soft}, port {}, {address}{one}", self.device, self.port)
    }

    /// A program that finds the device.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let libraries: Vec<_> =
            [&self.softhca, &self.handover].into_iter().flatten().map(|file| file.as_os_str()).collect();
        if !libraries.is_empty() {
            command.env("LD_PRELOAD", libraries.join(OsStr::new(":")));
        }
        if self.softhca.is_some() {
            command.env("SOFTHCA", "1").env("SOFTHCA_LINK", "ib");
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

const HANDOVER: &str = "libibv_bench_handover.so";

/// The library for one processor, if there is but one.
fn handover() -> Result<Option<PathBuf>> {
    let is_one = std::thread::available_parallelism()?.get() == 1;
    is_one.then(|| beside(HANDOVER)).transpose()
}

/// A library that Cargo built beside this program, of which it is a dependency.
fn beside(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let library = program.with_file_name(name);
    if !library.exists() {
        let advice = "run it by `cargo bench`, or name a device by IBV_DEVICE";
        return Err(format!("{} is missing: {advice}", library.display()).into());
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "which library a function is in")]

    use std::ffi::CStr;

    use super::*;

    /// What tells a process of a test below that it is that.
    const WANTED: &str = "IBV_BENCH_WHOSE_POLL";

    /// Not a test, but such a process, which prints which library polls; when all tests run, there is nothing to do.
    #[test]
    fn whose_poll() {
        if std::env::var_os(WANTED).is_some() {
            let ctx = Context::open("mlx5_0").unwrap();
            // SAFETY: the context is open; the name is the dynamic linker's, of a library that stays.
            let name = unsafe {
                let poll = (*ctx.as_ptr()).ops.poll_cq.unwrap();
                let mut info: libc::Dl_info = std::mem::zeroed();
                assert_ne!(libc::dladdr(poll as *const libc::c_void, &raw mut info), 0);
                CStr::from_ptr(info.dli_fname)
            };
            println!("polled by {}", name.to_string_lossy());
        }
    }

    #[test]
    fn who_polls_in_vain_hands_over_the_only_processor() {
        let place = Place::soft().unwrap();
        let polled_by = |place: &Place| {
            let mut command = place.command(std::env::current_exe().unwrap());
            command.args(["--exact", "place::tests::whose_poll", "--nocapture"]).env(WANTED, "1");
            let output = command.envs(place.fabric()).output().unwrap();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let (_, name) = output.split_once("polled by ").expect(&output);
            name.lines().next().unwrap().to_owned()
        };
        let one = Place { handover: Some(beside(HANDOVER).unwrap()), ..place };
        assert!(one.has_one_processor() && polled_by(&one).ends_with(HANDOVER));
        assert!(polled_by(&Place { handover: None, ..one }).contains("mlx5"));
    }
}
