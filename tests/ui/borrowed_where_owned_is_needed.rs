use ibv::{CompletionQueue, Context, Error};

// The struct would hold a context, and a queue that borrows it: share the context by an `Arc` instead.
struct Server {
    _cq: CompletionQueue<'static>,
    _ctx: Context,
}

fn start() -> Result<Server, Error> {
    let ctx = Context::open("rxe0")?;
    let cq = CompletionQueue::new(&ctx, 128)?;
    Ok(Server { _cq: cq, _ctx: ctx })
}

fn main() {}
