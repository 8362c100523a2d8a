//! Peers that do not keep to the protocol, or to what both sides must agree on: played by the test itself where no
//! program does that.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::Language::{C, Rust};
use crate::programs::{Ended, Running, free_port, run};
use crate::{Device, device};

/// A server of ours, and what `client` does to it.
fn server_meets(device: &Device, options: &str, client: impl FnOnce(TcpStream, &str)) -> Ended {
    let port = free_port();
    let mut server = Running::start(&mut device.pingpong("rc", Rust, &format!("{options} -p {port}")));
    let local = server.line_with("local address");
    client(TcpStream::connect(("127.0.0.1", port)).unwrap(), &local);
    server.wait()
}

/// A client of ours, and what `server` does to it.
fn client_meets(device: &Device, options: &str, server: impl FnOnce(TcpStream) + Send) -> Ended {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        scope.spawn(move || server(listener.accept().unwrap().0));
        run(&mut device.pingpong("rc", Rust, &format!("{options} -p {port} 127.0.0.1")))
    })
}

const GARBAGE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: \x1b[31m*/*\x00\r\n\r\n";

/// The address of a queue pair that nobody has, where the server's own is.
fn nobody(local: &str) -> Vec<u8> {
    let gid: std::net::Ipv6Addr = local.rsplit("GID ").next().unwrap().trim().parse().unwrap();
    let gid: String = gid.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0000:abcdef:000001:{gid}\0").into_bytes()
}

#[test]
fn short_garbage_is_no_address() {
    let Some(device) = device() else { return };
    server_meets(&device, "", |mut client, _| client.write_all(GARBAGE).unwrap())
        .failed_with(&["the peer's address is \"GET / HTTP/1.1\\r\\n"]);
    client_meets(&device, "", |mut server| server.write_all(GARBAGE).unwrap())
        .failed_with(&["the peer's address is \"GET / HTTP/1.1\\r\\n"]);
    // right but for its GID
    server_meets(&device, "", |mut client, local| {
        let mut address = nobody(local);
        address[50] = b'x';
        client.write_all(&address).unwrap();
    })
    .failed_with(&["the peer's address is"]);
}

#[test]
fn a_peer_without_a_gid_is_refused_where_one_is_needed() {
    let Some(device) = device() else { return };
    if std::env::var_os("IBV_TEST_GID_INDEX").is_none() {
        return crate::skip("this device does without GIDs");
    }
    let address = b"0000:000012:000001:00000000000000000000000000000000\0";
    server_meets(&device, "", |mut client, _| client.write_all(address).unwrap()).failed_with(&["GRH"]);
}

#[test]
fn peers_that_leave_early_are_noticed_at_once() {
    let Some(device) = device() else { return };
    server_meets(&device, "", |client, _| drop(client)).failed_with(&["left", "address"]);
    server_meets(&device, "", |mut client, _| client.write_all(b"0000:0000").unwrap())
        .failed_with(&["left", "address"]);
    server_meets(&device, "", |mut client, local| client.write_all(&nobody(local)).unwrap())
        .failed_with(&["left", "done"]);
    client_meets(&device, "", drop).failed_with(&["left", "address"]);
}

#[test]
fn peers_that_say_something_else_than_done_are_refused() {
    let Some(device) = device() else { return };
    server_meets(&device, "", |mut client, local| {
        client.write_all(&nobody(local)).unwrap();
        client.read_exact(&mut [0; 52]).unwrap();
        client.write_all(b"what?").unwrap();
    })
    .failed_with(&["what?", "done"]);
}

/// Says nothing until the other has left.
fn hold(stream: TcpStream) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = (&stream).read_to_end(&mut Vec::new());
}

#[test]
fn peers_that_say_nothing_are_given_up() {
    let Some(device) = device() else { return };
    server_meets(&device, "--idle-timeout 0.5", |client, _| drop(thread::spawn(move || hold(client))))
        .failed_with(&["its address", "in time"]);
    client_meets(&device, "--idle-timeout 0.5", hold).failed_with(&["its address", "in time"]);
    // one byte after the other, for ever
    server_meets(&device, "--idle-timeout 1", |mut client, _| {
        thread::spawn(move || {
            while client.write_all(b"0").is_ok() {
                thread::sleep(Duration::from_millis(200));
            }
        });
    })
    .failed_with(&["its address", "in time"]);
}

#[test]
fn a_peer_that_connects_and_never_plays_is_given_up() {
    let Some(device) = device() else { return };
    for events in ["", "-e"] {
        server_meets(&device, &format!("--idle-timeout 1 {events}"), |mut client, local| {
            client.write_all(&nobody(local)).unwrap();
            client.read_exact(&mut [0; 52]).unwrap();
            client.write_all(b"done\0").unwrap();
        })
        .failed_with(&["nothing from the peer for 1 s", "--idle-timeout"]);
    }
}

/// Server and client, ours, with different options; how both ended.
fn disagree(device: &Device, transport: &str, server: &str, client: &str) -> [Ended; 2] {
    let port = free_port();
    let mut server = Running::start(&mut device.pingpong(transport, Rust, &format!("{server} -p {port}")));
    server.listens(port);
    let client = run(&mut device.pingpong(transport, Rust, &format!("{client} -p {port} 127.0.0.1")));
    [server.wait(), client]
}

#[test]
fn sizes_that_differ_are_reported() {
    let Some(device) = device() else { return };
    // too long for the receive, which RC tells both
    let [server, client] = disagree(&device, "rc", "-s 64", "-s 4096");
    server.failed_with(&["receive failed", "--size"]);
    client.failed_with(&["send failed", "--size"]);
    let [server, client] = disagree(&device, "rc", "-s 4096", "-s 64 --idle-timeout 1");
    server.failed_with(&["64 bytes, not 4096", "--size"]);
    client.failed_with(&["nothing from the peer for 1 s"]);
    let [server, client] = disagree(&device, "ud", "-s 1000", "-s 64 --idle-timeout 1");
    server.failed_with(&["64 bytes, not 1000", "--size"]);
    client.failed_with(&["nothing from the peer for 1 s"]);
    // a C client does not say much, but ours does
    let port = free_port();
    let mut server = Running::start(&mut device.pingpong("rc", Rust, &format!("-s 4096 -p {port}")));
    server.listens(port);
    let _client = Running::start(&mut device.pingpong("rc", C, &format!("-s 64 -p {port} 127.0.0.1")));
    server.wait().failed_with(&["64 bytes, not 4096", "--size"]);
}

#[test]
fn a_peer_that_stops_earlier_is_noticed() {
    let Some(device) = device() else { return };
    let [server, client] = disagree(&device, "rc", "-n 10", "-n 30 --idle-timeout 1");
    server.succeeded();
    // whether or not its last message was still taken in
    let client = client.failed_with(&[]);
    assert!(client.err.contains("nothing from the peer") || client.err.contains("retry"), "{client:#?}");
}

#[test]
fn data_that_is_wrong_is_found() {
    let Some(device) = device() else { return };
    for transport in ["rc", "ud"] {
        // that client fills its pages otherwise
        let [server, client] = disagree(&device, transport, "-c", "--idle-timeout 1");
        server.failed_with(&["message 1: byte 0 is 0x7b and should be 0x00", "--chk"]);
        client.failed_with(&["nothing from the peer for 1 s"]);
    }
}
