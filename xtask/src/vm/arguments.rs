//! The command line of `cargo xtask vm`.

use super::Link;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::time::Duration;

pub(super) const HELP: &str = "\
cargo xtask vm [OPTION]... [--] COMMAND [ARGUMENT]...

Runs COMMAND in a virtual machine with the RDMA device rxe0 (GID index 1 is its IPv4 address, 10.8.0.1), in the current
folder, on this machine's own files. What it writes is gone afterwards. Output and exit status are the command's.

  --kernel SERIES   boot a kernel of this series, such as 6.1 or 6.12 (default: the oldest that has the device)
  --link rxe|siw    the device to make: Soft-RoCE (default) or Soft-iWARP
  --timeout SECS    end the machine when COMMAND takes longer (default 600)
  -v, --verbose     say which kernel booted and how long it took

Exit status: 124 if COMMAND took too long, 125 if the machine died under it, else COMMAND's.
IBV_VM_ACCEL=kvm in the environment uses KVM, where that works, in place of emulation; IBV_VM_ACCEL=icount emulates one
processor whose clock counts its instructions, so that times are the same each time.";

pub(super) struct Options {
    pub(super) kernel: Option<String>,
    pub(super) link: Link,
    pub(super) timeout: Duration,
    pub(super) verbose: bool,
    pub(super) command: Vec<OsString>,
}

/// None if help was asked for.
pub(super) fn parse(arguments: Vec<OsString>) -> Result<Option<Options>> {
    use lexopt::prelude::*;
    let mut options = Options {
        kernel: None,
        link: Link::default(),
        timeout: Duration::from_secs(600),
        verbose: false,
        command: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("kernel") => options.kernel = Some(parser.value()?.string()?),
            Long("link") => {
                options.link = match parser.value()?.string()?.as_str() {
                    "rxe" => Link::Rxe,
                    "siw" => Link::Siw,
                    other => bail!("--link {other}: rxe or siw"),
                }
            }
            Long("timeout") => match Duration::try_from_secs_f64(parser.value()?.parse()?) {
                Ok(timeout) if !timeout.is_zero() => options.timeout = timeout,
                _ => bail!("--timeout: more than 0 seconds"),
            },
            Short('v') | Long("verbose") => options.verbose = true,
            Short('h') | Long("help") => return Ok(None),
            // The first word that is no option begins the command; options after it are the command's own.
            Value(program) => {
                options.command.push(program);
                options.command.extend(parser.raw_args()?);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.command.is_empty() {
        bail!("no command given; see `cargo xtask vm --help`");
    }
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Options>> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_end_where_the_command_begins() {
        for line in [
            "--kernel 6.12 --timeout=20 prog -v --kernel x -- y",
            "--kernel=6.12 --timeout 20 -- prog -v --kernel x -- y",
        ] {
            let options = parse_line(line).unwrap().unwrap();
            assert_eq!(options.kernel.as_deref(), Some("6.12"));
            assert_eq!(options.timeout, Duration::from_secs(20));
            assert!(!options.verbose);
            assert_eq!(options.command, ["prog", "-v", "--kernel", "x", "--", "y"]);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for line in
            ["", "--", "--link roce x", "--timeout 0 x", "--timeout -1 x", "--timeout soon x", "--colour x"]
        {
            assert!(parse_line(line).is_err(), "{line}");
        }
        assert!(parse_line("--help").unwrap().is_none());
    }
}
