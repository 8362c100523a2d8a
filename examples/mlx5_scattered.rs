//! Short messages in their completions, on the mlx5 direct path:
//! `cargo run --features mlx5 --example mlx5_scattered mlx5_0`.
//!
//! What fits is read where the poller looks anyway; what does not is where the receive said.

use std::error::Error;

use ibv::mlx5::{self, Poller};
use ibv::{
    CompletionQueue, Connection, Context, InitAttr, Inline, QpCaps, QueuePairBuilder, Rc, random_psn, recv,
    send,
};

/// Bytes of a receive.
const ROOM: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).ok_or("usage: mlx5_scattered DEVICE")?;
    let ctx = Context::open(&device)?;
    let local = ctx.local_port(1)?;
    let pd = ctx.alloc_pd()?;
    let inbox = pd.alloc_local(8 * ROOM)?;

    // two queue pairs, and as many entries as their queues can fill
    let caps = QpCaps { send_depth: 8, recv_depth: 8, inline: ROOM as u32 - 32, ..QpCaps::default() };
    let (sends, receives) = mlx5::cq_entries::<Rc>(&caps);
    let cq = CompletionQueue::builder(&ctx, 2 * (sends + receives)).wide().build_direct_scattered()?;
    let mut poller = Poller::new(&cq)?;
    let make = || QueuePairBuilder::<Rc, _>::direct(&pd, &cq, &cq).caps(caps).build();
    let here = make()?.init(InitAttr::new(local.port))?;
    let mut there = make()?.init(InitAttr::new(local.port))?;
    for slot in 0..8 {
        there.post_recv(recv(inbox.slice(slot * ROOM..(slot + 1) * ROOM)?).id(slot as u64))?;
    }
    let (here_psn, there_psn) = (random_psn(), random_psn());
    let (here_end, there_end) = (here.endpoint(&local, here_psn), there.endpoint(&local, there_psn));
    let mut here = here.connect(&Connection::new(local, here_psn, there_end))?;
    let _there = there.connect(&Connection::new(local, there_psn, here_end))?;

    let messages = ["short", &"not so short ".repeat(4), &"long ".repeat(40)];
    for text in messages {
        here.post(send(Inline(text.as_bytes())))?;
    }

    let mut waiting = messages.len();
    while waiting > 0 {
        let Some(wc) = poller.poll() else { continue };
        let done = wc.result()?;
        let bytes = done.byte_len().unwrap_or(0) as usize;
        match done.scattered() {
            Some(data) => println!("{bytes} bytes in the completion: {}", String::from_utf8_lossy(&data)),
            None => {
                let mut text = vec![0; bytes];
                inbox.read(wc.id() as usize * ROOM, &mut text)?;
                println!("{bytes} bytes in memory: {}", String::from_utf8_lossy(&text));
            }
        }
        waiting -= 1;
    }
    Ok(())
}
