//! What programs do as processes, under `LD_PRELOAD`: fork, close descriptors, get killed, live in containers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "common/programs.rs"]
mod programs;

use programs::{
    Running, command, compiled, finish, has, left, library, listening, run, skip, text, unique, wait_until,
    with_mounts,
};
use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

#[test]
fn a_signal_handler_may_fork_while_the_device_works() {
    let (fabric, _) = unique();
    assert_eq!(compiled("forks", &["-pthread"]).run(&["handler"], &[("SOFTHCA_FABRIC", &fabric)]), "ok\n");
    assert_eq!(left(&fabric), [""; 0]);
}

#[test]
fn a_forked_child_takes_a_place_only_when_it_looks_for_a_device() {
    let (fabric, _) = unique();
    assert_eq!(compiled("forks", &["-pthread"]).run(&["many"], &[("SOFTHCA_FABRIC", &fabric)]), "ok\n");
    assert_eq!(left(&fabric), [""; 0]);
}

#[test]
fn a_child_has_a_device_that_works_whatever_its_parents_threads_did() {
    let (fabric, _) = unique();
    assert_eq!(compiled("forks", &["-pthread"]).run(&["threads"], &[("SOFTHCA_FABRIC", &fabric)]), "ok\n");
}

#[test]
fn a_cancelled_thread_goes_on_while_the_device_works() {
    assert_eq!(compiled("cancels", &["-pthread"]).run(&[], &[("SOFTHCA_FABRIC", &unique().0)]), "ok\n");
}

#[test]
fn programs_may_close_all_descriptors() {
    let program = compiled("closes", &[]);
    for how in ["close", "close_range", "closefrom", "dup2"] {
        assert_eq!(program.run(&[how], &[("SOFTHCA_FABRIC", &unique().0)]), "ok\n", "{how}");
    }
}

/// Starts a server of `ibv_rc_pingpong`, and waits until it listens.
fn server(fabric: &str, port: u16) -> Running {
    let port_text = port.to_string();
    let mut c = command("ibv_rc_pingpong");
    let child = Running::start(c.args(["-p", &port_text]).env("SOFTHCA_FABRIC", fabric));
    wait_until("ibv_rc_pingpong", || listening(port));
    child
}

#[test]
fn what_killed_processes_left_goes_with_the_next_start() {
    if !has("ibv_rc_pingpong") || !has("ibv_devices") {
        return;
    }
    for signal in ["TERM", "KILL"] {
        let (fabric, port) = unique();
        let child = server(&fabric, port);
        let twin = server(&fabric, port + 1);
        assert_eq!(left(&fabric).len(), 1);
        child.kill(signal);
        // The other one still uses it.
        run("ibv_devices", &[], &[("SOFTHCA_FABRIC", &unique().0)]);
        assert_eq!(left(&fabric).len(), 1, "after signal {signal}");
        twin.kill(signal);
        run("ibv_devices", &[], &[("SOFTHCA_FABRIC", &unique().0)]);
        assert_eq!(left(&fabric), [""; 0], "after signal {signal}");
    }
}

#[test]
fn processes_may_come_and_go_at_the_same_time() {
    if !has("ibv_devices") {
        return;
    }
    let (fabric, _) = unique();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let fabric = fabric.clone();
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let t = run("ibv_devices", &[], &[("SOFTHCA_FABRIC", &fabric)]);
                    assert!(t.contains("mlx5_0") && !t.contains("softhca:"), "{t}");
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    // Two that left at the same moment may each have taken the other for the last one's follower.
    run("ibv_devices", &[], &[("SOFTHCA_FABRIC", &unique().0)]);
    assert_eq!(left(&fabric), [""; 0]);
}

#[expect(unsafe_code, reason = "a system call")]
fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

#[test]
#[expect(unsafe_code, reason = "a file lock")]
fn another_versions_fabric_is_refused_while_it_is_in_use() {
    if !has("ibv_devices") {
        return;
    }
    let (fabric, _) = unique();
    let path = format!("/dev/shm/softhca-{}-{fabric}", user());
    fs::write(&path, b"softhca\0\x01\0\0\0").unwrap();
    let old = fs::File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: integers; zero is a value of each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_len = 1;
    // SAFETY: a lock on a file of this test.
    let locked = unsafe { libc::fcntl(old.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    assert_eq!(locked, 0);
    let child = command("ibv_devices").env("SOFTHCA_FABRIC", &fabric).spawn().unwrap();
    let t = text(&finish(child, "ibv_devices"));
    assert!(t.contains("in use by another version") && !t.contains("mlx5_0"), "{t}");
    drop(old);
    // Now it is only a leftover.
    assert!(run("ibv_devices", &[], &[("SOFTHCA_FABRIC", &fabric)]).contains("mlx5_0"));
    assert_eq!(left(&fabric), [""; 0]);
}

#[test]
fn a_small_dev_shm_is_told_and_kills_nobody() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let hello = compiled("hello", &[]);
    let run = |size: &str, what: &str, fabric: &str| {
        let c = with_mounts(&format!(
            "mount -t tmpfs -o size={size} tmpfs /dev/shm; LD_PRELOAD={} {what}",
            library().display()
        ));
        c.map(|mut c| finish(c.env("SOFTHCA_FABRIC", fabric).spawn().unwrap(), what))
    };
    // Not even a place: who asked for a fabric gets no device, who didn't is alone.
    let Some(out) = run("8k", hello.path(), "small") else { return };
    assert!(!out.status.success() && text(&out).contains("no room for"), "{}", text(&out));
    let out = run("8k", hello.path(), "").unwrap();
    assert!(out.status.success() && text(&out).contains("this process is alone"), "{}", text(&out));
    // Places, but no ring: messages are lost, and that is told.
    let (_, port) = unique();
    let both = format!(
        "sh -c 'ibv_rc_pingpong -p {port} >/dev/null & server=$!
         until grep -q :{port:04X} /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done
         ibv_rc_pingpong -p {port} 127.0.0.1; rc=$?; kill $server; exit $rc'"
    );
    let out = run("64k", &both, "small").unwrap();
    let t = text(&out);
    assert!(t.contains("messages are lost") && t.contains("retry counter exceeded"), "{t}");
}

#[test]
fn server_and_client_meet_without_settings() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let port = unique().1;
    let port_text = port.to_string();
    let mut c = command("ibv_rc_pingpong");
    let server = Running::start(c.args(["-p", &port_text]));
    wait_until("ibv_rc_pingpong", || listening(port));
    let t = run("ibv_rc_pingpong", &["-p", &port_text, "127.0.0.1"], &[]);
    assert!(t.contains("1000 iters"), "{t}");
    assert!(server.finish("ibv_rc_pingpong").status.success());
}

#[test]
fn processes_that_are_alone_do_not_answer_one_another() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let port = unique().1;
    let port_text = port.to_string();
    let server = server("none", port);
    let mut c = command("ibv_rc_pingpong");
    let child = c.args(["-p", &port_text, "127.0.0.1"]).env("SOFTHCA_FABRIC", "none").spawn().unwrap();
    let out = finish(child, "ibv_rc_pingpong");
    server.kill("KILL");
    let t = text(&out);
    assert!(!out.status.success() && t.contains("transport retry counter exceeded"), "{t}");
}

#[test]
fn processes_of_other_pid_namespaces_are_not_mixed_up() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let apart = ["--pid", "--fork", "--kill-child"];
    let may = Command::new("unshare").args(apart).args(["setarch", "-R", "true"]).output();
    if !may.is_ok_and(|o| o.status.success()) {
        return skip("unshare --pid needs root");
    }
    for (size, fine) in [("4096", true), ("65536", false)] {
        let (fabric, port) = unique();
        let port_text = port.to_string();
        // Each in a namespace of its own, where each is process 1, with its memory at the same addresses: who took
        // the peer's number for its own would find something there.
        let start = |host: Option<&str>| {
            let mut c = Command::new("unshare");
            let script = "true; exec \"$@\"";
            c.args(apart).args(["setarch", "-R", "sh", "-c", script, "sh", "env"]);
            c.arg(format!("LD_PRELOAD={}", library().display()));
            c.args(["ibv_rc_pingpong", "-n", "50", "-s", size, "-p", &port_text]).args(host);
            c.env("SOFTHCA_FABRIC", &fabric).stdin(Stdio::null());
            Running::start(c.stdout(Stdio::piped()).stderr(Stdio::piped()))
        };
        let server = start(None);
        wait_until("ibv_rc_pingpong", || listening(port));
        let client = start(Some("127.0.0.1")).finish("the client");
        let t = text(&client);
        if fine {
            assert!(client.status.success(), "{t}");
            assert!(server.finish("the server").status.success());
        } else {
            assert!(!client.status.success() && t.contains("retry counter exceeded"), "{t}");
            server.kill("KILL");
        }
    }
}

#[test]
fn the_librarys_name_does_not_matter() {
    if !has("ibv_devices") {
        return;
    }
    let copy = std::env::temp_dir().join(format!("{}.renamed", unique().0));
    fs::copy(library(), &copy).unwrap();
    let mut c = Command::new("ibv_devices");
    let out = c.env("LD_PRELOAD", &copy).env("SOFTHCA_FABRIC", "none").output().unwrap();
    fs::remove_file(&copy).unwrap();
    assert!(text(&out).contains("mlx5_0"), "{}", text(&out));
}
