//! Quoting for POSIX shells.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Appends `word` to a shell script so that the shell reads back exactly these bytes.
pub(crate) fn push_quoted(script: &mut Vec<u8>, word: impl AsRef<OsStr>) {
    script.push(b'\'');
    for &byte in word.as_ref().as_bytes() {
        match byte {
            b'\'' => script.extend_from_slice(br"'\''"),
            other => script.push(other),
        }
    }
    script.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    #[test]
    fn the_shell_reads_back_what_was_quoted() {
        for word in
            [&b""[..], b"plain", b"two words", b"it's", b"'", b"$HOME `id` \\ \"", b"new\nline", b"\xff\x01*"]
        {
            let mut script = b"printf %s ".to_vec();
            push_quoted(&mut script, OsString::from_vec(word.to_vec()));
            let output = Command::new("sh").arg("-c").arg(OsString::from_vec(script)).output().unwrap();
            assert_eq!(output.stdout, word);
        }
    }
}
