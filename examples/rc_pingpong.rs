//! Messages back and forth over a reliable connection (RC): `ibv_rc_pingpong`, with which it can talk.
//!
//! ```text
//! rc_pingpong                 # on one host (or in one terminal)
//! rc_pingpong that-host       # on another
//! ```

#![forbid(unsafe_code)]

mod common;

use std::process::ExitCode;

use common::{Game, Memory, Options, OutOfBand, Program, Result};
use ibv::state::{Reset, Rts};
use ibv::{Backend, Connection, InitAttr, LocalPort, PostSend, QueuePair, Rc, random_psn};

const PROGRAM: Program = Program {
    name: "rc_pingpong",
    about: "Sends messages back and forth over a reliable connection (RC), and measures how long it takes.",
    size: 4096,
    has_mtu: true,
};

fn main() -> ExitCode {
    common::main(&PROGRAM, run)
}

fn run(options: &Options) -> Result<()> {
    let out_of_band = OutOfBand::start(options)?;
    let (ctx, local) = common::open(options)?;
    let pd = ctx.alloc_pd()?;
    // what is posted on a queue pair must outlive it, so the regions come first
    let memory = Memory::new(&pd, options, 0)?;
    let channel = options.events.then(|| ctx.create_comp_channel()).transpose()?;
    let cq = common::create_cq(&ctx, channel.as_ref(), options)?;
    let game = Game::new(options, &memory, &cq);

    let qp = pd.create_qp::<Rc>(&cq, &cq).send_depth(1).recv_depth(options.rx_depth);
    if options.extended {
        play(qp.extended().build()?, local, &game, options, out_of_band)
    } else {
        play(qp.build()?, local, &game, options, out_of_band)
    }
}

/// Connects the queue pair with the peer's, and plays.
fn play<'a, B: Backend>(
    qp: QueuePair<'a, Rc, Reset, B>,
    local: LocalPort,
    game: &Game<'a>,
    options: &Options,
    out_of_band: OutOfBand<'_>,
) -> Result<()>
where
    QueuePair<'a, Rc, Rts, B>: PostSend<'a, Transport = Rc>,
{
    let mut qp = qp.init(InitAttr::new(options.ib_port))?;
    game.get_ready(&mut qp)?;

    let psn = random_psn();
    let ours = qp.endpoint(&local, psn);
    common::print_local(&ours, ',')?;
    let mut qp = out_of_band.exchange(&ours, |peer| {
        let connection = Connection::new(local, psn, *peer).mtu(options.mtu).sl(options.sl);
        Ok(qp.connect(&connection)?)
    })?;

    let max_inline = qp.max_inline();
    game.play(&mut qp, &(), max_inline)
}
