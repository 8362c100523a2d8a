//! Two queue pairs of one device, connected to each other: `cargo run --example loopback mlx5_0`.

use std::error::Error;

use ibv::{Connection, Context, InitAttr, Rc, WorkCompletion, random_psn, recv, send};

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).ok_or("usage: loopback DEVICE")?;
    let ctx = Context::open(&device)?;
    let local = ctx.local_port(1)?; // on RoCE, this picks a GID
    let pd = ctx.alloc_pd()?;
    let cq = ctx.create_cq(128)?;

    // What queue pairs use is made before them: the compiler sees to it.
    let outbox = pd.alloc_local(4096)?;
    let inbox = pd.alloc_local(4096)?;

    let here = pd.create_qp::<Rc>(&cq, &cq).build()?.init(InitAttr::new(local.port))?;
    let there = pd.create_qp::<Rc>(&cq, &cq).build()?.init(InitAttr::new(local.port))?;
    there.post_recv(recv(inbox.as_slice()?).id(1))?; // `Init` is enough to receive, not to send

    let (here_psn, there_psn) = (random_psn(), random_psn());
    let (here_end, there_end) = (here.endpoint(&local, here_psn), there.endpoint(&local, there_psn));
    let here = here.connect(&Connection::new(local, here_psn, there_end))?;
    let _there = there.connect(&Connection::new(local, there_psn, here_end))?;

    let text = b"hello, RDMA";
    outbox.write(0, text)?;
    here.post(send(outbox.slice(..text.len())?).signaled().id(2))?;

    let mut outstanding = 2;
    let mut wcs = [WorkCompletion::default(); 8];
    while outstanding > 0 {
        for wc in cq.poll(&mut wcs)? {
            let done = wc.result()?; // a failed request has a status, and nothing else
            println!("request {}: {:?}", wc.id(), done.opcode());
            outstanding -= 1;
        }
    }

    let mut received = vec![0; text.len()];
    inbox.read(0, &mut received)?;
    println!("received: {}", String::from_utf8_lossy(&received));
    Ok(())
}
