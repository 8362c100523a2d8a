//! A copy of the workspace's files, to change one in.

use anyhow::{Context as _, Result};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Makes `to` a copy of `from`, without what begins with a dot and Cargo's own folder. Files that are the same already
/// are left alone, or Cargo would build everything anew.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let mut names = HashSet::new();
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name.as_encoded_bytes().first() == Some(&b'.') {
            continue;
        }
        let (old, new) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_dir() {
            copy(&old, &new)?;
        } else {
            write(&new, &fs::read(&old).with_context(|| format!("cannot read {}", old.display()))?)?;
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !names.contains::<OsStr>(&entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file unless it says that already.
pub(super) fn write(file: &Path, content: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(file, content).with_context(|| format!("cannot write {}", file.display()))
}

fn remove(path: &PathBuf) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}
