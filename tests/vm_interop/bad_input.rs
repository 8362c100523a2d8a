//! What cannot be done is one clear line and status 1.

use std::net::{Ipv6Addr, TcpListener};

use crate::Language::Rust;
use crate::device;
use crate::programs::{example, free_port, run};

#[test]
fn short_what_is_not_there_is_said_to_be_missing() {
    let Some(device) = device() else { return };
    for transport in ["rc", "uc", "ud"] {
        let program = format!("{transport}_pingpong");
        let port = free_port().to_string();
        let with = |options: &[&str]| run(example(&program).args(["-p", &port]).args(options));
        with(&["-d", "nope"]).failed_with(&["no RDMA device nope", "there are: ", &device.name]);
        with(&["-d", &device.name, "-i", "99"]).failed_with(&["--ib-port 99", &device.name]);
        with(&["-d", &device.name, "-g", "200"]).failed_with(&["200", "empty", "--gid-idx can be "]);
    }
}

#[test]
fn more_than_the_device_can_do_is_refused() {
    let Some(device) = device() else { return };
    let with = |transport, options: &str| {
        let options = format!("-p {} {options}", free_port());
        run(&mut device.pingpong(transport, Rust, &options))
    };
    with("rc", "-r 4000000000").failed_with(&["--rx-depth 4000000000", "the limit is"]);
    with("rc", "-s 2147483648").failed_with(&["--size 2147483648", "at most"]);
    with("ud", "-s 5000").failed_with(&["--size 5000", "one packet"]);
}

#[test]
fn a_port_in_use_is_reported() {
    let Some(device) = device() else { return };
    let holder = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = holder.local_addr().unwrap().port();
    run(&mut device.pingpong("rc", Rust, &format!("-p {port}"))).failed_with(&[
        &format!("TCP port {port}"),
        "in use",
        "--port",
    ]);
}

#[test]
fn a_server_that_is_not_there_is_reported() {
    let Some(device) = device() else { return };
    let port = free_port();
    let options = format!("-p {port} 127.0.0.1");
    for transport in ["rc", "uc", "ud"] {
        run(&mut device.pingpong(transport, Rust, &options)).failed_with(&[
            "127.0.0.1",
            &port.to_string(),
            "refused",
            "start the server",
        ]);
    }
    run(&mut device.pingpong("rc", Rust, "no-such-host.invalid")).failed_with(&["no-such-host.invalid"]);
}
