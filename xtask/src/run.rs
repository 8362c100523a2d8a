//! Running a program here, with its output both shown and kept.

use anyhow::{Context as _, Result};
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Passes on what is written and keeps it.
pub(crate) struct Tee<W> {
    to: W,
    kept: Vec<u8>,
}

impl<W: Write> Tee<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, kept: Vec::new() }
    }

    /// All that was written.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.kept.extend(bytes.iter().take(written));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Runs `command` for at most `timeout`; Err in the inner result says how it failed.
pub(crate) fn run(
    command: &mut Command,
    timeout: Duration,
    out: &mut (dyn Write + Send),
    err: &mut (dyn Write + Send),
) -> Result<Result<(), String>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let (from_out, from_err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        // Reading fails when the program has gone, writing when nobody reads us: either way there's nothing to add.
        scope.spawn(move || from_out.map(|mut from| io::copy(&mut from, out)));
        scope.spawn(move || from_err.map(|mut from| io::copy(&mut from, err)));
        wait(&mut child, timeout)
    })
}

fn wait(child: &mut Child, timeout: Duration) -> Result<Result<(), String>> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a program")? {
            return Ok(verdict(status));
        }
        if Instant::now() >= deadline {
            child.kill().context("cannot end a program")?;
            child.wait().context("cannot wait for a program")?;
            return Ok(Err(format!("did not end within {} s", timeout.as_secs())));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn verdict(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> (Result<(), String>, Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = run(Command::new("sh").args(["-c", script]), timeout, &mut out, &mut err).unwrap();
        (end, out, err)
    }

    #[test]
    fn output_and_status_come_through() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("echo a; echo b >&2", long), (Ok(()), b"a\n".to_vec(), b"b\n".to_vec()));
        assert_eq!(shell("exit 3", long).0, Err("exit status: 3".into()));
        assert!(shell("kill -9 $$", long).0.unwrap_err().contains("signal: 9"));
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let (end, out, _) = shell("echo a; exec sleep 100", Duration::from_millis(200));
        assert!(end.unwrap_err().contains("did not end"));
        assert_eq!(out, b"a\n");
    }
}
