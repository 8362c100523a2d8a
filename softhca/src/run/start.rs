//! When the device starts: by [`start`], or, in a library that was preloaded and in the forked child of a process with
//! a device, when the program first looks for one.
//!
//! A start that is refused (a wrong setting, no place on the fabric) is told on standard error, in one line, and the
//! program finds no devices at all: the host's would not be the ones that it was to run on.
//!
//! # Safety
//!
//! System calls without arguments.
#![expect(unsafe_code, reason = "asks for the thread's number")]

use super::fork;
use crate::config::Config;
use crate::interpose::sysfs;
use crate::leaked::Leaked;
use crate::model::{self, Device, Model};
use crate::settings;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// What the device was started with: a forked child starts its own alike.
static CONFIG: Leaked<Config> = Leaked::new();

/// This code is in a library of its own (and not a part of a program that has a use for it).
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// What `build.rs` makes the initialisation function of the shared library, and of nothing else.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn softhca_preloaded() {
    PRELOADED.store(true, Ordering::Release);
}

/// Starts the device. An error if it runs with another configuration.
pub(crate) fn start(config: Config) -> Result<(), String> {
    fork::watch();
    let config = config.complete()?;
    let mut guard = model::lock().ok_or("a signal handler that interrupted the device can't start one")?;
    if let Some(m) = guard.as_ref() {
        return if m.config == config {
            Ok(())
        } else {
            Err("the software HCA of this process runs with another configuration".to_owned())
        };
    }
    crate::mem::prepare();
    crate::check::trap::prepare(config.mode)?;
    let m = Model::new(config)?;
    let facts = |d: &Device| sysfs::Facts {
        guid: d.guid,
        lid: d.lid,
        capabilities: d.port_capabilities(),
        gid_len: d.gid_len(),
        interface: d.interface().map(|(name, _)| name),
        gids: d.gids.clone(),
    };
    sysfs::install(&m.config, &m.devices.iter().map(facts).collect::<Vec<_>>());
    CONFIG.set(m.config.clone());
    *guard = Some(m);
    Ok(())
}

const NOBODY: i32 = 0;
const DONE: i32 = -1;
/// The thread that starts the device on demand.
static STARTER: AtomicI32 = AtomicI32::new(NOBODY);

/// In a forked child: it starts on demand.
pub(crate) fn forget() {
    STARTER.store(NOBODY, Ordering::Release);
}

/// The program looks for devices.
pub(crate) fn on_demand() {
    if sysfs::tree().is_some() || STARTER.load(Ordering::Acquire) == DONE {
        return;
    }
    // A child that is forked meanwhile must not wait for its parent's thread.
    fork::watch();
    // SAFETY: no arguments.
    let me = unsafe { libc::gettid() };
    match STARTER.compare_exchange(NOBODY, me, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if let Err(e) = start_if_wanted() {
                crate::log::tell(&format!(": {e}; this process gets no RDMA devices"));
                sysfs::install_none();
            }
            STARTER.store(DONE, Ordering::Release);
        }
        // Starting opens files itself.
        Err(other) if other == me => {}
        Err(_) => {
            while !matches!(STARTER.load(Ordering::Acquire), DONE | NOBODY) {
                std::thread::yield_now();
            }
        }
    }
}

fn start_if_wanted() -> Result<(), String> {
    if let Some(config) = CONFIG.get() {
        return start(config.clone());
    }
    if !settings::wanted(PRELOADED.load(Ordering::Acquire))? {
        return Ok(());
    }
    crate::check::be_loud();
    start(Config::from_env()?)
}
