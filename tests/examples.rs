//! What the example programs make of their command lines, and of a machine without devices.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/programs.rs"]
mod programs;

use programs::{example, free_port, run, skip};

const PINGPONGS: [&str; 3] = ["rc_pingpong", "uc_pingpong", "ud_pingpong"];

#[test]
fn help_tells_the_options() {
    for name in PINGPONGS.into_iter().chain(["devinfo"]) {
        for option in ["-h", "--help"] {
            let help = run(example(name).arg(option)).succeeded().out;
            assert!(help.contains(&format!("{name} [OPTION]...")) && help.contains("--ib-dev"), "{help}");
        }
    }
}

#[test]
fn what_cannot_be_meant_is_refused_with_advice() {
    let cases = [
        ("--size 0", "--size 0: a number from 1 to"),
        ("--size many", "--size many: a number"),
        ("-s", "missing argument"),
        ("-p 65536", "--port 65536"),
        ("-n 0", "--iters 0"),
        ("-r 0", "--rx-depth 0"),
        ("-l 16", "--sl 16: a number from 0 to 15"),
        ("-g 256", "--gid-idx 256"),
        ("-i 0", "--ib-port 0"),
        ("--idle-timeout soon", "--idle-timeout soon"),
        ("--idle-timeout=-1", "--idle-timeout -1"),
        ("one two", "two: there is a host already"),
        ("--nothing", "--help"),
        ("-e=1", "-e"),
        ("--odp", "on-demand paging"),
        ("-O", "on-demand paging"),
        ("-t", "--latency"),
        ("-j", "device memory"),
    ];
    for name in PINGPONGS {
        for (options, answer) in cases {
            run(example(name).args(options.split(' '))).failed_with(&[answer]);
        }
    }
    run(example("rc_pingpong").args(["-m", "1000"])).failed_with(&["--mtu 1000: 256, 512, 1024"]);
    run(example("ud_pingpong").args(["-m", "1024"])).failed_with(&["--mtu", "one packet"]);
}

#[test]
fn without_a_device_each_says_so() {
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()) {
        return skip("this machine has a device");
    }
    run(&mut example("devinfo")).failed_with(&["RDMA"]);
    for name in PINGPONGS {
        let port = free_port().to_string();
        run(example(name).args(["-p", &port])).failed_with(&["RDMA"]);
        run(example(name).args(["-p", &port, "-d", "mlx5_0"])).failed_with(&["RDMA"]);
    }
}

/// What it prints, on a device of softhca.
fn on_a_preloaded_device(name: &str, options: &[&str]) -> String {
    // Cargo puts a dev-dependency's shared library beside the tests.
    let library = std::env::current_exe().unwrap().with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    run(example(name).arg("mlx5_0").args(options).env("LD_PRELOAD", &library)).succeeded().out
}

#[test]
fn a_message_comes_back() {
    let out = on_a_preloaded_device("loopback", &[]);
    assert!(out.ends_with("received: hello, RDMA\n"), "{out}");
}

#[test]
fn messages_of_all_peers_come() {
    let out = on_a_preloaded_device("shared_receives", &[]);
    for peer in 0..4 {
        assert!(out.contains(&format!("peer {peer}: greetings of peer {peer}, 8 times\n")), "{out}");
    }
    assert!(out.ends_with("32 messages, with memory for 16\n"), "{out}");
}

#[test]
fn completions_have_times() {
    let out = on_a_preloaded_device("timestamps", &[]);
    let times: Vec<f64> = out
        .lines()
        .map(|line| line.split_once("bytes: ").unwrap().1.split_once(" us").unwrap().0.parse().unwrap())
        .collect();
    assert_eq!(times.len(), 5, "{out}");
    assert!(
        times.iter().all(|time| (0.0..1e6).contains(time)) && times.iter().any(|time| *time > 0.0),
        "{out}"
    );
}

#[cfg(feature = "mlx5")]
#[test]
fn short_messages_come_in_completions() {
    let out = on_a_preloaded_device("mlx5_scattered", &[]);
    let starts = [
        "5 bytes in the completion: short",
        "52 bytes in the completion: not so",
        "200 bytes in memory: long",
    ];
    assert_eq!(out.lines().count(), starts.len(), "{out}");
    assert!(out.lines().zip(starts).all(|(line, start)| line.starts_with(start)), "{out}");
}

/// The direct path calls no function that softhca could work in: the device sees its doorbells all the same.
#[cfg(feature = "mlx5")]
#[test]
fn the_direct_path_works_on_a_preloaded_device() {
    let out = on_a_preloaded_device("mlx5_write_lat", &["2000"]);
    assert!(out.contains("8 bytes, 2000 iterations on mlx5_0"), "{out}");
}
