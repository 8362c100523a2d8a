//! The tests of a program, once more under valgrind's memcheck.

use std::process::Command;

/// In the environment of such a run.
const UNDER: &str = "SOFTHCA_UNDER_VALGRIND";

/// What a shell ends with if there is no such program.
const NOT_FOUND: i32 = 127;

/// Runs the other tests of this program, but those whose names hold one of `left_out`. Those that stress something
/// do less of it.
pub(crate) fn finds_nothing(left_out: &[&str]) {
    if std::env::var_os(UNDER).is_some() {
        return;
    }
    // Into a file, and opened by the shell: meanwhile other tests of this process count its open files.
    let text = std::env::temp_dir().join(format!("softhca-memcheck-{}", std::process::id()));
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$@" >"$0" 2>&1"#]).arg(&text);
    // fair: threads that wait for others in a loop would have the processor for themselves
    command
        .args(["valgrind", "-q", "--fair-sched=try", "--error-exitcode=99"])
        .arg(std::env::current_exe().unwrap());
    command.args(["--test-threads=1", "--skip", "memcheck"]);
    command.args(left_out.iter().flat_map(|name| ["--skip", name]));
    let status = command.envs([(UNDER, "1"), ("SOFTHCA_STRESS", "30")]).status().unwrap();
    let said = std::fs::read(&text).unwrap();
    std::fs::remove_file(&text).unwrap();
    let said = String::from_utf8_lossy(&said);
    if status.code() == Some(NOT_FOUND) {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        // past the harness's capture: `cargo xtask test` counts such lines
        let line = format!("ibv-skip: {test}: valgrind can't be run: {said}\n");
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
        return;
    }
    assert!(status.success(), "{status}\n{said}");
}
