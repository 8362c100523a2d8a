//! Several peers, one receive queue: `cargo run --example shared_receives mlx5_0`.
//!
//! Memory is kept for as many messages as may wait at once, however many peers there are. Whoever's message comes takes
//! a receive; its completion says by which queue pair it came.

use std::collections::HashMap;
use std::error::Error;

use ibv::{Connection, Context, InitAttr, Rc, SharedReceiveQueue, WorkCompletion, random_psn, recv, send};

const PEERS: usize = 4;
/// Of each peer.
const MESSAGES: usize = 8;
/// Fewer than come: a peer whose message finds none tries again.
const RECEIVES: usize = 16;
/// Bytes of the longest message.
const ROOM: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).ok_or("usage: shared_receives DEVICE")?;
    let ctx = Context::open(&device)?;
    let local = ctx.local_port(1)?;
    let pd = ctx.alloc_pd()?;
    let (cq, peers_cq) = (ctx.create_cq(256)?, ctx.create_cq(256)?);
    let inbox = pd.alloc_local(RECEIVES * ROOM)?;
    let outbox = pd.alloc_local(PEERS * ROOM)?;

    let srq = SharedReceiveQueue::new(&pd, RECEIVES as u32, 1)?;
    let post = |slot: usize| -> Result<(), ibv::Error> {
        Ok(srq.post_recv(recv(inbox.slice(slot * ROOM..(slot + 1) * ROOM)?).id(slot as u64))?)
    };
    (0..RECEIVES).try_for_each(post)?;

    let (mut ours, mut peers) = (HashMap::new(), Vec::new());
    for number in 0..PEERS {
        let here = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?.init(InitAttr::new(local.port))?;
        let peer = pd.create_qp::<Rc>(&peers_cq, &peers_cq).build()?.init(InitAttr::new(local.port))?;
        let (here_psn, peer_psn) = (random_psn(), random_psn());
        let (here_end, peer_end) = (here.endpoint(&local, here_psn), peer.endpoint(&local, peer_psn));
        let here = here.connect(&Connection::new(local, here_psn, peer_end))?;
        let peer = peer.connect(&Connection::new(local, peer_psn, here_end))?;
        ours.insert(here.qp_num(), (number, 0, here));
        peers.push(peer);
    }

    for (number, peer) in peers.iter().enumerate() {
        let text = format!("greetings of peer {number}");
        outbox.write(number * ROOM, text.as_bytes())?;
        let message = outbox.slice(number * ROOM..number * ROOM + text.len())?;
        for _ in 0..MESSAGES {
            peer.post(send(message).signaled())?;
        }
    }

    let mut wcs = [WorkCompletion::default(); 16];
    let (mut sent, mut received) = (0, 0);
    while sent < PEERS * MESSAGES || received < PEERS * MESSAGES {
        for wc in peers_cq.poll(&mut wcs)? {
            wc.result()?;
            sent += 1;
        }
        for wc in cq.poll(&mut wcs)? {
            let bytes = wc.result()?.byte_len().ok_or("no receive")?;
            let slot = wc.id() as usize;
            let mut text = vec![0; bytes as usize];
            inbox.read(slot * ROOM, &mut text)?;
            post(slot)?; // for the next one, whoever that is
            let (number, count, _) = ours.get_mut(&wc.qp_num()).ok_or("a queue pair that is none of ours")?;
            received += 1;
            *count += 1;
            if *count == MESSAGES {
                println!("peer {number}: {}, {count} times", String::from_utf8_lossy(&text));
            }
        }
    }
    println!("{received} messages, with memory for {RECEIVES}");
    Ok(())
}
