//! One of our processes: a server, or the client that measures.
//!
//! | file | what |
//! |---|---|
//! | `meeting` | the TCP connection by which the two find each other |
//! | `link` | a connected queue pair with its queues and memory |
//! | `latency` | one message after the other |
//! | `bandwidth` | as many as the queues hold |
//! | `tcp` | the same over a socket |

mod bandwidth;
mod latency;
mod link;
mod meeting;
mod tcp;

use crate::place::Place;
use crate::test::{Kind, Operation, Test, WORDS};
use crate::{Result, clock};
use meeting::Meeting;

/// The first word of the command line of such a process.
pub(crate) const WORD: &str = "side";

/// What a process is told.
#[derive(Debug)]
struct Here {
    test: Test,
    device: String,
    port: u8,
    gid_index: Option<u8>,
}

/// The words after the first, for a server or for the client of `host`.
pub(crate) fn words(test: &Test, place: &Place, port: u16, host: Option<&str>) -> Vec<String> {
    let mut words = test.words().to_vec();
    words.extend([place.device.clone(), place.port.to_string()]);
    words.push(place.gid_index.map_or_else(|| "none".to_owned(), |index| index.to_string()));
    words.push(port.to_string());
    words.extend(host.map(str::to_owned));
    words
}

/// Such a process.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let wrong = || format!("{WORD} {}: this is for the benchmark itself", words.join(" "));
    let (test, rest) = words.split_first_chunk::<WORDS>().ok_or_else(wrong)?;
    let [device, ib_port, gid_index, port, host @ ..] = rest else { return Err(wrong().into()) };
    let here = Here {
        test: Test::parse(test)?,
        device: device.clone(),
        port: ib_port.parse()?,
        gid_index: if gid_index == "none" { None } else { Some(gid_index.parse()?) },
    };
    let mut meeting = Meeting::new(host.first().map(String::as_str), port.parse()?)?;
    match (here.test.kind, here.test.operation) {
        (Kind::Latency, Operation::Tcp) => tcp::run(&here.test, &mut meeting),
        (Kind::Latency, _) => latency::run(&here, &mut meeting),
        (Kind::Bandwidth, _) => bandwidth::run(&here, &mut meeting),
    }
}

/// When each message was posted, as perftest has it: the memory is there before.
struct Stamps(Vec<u64>);

impl Stamps {
    fn new(test: &Test) -> Self {
        Self(Vec::with_capacity(test.iterations as usize))
    }

    #[inline(always)]
    fn take(&mut self) {
        self.0.push(clock::ticks());
    }

    /// Prints the latencies as perftest does: half of a round trip, where the peer's program answers.
    fn print(&self, operation: Operation) {
        let part = if operation.is_two_sided() { 2.0 } else { 1.0 };
        let steps = self.0.iter().zip(self.0.iter().skip(1));
        let lines: Vec<String> = steps
            .enumerate()
            .map(|(number, (from, to))| format!("{}, {}\n", number + 1, to.wrapping_sub(*from) as f64 / part))
            .collect();
        print!("{}", lines.concat());
    }
}

/// Runs a loop of so many round trips, and prints what this process computed in each.
fn computing<T>(iterations: u64, run: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = clock::computed();
    let result = run()?;
    let computed = clock::computed().saturating_sub(before);
    println!("computed {}", computed.as_secs_f64() * 1e6 / iterations as f64);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Series, messages_per_second, processes};

    /// What tells the two processes of a test below that they are those.
    const WORDS: &str = "IBV_BENCH_SIDE";

    /// Not a test, but such a process; when all tests run, there is nothing to do.
    #[test]
    fn a_process() {
        if let Ok(words) = std::env::var(WORDS) {
            run(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap();
        }
    }

    fn both(place: &Place, test: &Test) -> String {
        let program = std::env::current_exe().unwrap();
        processes::run(place, test, |port, host| {
            let mut command = place.command(&program);
            command.args(["--exact", "side::tests::a_process", "--nocapture"]);
            command.env(WORDS, words(test, place, port, host).join(" "));
            command
        })
        .unwrap()
    }

    #[test]
    fn every_operation_is_measured_on_the_software_hca() {
        let place = Place::soft().unwrap();
        use Operation::{CmpSwp, FetchAdd, Read, Send, Tcp, Write};
        for operation in [Send, Write, Read, FetchAdd, CmpSwp, Tcp] {
            let bytes = if operation.is_atomic() { 8 } else { 5000 };
            let test = Test { iterations: 20, ..Test::latency(operation, bytes) };
            let mut tests = vec![test.clone()];
            if matches!(operation, Send | Write) {
                tests.push(Test { inline: true, bytes: 64, ..test.clone() });
            }
            if operation != Write {
                tests.push(Test { events: true, ..test.clone() });
            }
            if cfg!(feature = "mlx5") && operation != Tcp {
                tests.push(Test { direct: true, ..test });
            }
            for test in tests {
                let series = Series::read(&both(&place, &test), 1.0).unwrap();
                assert_eq!(series.samples(), 19, "{test}: between 20 stamps");
                assert!(series.computed().unwrap() > 0.0, "{test}");
            }
        }
    }

    #[test]
    fn queue_pairs_share_the_messages() {
        let place = Place::soft().unwrap();
        for operation in [Operation::Write, Operation::Read] {
            // more than a queue holds, and no multiple of those that ask for a completion
            let test = Test { iterations: 301, ..Test::bandwidth(operation, 64, 3) };
            assert!(messages_per_second(&both(&place, &test)).unwrap() > 0.0, "{test}");
        }
    }
}
