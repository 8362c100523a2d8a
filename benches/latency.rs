//! `IBV_DEVICE=rxe0 cargo bench --bench latency`: latency between two queue pairs of this process on a device.
//!
//! | row | what one sample is |
//! |---|---|
//! | SEND | half of there and back: a message each way, received by polling |
//! | WRITE, READ, fetch-and-add, compare-and-swap | from the post until its completion is polled |
//! | TCP | half of there and back over a socket of this machine, for comparison |
//!
//! `IBV_GID_INDEX` picks the GID to send from, as the examples' `-g`. Without a device there is only TCP.
//! `cargo xtask vm -- env IBV_DEVICE=rxe0 cargo bench --bench latency` gives it a software device.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ibv::{
    CompletionQueue, Connection, Context, InitAttr, Inline, MemoryRegion, QueuePair, Rc, Remote,
    RemoteAccess, WorkCompletion, cmp_swp, devices, fetch_add, read, recv, send, write,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A row ends after so many samples, or that time.
const SAMPLES: usize = 20_000;
const TIME: Duration = Duration::from_secs(1);
const WARM_UP: usize = 100;

const SIZES: [usize; 5] = [2, 64, 1024, 4096, 65536];

/// Takes samples of `f`, which says how long it took, and prints a row.
fn row(name: &str, mut f: impl FnMut() -> Result<Duration>) -> Result<()> {
    for _ in 0..WARM_UP {
        f()?;
    }
    let (start, mut samples) = (Instant::now(), Vec::with_capacity(SAMPLES));
    while samples.len() < SAMPLES && start.elapsed() < TIME {
        samples.push(f()?.as_secs_f64() * 1e6);
    }
    samples.sort_by(f64::total_cmp);
    let at = |part: f64| {
        let index = ((samples.len() as f64 * part) as usize).min(samples.len() - 1);
        samples.get(index).copied().unwrap_or(f64::NAN)
    };
    let columns = [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].map(|part| format!("{:>9.2}", at(part)));
    println!("{name:20} {:>7} {}", samples.len(), columns.join(" "));
    Ok(())
}

fn header(what: &str) {
    let columns = ["min", "p50", "p90", "p99", "p99.9", "max"].map(|name| format!("{name:>9}"));
    println!("\n{what}\n{:20} {:>7} {}", "µs", "samples", columns.join(" "));
}

/// One end: a queue pair with its queues and its memory.
struct End<'a> {
    qp: QueuePair<'a>,
    sends: &'a CompletionQueue<'a>,
    recvs: &'a CompletionQueue<'a>,
    mr: &'a MemoryRegion<'a, Remote>,
}

/// Polls until one request is done.
fn complete(cq: &CompletionQueue<'_>) -> Result<()> {
    let mut wcs = [WorkCompletion::default(); 1];
    loop {
        if let [wc] = cq.poll(&mut wcs)? {
            wc.result()?;
            return Ok(());
        }
    }
}

impl End<'_> {
    fn expect(&self, size: usize) -> Result<()> {
        Ok(self.qp.post_recv(recv(self.mr.slice(..size)?))?)
    }

    fn send(&self, size: usize, bytes: &[u8]) -> Result<()> {
        match bytes.get(..size).filter(|bytes| bytes.len() <= self.qp.max_inline() as usize) {
            Some(bytes) => self.qp.post(send(Inline(bytes)).signaled())?,
            None => self.qp.post(send(self.mr.slice(..size)?).signaled())?,
        }
        Ok(())
    }
}

fn on_device(name: &str) -> Result<()> {
    let ctx = Context::open(name)?;
    let pd = ctx.alloc_pd()?;
    let cqs = [ctx.create_cq(64)?, ctx.create_cq(64)?, ctx.create_cq(64)?, ctx.create_cq(64)?];
    let [sends_a, recvs_a, sends_b, recvs_b] = &cqs;
    let access = RemoteAccess::READ | RemoteAccess::WRITE | RemoteAccess::ATOMIC;
    let (mr_a, mr_b) = (pd.alloc_remote(65536, access)?, pd.alloc_remote(65536, access)?);
    let local = match std::env::var("IBV_GID_INDEX") {
        Ok(index) => ctx.local_port_with_gid(1, index.parse()?)?,
        Err(_) => ctx.local_port(1)?,
    };
    let make = |sends, recvs| -> Result<_> {
        // 0 of inline data is what every device can have
        let builder = |inline| pd.create_qp::<Rc>(sends, recvs).inline(inline).build();
        let qp = builder(64).or_else(|_| builder(0))?;
        Ok(qp.init(InitAttr::new(1).access(access))?)
    };
    let (a, b) = (make(sends_a, recvs_a)?, make(sends_b, recvs_b)?);
    let (to_b, to_a) = (b.endpoint(&local, 0), a.endpoint(&local, 0));
    let a =
        End { qp: a.connect(&Connection::new(local, 0, to_b))?, sends: sends_a, recvs: recvs_a, mr: &mr_a };
    let b =
        End { qp: b.connect(&Connection::new(local, 0, to_a))?, sends: sends_b, recvs: recvs_b, mr: &mr_b };
    let bytes = [7u8; 64];
    header(&format!("{name}, RC, two queue pairs of one process"));
    for size in SIZES {
        row(&format!("SEND {size}"), || {
            b.expect(size)?;
            a.expect(size)?;
            let start = Instant::now();
            a.send(size, &bytes)?;
            complete(b.recvs)?;
            b.send(size, &bytes)?;
            complete(a.recvs)?;
            let took = start.elapsed() / 2;
            complete(a.sends)?;
            complete(b.sends)?;
            Ok(took)
        })?;
    }
    let timed = |post: &dyn Fn() -> Result<()>| -> Result<Duration> {
        let start = Instant::now();
        post()?;
        complete(a.sends)?;
        Ok(start.elapsed())
    };
    let peer = mr_b.remote_region();
    for size in SIZES {
        let (data, to) = (mr_a.slice(..size)?, peer.slice(..size)?);
        row(&format!("WRITE {size}"), || timed(&|| Ok(a.qp.post(write(data, to).signaled())?)))?;
        row(&format!("READ {size}"), || timed(&|| Ok(a.qp.post(read(data, to).signaled())?)))?;
    }
    if ctx.device_attr().atomic_cap() != ibv::AtomicCap::NONE {
        let (word, at) = (mr_a.u64_at(0)?, peer.u64_at(0)?);
        row("FETCH_ADD", || timed(&|| Ok(a.qp.post(fetch_add(word, at, 1).signaled())?)))?;
        row("CMP_SWP", || timed(&|| Ok(a.qp.post(cmp_swp(word, at, 0, 0).signaled())?)))?;
    }
    Ok(())
}

/// The same way there and back over TCP, with a thread at the other end.
fn over_tcp() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    header("TCP over loopback, two threads");
    for size in SIZES {
        let mut bytes = vec![7u8; size];
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| -> std::io::Result<()> {
                let mut bytes = vec![0u8; size];
                loop {
                    there.read_exact(&mut bytes)?;
                    // a first byte of 0 is the end
                    if bytes.first() == Some(&0) {
                        return Ok(());
                    }
                    there.write_all(&bytes)?;
                }
            });
            row(&format!("TCP {size}"), || {
                let start = Instant::now();
                here.write_all(&bytes)?;
                here.read_exact(&mut bytes)?;
                Ok(start.elapsed() / 2)
            })?;
            here.write_all(&vec![0u8; size])?;
            echo.join().map_err(|_| "the echo thread panicked")??;
            Ok::<_, Box<dyn Error>>(())
        })?;
    }
    Ok(())
}

fn run() -> Result<()> {
    match std::env::var("IBV_DEVICE") {
        Ok(name) => on_device(&name)?,
        Err(_) => {
            let names = devices()
                .map(|list| list.iter().map(|device| device.name().to_owned()).collect::<Vec<_>>())
                .unwrap_or_default();
            let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            println!(
                "no RDMA device measured: set IBV_DEVICE to the name of one (on this machine: {there_are})."
            );
            println!(
                "`cargo xtask vm -- env IBV_DEVICE=rxe0 cargo bench --bench latency` gives it a software one."
            );
        }
    }
    over_tcp()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}
