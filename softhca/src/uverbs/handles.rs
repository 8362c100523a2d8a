//! A context's handles; and which objects a command named, for the log.

use super::{Call, Outcome};
use crate::objects::Handle;

impl Call<'_> {
    /// What a handle of this context names.
    pub(super) fn handle(&self, handle: u32) -> Result<Handle, i32> {
        let h = self.model.context(self.ctx)?.handles.get(handle).copied().ok_or(libc::ENOENT)?;
        if self.model.log_is_on() {
            self.named.borrow_mut().push(self.describe(h));
        }
        Ok(h)
    }

    /// A new handle.
    pub(super) fn hold(&mut self, h: Handle) -> Result<u32, i32> {
        let handle = self.model.context_mut(self.ctx)?.handles.insert(h);
        if self.model.log_is_on() {
            self.made = self.describe(h);
        }
        Ok(handle)
    }

    pub(super) fn forget(&mut self, handle: u32) -> Outcome {
        self.model.context_mut(self.ctx)?.handles.remove(handle);
        Ok(())
    }

    /// Adds to what the log says of a command that succeeds.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.model.log_is_on() {
            self.notes.push(text());
        }
    }

    fn describe(&self, h: Handle) -> String {
        let key = |index: u32| self.model.keys.key_of(index).unwrap_or(index << 8);
        match h {
            Handle::Pd(n) => format!("PD {n}"),
            Handle::Mr(index) => format!("MR {:#x}", key(index)),
            Handle::Mw(index) => format!("MW {:#x}", key(index)),
            Handle::Cq(n) => format!("CQ {n}"),
            Handle::Qp(n) | Handle::QpShare(n) => format!("QP {n:#x}"),
            Handle::Srq(n) => format!("SRQ {n}"),
            Handle::Ah(pd) => format!("AH in PD {pd}"),
            Handle::Xrcd(n) => format!("XRCD {n}"),
            Handle::Uar(page) => format!("doorbell page {page}"),
        }
    }

    /// The command in words: its name, the objects it named, what it made, what is to be said of it.
    pub(super) fn text(&self) -> String {
        let name = super::names::of(self.attrs.command(), self.attrs.number32(2));
        let mut text = format!("ctx {} {name}", self.ctx);
        for (i, n) in self.named.borrow().iter().enumerate() {
            text += if i == 0 { " of " } else { ", " };
            text += n;
        }
        if !self.made.is_empty() {
            text += " makes ";
            text += &self.made;
        }
        for n in &self.notes {
            text += ", ";
            text += n;
        }
        text
    }
}
