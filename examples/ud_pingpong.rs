//! Messages back and forth as unreliable datagrams (UD): `ibv_ud_pingpong`, with which it can talk.
//!
//! A datagram is one packet to any peer, named by an address handle, a queue pair number and a Q_Key. What is lost on
//! the way stays lost, and nobody is told: then both sides give up after a while.
//!
//! ```text
//! ud_pingpong                 # on one host (or in one terminal)
//! ud_pingpong that-host       # on another
//! ```

#![forbid(unsafe_code)]

mod common;

use std::process::ExitCode;

use common::game::Peer;
use common::{Game, Memory, Options, OutOfBand, Program, Result};
use ibv::state::{Reset, Rts};
use ibv::{
    AddressHandle, AddressVector, Backend, GRH_LEN, Gather, LocalPort, Peers, PostSend, ProtectionDomain,
    QueuePair, Send, SendRequest, Ud, UdInitAttr, random_psn,
};

const PROGRAM: Program = Program {
    name: "ud_pingpong",
    about: "Sends messages back and forth as unreliable datagrams (UD), and measures how long it takes.",
    size: 1024,
    has_mtu: false,
};

/// What datagrams must carry to be accepted; the same on both sides, and in `ibv_ud_pingpong`.
const QKEY: u32 = 0x1111_1111;

fn main() -> ExitCode {
    common::main(&PROGRAM, run)
}

fn run(options: &Options) -> Result<()> {
    let out_of_band = OutOfBand::start(options)?;
    let (ctx, local) = common::open(options)?;
    if options.size > local.mtu.bytes() as usize {
        let (size, mtu) = (options.size, local.mtu);
        return Err(
            format!("--size {size}: a datagram is one packet, of at most {mtu} bytes on this port").into()
        );
    }
    let pd = ctx.alloc_pd()?;
    // what is posted on a queue pair must outlive it, so the regions come first, and a place for what comes later
    let memory = Memory::new(&pd, options, GRH_LEN)?;
    let peers = Peers::new();
    let channel = options.events.then(|| ctx.create_comp_channel()).transpose()?;
    let cq = common::create_cq(&ctx, channel.as_ref(), options)?;
    let game = Game::new(options, &memory, &cq);

    let qp = pd.create_qp::<Ud>(&cq, &cq).send_depth(1).recv_depth(options.rx_depth);
    let table = Table { pd: &pd, peers: &peers, local, options };
    if options.extended {
        play(qp.extended().build()?, &game, &table, out_of_band)
    } else {
        play(qp.build()?, &game, &table, out_of_band)
    }
}

/// What it takes to address the peer.
struct Table<'a, 'p> {
    pd: &'p ProtectionDomain<'p>,
    peers: &'a Peers<'p>,
    local: LocalPort,
    options: &'a Options,
}

/// Gets to know the peer, and plays.
fn play<'a, B: Backend>(
    qp: QueuePair<'a, Ud, Reset, B>,
    game: &Game<'a>,
    table: &Table<'a, '_>,
    out_of_band: OutOfBand<'_>,
) -> Result<()>
where
    QueuePair<'a, Ud, Rts, B>: PostSend<'a, Transport = Ud>,
{
    let Table { pd, peers, local, options } = table;
    let mut qp = qp.init(UdInitAttr::new(options.ib_port, QKEY))?;
    game.get_ready(&mut qp)?;

    let psn = random_psn();
    let ours = qp.endpoint(local, psn);
    common::print_local(&ours, ':')?;
    let (mut qp, peer) = out_of_band.exchange(&ours, |peer| {
        let address = AddressVector::to_peer(local, peer)?.sl(options.sl);
        let ah = peers.add(pd.create_ah(&address)?);
        Ok((qp.activate(psn)?, Destination { ah, qpn: peer.qpn }))
    })?;

    let max_inline = qp.max_inline();
    game.play(&mut qp, &peer, max_inline)
}

/// Where every datagram goes.
struct Destination<'a> {
    ah: &'a AddressHandle<'a>,
    qpn: u32,
}

impl<'a> Peer<'a, Ud> for Destination<'a> {
    fn address<D: Gather<'a>>(&self, message: Send<D>) -> impl SendRequest<'a, Ud> {
        message.to(self.ah, self.qpn, QKEY)
    }
}
