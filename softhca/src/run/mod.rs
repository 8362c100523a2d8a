//! The device's life in a process: start, open, commands, close; and who makes it work.
//!
//! # Safety
//!
//! The functions here serve intercepted C calls: pointers are the caller's arguments of the call being served.
#![expect(unsafe_code, reason = "serves C calls")]

use crate::bar::Bar;
use crate::interpose::fds::{self, Kind};
use crate::interpose::{real, sysfs};
use crate::model::{self, Model};
use crate::objects::Context;
use crate::uverbs::{self, attrs::Attrs};
use libc::{c_int, c_void};

/// Opens device `dev`; gives the command descriptor.
pub(crate) fn open_device(dev: u32) -> Result<c_int, c_int> {
    // A nameless file of its own, by whose inode duplicates of the descriptor are recognised.
    // SAFETY: a constant name; makes a new descriptor.
    let fd = unsafe { libc::memfd_create(c"softhca-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(real::errno());
    }
    let made = Bar::new().and_then(|bar| {
        let inode = inode_of(fd).ok_or_else(real::errno)?;
        model::with(|m| {
            let dev = dev as usize;
            m.device(dev)?;
            let ctx = m.contexts.insert(Context::new(dev, bar, inode));
            if fds::set(fd, Kind::Command(ctx)) {
                return Ok(());
            }
            m.close_context(ctx);
            Err(libc::EMFILE)
        })
        .unwrap_or(Err(libc::ENODEV))
    });
    match made {
        Ok(()) => {
            pump::start_service();
            Ok(fd)
        }
        Err(e) => {
            // SAFETY: the descriptor just made.
            unsafe { real::close(fd) };
            Err(e)
        }
    }
}

/// The context whose command descriptor `fd` is, or is a duplicate of.
pub(crate) fn context_of(fd: c_int) -> Option<u32> {
    match fds::get(fd) {
        Some(Kind::Command(ctx)) => return Some(ctx),
        Some(_) => return None,
        None => {}
    }
    sysfs::tree()?;
    let inode = inode_of(fd)?;
    let found = model::with(|m| m.contexts.iter().find(|(_, c)| c.inode == inode).map(|(n, _)| n))??;
    fds::set(fd, Kind::Command(found));
    Some(found)
}

/// The device whose command descriptor `fd` is.
pub(crate) fn device_of(fd: c_int) -> Option<u32> {
    let ctx = context_of(fd)?;
    let dev = model::with(|m| m.contexts.get(ctx).map(|c| c.dev))??;
    u32::try_from(dev).ok()
}

/// A descriptor of ours is being closed (and is forgotten already).
pub(crate) fn closing(fd: c_int, kind: Kind) {
    match kind {
        Kind::Sysfs(_) | Kind::Own => {}
        Kind::Channel(n) => {
            model::with(|m| m.close_channel(n));
        }
        Kind::Command(ctx) => {
            if fds::any(kind) {
                return;
            }
            model::with(|m| {
                let Some(inode) = m.contexts.get(ctx).map(|c| c.inode) else { return };
                // A duplicate that no call has come by yet keeps the context alive.
                let alive = fds::all().into_iter().find(|f| *f != fd && inode_of(*f) == Some(inode));
                match alive {
                    Some(f) => {
                        fds::set(f, kind);
                    }
                    None => m.close_context(ctx),
                }
            });
        }
    }
}

/// Serves a uverbs command.
pub(crate) fn uverbs(ctx: u32, arg: *mut c_void) -> c_int {
    // SAFETY: the argument of the ioctl being served.
    let attrs = unsafe { Attrs::new(arg) };
    let done = model::with(|model| {
        let r = uverbs::execute(model, ctx, attrs);
        if r.is_ok() && model.config.mode.is_real_time() {
            model.step();
        }
        r
    });
    match done {
        Some(Ok(())) => {
            pump::wrap(attrs);
            if pump::take_pending() {
                pump::pump();
            }
            0
        }
        Some(Err(e)) => e,
        None => libc::ENODEV,
    }
}

/// A queue whose rings the program drives itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direct {
    Qp(u32),
    Cq(u32),
}

/// The program drives the rings of a queue itself from now on, if it is one of this device.
pub(crate) fn drives_itself(queue: Direct) {
    let noted = model::with(|m| {
        let ours = match queue {
            Direct::Qp(n) => m.qps.get(n).is_some(),
            Direct::Cq(n) => m.cqs.get(n).is_some(),
        };
        ours && m.direct.insert(queue)
    });
    if noted == Some(true) {
        service::wake();
    }
}

/// Maps a page of a context.
pub(crate) fn map_device(ctx: u32, addr: *mut c_void, len: usize, prot: c_int, offset: i64) -> *mut c_void {
    let mapped = model::with(|m| {
        let traps = m.config.mode.traps();
        let Some(c) = m.contexts.get(ctx) else {
            real::set_errno(libc::ENODEV);
            return libc::MAP_FAILED;
        };
        let seen = if traps { prot & !libc::PROT_WRITE | libc::PROT_READ } else { prot };
        let is_register = prot & libc::PROT_WRITE != 0;
        let (p, page) = c.bar.map(addr, len, if is_register { seen } else { prot }, offset);
        if let (true, true, Some(page)) = (traps, p != libc::MAP_FAILED, page) {
            crate::check::trap::watch_page(p.expose_provenance(), ctx, page);
        }
        p
    });
    mapped.unwrap_or(libc::MAP_FAILED)
}

/// Device and inode of an open file.
pub(crate) fn inode_of(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: room for the answer.
    unsafe {
        let mut st: libc::stat = std::mem::zeroed();
        (real::fstat(fd, &raw mut st) == 0).then_some((st.st_dev, st.st_ino))
    }
}

pub(crate) mod fork;
pub(crate) mod pump;
pub(crate) mod service;
pub(crate) mod signals;
pub(crate) mod start;
mod teardown;

/// One pass of the device.
pub(crate) fn step() -> bool {
    model::with(Model::step).unwrap_or(false)
}

/// Whether the process may set privileged `Q_Keys`.
pub(crate) fn is_privileged() -> bool {
    // SAFETY: no arguments, no effects.
    unsafe { libc::geteuid() == 0 }
}

/// Runs `f` when the process ends normally.
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: a function that stays; it only touches memory that stays.
    unsafe { libc::atexit(f) };
}
