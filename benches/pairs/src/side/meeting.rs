//! The TCP connection by which two processes find each other.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::Result;
use crate::processes::HOST;

pub(super) struct Meeting {
    pub(super) stream: TcpStream,
    pub(super) is_client: bool,
}

impl Meeting {
    pub(super) fn new(host: Option<&str>, port: u16) -> Result<Self> {
        let stream = match host {
            Some(host) => TcpStream::connect((host, port))?,
            None => TcpListener::bind((HOST, port))?.accept()?.0,
        };
        stream.set_nodelay(true)?;
        Ok(Self { stream, is_client: host.is_some() })
    }

    /// Says something, and hears what the peer says in the same place.
    pub(super) fn swap<const N: usize>(&mut self, ours: &[u8; N]) -> Result<[u8; N]> {
        self.say(ours)?;
        self.hear()
    }

    /// Waits until the peer is here too. The client, which begins, goes on first: on one processor, a server that waits
    /// at its memory would keep it from that.
    pub(super) fn join(&mut self) -> Result<()> {
        if self.is_client {
            self.hear::<1>()?;
            self.say(&[0])
        } else {
            self.swap(&[0]).map(drop)
        }
    }

    fn say(&mut self, ours: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(ours)?)
    }

    fn hear<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut theirs = [0; N];
        self.stream.read_exact(&mut theirs).map_err(|error| format!("the peer is gone: {error}"))?;
        Ok(theirs)
    }
}
