//! The out-of-band exchange of the `ibv_*_pingpong` programs, over one TCP connection:
//!
//! 1. client to server: its [`Endpoint`] in wire form;
//! 2. server to client: its own, once its queue pair can receive;
//! 3. client to server: `done` and a NUL. (The C client says it before its queue pair is ready, this one after: then a
//!    server need not wait for a client that could not do it.)

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use ibv::Endpoint;

use super::report::print_endpoint;
use super::{Options, Result};

const DONE: &[u8] = b"done\0";

/// The way to tell the peer our address.
pub(crate) enum OutOfBand<'o> {
    Server { listener: TcpListener, patience: Option<Duration> },
    Client { host: &'o str, port: u16, patience: Option<Duration> },
}

impl<'o> OutOfBand<'o> {
    /// Clients can reach the server from now on.
    pub(crate) fn start(options: &'o Options) -> Result<Self> {
        let (port, patience) = (options.port, options.patience);
        Ok(match &options.host {
            Some(host) => Self::Client { host, port, patience },
            None => Self::Server { listener: listen(port)?, patience },
        })
    }

    /// Tells the peer that we are `ours`, and readies our queue pair for the peer by `connect`.
    pub(crate) fn exchange<Q>(
        self,
        ours: &Endpoint,
        connect: impl FnOnce(&Endpoint) -> Result<Q>,
    ) -> Result<Q> {
        match self {
            Self::Server { listener, patience } => {
                let (stream, _) =
                    listener.accept().map_err(|error| format!("cannot accept a client: {error}"))?;
                // whoever comes later shall be refused at once
                drop(listener);
                let mut talk = Talk { stream, patience };
                let peer = talk.endpoint()?;
                let queue = connect(&peer)?;
                talk.say(&ours.to_wire())?;
                let mut done = [0; DONE.len()];
                talk.hear(&mut done, "\"done\"")?;
                if done == DONE {
                    Ok(queue)
                } else {
                    Err(format!("the client said \"{}\" where \"done\" was due", done.escape_ascii()).into())
                }
            }
            Self::Client { host, port, patience } => {
                let mut talk = Talk { stream: dial(host, port, patience)?, patience };
                talk.say(&ours.to_wire())?;
                let peer = talk.endpoint()?;
                let queue = connect(&peer)?;
                talk.say(DONE)?;
                Ok(queue)
            }
        }
    }
}

fn listen(port: u16) -> Result<TcpListener> {
    // IPv6 takes IPv4 clients too, where there is IPv6
    let any =
        [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
    TcpListener::bind(any.as_slice()).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => "; --port names another",
            _ => "",
        };
        format!("cannot listen on TCP port {port}: {error}{hint}").into()
    })
}

fn dial(host: &str, port: u16, patience: Option<Duration>) -> Result<TcpStream> {
    let failed = |error: io::Error| {
        let hint = match error.kind() {
            ErrorKind::ConnectionRefused => "; start the server there first, with the same --port",
            _ => "",
        };
        format!("cannot connect to {host}, TCP port {port}: {error}{hint}")
    };
    let mut last = io::Error::new(ErrorKind::NotFound, "this name has no address");
    for address in (host, port).to_socket_addrs().map_err(failed)? {
        let connected = match patience {
            Some(patience) => TcpStream::connect_timeout(&address, patience),
            None => TcpStream::connect(address),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(last).into())
}

/// The connection, where the peer may keep silent for so long.
struct Talk {
    stream: TcpStream,
    patience: Option<Duration>,
}

impl Talk {
    fn say(&mut self, words: &[u8]) -> Result<()> {
        // in one piece: the C programs read a message by one call
        self.stream
            .write_all(words)
            .map_err(|error| format!("the peer has left the TCP connection: {error}").into())
    }

    /// The peer's address, which is printed.
    fn endpoint(&mut self) -> Result<Endpoint> {
        let mut wire = [0; Endpoint::WIRE_LEN];
        self.hear(&mut wire, "its address")?;
        let peer = Endpoint::from_wire(&wire)?;
        print_endpoint("remote address:", &peer, ',')?;
        Ok(peer)
    }

    /// Fills `words`, and does not wait longer because they come one by one.
    fn hear(&mut self, words: &mut [u8], what: &str) -> Result<()> {
        let started = Instant::now();
        let mut rest = words;
        while !rest.is_empty() {
            let left = self.patience.map(|patience| patience.saturating_sub(started.elapsed()));
            if left == Some(Duration::ZERO) {
                return Err(format!(
                    "the peer is connected by TCP, but did not say {what} in time (--idle-timeout)"
                )
                .into());
            }
            self.stream.set_read_timeout(left)?;
            match self.stream.read(rest) {
                Ok(0) => return Err(format!("the peer left before it said {what}").into()),
                Ok(count) => rest = rest.get_mut(count..).unwrap_or_default(),
                // timed out: the loop finds that nothing is left
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(format!("the peer left before it said {what}: {error}").into()),
            }
        }
        Ok(())
    }
}
