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
    let ports = ctx.device_attr().phys_port_cnt();
    if u32::from(options.ib_port) > ports {
        return Err(format!("--ib-port {}: {} has {ports}", options.ib_port, ctx.device_name()).into());
    }
    let local = match options.gid_index {
        Some(index) => ctx
            .local_port_with_gid(options.ib_port, index)
            .map_err(|error| format!("{error}; {}", filled_gids(&ctx, options.ib_port)))?,
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

/// Which entries of the port's GID table can be used.
fn filled_gids(ctx: &Context, port: u8) -> String {
    let table = ctx.gid_table().unwrap_or_default();
    let of_port = table.iter().filter(|entry| entry.port == u32::from(port));
    let entries: Vec<_> = of_port.map(|entry| format!("{} ({})", entry.index, entry.gid)).collect();
    match entries.as_slice() {
        [] => "this port has no GID".to_owned(),
        entries => format!("--gid-idx can be {}", entries.join(", ")),
    }
}

/// The completion queue for one send and all receives; its events go to `channel`.
pub(crate) fn create_cq<'a>(
    ctx: &'a Context,
    channel: Option<&'a CompletionChannel<'a>>,
    options: &Options,
) -> Result<CompletionQueue<'a>> {
    let entries =
        CompletionQueue::entries_for(1).saturating_add(CompletionQueue::entries_for(options.rx_depth));
    let builder = CompletionQueue::builder(ctx, entries);
    let built = match channel {
        Some(channel) => builder.channel(channel).build(),
        None => builder.build(),
    };
    Ok(built.map_err(|error| format!("--rx-depth {}: {error}", options.rx_depth))?)
}

/// Prints our own address.
pub(crate) fn print_local(ours: &Endpoint, separator: char) -> Result<()> {
    report::print_endpoint("local address:", ours, separator)
}
