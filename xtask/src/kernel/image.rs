//! Unpacking a kernel image ahead of its boot.
//!
//! A bzImage unpacks itself, which takes an emulated processor five seconds and the host one. QEMU boots the ELF file
//! in it directly when that has an entry for it (`CONFIG_PVH`, which distributions set).

use anyhow::{Context as _, Result, bail};
use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// Offsets in the boot protocol's header.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// An ELF note of owner `Xen` and type 18, with a description of 4 or 8 bytes: the entry for a direct boot.
const PVH_NOTES: [&[u8]; 2] =
    [b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0", b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0"];

/// Writes the ELF file that is packed in `image` to `target`; an error if there is none that boots.
pub(super) fn unpack(image: &Path, target: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let payload = payload(&bytes).context("not a packed kernel image")?;
    let program = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0x1f, 0x8b, ..] => "gzip",
        _ => bail!("packed in an unknown way"),
    };
    // Beside the target, under a name of our own: others may be doing the same.
    let partial = target.with_extension(format!("partial.{}", std::process::id()));
    let result = unpack_payload(payload, program, &partial)
        .and_then(|()| fs::rename(&partial, target).context("cannot rename the unpacked kernel"));
    if result.is_err() {
        let _ = fs::remove_file(&partial);
    }
    result
}

fn unpack_payload(payload: &[u8], program: &str, target: &Path) -> Result<()> {
    let mut packed = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(target)
        .with_context(|| format!("cannot make {}", target.display()))?;
    packed.write_all(payload).context("cannot write the packed kernel")?;
    packed.seek(SeekFrom::Start(0)).context("cannot read the packed kernel")?;
    // The open file stays readable under no name, while the name gets the unpacked one.
    fs::remove_file(target).context("cannot remove the packed kernel")?;
    let unpacked = File::create_new(target).context("cannot make the unpacked kernel")?;
    let status =
        Command::new(program).arg("-dc").stdin(packed).stdout(unpacked).stderr(Stdio::null()).status();
    if !status.with_context(|| format!("cannot run {program}"))?.success() {
        bail!("{program} cannot unpack the kernel");
    }
    if !boots_directly(&fs::read(target).context("cannot read the unpacked kernel")?) {
        bail!("no entry for a direct boot");
    }
    Ok(())
}

/// The packed part of a bzImage, without the length that the packer appended.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let setup = (usize::from(*image.get(SETUP_SECTORS)?) + 1) * 512;
    let start = setup.checked_add(number(PAYLOAD_OFFSET)?)?;
    let length = number(PAYLOAD_LENGTH)?.checked_sub(4)?;
    image.get(start..start.checked_add(length)?)
}

fn boots_directly(elf: &[u8]) -> bool {
    // The notes lie between the sections of the kernel's text and data; a search is as sure as following the headers.
    elf.starts_with(b"\x7fELF") && elf.windows(16).step_by(4).any(|window| PVH_NOTES.contains(&window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_found_by_the_header() {
        let mut image = vec![0; 0x800];
        image[SETUP_SECTORS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET] = 0x10;
        image[PAYLOAD_LENGTH] = 12;
        image[1024 + 16..1024 + 24].copy_from_slice(b"\x1f\x8bpacked");
        assert_eq!(payload(&image), Some(&b"\x1f\x8bpacked"[..]));
        image[PAYLOAD_LENGTH + 1] = 0xff;
        assert_eq!(payload(&image), None, "longer than the image");
        assert_eq!(payload(b"\x7fELF"), None);
    }

    #[test]
    fn only_an_elf_file_with_the_note_boots_directly() {
        let mut elf = b"\x7fELF\0\0\0\0".to_vec();
        assert!(!boots_directly(&elf));
        elf.extend_from_slice(b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0");
        assert!(boots_directly(&elf));
        assert!(!boots_directly(&elf[4..]));
    }
}
