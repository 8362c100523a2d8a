//! The guest's initial file system: an uncompressed `newc` cpio archive.

use crate::kernel::Kernel;
use crate::program;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the guest needs before it sees the host's files.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// Builds the archive: busybox, the modules, `init.sh`, and `files` under `/ibv`.
pub(super) fn build(kernel: &Kernel, files: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["bin", "ibv"] {
        archive.add(folder, DIRECTORY, &[]);
    }
    archive.add("init", PROGRAM, include_bytes!("init.sh"));
    archive.add("bin/busybox", PROGRAM, &busybox()?);
    let mut names = String::new();
    for file in kernel.load_order(&MODULES)? {
        let name = module_name(&file);
        archive.add(&name, FILE, &module(&file)?);
        names.push_str(&name);
        names.push('\n');
    }
    archive.add("modules", FILE, names.as_bytes());
    for (name, content) in files {
        archive.add(&format!("ibv/{name}"), FILE, content);
    }
    Ok(archive.finish())
}

fn busybox() -> Result<Vec<u8>> {
    let path = program::find("busybox")
        .filter(|path| program::is_static(path))
        .context("a static busybox is missing; run `cargo xtask setup`")?;
    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The module's name in the archive, without the suffix of a compression that is undone here.
fn module_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let end = name.find(".ko").unwrap_or(name.len());
    format!("{}.ko", name.get(..end).unwrap_or_default())
}

fn module(file: &PathBuf) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(file)
        .output()
        .with_context(|| format!("cannot run {program}; install it"))?;
    if !output.status.success() {
        bail!("{program} cannot unpack {}", file.display());
    }
    Ok(output.stdout)
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, device and rdevice (major, minor each), namesize, check
        let fields =
            [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents end on a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_aligned_entries_and_a_trailer() {
        let mut archive = Archive::default();
        archive.add("a", FILE, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert!(bytes.starts_with(b"070701" as &[u8]));
        assert_eq!(&bytes[54..62], b"00000005", "the size of the content");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..117], b"hello");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }

    #[test]
    fn a_module_is_named_without_its_compression() {
        assert_eq!(module_name(Path::new("/lib/9p.ko.xz")), "9p.ko");
        assert_eq!(module_name(Path::new("/lib/9p.ko")), "9p.ko");
    }
}
