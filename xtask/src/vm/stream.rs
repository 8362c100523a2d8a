//! Finding the end of a stream that stays open.

use std::io::{self, Write};

/// Passes a stream on until a marker comes.
///
/// A virtio port tells its reader neither when the writer closed it nor when all of it has arrived, so the guest ends
/// each stream with a marker that nothing else can contain.
pub(super) struct UntilMarker {
    marker: Vec<u8>,
    held: Vec<u8>,
}

impl UntilMarker {
    pub(super) fn new(marker: Vec<u8>) -> Self {
        Self { marker, held: Vec::new() }
    }

    /// Writes what of `chunk` is surely content; true once the marker has come.
    pub(super) fn feed(&mut self, chunk: &[u8], out: &mut (impl Write + ?Sized)) -> io::Result<bool> {
        self.held.extend_from_slice(chunk);
        let end = self.held.windows(self.marker.len()).position(|window| window == self.marker);
        let content = end.unwrap_or_else(|| self.held.len() - self.possible_start());
        out.write_all(self.held.get(..content).unwrap_or_default())?;
        out.flush()?;
        self.held.drain(..content);
        Ok(end.is_some())
    }

    /// How many of the last bytes may be the marker's first ones.
    fn possible_start(&self) -> usize {
        let longest = self.held.len().min(self.marker.len().saturating_sub(1));
        let is_start = |length: &usize| self.held.ends_with(self.marker.get(..*length).unwrap_or_default());
        (1..=longest).rev().find(is_start).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(chunks: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut stream, mut out) = (UntilMarker::new(b"\x01end".to_vec()), Vec::new());
        let ended = chunks.iter().any(|chunk| stream.feed(chunk, &mut out).unwrap());
        (out, ended)
    }

    #[test]
    fn the_marker_is_cut_wherever_it_is_split() {
        let whole = b"a\x01e \x01\x01end";
        for cut in 0..=whole.len() {
            let (first, second) = whole.split_at(cut);
            assert_eq!(pass(&[first, second]), (b"a\x01e \x01".to_vec(), true), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(pass(&bytes), (b"a\x01e \x01".to_vec(), true));
    }

    #[test]
    fn nothing_that_cannot_be_the_marker_is_held_back() {
        assert_eq!(pass(&[b"prompt> "]), (b"prompt> ".to_vec(), false));
        assert_eq!(pass(&[b"x\x01en", b"d"]), (b"x".to_vec(), true));
        assert_eq!(pass(&[b"x\x01en", b"x"]), (b"x\x01enx".to_vec(), false));
    }

    #[test]
    fn what_follows_the_marker_is_dropped() {
        assert_eq!(pass(&[b"a\x01endb"]), (b"a".to_vec(), true));
    }
}
