//! The handle that tests hold.

use crate::bits::Syndrome;
use crate::config::Config;
use crate::fault::Verdict;
use crate::model::{self, Model};
use crate::stats::{Objects, Stats};
use std::fmt;
use std::time::Duration;

/// Why the device could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The software HCA of this process.
///
/// There is one per process (the C library's functions are intercepted for all of it), so all handles are the same
/// device. Tests of one executable run in parallel share it: a step made by one test executes everybody's requests.
#[derive(Clone, Copy, Debug)]
pub struct Hca(());

fn with<R: Default>(f: impl FnOnce(&mut Model) -> R) -> R {
    model::with(f).unwrap_or_default()
}

impl Hca {
    /// Starts the device: from now on `ibv_get_device_list` finds it. Call it before anything asks libibverbs for
    /// devices. Starting it again with the same configuration gives the same device.
    ///
    /// # Errors
    /// The configuration is wrong, or the device runs with another one.
    pub fn start(config: Config) -> Result<Self, Error> {
        // Keeps the intercepting functions in the link.
        std::hint::black_box(crate::interpose::anchor());
        crate::run::start::start(config).map_err(Error)?;
        Ok(Self(()))
    }

    /// The device, if it runs.
    pub(crate) fn running() -> Option<Self> {
        model::with(|_| Self(()))
    }

    /// One pass of the device: doorbells, due timers, flushes. True if anything was done.
    pub fn step(&self) -> bool {
        crate::run::step()
    }

    /// Steps until nothing is left to do, and moves virtual time on to each timer in between. Gives the number of
    /// passes that had work.
    pub fn run_until_idle(&self) -> usize {
        with(Model::run_until_idle)
    }

    /// The device's time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(with(|m| m.now()))
    }

    /// Moves virtual time on.
    pub fn advance(&self, by: Duration) {
        with(|m| {
            let now = m.now();
            m.advance_to(now.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)));
        });
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        let (checked_stores, checked_records) = crate::check::trap::counts();
        with(|m| Stats { checked_stores, checked_records, ..m.stats })
    }

    /// The objects that exist, of all contexts.
    pub fn objects(&self) -> Objects {
        with(|m| Objects {
            contexts: m.contexts.len(),
            pds: m.pds.len(),
            regions: m.keys.len() - m.keys.windows() as usize,
            windows: m.keys.windows() as usize,
            cqs: m.cqs.len(),
            qps: m.qps.len(),
            srqs: m.srqs.len(),
        })
    }

    /// The log so far, if it goes to memory. Starts anew.
    pub fn take_log(&self) -> Vec<String> {
        with(Model::take_log)
    }

    /// How many rules were broken since the last call, and the first of them as text.
    pub fn take_violations(&self) -> (u64, Vec<String>) {
        crate::check::take()
    }

    /// The program says that the CPU owns `len` bytes at `addr` from now on: a device access there is a violation.
    pub fn cpu_owns(&self, addr: usize, len: usize) {
        with(|m| m.owned.own(addr as u64, len as u64));
    }

    /// The stretch at `addr` is the device's to use again.
    pub fn cpu_releases(&self, addr: usize) {
        with(|m| m.owned.release(addr as u64));
    }

    /// The `nth` message from now on (1: the next) is lost.
    pub fn drop_message(&self, nth: u64) {
        with(|m| m.faults.add(nth, Verdict::Drop));
    }

    /// The `nth` message from now on is executed, and its answer is lost: the requester repeats it. Of UC and UD, where
    /// there is no answer, nothing is lost.
    pub fn drop_answer(&self, nth: u64) {
        with(|m| m.faults.add(nth, Verdict::Unanswered));
    }

    /// The `nth` message from now on arrives late.
    pub fn delay_message(&self, nth: u64, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        with(|m| m.faults.add(nth, Verdict::Delay(ns)));
    }

    /// The first payload byte of the `nth` message from now on is changed on its way, unseen by the transport.
    pub fn corrupt_message(&self, nth: u64) {
        with(|m| m.faults.add(nth, Verdict::Corrupt));
    }

    /// Out of a million messages, `ppm` are lost; which ones depends on `seed` alone.
    pub fn lose_messages(&self, ppm: u32, seed: u64) {
        with(|m| m.faults.set_loss(ppm, seed));
    }

    /// Each message takes `each` from now on.
    pub fn slow_down(&self, each: Duration) {
        let ns = u64::try_from(each.as_nanos()).unwrap_or(u64::MAX);
        with(|m| m.faults.set_slow(ns));
    }

    /// The `nth` control call (a verb that reaches the kernel) from now on fails with `errno`.
    pub fn fail_verb(&self, nth: u64, errno: i32) {
        with(|m| m.faults.fail_verb(nth, errno));
    }

    /// The next successful send completion is this error instead.
    pub fn fail_next_completion(&self, syndrome: Syndrome) {
        with(|m| m.faults.set_bad_completion(syndrome));
    }

    /// The next completion of CQ `cqn` overruns it.
    pub fn overrun_cq(&self, cqn: u32) {
        with(|m| m.faults.set_overrun(cqn));
    }

    /// Moves QP `qpn` to the error state, as a failing device does (with the `QP_FATAL` event).
    pub fn fail_qp(&self, qpn: u32) {
        with(|m| m.fatal(qpn));
    }

    /// Takes the port of device `dev` (counted from 0) down or up.
    pub fn set_link(&self, dev: usize, up: bool) {
        with(|m| m.set_link(dev, up));
    }
}
