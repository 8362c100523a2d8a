//! Numbered objects. A freed number is the next one handed out: what a program still does with a dead object's
//! number or key hits the next object, as early as it can.

/// Objects by number, counted from a base.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    base: u32,
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// An empty one whose first number is `base`.
    pub(crate) fn from(base: u32) -> Self {
        Self { base, items: Vec::new(), free: Vec::new() }
    }

    fn index(&self, n: u32) -> Option<usize> {
        n.checked_sub(self.base).and_then(|i| usize::try_from(i).ok())
    }

    /// Adds an object under the last freed number, or a new one.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(n) = self.free.pop() {
            let slot = self.index(n).and_then(|i| self.items.get_mut(i));
            if let Some(slot) = slot {
                *slot = Some(value);
            }
            return n;
        }
        self.items.push(Some(value));
        self.base + u32::try_from(self.items.len() - 1).unwrap_or(0)
    }

    /// The number that the next [`Slab::insert`] gives.
    pub(crate) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.base + u32::try_from(self.items.len()).unwrap_or(0))
    }

    pub(crate) fn get(&self, n: u32) -> Option<&T> {
        self.items.get(self.index(n)?)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, n: u32) -> Option<&mut T> {
        let i = self.index(n)?;
        self.items.get_mut(i)?.as_mut()
    }

    pub(crate) fn remove(&mut self, n: u32) -> Option<T> {
        let i = self.index(n)?;
        let v = self.items.get_mut(i)?.take()?;
        self.free.push(n);
        Some(v)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let base = self.base;
        self.items
            .iter()
            .enumerate()
            .filter_map(move |(i, v)| Some((base + u32::try_from(i).ok()?, v.as_ref()?)))
    }

    /// From the first number to the last that was ever used.
    pub(crate) fn range(&self) -> std::ops::Range<u32> {
        self.base..self.base + u32::try_from(self.items.len()).unwrap_or(0)
    }

    /// The numbers in use.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.iter().map(|(n, _)| n).collect()
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_freed_number_comes_first() {
        let mut s = Slab::from(0x100);
        let (a, b, c) = (s.insert('a'), s.insert('b'), s.insert('c'));
        assert_eq!((a, b, c), (0x100, 0x101, 0x102));
        s.remove(a);
        s.remove(b);
        assert_eq!(s.next(), b);
        assert_eq!(s.insert('d'), b);
        assert_eq!(s.insert('e'), a);
        assert_eq!(s.insert('f'), 0x103);
        assert_eq!(s.get(b), Some(&'d'));
        assert_eq!(s.get(0x200), None);
        assert_eq!(s.get(1), None);
        assert_eq!(s.len(), 4);
    }
}
