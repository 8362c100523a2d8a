//! The one state of the software HCA, behind the one lock.

use crate::config::{Config, DEFAULT_FABRIC, Gid, Limits, Link, MAX_DEVICES, guid_of, usual_gids};
use crate::events::Channel;
use crate::fabric::{Fabric, shm::NODES};
use crate::fault::Faults;
use crate::leaked::Leaked;
use crate::log::Log;
use crate::objects::keys::Keys;
use crate::objects::slab::Slab;
use crate::objects::{Context, Cq, Event, Pd, Qp, Srq, Xrcd};
use crate::run::{Direct, signals::Held};
use crate::stats::Stats;
use crate::uverbs::abi::AsyncEvent;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// A device of this process.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) link: Link,
    /// `ibv_mtu` of the port.
    pub(crate) mtu: u8,
    pub(crate) lid: u16,
    pub(crate) guid: u64,
    pub(crate) gids: Vec<Gid>,
    pub(crate) pkeys: Vec<u16>,
    pub(crate) limits: Limits,
    pub(crate) lacks_atomics: bool,
    pub(crate) link_up: bool,
}

impl Device {
    /// What the port can do: the bits of `ibv_port_cap_flags`.
    pub(crate) fn port_capabilities(&self) -> u32 {
        if self.link == Link::InfiniBand { 0x2651_e848 } else { 0x0401_0000 }
    }

    /// Places in the GID table.
    pub(crate) fn gid_len(&self) -> usize {
        self.gids.len().max(8)
    }

    /// The network interface of a RoCE port: one that every machine has, with its index.
    pub(crate) fn interface(&self) -> Option<(&'static str, u32)> {
        (self.link == Link::RoCE).then_some(("lo", 1))
    }
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: Slab<Context>,
    pub(crate) channels: Slab<Channel>,
    pub(crate) pds: Slab<Pd>,
    pub(crate) keys: Keys,
    pub(crate) cqs: Slab<Cq>,
    pub(crate) qps: Slab<Qp>,
    pub(crate) srqs: Slab<Srq>,
    pub(crate) xrcds: Slab<Xrcd>,
    /// QPs that wait, by their deadline.
    pub(crate) timers: BTreeSet<(u64, u32)>,
    /// QPs in the error state, whose receive queues must be looked at.
    pub(crate) failed: BTreeSet<u32>,
    /// CQs with completions that wait to be written together.
    pub(crate) sessions: BTreeSet<u32>,
    /// Queues whose rings the program drives itself.
    pub(crate) direct: BTreeSet<Direct>,
    pub(crate) fabric: Option<Fabric>,
    pub(crate) faults: Faults,
    pub(crate) owned: crate::check::owner::Owned,
    pub(crate) stats: Stats,
    log: Log,
    /// Virtual time, and the origin of real time.
    now: u64,
    start: Instant,
}

static MODEL: Leaked<Mutex<Option<Model>>> = Leaked::new();

/// The locked state.
#[derive(Debug)]
pub(crate) struct Locked {
    guard: MutexGuard<'static, Option<Model>>,
    _after: Held,
}

impl Deref for Locked {
    type Target = Option<Model>;

    fn deref(&self) -> &Option<Model> {
        &self.guard
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Option<Model> {
        &mut self.guard
    }
}

thread_local! {
    /// This thread holds the lock without holding signals back.
    static GLANCES: Cell<bool> = const { Cell::new(false) };
}

/// Locks the state. `None` in the handler of a signal that came during [`is_idle`].
pub(crate) fn lock() -> Option<Locked> {
    let held = Held::new();
    if GLANCES.get() {
        return None;
    }
    let guard = MODEL.get_or(|| Mutex::new(None)).lock().unwrap_or_else(PoisonError::into_inner);
    Some(Locked { guard, _after: held })
}

/// Whether the device has nothing to do. This is for polls that find nothing, of which there are many: it does without
/// the two system calls by which signals are held back, since nothing in it is forbidden to be interrupted by a fork.
pub(crate) fn is_idle() -> bool {
    let Some(model) = MODEL.get() else { return true };
    let before = GLANCES.replace(true);
    let idle = model.try_lock().is_ok_and(|m| m.as_ref().is_none_or(Model::is_idle));
    GLANCES.set(before);
    idle
}

/// In a forked child: the state, and whoever holds its lock, are the parent's.
pub(crate) fn forget() {
    GLANCES.set(false);
    MODEL.forget();
}

/// Locks the state if nobody holds it.
pub(crate) fn try_lock() -> Option<Locked> {
    let held = Held::new();
    let guard = match MODEL.get()?.try_lock() {
        Ok(g) => g,
        Err(TryLockError::Poisoned(p)) => p.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    Some(Locked { guard, _after: held })
}

/// Runs `f` on the state, if the device was started.
pub(crate) fn with<R>(f: impl FnOnce(&mut Model) -> R) -> Option<R> {
    lock()?.as_mut().map(f)
}

/// The first LID of a process that is alone: not one that a fabric gives, and hardly that of another such process,
/// so that an address from elsewhere leads nowhere, instead of to a queue pair of this process's own.
fn lid_alone() -> u16 {
    const SPREAD: usize = 6000;
    let place = NODES + std::process::id() as usize % SPREAD;
    u16::try_from(place * MAX_DEVICES + 1).unwrap_or(1)
}

impl Model {
    /// The state after start-up. `config` is complete.
    pub(crate) fn new(config: Config) -> Result<Self, String> {
        // What can fail comes before the place on the fabric, which stays taken.
        let (log, faults) = (Log::new(&config.log)?, Faults::parse(&config.faults)?);
        let fabric = match config.fabric.as_deref().map(Fabric::join).transpose() {
            // Nobody asked for this one.
            Err(e) if config.fabric.as_deref() == Some(DEFAULT_FABRIC) => {
                crate::log::tell(&format!(": {e}; this process is alone"));
                None
            }
            joined => joined?,
        };
        let base = match &fabric {
            Some(f) => f.base_lid(),
            None if config.mode.is_real_time() => lid_alone(),
            None => 1,
        };
        let mut devices = Vec::new();
        for (d, lid) in config.devices.iter().zip(base..) {
            let guid = guid_of(d, lid);
            let gids = if d.gids.is_empty() { usual_gids(d.link, guid, lid) } else { d.gids.clone() };
            let mtu = u8::try_from(d.mtu.ilog2().saturating_sub(7)).unwrap_or(5);
            devices.push(Device {
                link: d.link,
                mtu,
                lid: if d.link == Link::InfiniBand { lid } else { 0 },
                guid,
                gids,
                pkeys: d.pkeys.clone(),
                limits: d.limits,
                lacks_atomics: d.lacks_atomics,
                link_up: true,
            });
        }
        if let Some(f) = &fabric {
            f.publish(&devices);
        }
        Ok(Self {
            devices,
            contexts: Slab::from(1),
            channels: Slab::from(1),
            pds: Slab::from(1),
            keys: Keys::new(),
            cqs: Slab::from(1),
            qps: Slab::from(0x100),
            srqs: Slab::from(1),
            xrcds: Slab::from(1),
            timers: BTreeSet::new(),
            failed: BTreeSet::new(),
            direct: BTreeSet::new(),
            sessions: BTreeSet::new(),
            fabric,
            faults,
            owned: crate::check::owner::Owned::default(),
            stats: Stats::default(),
            log,
            now: 0,
            start: Instant::now(),
            config,
        })
    }

    /// The device's time in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        if self.config.mode.is_real_time() {
            u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
        } else {
            self.now
        }
    }

    /// Moves virtual time on to `ns`.
    pub(crate) fn advance_to(&mut self, ns: u64) {
        self.now = self.now.max(ns);
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        if self.log.is_on() {
            let now = self.now();
            self.log.line(now, &line());
        }
    }

    pub(crate) fn log_is_on(&self) -> bool {
        self.log.is_on()
    }

    pub(crate) fn take_log(&mut self) -> Vec<String> {
        self.log.take()
    }

    /// Notes a breach of the device's rules.
    pub(crate) fn violation(&mut self, text: String) {
        self.log(|| format!("VIOLATION {text}"));
        crate::check::report(text);
    }

    pub(crate) fn context(&self, ctx: u32) -> Result<&Context, i32> {
        self.contexts.get(ctx).ok_or(libc::ENODEV)
    }

    pub(crate) fn context_mut(&mut self, ctx: u32) -> Result<&mut Context, i32> {
        self.contexts.get_mut(ctx).ok_or(libc::ENODEV)
    }

    pub(crate) fn device(&self, dev: usize) -> Result<&Device, i32> {
        self.devices.get(dev).ok_or(libc::ENODEV)
    }

    /// The limits of the device that `ctx` opened.
    pub(crate) fn limits(&self, ctx: u32) -> Limits {
        let dev = self.contexts.get(ctx).map_or(0, |c| c.dev);
        self.devices.get(dev).map_or_else(Limits::default, |d| d.limits)
    }

    pub(crate) fn use_pd(&mut self, pdn: u32) {
        if let Some(p) = self.pds.get_mut(pdn) {
            p.uses += 1;
        }
    }

    pub(crate) fn release_pd(&mut self, pdn: u32) {
        if let Some(p) = self.pds.get_mut(pdn) {
            p.uses = p.uses.saturating_sub(1);
        }
    }

    /// Frees a PD, unless something is in it.
    pub(crate) fn free_pd(&mut self, pdn: u32) -> Result<(), i32> {
        match self.pds.get(pdn) {
            None => Err(libc::EINVAL),
            Some(p) if p.uses > 0 => Err(libc::EBUSY),
            Some(_) => {
                self.pds.remove(pdn);
                Ok(())
            }
        }
    }

    /// Frees a region's or window's key.
    pub(crate) fn remove_key(&mut self, index: u32) {
        if let Some(e) = self.keys.remove(index) {
            self.release_pd(e.pd);
        }
    }

    /// Sends an asynchronous event about the object whose user handle is `element`. True if it was sent.
    pub(crate) fn async_event(&mut self, fd: Option<u32>, element: u64, event: Event) -> bool {
        self.stats.async_events += 1;
        let e = AsyncEvent { element, event_type: event as u32, reserved: 0 };
        let mut bytes = [0u8; 16];
        crate::bits::put(&mut bytes, 0, &e.element.to_ne_bytes());
        crate::bits::put(&mut bytes, 8, &e.event_type.to_ne_bytes());
        fd.and_then(|n| self.channels.get(n)).is_some_and(|c| c.send(&bytes))
    }

    /// Sends an event about QP `qpn`.
    pub(crate) fn qp_event(&mut self, qpn: u32, event: Event) {
        let Some(q) = self.qps.get(qpn) else { return };
        let (fd, user) = (q.async_fd, q.user);
        self.log(|| format!("event {event:?} of QP {qpn:#x}"));
        if self.async_event(fd, user, event) {
            if let Some(q) = self.qps.get_mut(qpn) {
                q.async_events += 1;
            }
        }
    }

    /// Takes unread events about `element` out of the channel; gives how many.
    pub(crate) fn withdraw(&self, fd: Option<u32>, element: u64) -> u32 {
        fd.and_then(|n| self.channels.get(n)).map_or(0, |c| c.withdraw(element))
    }

    /// Takes a port up or down, with the event to each context.
    pub(crate) fn set_link(&mut self, dev: usize, up: bool) {
        let Some(d) = self.devices.get_mut(dev) else { return };
        if d.link_up == up {
            return;
        }
        d.link_up = up;
        self.log(|| format!("device {dev}: link {}", if up { "up" } else { "down" }));
        let fds: Vec<u32> = self
            .contexts
            .iter()
            .filter(|(_, c)| c.dev == dev)
            .flat_map(|(_, c)| c.async_fds.clone())
            .collect();
        for fd in fds {
            self.async_event(Some(fd), 1, if up { Event::PortActive } else { Event::PortError });
        }
    }

    /// Closes an open of an XRC domain.
    pub(crate) fn close_xrcd(&mut self, id: u32) -> Result<(), i32> {
        let x = self.xrcds.get_mut(id).ok_or(libc::EINVAL)?;
        if x.opens == 1 && x.uses > 0 {
            return Err(libc::EBUSY);
        }
        x.opens -= 1;
        if x.opens == 0 {
            self.xrcds.remove(id);
        }
        Ok(())
    }

    /// Frees a doorbell page.
    pub(crate) fn free_page(&mut self, ctx: u32, page: u32) {
        crate::check::trap::forget_page(ctx, page);
        if let Some(c) = self.contexts.get_mut(ctx) {
            c.free_page(page);
        }
    }
}
