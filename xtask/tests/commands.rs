//! What `cargo xtask` makes of its first word.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap()
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
fn an_unknown_command_is_named_and_the_known_ones_listed() {
    let output = xtask(&["bogus"]);
    assert_eq!(output.status.code(), Some(2));
    let [out, err] = texts(&output);
    assert!(out.is_empty(), "{out}");
    assert!(err.starts_with("xtask: unknown command `bogus`\n"), "{err}");
    for known in ["setup", "vm", "pingpong", "test", "bench", "api"] {
        assert!(err.contains(&format!("\n  {known} ")), "{known}: {err}");
    }
}

#[test]
fn a_wrong_argument_leads_to_the_help_of_its_command() {
    for command in ["api", "bench", "mutants", "pingpong", "setup", "test", "vm"] {
        let output = xtask(&[command, "--bogus"]);
        let [out, err] = texts(&output);
        assert!(!output.status.success() && out.is_empty(), "{command}: {out}");
        assert!(err.starts_with("xtask: invalid option '--bogus'\n"), "{command}: {err}");
        assert!(err.contains(&format!("`cargo xtask {command} --help`")), "{command}: {err}");
    }
}

#[test]
fn a_name_that_no_mistake_has_is_told() {
    let output = xtask(&["mutants", "bogus"]);
    assert!(!output.status.success());
    assert!(texts(&output)[1].contains("no mistake has [\"bogus\"] in its name"), "{output:?}");
}

#[test]
fn no_command_is_none_that_is_unknown() {
    let output = xtask(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(texts(&output)[1].starts_with("cargo xtask COMMAND"));
    let output = xtask(&["--help"]);
    assert!(output.status.success());
    assert!(texts(&output)[0].starts_with("cargo xtask COMMAND"));
}
