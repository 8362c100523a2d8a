//! The same over a socket: what a program without RDMA would do.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use super::meeting::Meeting;
use super::{Stamps, computing};
use crate::Result;
use crate::test::Test;

pub(super) fn run(test: &Test, meeting: &mut Meeting) -> Result<()> {
    let mut message = vec![7; test.bytes];
    let mut stamps = Stamps::new(test);
    let (is_client, stream) = (meeting.is_client, &mut meeting.stream);
    stream.set_nonblocking(!test.events)?;
    computing(test.iterations, || {
        for _ in 0..test.iterations {
            if is_client {
                stamps.take();
                say(stream, &message)?;
                hear(stream, &mut message)?;
            } else {
                hear(stream, &mut message)?;
                say(stream, &message)?;
            }
        }
        Ok(())
    })?;
    if is_client {
        stamps.print(test.operation);
    }
    stream.set_nonblocking(false)?;
    meeting.join()
}

fn say(stream: &mut TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn hear(stream: &mut TcpStream, mut into: &mut [u8]) -> Result<()> {
    while !into.is_empty() {
        match stream.read(into) {
            Ok(0) => return Err("the peer is gone".into()),
            Ok(count) => into = into.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
