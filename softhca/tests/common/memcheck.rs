//! The tests of a program, once more under valgrind's memcheck.

use std::process::Command;

/// In the environment of such a run.
const UNDER: &str = "SOFTHCA_UNDER_VALGRIND";

/// Runs the other tests of this program, but those whose names hold one of `left_out`. Those that stress something
/// do less of it.
pub(crate) fn finds_nothing(left_out: &[&str]) {
    if std::env::var_os(UNDER).is_some() {
        return;
    }
    let mut command = Command::new("valgrind");
    command.args(["-q", "--error-exitcode=99"]).arg(std::env::current_exe().unwrap());
    command.args(["--test-threads=1", "--skip", "memcheck"]);
    command.args(left_out.iter().flat_map(|name| ["--skip", name]));
    match command.envs([(UNDER, "1"), ("SOFTHCA_STRESS", "30")]).output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&text));
        }
        Err(error) => {
            let test = std::thread::current().name().unwrap_or("?").to_owned();
            // past the harness's capture: `cargo xtask test` counts such lines
            let line = format!("ibv-skip: {test}: valgrind can't be run: {error}\n");
            std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        }
    }
}
