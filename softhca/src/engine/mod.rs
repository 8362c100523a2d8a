//! The device at work: doorbells, timers, and one pass over what is to do.

mod complete;
pub(crate) mod compress;
pub(crate) use complete::Entry;
mod lifecycle;
mod receive;
pub(crate) mod request;
mod requester;
mod responder;
mod route;
mod trace;
mod umr;
pub(crate) mod wqe;

use crate::bar::Bar;
use crate::bits;
use crate::mem;
use crate::model::Model;
use crate::objects::cq::Armed;

impl Model {
    /// One pass: doorbells, the fabric, due timers, receive queues of failed QPs. True if anything was done.
    pub(crate) fn step(&mut self) -> bool {
        let mut busy = self.change_links();
        busy |= self.scan_doorbells();
        busy |= self.poll_fabric();
        busy |= self.run_timers();
        busy |= self.flush_failed();
        self.close_sessions();
        let now = self.now();
        for (_, c) in self.contexts.iter() {
            c.bar.set_clock(now);
        }
        if self.config.mode == crate::config::Mode::PumpTrap {
            crate::check::trap::collect();
        }
        busy
    }

    /// Whether a pass would find nothing to do; sets the clock, as it would. (Without an allocation: see
    /// [`crate::model::is_idle`].)
    pub(crate) fn is_idle(&self) -> bool {
        let now = self.now();
        let due = self.next_deadline().is_some_and(|d| d <= now);
        if due || !self.failed.is_empty() || self.fabric.as_ref().is_some_and(|f| f.has_work()) {
            return false;
        }
        self.contexts.iter().all(|(_, c)| {
            c.bar.set_clock(now);
            (0..c.page_count()).filter(|p| c.has_page(*p)).all(|p| {
                !c.bar.is_rung(p, bits::CQ_DOORBELL)
                    && !Bar::doorbells().into_iter().any(|at| c.bar.is_rung(p, at))
            })
        })
    }

    /// Steps until nothing is left to do, moving virtual time on to the next timer. A receiver that stays not
    /// ready while the sender retries for ever doesn't keep it from ending. Gives the number of passes with work.
    pub(crate) fn run_until_idle(&mut self) -> usize {
        let mut passes = 0;
        let mut idle_fires = 0;
        loop {
            let before = self.stats;
            while self.step() {
                passes += 1;
            }
            let progress = self.stats.wqes != before.wqes || self.stats.cqes != before.cqes;
            idle_fires = if progress { 0 } else { idle_fires + 1 };
            let Some(&(deadline, _)) = self.timers.first() else { break };
            if self.config.mode.is_real_time() || idle_fires > 2 * self.timers.len() && self.all_endless() {
                break;
            }
            self.advance_to(deadline);
        }
        passes
    }

    /// Whether all waiting QPs retry for ever.
    fn all_endless(&self) -> bool {
        self.timers.iter().all(|(_, n)| {
            self.qps.get(*n).is_some_and(|q| q.wait == crate::objects::qp::Wait::Rnr && q.attr.rnr_retry == 7)
        })
    }

    /// Links that go down or up by a plan.
    fn change_links(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        while let Some(up) = self.faults.due_link(now) {
            for dev in 0..self.devices.len() {
                self.set_link(dev, up);
            }
            busy = true;
        }
        busy
    }

    fn scan_doorbells(&mut self) -> bool {
        let mut busy = false;
        for ctx in self.contexts.range() {
            let pages = self.contexts.get(ctx).map_or(0, |c| c.page_count());
            for page in 0..pages {
                let Some(c) = self.contexts.get(ctx).filter(|c| c.has_page(page)) else { continue };
                if crate::check::trap::is_stepping() {
                    return busy;
                }
                let arm = c.bar.take(page, bits::CQ_DOORBELL);
                let rung = Bar::doorbells().map(|at| (at, c.bar.take(page, at)));
                if let Some(value) = arm {
                    let cqn = bits::be32(&value, 4) & 0xff_ffff;
                    self.log(|| format!("ctx {ctx} page {page} +{:#x}: CQ {cqn}", bits::CQ_DOORBELL));
                    self.arm_cqs(ctx, cqn);
                    busy = true;
                }
                if rung.iter().any(|(_, value)| value.is_some()) {
                    for (at, value) in rung {
                        let Some(value) = value else { continue };
                        self.stats.doorbells += 1;
                        if self.log_is_on() {
                            let c = self.contexts.get(ctx);
                            let copied = c.is_some_and(|c| c.bar.take_copy(page, at));
                            self.log_doorbell(ctx, page, at, value, copied);
                        }
                    }
                    self.ring(ctx, page);
                    busy = true;
                }
            }
        }
        busy
    }

    /// A register of `page` was written. Several QPs can share a register, and one ring can hide another: all QPs
    /// of the page look at their doorbell records.
    fn ring(&mut self, ctx: u32, page: u32) {
        let qpns = self.contexts.get(ctx).map_or_else(Vec::new, |c| c.qps_on(page).to_vec());
        for qpn in qpns {
            self.run_sq(qpn);
        }
    }

    /// The CQ doorbell was written, with `rung` as its CQ. It is one register for all CQs of the context, so one
    /// ring can hide another: each CQ's arm word is looked at.
    fn arm_cqs(&mut self, ctx: u32, rung: u32) {
        for cqn in self.cqs.numbers() {
            let Some(cq) = self.cqs.get_mut(cqn).filter(|c| c.ctx == ctx) else { continue };
            let Ok(word) = mem::load_be32(cq.db + 4) else { continue };
            if word == cq.last_arm && cqn != rung {
                continue;
            }
            cq.last_arm = word;
            let solicited = word & (1 << 24) != 0;
            let ci = word & 0xff_ffff;
            cq.armed = if solicited { Armed::Solicited } else { Armed::Any };
            let newest = if solicited { cq.solicited_pi } else { cq.pi };
            let behind = newest.wrapping_sub(ci) & 0xff_ffff;
            let pending = behind != 0 && behind < 0x80_0000;
            self.log(|| format!("CQ {cqn} armed{} at {ci}", if solicited { " (solicited)" } else { "" }));
            if pending {
                self.completion_event(cqn);
            }
        }
    }

    fn run_timers(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        while let Some(&(deadline, qpn)) = self.timers.first() {
            if deadline > now {
                break;
            }
            self.timers.pop_first();
            self.timer_fired(qpn);
            busy = true;
        }
        busy
    }

    fn flush_failed(&mut self) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        let before = self.stats.cqes;
        for qpn in self.failed.clone() {
            self.flush_rq(qpn);
        }
        self.stats.cqes != before
    }

    /// When the next timer fires, in nanoseconds of the device's time.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let timer = self.timers.first().map(|(t, _)| *t);
        [timer, self.faults.next_link()].into_iter().flatten().min()
    }
}
