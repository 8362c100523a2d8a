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

/// The direct path calls no function that softhca could work in: the device sees its doorbells all the same.
#[cfg(feature = "mlx5")]
#[test]
fn the_direct_path_works_on_a_preloaded_device() {
    // Cargo puts a dev-dependency's shared library beside the tests.
    let library = std::env::current_exe().unwrap().with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    let mut command = example("mlx5_write_lat");
    let ended = run(command.args(["mlx5_0", "2000"]).env("LD_PRELOAD", &library)).succeeded();
    assert!(ended.out.contains("8 bytes, 2000 iterations on mlx5_0"), "{ended:?}");
    assert_eq!(ended.err, "");
}
