//! Regions and address handles that are made while a queue pair runs.
//!
//! # Safety
//!
//! An [`Arena`] never moves or drops what it holds before it is dropped itself.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::ah::AddressHandle;
use crate::lock::locked;
use crate::mr::{Local, MemoryRegion};

/// A place that lends what is put into it for as long as it lives itself.
///
/// A queue pair that borrows wants what is posted on it to live as long as itself. Things that come up later (a new
/// peer's address, another region) live in an arena that was made before the queue pair.
///
/// (A struct that borrows one has two lifetimes, `&'a Arena<MemoryRegion<'p>>`: the arena takes things in, so its own
/// type cannot shrink.)
///
/// # Examples
///
/// ```no_run
/// # let ctx = ibv::Context::open("mlx5_0")?;
/// # let pd = ctx.alloc_pd()?;
/// # let cq = ctx.create_cq(128)?;
/// let regions = ibv::RegionArena::new();
/// let qp = pd.create_qp::<ibv::Rc>(&cq, &cq).build()?.init(ibv::InitAttr::new(1))?;
/// let mr = regions.add(pd.alloc_local(4096)?);
/// qp.post_recv(ibv::recv(mr.slice(..)?))?;
/// # Ok::<(), ibv::Error>(())
/// ```
pub struct Arena<T> {
    items: Mutex<Vec<NonNull<T>>>,
}

/// An [`Arena`] of memory regions.
pub type RegionArena<'p, K = Local> = Arena<MemoryRegion<'p, K>>;
/// An [`Arena`] of address handles.
pub type Peers<'p> = Arena<AddressHandle<'p>>;

// SAFETY: it owns `T`s and lends `&T`.
unsafe impl<T: Send> Send for Arena<T> {}
// SAFETY: `&Arena` takes in `T`s from other threads and lends `&T` to them.
unsafe impl<T: Send + Sync> Sync for Arena<T> {}

impl<T> Arena<T> {
    /// An empty one.
    pub fn new() -> Self {
        Self { items: Mutex::new(Vec::new()) }
    }

    /// Keeps `item` and lends it.
    pub fn add(&self, item: T) -> &T {
        let item = NonNull::from(Box::leak(Box::new(item)));
        locked(&self.items).push(item);
        // SAFETY: alive, at this place, and only lent shared, until the arena is dropped, which `&self` outlives.
        unsafe { item.as_ref() }
    }

    /// How many it holds.
    pub fn len(&self) -> usize {
        locked(&self.items).len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        for item in self.items.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: it came from a box, and nothing borrows it any more.
            drop(unsafe { Box::from_raw(item.as_ptr()) });
        }
    }
}

impl<T> fmt::Debug for Arena<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("len", &self.len()).finish()
    }
}
