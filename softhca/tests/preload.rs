//! The shared library under `LD_PRELOAD`: stock C programs, Python, and programs of others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "common/programs.rs"]
mod programs;

use programs::{
    Running, command, compiled, finish, has, left, library, listening, pair, run, skip, text, unique,
    wait_until,
};
use std::fs;
use std::path::Path;
use std::process::Command;

const IB: &[(&str, &str)] = &[("SOFTHCA_LINK", "ib")];
const ROCE: &[(&str, &str)] = &[("SOFTHCA_LINK", "roce")];

#[test]
fn devinfo_lists_what_is_configured() {
    if !has("ibv_devinfo") {
        return;
    }
    let t = run("ibv_devinfo", &["-v"], IB);
    assert!(
        t.contains("hca_id:\tmlx5_0") && t.contains("PORT_ACTIVE") && t.contains("link_layer:\t\tInfiniBand"),
        "{t}"
    );
    let t = run(
        "ibv_devinfo",
        &["-v"],
        &[("SOFTHCA_LINK", "roce"), ("SOFTHCA_DEVICES", "3"), ("SOFTHCA_MTU", "1024")],
    );
    assert!(
        t.contains("hca_id:\tmlx5_2") && t.contains("RoCE v2") && t.contains("active_mtu:\t\t1024"),
        "{t}"
    );
}

#[test]
fn a_wrong_setting_is_told() {
    if !has("ibv_devices") {
        return;
    }
    let child = command("ibv_devices").env("SOFTHCA_MODE", "nonsense").spawn().unwrap();
    let t = text(&finish(child, "ibv_devices"));
    assert!(t.contains("SOFTHCA_MODE=nonsense"), "{t}");
}

#[test]
fn an_unwritable_standard_error_harms_nobody() {
    if !has("ibv_devinfo") {
        return;
    }
    for (var, value) in [("SOFTHCA_LOG", "1"), ("SOFTHCA_MODE", "nonsense")] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let child = command("ibv_devinfo").env(var, value).stderr(full).spawn().unwrap();
        let out = finish(child, "ibv_devinfo");
        assert!(out.status.code().is_some(), "{var}: {}", out.status);
    }
}

#[test]
fn closed_standard_streams_do_not_become_files_of_the_device() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let (fabric, port) = unique();
    let log = std::env::temp_dir().join(&fabric);
    let script = format!("exec ibv_rc_pingpong -p {port} <&- >&- 2>&-");
    let mut c = command("sh");
    c.args(["-c", &script]);
    c.envs([("SOFTHCA_FABRIC", fabric.as_str()), ("SOFTHCA_LOG", log.to_str().unwrap())]);
    let child = Running::start(&mut c);
    wait_until("ibv_rc_pingpong", || listening(port));
    let low: Vec<_> = (0..3).flat_map(|n| fs::read_link(format!("/proc/{}/fd/{n}", child.id()))).collect();
    child.kill("KILL");
    // What it left, killed as it was, if no other test's start has cleaned up.
    for f in fs::read_dir("/dev/shm").unwrap().flatten() {
        if f.file_name().to_string_lossy().ends_with(&fabric) {
            let _ = fs::remove_file(f.path());
        }
    }
    fs::remove_file(&log).unwrap();
    let ours = |p: &&std::path::PathBuf| {
        let p = p.to_string_lossy();
        p.contains("softhca-bar") || p.contains(&fabric)
    };
    assert_eq!(low.iter().find(ours), None, "{low:?}");
}

#[test]
fn pingpongs_on_infiniband() {
    for (program, args) in [
        ("ibv_rc_pingpong", &[][..]),
        ("ibv_rc_pingpong", &["-e"]),
        ("ibv_rc_pingpong", &["-s", "1000000", "-n", "50"]),
        ("ibv_rc_pingpong", &["-t"]),
        ("ibv_uc_pingpong", &[]),
        ("ibv_ud_pingpong", &[]),
        ("ibv_srq_pingpong", &[]),
        ("ibv_xsrq_pingpong", &[]),
    ] {
        pair(program, args, IB);
    }
}

#[test]
fn pingpongs_on_roce() {
    for program in
        ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"]
    {
        pair(program, &["-g", "3"], ROCE);
    }
}

#[test]
fn pingpongs_in_thread_and_trap_mode() {
    for mode in ["thread", "trap"] {
        pair("ibv_rc_pingpong", &["-n", "100"], &[("SOFTHCA_MODE", mode)]);
        pair("ibv_srq_pingpong", &["-n", "100"], &[("SOFTHCA_MODE", mode)]);
    }
}

#[test]
fn perftest_on_both_links() {
    for env in [IB, ROCE] {
        for (program, args) in [
            ("ib_write_lat", &["-n", "200"][..]),
            ("ib_send_bw", &["-n", "300"]),
            ("ib_read_lat", &["-n", "200"]),
            ("ib_atomic_bw", &["-n", "300"]),
        ] {
            pair(program, args, env);
        }
    }
}

#[test]
fn losses_are_repaired_under_a_program() {
    let env = [("SOFTHCA_FAULTS", "loss:20000,seed:3")];
    // Two messages in a hundred are lost; each costs a timeout of 67 ms.
    pair("ibv_rc_pingpong", &["-n", "200"], &env);
    // So does an answer that is lost, of a short and of a long message.
    pair("ibv_rc_pingpong", &["-n", "20"], &[("SOFTHCA_FAULTS", "answer:3,answer:9")]);
    pair("ibv_rc_pingpong", &["-n", "20", "-s", "100000"], &[("SOFTHCA_FAULTS", "answer:3,answer:9")]);
}

#[test]
fn a_peer_that_dies_is_noticed() {
    if !has("ib_write_bw") {
        return;
    }
    let (fabric, port) = unique();
    let port_text = port.to_string();
    let args = ["-p", &port_text, "-D", "40", "-u", "10"];
    let start = |host: Option<&str>| {
        Running::start(command("ib_write_bw").args(args).args(host).env("SOFTHCA_FABRIC", &fabric))
    };
    let server = start(None);
    wait_until("ib_write_bw", || listening(port));
    let client = start(Some("127.0.0.1"));
    // With the first message the file gets a ring, which lies behind all 64 places.
    let rings = 4096 + 64 * 16384;
    let file = Path::new("/dev/shm").join(left(&fabric).pop().unwrap());
    wait_until("ib_write_bw", || fs::metadata(&file).unwrap().len() > rings);
    server.kill("KILL");
    let out = client.finish("ib_write_bw");
    let t = text(&out);
    // IBV_WC_RETRY_EXC_ERR
    assert!(!out.status.success() && t.contains("status 12"), "{t}");
}

fn hello(flags: &[&str], modes: &[&str]) {
    let envs: Vec<_> = modes.iter().map(|m| ("SOFTHCA_MODE", *m)).collect();
    let program = compiled("hello", flags);
    for env in envs {
        assert_eq!(program.run(&[], &[env]), "ok\n", "{env:?}");
    }
}

#[test]
fn memory_that_the_receiver_cannot_read_exceeds_the_retries() {
    let says = compiled("unreadable", &[]).run(&[], &[("SOFTHCA_FABRIC", &unique().0)]);
    assert_eq!(says, "transport retry counter exceeded\n");
}

#[test]
fn a_request_under_way_does_not_hang_when_its_memory_is_deregistered() {
    let says = compiled("gone", &[]).run(&[], &[("SOFTHCA_FABRIC", &unique().0)]);
    assert_eq!(says, "success\nlocal protection error\n");
}

#[test]
fn a_c_program_of_somebody_else() {
    hello(&[], &["pump", "thread", "trap"]);
}

#[test]
fn trap_mode_finds_nothing_where_threads_post_at_the_same_time() {
    let env = [("SOFTHCA_MODE", "trap"), ("SOFTHCA_FABRIC", "none")];
    assert_eq!(compiled("crowd", &["-pthread"]).run(&[], &env), "ok\n");
}

#[test]
fn a_c_program_that_steps_the_device() {
    hello(&["-DSTEPS"], &["manual"]);
}

#[test]
fn a_c_program_has_all_functions_of_the_device() {
    let flags =
        ["-lmlx5", "-L", library().parent().unwrap().to_str().unwrap(), "-lsofthca"].map(str::to_owned);
    let program = compiled("capi", &flags.each_ref().map(String::as_str));
    let dir = library().parent().unwrap().to_owned();
    // Linked is as good as preloaded.
    for linked in [false, true] {
        let mut c = command(program.path());
        c.env("LD_LIBRARY_PATH", &dir).envs([("SOFTHCA_MODE", "manual"), ("SOFTHCA_FABRIC", "none")]);
        if linked {
            c.env_remove("LD_PRELOAD");
        }
        let out = finish(c.spawn().unwrap(), "capi");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "ok\n", "{}", text(&out));
    }
}

#[test]
fn pyverbs_moves_data() {
    let python = "/usr/bin/python3";
    let there = Command::new(python).args(["-c", "import pyverbs"]).output();
    if !there.is_ok_and(|o| o.status.success()) {
        skip("python3-pyverbs is not installed");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/move.py");
    for env in [IB, ROCE] {
        assert_eq!(run(python, &[script.to_str().unwrap()], env), "ok\n");
    }
}

#[test]
fn the_log_tells_what_happened() {
    if !has("ibv_rc_pingpong") {
        return;
    }
    let file = std::env::temp_dir().join(unique().0);
    pair("ibv_rc_pingpong", &["-n", "5"], &[("SOFTHCA_LOG", file.to_str().unwrap())]);
    let t = fs::read_to_string(&file).unwrap();
    assert!(t.contains("QP 0x100 RC WQE 0 SEND") && t.contains("received, 4096 bytes"), "{t}");
    fs::remove_file(&file).unwrap();
}

#[test]
fn the_files_are_there_for_all_who_look() {
    for flags in [&[][..], &["-D_FILE_OFFSET_BITS=64"]] {
        assert_eq!(
            compiled("looks", flags).run(&[], &[("SOFTHCA_FABRIC", &unique().0)]),
            "ok\n",
            "{flags:?}"
        );
    }
    assert_eq!(run("ls", &["/sys/class/infiniband"], &[]), "mlx5_0\n");
    let t = run("ls", &["-ld", "/sys/class/infiniband/mlx5_0", "/dev/infiniband/uverbs0"], &[]);
    assert!(t.lines().any(|l| l.starts_with('d')) && t.contains("231, 192"), "{t}");
    let script = "test -d /sys/class/infiniband/mlx5_0/ports && test -c /dev/infiniband/uverbs0 && \
                  test ! -e /sys/class/infiniband/mlx5_1 && echo ok";
    assert_eq!(run("sh", &["-c", script], &[]), "ok\n");
}

#[test]
fn programs_without_rdma_are_left_alone() {
    let t = run("ls", &["/sys/class"], &[]);
    assert!(!t.is_empty());
    let t = run("cat", &["/proc/self/status"], &[]);
    assert!(t.contains("Threads:\t1"), "no thread is started: {t}");
}
