//! What the settings do to programs under `LD_PRELOAD`: faults, refusals, and the host's devices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "common/programs.rs"]
mod programs;

use programs::{command, compiled, finish, has, library, text, with_mounts};

#[test]
fn planned_faults_happen_to_programs() {
    let program = compiled("faults", &[]);
    let fine = |n: u32| format!("write {n}: success\n");
    let rest = |from: u32| (from..=4).map(fine).collect::<String>();
    let flushed = |from: u32| {
        (from..=4).map(|n| format!("write {n}: Work Request Flushed Error, wrong\n")).collect::<String>()
    };
    let fatal = "event: local work queue catastrophic error\n";
    let cases = [
        ("", rest(1), None),
        // A retransmission takes a timeout of 67 ms.
        ("drop:2", rest(1), Some((2, 60))),
        ("delay:3:40ms", rest(1), Some((3, 40))),
        ("slow:40ms", rest(1), Some((4, 40))),
        ("corrupt:4", fine(1) + &fine(2) + &fine(3) + "write 4: success, wrong\n", None),
        (
            "loss:1000000,seed:9",
            "write 1: transport retry counter exceeded, wrong\n".to_owned() + &flushed(2),
            Some((1, 120)),
        ),
        (
            "verb:21:ENOMEM,verb:30:EAGAIN",
            "pd: Cannot allocate memory\npd: Resource temporarily unavailable\n".to_owned() + &rest(1),
            None,
        ),
        ("cqe:2:rem-op", fine(1) + "write 2: remote operation error\n" + &flushed(3), None),
        ("qp:2", fine(1) + &flushed(2) + fatal, None),
        ("down:1s,up:1100ms", rest(1) + "event: port error\nevent: port active\n", None),
    ];
    let run = |plan: &str| {
        let watch_ms = if plan.contains("down") { "1500" } else { "300" };
        let text = program.run(&[watch_ms], &[("SOFTHCA_FAULTS", plan), ("SOFTHCA_FABRIC", "none")]);
        let times: Vec<u32> =
            text.lines().filter_map(|l| l.split_once(" @")).map(|(_, ms)| ms.parse().unwrap()).collect();
        let lines = text.lines().map(|l| l.split(" @").next().unwrap().to_owned() + "\n");
        (lines.collect::<String>(), times)
    };
    for (plan, says, slow) in cases {
        let (text, times) = run(plan);
        assert_eq!(text, says, "{plan}");
        if let Some((n, ms)) = slow {
            assert!(times[n - 1] >= ms, "{plan}: {times:?} ms");
        }
    }
    // The completion that found no room never comes, and its queue pair is gone with the CQ.
    let (text, _) = run("overrun:2");
    assert!(text.starts_with(&(fine(1) + "write 2: nothing")), "{text}");
    assert!(text.contains("event: CQ error\n") && text.contains(fatal), "{text}");
}

#[test]
fn what_is_refused_leaves_no_devices_and_says_why() {
    if !has("ibv_devinfo") {
        return;
    }
    for (name, value, says) in [
        ("SOFTHCA_MTU", "0", "not one of 256, 512, 1024, 2048, 4096"),
        ("SOFTHCA_FAULTS", "loss:2000000", "not a number from 0 to 1000000"),
        ("SOFTHCA_FAULTS", "slow:5", "a number with a unit"),
        ("SOFTHCA_FABRIK", "x", "did you mean SOFTHCA_FABRIC?"),
        ("SOFTHCA_LOG", "/nowhere/log", "name a file that can be written"),
        ("SOFTHCA", "maybe", "not one of 0, 1"),
    ] {
        let child = command("ibv_devinfo").env(name, value).spawn().unwrap();
        let out = finish(child, "ibv_devinfo");
        let t = text(&out);
        let lines: Vec<_> = t.lines().filter(|l| l.starts_with("softhca")).collect();
        assert!(
            lines.len() == 1 && lines[0].contains(says) && lines[0].contains(name),
            "{name}={value}: {t}"
        );
        assert!(!out.status.success() && !t.contains("mlx5_0"), "{name}={value}: {t}");
    }
}

/// A host with a device: what libibverbs looks at when it lists devices.
const HOST: &str = "
    mount -t tmpfs tmpfs /sys/class
    mount -t tmpfs tmpfs /dev
    mkdir /dev/shm /dev/infiniband
    mknod -m 666 /dev/null c 1 3
    mknod /dev/infiniband/uverbs0 c 231 192
    mkdir -p /sys/class/infiniband_verbs/uverbs0 /sys/class/infiniband/host_0/device /sys/class/infiniband/host_0/ports/1
    cd /sys/class/infiniband_verbs
    echo 6 > abi_version; echo host_0 > uverbs0/ibdev; echo 1 > uverbs0/abi_version; echo 231:192 > uverbs0/dev
    cd ../infiniband/host_0
    echo '1: CA' > node_type; echo 0000:0000:0000:1234 > node_guid; echo 22.1.1 > fw_ver
    echo pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc07i00 > device/modalias
    cd /
";

#[test]
fn the_hosts_devices_show_only_when_asked_for() {
    if !has("ibv_devices") {
        return;
    }
    let listed = |env: &[(&str, &str)]| {
        let script = format!("{HOST} LD_PRELOAD={} exec ibv_devices", library().display());
        let mut c = with_mounts(&script)?;
        let out =
            finish(c.envs(env.iter().copied()).env("SOFTHCA_FABRIC", "none").spawn().unwrap(), "ibv_devices");
        let t = text(&out);
        let names = ["host_0", "mlx5_0", "softhca0", "softhca1"].into_iter().filter(|n| t.contains(n));
        Some(names.collect::<Vec<_>>())
    };
    let Some(off) = listed(&[("SOFTHCA", "0")]) else { return };
    assert_eq!(off, ["host_0"], "the host has a device");
    let cases = [
        (&[][..], &["mlx5_0"][..]),
        (&[("SOFTHCA_HOST_DEVICES", "0")], &["mlx5_0"]),
        (&[("SOFTHCA_HOST_DEVICES", "1"), ("SOFTHCA_DEVICES", "2")], &["host_0", "softhca0", "softhca1"]),
        // What is refused doesn't run on the host's instead.
        (&[("SOFTHCA_MODE", "wrong")], &[]),
    ];
    for (env, names) in cases {
        assert_eq!(listed(env).unwrap(), names, "{env:?}");
    }
}
