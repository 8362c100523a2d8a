//! Finding the programs of the system.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The caller's `PATH` with the folders that only root's has on some systems.
pub(crate) fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push("/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// The program a shell would run for `name`, root's folders included.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path()).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whether a program runs without a loader and libraries.
pub(crate) fn is_static(path: &Path) -> bool {
    // A dynamic program names its loader in the first pages.
    fs::read(path).is_ok_and(|content| {
        content.starts_with(b"\x7fELF")
            && !content.windows(8).take(1 << 14).any(|window| window == b"/ld-linu" || window == b"/ld-musl")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_found_and_this_program_has_a_loader() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
        assert!(!is_static(&std::env::current_exe().unwrap()));
        assert!(!is_static(Path::new("/proc/self/status")));
    }
}
