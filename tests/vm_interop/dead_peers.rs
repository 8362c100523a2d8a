//! A peer that is killed in the middle of the game.

use std::thread;
use std::time::Duration;

use crate::Language::Rust;
use crate::programs::{Running, free_port};
use crate::{Device, device};

/// A game that never ends, in the middle.
fn game(device: &Device, transport: &str, options: &str) -> [Running; 2] {
    let port = free_port();
    let options = format!("-n 4000000000 -p {port} {options}");
    let mut server = Running::start(&mut device.pingpong(transport, Rust, &options));
    server.listens(port);
    let mut client = Running::start(&mut device.pingpong(transport, Rust, &format!("{options} 127.0.0.1")));
    server.line_with("remote address");
    client.line_with("remote address");
    // by now they exchange messages
    thread::sleep(Duration::from_millis(500));
    [server, client]
}

/// Whoever waits for a message cannot know, and gives up.
fn killed(transport: &str, options: &str) {
    let Some(device) = device() else { return };
    let [server, client] = game(&device, transport, options);
    server.signal("KILL");
    let end = client.wait().failed_with(&[]);
    assert!(end.err.contains("nothing from the peer for 1 s") || end.err.contains("retry"), "{end:#?}");
    let [server, client] = game(&device, transport, options);
    client.signal("KILL");
    let end = server.wait().failed_with(&[]);
    assert!(end.err.contains("nothing from the peer for 1 s") || end.err.contains("retry"), "{end:#?}");
}

#[test]
fn rc_peer_killed() {
    killed("rc", "--idle-timeout 1");
}

#[test]
fn rc_peer_killed_while_we_sleep_for_events() {
    killed("rc", "-e --idle-timeout 1");
}

#[test]
fn uc_peer_killed() {
    killed("uc", "--idle-timeout 1");
}

#[test]
fn ud_peer_killed() {
    killed("ud", "--idle-timeout 1");
}

/// Whoever has something to send is told by the device: on RC, and long before the idle time is over.
#[test]
fn short_rc_tells_the_sender_that_its_peer_was_killed() {
    let Some(device) = device() else { return };
    for survivor in ["client", "server"] {
        let [server, client] = game(&device, "rc", "--idle-timeout 60");
        let (ours, dead) = if survivor == "client" { (client, server) } else { (server, client) };
        // while it stands still the other's message comes in, so that it is its turn to send
        ours.signal("STOP");
        thread::sleep(Duration::from_millis(500));
        dead.signal("KILL");
        drop(dead.wait());
        ours.signal("CONT");
        ours.wait().failed_with(&["send failed", "transport retry counter exceeded", "the peer is gone"]);
    }
}
