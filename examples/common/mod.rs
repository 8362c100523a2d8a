//! What the three ping-pong programs share.
//!
//! | file | what |
//! |---|---|
//! | `cli` | how a program ends |
//! | `options` | the command line |
//! | `exchange` | telling each other the queue pairs' addresses, by TCP |
//! | `memory` | the regions that messages are sent from and received into |
//! | `payload` | what is in them, and checking it (`--chk`) |
//! | `completions` | waiting for completions, by polling or events, with a limit |
//! | `game` | ping and pong |
//! | `report` | how long it took |

pub(crate) mod cli;
pub(crate) mod exchange;
pub(crate) mod game;
pub(crate) mod options;

mod completions;
mod memory;
mod payload;
mod report;

pub(crate) use cli::Result;
pub(crate) use exchange::OutOfBand;
pub(crate) use game::Game;
pub(crate) use memory::Memory;
pub(crate) use options::{Options, Program};

use std::io::{self, Write};
use std::process::ExitCode;

use ibv::{CompletionChannel, CompletionQueue, Context, Endpoint, LocalPort};

/// Reads the command line and runs the program.
pub(crate) fn main(program: &Program, run: impl FnOnce(&Options) -> Result<()>) -> ExitCode {
    cli::main(program.name, || match Options::parse(program)? {
        Some(options) => run(&options),
        None => Ok(writeln!(io::stdout(), "{}", program.help())?),
    })
}

/// Opens the device and finds out our side of the path.
pub(crate) fn open(options: &Options) -> Result<(Context, LocalPort)> {
    let ctx = match &options.device {
        Some(name) => Context::open(name)?,
        None => ibv::devices()?.iter().next().ok_or(cli::NO_DEVICE)?.open()?,
    };
    if options.device.is_none() {
        writeln!(io::stderr(), "using {}, the first device (--ib-dev names another)", ctx.device_name())?;
    }
    let local = match options.gid_index {
        Some(index) => ctx.local_port_with_gid(options.ib_port, index)?,
        None => ctx.local_port(options.ib_port)?,
    };
    let longest = ctx.query_port(options.ib_port)?.max_msg_sz();
    if options.size > longest as usize {
        return Err(
            format!("--size {}: a message of this port has at most {longest} bytes", options.size).into()
        );
    }
    Ok((ctx, local))
}

/// The completion queue for one send and all receives; its events go to `channel`.
pub(crate) fn create_cq<'a>(
    ctx: &'a Context,
    channel: Option<&'a CompletionChannel<'a>>,
    options: &Options,
) -> Result<CompletionQueue<'a>> {
    let entries = CompletionQueue::entries_for(1) + CompletionQueue::entries_for(options.rx_depth);
    let builder = CompletionQueue::builder(ctx, entries);
    Ok(match channel {
        Some(channel) => builder.channel(channel).build()?,
        None => builder.build()?,
    })
}

/// Prints our own address.
pub(crate) fn print_local(ours: &Endpoint, separator: char) -> Result<()> {
    report::print_endpoint("local address:", ours, separator)
}
