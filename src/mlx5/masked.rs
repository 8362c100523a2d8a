//! A table that is indexed by a number that goes round.
//!
//! # Safety
//!
//! The length is a power of two, 1 at least, and never changes; an index is cut to it before it is used.

#![expect(unsafe_code, reason = "the Safety section above")]

use std::sync::Arc;

/// Shared items, a power of two of them.
#[derive(Debug)]
pub(super) struct Masked<T> {
    items: Arc<[T]>,
    mask: u32,
}

/// Of the same items.
impl<T> Clone for Masked<T> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items), mask: self.mask }
    }
}

impl<T: Default> Masked<T> {
    /// `len` items, or 1 for none; rounded up to a power of two.
    pub(super) fn new(len: u32) -> Self {
        let items: Arc<[T]> = (0..len.next_power_of_two()).map(|_| T::default()).collect();
        let mask = items.len() as u32 - 1;
        Self { items, mask }
    }
}

/// The table with its address at hand.
#[derive(Debug)]
pub(super) struct View<'t, T> {
    items: &'t [T],
    mask: u32,
}

impl<'t, T> View<'t, T> {
    /// The item at `index`, which goes round.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &'t T {
        // SAFETY: at most `mask`, which is the length less 1.
        unsafe { self.items.get_unchecked((index & self.mask) as usize) }
    }
}

impl<T> Masked<T> {
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_, T> {
        View { items: &self.items, mask: self.mask }
    }

    /// The item at `index`, which goes round.
    #[inline(always)]
    pub(super) fn at(&self, index: u32) -> &T {
        self.view().at(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_go_round() {
        for len in [0, 1, 2, 64] {
            let table = Masked::<u8>::new(len);
            for index in (0..300).chain(u32::MAX - 300..=u32::MAX) {
                let at = std::ptr::from_ref(table.at(index)).addr() - table.items.as_ptr().addr();
                assert_eq!(at as u32, index % len.max(1));
            }
        }
    }
}
