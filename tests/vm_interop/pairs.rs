//! Server and client, one of them or both ours.

use crate::Language::{self, C, Rust};
use crate::programs::{Ended, Running, free_port};
use crate::{Device, device};

/// Who serves, who is the client.
const RUST_C: [Language; 2] = [Rust, C];
const C_RUST: [Language; 2] = [C, Rust];
const RUST_RUST: [Language; 2] = [Rust, Rust];

/// A run that goes well.
fn pair(
    device: &Device,
    transport: &str,
    who: [Language; 2],
    options: &str,
    client_options: &str,
) -> [Ended; 2] {
    let port = free_port();
    let options = format!("{options} -p {port}");
    let mut server = Running::start(&mut device.pingpong(transport, who[0], &options));
    server.listens(port);
    let client_options = format!("{options} {client_options} 127.0.0.1");
    let client = Running::start(&mut device.pingpong(transport, who[1], &client_options));
    let client = client.wait();
    if client.status != Some(0) {
        server.signal("TERM");
    }
    let server = server.wait();
    assert!(client.status == Some(0), "{client:#?}\n{server:#?}");
    let ended = [server.succeeded(), client.succeeded()];
    println!("{transport} {who:?} {client_options}: {:.1?}", ended[0].took);
    check_output(transport, &ended);
    ended
}

/// Both print the same lines, and each the other's address.
fn check_output(transport: &str, [server, client]: &[Ended; 2]) {
    // one line of the C program has another separator
    let local = if transport == "ud" { ": GID" } else { ", GID" };
    let expected = format!(
        "  local address:  LID 0x####, QPN 0x######, PSN 0x######{local} @\n  \
           remote address: LID 0x####, QPN 0x######, PSN 0x######, GID @\n\
         N bytes in N seconds = N Mbit/sec\n\
         N iters in N seconds = N usec/iter\n"
    );
    for ended in [server, client] {
        let shape: Vec<_> =
            ended.out.lines().filter(|line| !line.starts_with("latency")).map(shape).collect();
        assert_eq!(shape.join("\n") + "\n", expected, "{ended:#?}");
    }
    let address = |ended: &Ended, line: usize| {
        let line = ended.out.lines().nth(line).unwrap();
        line.split_once("LID").unwrap().1.replace(": GID", ", GID")
    };
    assert_eq!(address(server, 0), address(client, 1));
    assert_eq!(address(server, 1), address(client, 0));
}

/// A line without its numbers: of fixed width, a GID, others.
fn shape(line: &str) -> String {
    let mut last = "";
    let words = line.split(' ').map(|word| {
        let shape = match word.strip_prefix("0x") {
            Some(digits) => {
                let hex = |c: char| if c.is_ascii_hexdigit() { '#' } else { c };
                format!("0x{}", digits.chars().map(hex).collect::<String>())
            }
            None if last == "GID" && word.parse::<std::net::Ipv6Addr>().is_ok() => "@".into(),
            None if word.parse::<f64>().is_ok() => "N".into(),
            None => word.into(),
        };
        last = word;
        shape
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Runs with each of these options, the data checked.
fn all(transport: &str, whos: &[[Language; 2]], options: &[&str]) {
    let Some(device) = device() else { return };
    for who in whos {
        for options in options {
            pair(&device, transport, *who, &format!("-n 20 -c {options}"), "");
        }
    }
}

/// Sizes, polling and with events. (A name with `short` also runs on another kernel.)
const SHORT: [&str; 2] = ["-s 4096", "-s 65536 -e"];
const LONG: [&str; 6] = ["-s 1", "-s 1 -e", "-s 64", "-s 64 -e", "-s 4096 -e", "-s 65536"];
/// Within the smallest MTU that an Ethernet has.
const SHORT_DATAGRAMS: [&str; 2] = ["-s 1024", "-s 64 -e"];
const LONG_DATAGRAMS: [&str; 4] = ["-s 1", "-s 1 -e", "-s 64", "-s 1024 -e"];

#[test]
fn rc_rust_server_c_client() {
    all("rc", &[RUST_C], &LONG);
}

#[test]
fn rc_c_server_rust_client() {
    all("rc", &[C_RUST], &LONG);
}

#[test]
fn rc_rust_server_rust_client() {
    all("rc", &[RUST_RUST], &["-s 1", "-s 64 -e", "-s 4096", "-s 65536 -e"]);
}

#[test]
fn uc_rust_server_c_client() {
    all("uc", &[RUST_C], &LONG);
}

#[test]
fn uc_c_server_rust_client() {
    all("uc", &[C_RUST], &LONG);
}

#[test]
fn uc_rust_server_rust_client() {
    all("uc", &[RUST_RUST], &SHORT);
}

#[test]
fn ud_rust_server_c_client() {
    all("ud", &[RUST_C], &LONG_DATAGRAMS);
}

#[test]
fn ud_c_server_rust_client() {
    all("ud", &[C_RUST], &LONG_DATAGRAMS);
}

#[test]
fn ud_rust_server_rust_client() {
    all("ud", &[RUST_RUST], &SHORT_DATAGRAMS);
}

#[test]
fn messages_of_a_mebibyte() {
    let Some(device) = device() else { return };
    for transport in ["rc", "uc"] {
        for who in [RUST_C, C_RUST] {
            pair(&device, transport, who, "-n 2 -c -s 1048576", "");
        }
    }
}

#[test]
fn short_rc() {
    all("rc", &[RUST_C, C_RUST], &SHORT);
}

#[test]
fn short_uc() {
    all("uc", &[RUST_C, C_RUST], &SHORT);
}

#[test]
fn short_ud() {
    all("ud", &[RUST_C, C_RUST], &SHORT_DATAGRAMS);
}

#[test]
fn the_extended_backend_is_compatible() {
    let Some(device) = device() else { return };
    for transport in ["rc", "uc", "ud"] {
        // inline, and not
        for size in [16, 1024] {
            pair(&device, transport, C_RUST, &format!("-n 20 -c -s {size}"), "--new_send");
        }
    }
    pair(&device, "rc", RUST_RUST, "-n 20 -c -N", "");
}

#[test]
fn other_settings_are_compatible() {
    let Some(device) = device() else { return };
    // few receives, so that they must be posted again and again
    pair(&device, "rc", RUST_C, "-n 20 -c -r 2 -m 512 -i 1", "");
    pair(&device, "rc", C_RUST, "-n 20 -c -r 1 -m 256", "");
    pair(&device, "ud", RUST_RUST, "-n 20 --chk --rx-depth 3 --sl 1", "");
}

#[test]
fn latencies_are_told() {
    let Some(device) = device() else { return };
    for transport in ["rc", "ud"] {
        let [_, client] = pair(&device, transport, C_RUST, "-n 30", "--latency");
        let line = client.out.lines().last().unwrap();
        let values: Vec<(&str, f64)> = line
            .strip_prefix("latency usec: ")
            .unwrap()
            .split(' ')
            .map(|word| word.split_once('=').unwrap())
            .map(|(name, value)| (name, value.parse().unwrap()))
            .collect();
        let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["min", "p50", "p90", "p99", "p99.9", "max", "samples"]);
        let (latencies, samples) = values.split_at(6);
        assert!(latencies[0].1 > 0.0 && latencies.is_sorted_by_key(|(_, value)| *value), "{line}");
        assert!(samples[0].1 == 30.0);
    }
}
