//! Open devices: one per `ibv_open_device`.

use super::Handle;
use super::slab::Slab;
use crate::bar::Bar;

/// Doorbell pages of a context.
pub(crate) const PAGES: u32 = 256;

/// An open device.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) dev: usize,
    pub(crate) bar: Bar,
    pub(crate) handles: Slab<Handle>,
    /// The event channels for asynchronous events.
    pub(crate) async_fds: Vec<u32>,
    /// Device and inode of the command descriptor, to recognise duplicates of it.
    pub(crate) inode: (u64, u64),
    /// Which doorbell pages are given out, with their QPs.
    pages: Vec<Option<Vec<u32>>>,
}

impl Context {
    pub(crate) fn new(dev: usize, bar: Bar, inode: (u64, u64)) -> Self {
        Self { dev, bar, handles: Slab::from(1), async_fds: Vec::new(), inode, pages: Vec::new() }
    }

    /// Gives out a doorbell page.
    pub(crate) fn alloc_page(&mut self) -> Option<u32> {
        if let Some(i) = self.pages.iter().position(Option::is_none) {
            *self.pages.get_mut(i)? = Some(Vec::new());
            return u32::try_from(i).ok();
        }
        let n = u32::try_from(self.pages.len()).ok().filter(|n| *n < PAGES)?;
        self.pages.push(Some(Vec::new()));
        Some(n)
    }

    pub(crate) fn free_page(&mut self, page: u32) {
        if let Some(p) = self.pages.get_mut(page as usize) {
            *p = None;
        }
    }

    /// The QPs whose doorbells are on `page`.
    pub(crate) fn qps_on(&self, page: u32) -> &[u32] {
        self.pages.get(page as usize).and_then(Option::as_deref).unwrap_or(&[])
    }

    pub(crate) fn has_page(&self, page: u32) -> bool {
        self.pages.get(page as usize).is_some_and(Option::is_some)
    }

    /// How many pages there are to look at.
    pub(crate) fn page_count(&self) -> u32 {
        u32::try_from(self.pages.len()).unwrap_or(0)
    }

    pub(crate) fn attach(&mut self, page: u32, qpn: u32) {
        if let Some(Some(p)) = self.pages.get_mut(page as usize) {
            p.push(qpn);
        }
    }

    pub(crate) fn detach(&mut self, page: u32, qpn: u32) {
        if let Some(Some(p)) = self.pages.get_mut(page as usize) {
            p.retain(|q| *q != qpn);
        }
    }
}
