//! The command line: that of the `ibv_*_pingpong` programs, as far as it means something here.

use std::ops::RangeInclusive;
use std::time::Duration;

use ibv::Mtu;
use lexopt::prelude::*;

use super::Result;

/// Which of the programs this is.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// What it sends over, in a few words.
    pub(crate) about: &'static str,
    /// Of a message, if nothing is said.
    pub(crate) size: usize,
    /// Whether both sides agree on a path MTU. (A datagram is one packet, and has the port's.)
    pub(crate) has_mtu: bool,
}

/// What was asked for.
#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    /// The server's host; `None`: this is the server.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) device: Option<String>,
    pub(crate) ib_port: u8,
    pub(crate) size: usize,
    pub(crate) mtu: Mtu,
    pub(crate) rx_depth: u32,
    pub(crate) iters: u32,
    pub(crate) sl: u8,
    pub(crate) events: bool,
    pub(crate) gid_index: Option<u32>,
    pub(crate) check: bool,
    pub(crate) extended: bool,
    pub(crate) latency: bool,
    /// How long to wait for the peer; `None`: for ever.
    pub(crate) patience: Option<Duration>,
}

impl Program {
    pub(crate) fn help(&self) -> String {
        let Self { name, about, size, .. } = self;
        let mtu = if self.has_mtu {
            "\n  -m, --mtu=MTU            path MTU, 256 to 4096 (default 1024)"
        } else {
            ""
        };
        format!(
            "\
{about}

  {name} [OPTION]...         start a server and wait for a client
  {name} [OPTION]... HOST    connect to the server at HOST

Client or server may also be ibv_{name}. Both sides need the same size, MTU and number of exchanges.

  -p, --port=PORT          TCP port to meet at (default 18515)
  -d, --ib-dev=NAME        RDMA device (default: the first)
  -i, --ib-port=PORT       port of the device (default 1)
  -g, --gid-idx=INDEX      entry of the port's GID table to send from (default: on RoCE the best one, else none)
  -s, --size=BYTES         size of a message (default {size}){mtu}
  -r, --rx-depth=COUNT     receives posted at a time (default 500)
  -n, --iters=COUNT        exchanges (default 1000)
  -l, --sl=LEVEL           service level, 0 to 15 (default 0)
  -e, --events             sleep until completions come (default: poll)
  -c, --chk                check the data; if at all, ask for it on both sides
  -N, --new_send           post by ibv_wr_* instead of ibv_post_send (also --use-new-send)
      --latency            also print how long the round trips took
      --idle-timeout=SECS  give up when the peer is silent for so long (default 10; 0: never)
  -h, --help               print this"
        )
    }
}

impl Options {
    /// `None` if help was asked for.
    pub(crate) fn parse(program: &Program) -> Result<Option<Self>> {
        Self::parse_from(program, lexopt::Parser::from_env())
    }

    fn parse_from(program: &Program, mut args: lexopt::Parser) -> Result<Option<Self>> {
        let mut options = Self {
            host: None,
            port: 18515,
            device: None,
            ib_port: 1,
            size: program.size,
            mtu: Mtu::B1024,
            rx_depth: 500,
            iters: 1000,
            sl: 0,
            events: false,
            gid_index: None,
            check: false,
            extended: false,
            latency: false,
            patience: Some(Duration::from_secs(10)),
        };
        while let Some(argument) = args.next()? {
            match argument {
                Short('p') | Long("port") => options.port = number(&mut args, "--port", 1..=65535)?,
                Short('d') | Long("ib-dev") => options.device = Some(args.value()?.string()?),
                Short('i') | Long("ib-port") => options.ib_port = number(&mut args, "--ib-port", 1..=255)?,
                Short('g') | Long("gid-idx") => {
                    options.gid_index = Some(number(&mut args, "--gid-idx", 0..=255)?);
                }
                Short('s') | Long("size") => options.size = number(&mut args, "--size", 1..=1 << 31)?,
                Short('m') | Long("mtu") if program.has_mtu => {
                    let bytes = number(&mut args, "--mtu", 0..=4096)?;
                    options.mtu = Mtu::from_bytes(bytes)
                        .ok_or_else(|| format!("--mtu {bytes}: 256, 512, 1024, 2048 or 4096"))?;
                }
                Short('r') | Long("rx-depth") => {
                    options.rx_depth = number(&mut args, "--rx-depth", 1..=MANY)?;
                }
                Short('n') | Long("iters") => options.iters = number(&mut args, "--iters", 1..=MANY)?,
                Short('l') | Long("sl") => options.sl = number(&mut args, "--sl", 0..=15)?,
                Short('e') | Long("events") => options.events = true,
                Short('c') | Long("chk") => options.check = true,
                Short('N') | Long("new_send" | "use-new-send") => options.extended = true,
                Long("latency") => options.latency = true,
                Long("idle-timeout") => options.patience = patience(&mut args)?,
                Short('h') | Long("help") => return Ok(None),
                Value(host) if options.host.is_none() => options.host = Some(host.string()?),
                other => return Err(not_ours(other)),
            }
        }
        Ok(Some(options))
    }
}

/// Of something that is counted in 32 bits.
const MANY: u64 = u32::MAX as u64;

/// The option's value, which is in `range`.
fn number<N: TryFrom<u64>>(args: &mut lexopt::Parser, option: &str, range: RangeInclusive<u64>) -> Result<N> {
    let value = args.value()?.string()?;
    let number = value.parse().ok().filter(|number| range.contains(number));
    match number.and_then(|number| N::try_from(number).ok()) {
        Some(number) => Ok(number),
        None => Err(format!("{option} {value}: a number from {} to {}", range.start(), range.end()).into()),
    }
}

fn patience(args: &mut lexopt::Parser) -> Result<Option<Duration>> {
    let value = args.value()?.string()?;
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds {
        Some(Duration::ZERO) => Ok(None),
        Some(seconds) => Ok(Some(seconds)),
        None => Err(format!("--idle-timeout {value}: a number of seconds").into()),
    }
}

/// Why an option is none of this program's.
fn not_ours(argument: lexopt::Arg<'_>) -> Box<dyn std::error::Error> {
    match argument {
        Short('o' | 'O' | 'P') | Long("odp" | "iodp" | "prefetch") => {
            "on-demand paging (-o, -O, -P) is not done here: leave it out, or use the C program".into()
        }
        Short('t') | Long("ts") => "completion timestamps (-t) are not done here: see --latency".into(),
        Short('j') | Long("dm") => {
            "device memory (-j) is not done here: leave it out, or use the C program".into()
        }
        Short('m') | Long("mtu") => "--mtu: a datagram is one packet, the port's own MTU counts".into(),
        Value(word) => format!("{}: there is a host already", word.to_string_lossy()).into(),
        other => format!("{}; --help tells the options", other.unexpected()).into(),
    }
}
