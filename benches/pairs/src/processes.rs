//! Running a server and a client.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::test::Test;
use crate::{Place, Result};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Where the two meet by TCP.
pub(crate) const HOST: &str = "127.0.0.1";

/// Starts the server, waits until it listens, and runs the client; what both printed. `command` makes either of a TCP
/// port and the client's host.
pub(crate) fn run(
    place: &Place,
    test: &Test,
    mut command: impl FnMut(u16, Option<&'static str>) -> Command,
) -> Result<String> {
    let port = TcpListener::bind((HOST, 0))?.local_addr()?.port();
    let fabric = place.fabric();
    let mut start = |host| {
        let mut command = command(port, host);
        command.envs(fabric.clone());
        Process::start(command)
    };
    let deadline = Instant::now() + LIMIT;
    let mut server = start(None)?;
    while !listens(port) {
        if server.child.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(format!("{test}: no server: {}", last_words(&server.end(Instant::now())?.1)).into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    let client = start(Some(HOST))?;
    // the client first: without it the server waits
    let (status, client) = client.end(deadline)?;
    if !status.success() {
        drop(server);
        return Err(format!("{test}: the client failed ({status}): {}", last_words(&client)).into());
    }
    let (status, server) = server.end(deadline)?;
    if !status.success() {
        return Err(format!("{test}: the server failed ({status}): {}", last_words(&server)).into());
    }
    Ok(client + &server)
}

/// A process whose output is read. It is ended when dropped.
struct Process {
    child: Child,
    output: Vec<JoinHandle<String>>,
}

impl Process {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", command.get_program().to_string_lossy()))?;
        let output = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
        Ok(Self { child, output: output.into_iter().flatten().collect() })
    }

    /// Waits for its end, at most until `deadline`.
    fn end(mut self, deadline: Instant) -> Result<(ExitStatus, String)> {
        let status = loop {
            match self.child.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    self.child.kill()?;
                    break self.child.wait()?;
                }
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let output = self.output.drain(..).map(|reader| reader.join().unwrap_or_default()).collect();
        Ok((status, output))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // it has ended already, mostly
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // as much as there is
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// What a program said last, beside the lines and headings of its tables.
fn last_words(text: &str) -> &str {
    let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("---") && !line.contains("#bytes");
    text.lines().rev().find(says).unwrap_or("it said nothing").trim()
}

/// Whether a process listens on a TCP port. To try by connecting would be taken for the client.
fn listens(port: u16) -> bool {
    let address = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().filter_map(|table| fs::read_to_string(table).ok()).any(
        |table| {
            table.lines().any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let (local, state) = (words.next(), words.nth(1));
                local.is_some_and(|local| local.ends_with(&address)) && state == Some("0A")
            })
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_seen_and_a_free_port_is_not() {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(port));
        drop(listener);
        assert!(!listens(port));
    }

    #[test]
    fn a_process_that_hangs_is_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo a; echo b >&2; exec sleep 100"]);
        let process = Process::start(command).unwrap();
        let (status, output) = process.end(Instant::now() + Duration::from_millis(200)).unwrap();
        assert!(!status.success());
        assert_eq!(output, "a\nb\n");
    }
}
