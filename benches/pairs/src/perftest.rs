//! The C programs that do the same: those of the package `perftest`.
//!
//! They are told what ours does: `ibv_post_send` instead of `ibv_wr_*`, so much inline, so many queue pairs, and to
//! print each latency in cycles. By themselves they ask for a completion of every request in a test of latency, and
//! ours does too.

use std::process::Command;

use crate::clock;
use crate::place::Place;
use crate::test::{Kind, Operation, Test};

/// Requests of a queue pair at a time, in a test of bandwidth.
pub(crate) const DEPTH: u32 = 128;
/// Requests of a queue pair for a completion there.
pub(crate) const PER_COMPLETION: u32 = 32;

/// The program for a test, or why there is none.
pub fn program(test: &Test) -> Result<&'static str, String> {
    let name = match (test.kind, test.operation) {
        (Kind::Latency, Operation::Send) => "ib_send_lat",
        (Kind::Latency, Operation::Write) => "ib_write_lat",
        (Kind::Latency, Operation::Read) => "ib_read_lat",
        (Kind::Latency, Operation::FetchAdd | Operation::CmpSwp) => "ib_atomic_lat",
        (Kind::Bandwidth, Operation::Write) => "ib_write_bw",
        (Kind::Bandwidth, Operation::Read) => "ib_read_bw",
        _ => return Err("perftest has no such test".to_owned()),
    };
    if !clock::IS_PERFTESTS {
        return Err("perftest's clock is not known on this architecture".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        Ok(name)
    } else {
        Err(format!("{name} is not installed (package perftest)"))
    }
}

/// A server, or a client of the one at `host`.
pub(crate) fn command(place: &Place, test: &Test, port: u16, host: Option<&str>) -> Command {
    let mut command = place.command(program(test).unwrap_or("false"));
    // its long options differ from version to version
    let mut option = |name: &str, value: &dyn ToString| {
        command.args([name.to_owned(), value.to_string()]);
    };
    option("-d", &place.device);
    option("-i", &place.port);
    if let Some(index) = place.gid_index {
        option("-x", &index);
    }
    option("-p", &port);
    option("-n", &test.iterations);
    match test.operation {
        Operation::FetchAdd => option("-A", &"FETCH_AND_ADD"),
        Operation::CmpSwp => option("-A", &"CMP_AND_SWAP"),
        _ => option("-s", &test.bytes),
    }
    if matches!(test.operation, Operation::Send | Operation::Write) {
        option("-I", &if test.inline { test.bytes } else { 0 });
    }
    if test.kind == Kind::Bandwidth {
        option("-q", &test.queues);
        option("-t", &DEPTH);
        option("-Q", &PER_COMPLETION);
    }
    match test.kind {
        Kind::Latency => command.args(["-H", "-C"]),
        Kind::Bandwidth => command.arg("-N"),
    };
    if test.events {
        command.arg("-e");
    }
    command.args(["--use_old_post_send", "-F"]).args(host);
    command
}

/// Messages a second, from what a test of bandwidth printed: `rate NUMBER` if it is ours, else the last line of
/// numbers.
pub fn messages_per_second(output: &str) -> Option<f64> {
    if let Some(rate) = output.lines().find_map(|line| line.strip_prefix("rate ")) {
        return rate.parse().ok();
    }
    let numbers =
        |line: &str| -> Option<Vec<f64>> { line.split_whitespace().map(|word| word.parse().ok()).collect() };
    // bytes, iterations, peak and average MiB/s, millions of messages
    output
        .lines()
        .rev()
        .filter_map(numbers)
        .find(|row| row.len() == 5)
        .and_then(|row| Some(row.last()? * 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        assert_eq!(messages_per_second("rate 12.5\n"), Some(12.5));
        let output = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
                      4096       20000            1347.87            1337.98\t\t   0.342523\n-----\n";
        assert!((messages_per_second(output).unwrap() - 342_523.0).abs() < 0.01);
        assert_eq!(messages_per_second("nothing\n"), None);
    }
}
