//! The suite in manual mode: the test steps the device, time is virtual.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod suite;

const MODE: softhca::Mode = softhca::Mode::Manual;

/// Runs the other tests of this file under valgrind's memcheck. (Not the one that posts behind libmlx5's back and
/// polls through it, nor the one that writes garbage: libmlx5 then reads lists of its own that nobody wrote.)
#[test]
fn memcheck_finds_nothing() {
    if std::env::var_os("SOFTHCA_UNDER_VALGRIND").is_some() {
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let out = std::process::Command::new("valgrind")
        .args(["-q", "--error-exitcode=99"])
        .arg(exe)
        .args([
            "--test-threads=1",
            "--skip",
            "memcheck",
            "--skip",
            "idle_device",
            "--skip",
            "direct_path",
            "--skip",
            "garbage",
        ])
        .envs([("SOFTHCA_UNDER_VALGRIND", "1"), ("SOFTHCA_STRESS", "30")])
        .output();
    let Ok(out) = out else {
        println!("SKIPPED: valgrind is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}\n{text}", out.status);
}
