//! The C functions that libibverbs and libmlx5 call, defined anew.
//!
//! Symbols of the executable (or of an `LD_PRELOAD` library) come before the C library's, so the stock
//! libraries' calls arrive here. Everything that isn't about the software device goes straight on to the C
//! library; as long as no device was asked for, that is everything.

mod closes;
pub(crate) mod dirs;
pub(crate) mod fds;
pub(crate) mod files;
pub(crate) mod mlx5dv;
pub(crate) mod real;
mod stats;
pub(crate) mod sysfs;

/// Makes sure that the object files with the C functions are linked: whoever starts the device refers to this.
pub(crate) fn anchor() -> usize {
    files::anchor() ^ closes::anchor() ^ stats::anchor() ^ dirs::anchor() ^ mlx5dv::anchor()
}
