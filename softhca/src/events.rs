//! Event channels: pipes that the application reads, polls and waits on as it likes.
//!
//! # Safety
//!
//! Only descriptors that this module made are used; buffers are local and passed with their lengths.
#![expect(unsafe_code, reason = "system calls on pipes")]

use crate::interpose::fds::{self, Kind};
use crate::interpose::real;
use std::os::fd::RawFd;

/// A channel. The application owns the reading end.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) read: RawFd,
    write: RawFd,
    /// Bytes of a message.
    size: usize,
    /// CQs that send to it.
    pub(crate) uses: u32,
}

impl Channel {
    /// A new channel for messages of `size` bytes.
    pub(crate) fn new(size: usize) -> Result<Self, i32> {
        let mut f = [0; 2];
        // SAFETY: room for two descriptors.
        if unsafe { libc::pipe2(f.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(real::errno());
        }
        let [read, write] = f;
        let write = fds::own(write).inspect_err(|_| {
            // SAFETY: the other end, just made.
            unsafe { real::close(read) };
        })?;
        // SAFETY: the descriptor just made. The device never blocks.
        unsafe { libc::fcntl(write, libc::F_SETFL, libc::O_NONBLOCK) };
        Ok(Self { read, write, size, uses: 0 })
    }

    /// Lets calls on the reading end find the channel.
    pub(crate) fn publish(&self, number: u32) {
        fds::set(self.read, Kind::Channel(number));
    }

    /// Sends a message. False if the reader is too far behind, or gone.
    pub(crate) fn send(&self, message: &[u8]) -> bool {
        // SAFETY: the message's bytes and length.
        let n = unsafe { libc::write(self.write, message.as_ptr().cast(), message.len()) };
        if n < 0 && real::errno() == libc::EPIPE {
            take_sigpipe();
        }
        usize::try_from(n).is_ok_and(|n| n == message.len())
    }

    /// Takes unread messages that start with `head` out. They count as never sent.
    pub(crate) fn withdraw(&self, head: u64) -> u32 {
        // What a pipe holds.
        const MOST: usize = 65536;
        let mut all = vec![0u8; MOST];
        let room = libc::iovec { iov_base: all.as_mut_ptr().cast(), iov_len: MOST };
        // Not `read`: that blocks, with the state locked, if the program reads the last message at this moment.
        // SAFETY: room for what is read.
        let n = unsafe { libc::vmsplice(self.read, &raw const room, 1, libc::SPLICE_F_NONBLOCK) };
        all.truncate(usize::try_from(n).unwrap_or(0));
        let mut taken = 0;
        for m in all.chunks_exact(self.size) {
            if m.first_chunk::<8>() == Some(&head.to_ne_bytes()) {
                taken += 1;
            } else {
                self.send(m);
            }
        }
        taken
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The application closes its own end.
        fds::disown(self.write);
    }
}

/// Takes back the signal that this thread's write to a pipe without a reader raised. (It waits while the device works.)
/// The program that put another file in the channel's place did nothing to die of.
fn take_sigpipe() {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local set, initialised by the call, and a local time.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withdraws_only_what_is_meant() {
        let c = Channel::new(8).unwrap();
        for v in [1u64, 2, 1, 3] {
            assert!(c.send(&v.to_ne_bytes()));
        }
        assert_eq!(c.withdraw(1), 2);
        let mut b = [0u8; 16];
        // SAFETY: the buffer and its length.
        let n = unsafe { libc::read(c.read, b.as_mut_ptr().cast(), b.len()) };
        assert_eq!(n, 16);
        assert_eq!(&b[..8], &2u64.to_ne_bytes());
        assert_eq!(&b[8..], &3u64.to_ne_bytes());
        assert_eq!(c.withdraw(1), 0);
        // SAFETY: the reading end, which nobody else owns here.
        unsafe { libc::close(c.read) };
    }
}
