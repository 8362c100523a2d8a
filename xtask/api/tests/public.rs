//! The public API, with all features, is what `tests/api.txt` says: whoever changes it sees how, and reviewers too.
//! `cargo xtask api --bless` renews the file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What rustdoc knows of the crate. Its JSON is not stable: it alone, not what is compiled, is told to do it all the
/// same.
fn rustdoc_json() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    fs::create_dir_all(&folder).unwrap();
    let rustdoc = folder.join("rustdoc.sh");
    let real = std::env::var("RUSTDOC").unwrap_or_else(|_| "rustdoc".to_owned());
    let script = format!("#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec '{real}' \"$@\"\n");
    // as it was, it keeps its time, and Cargo what it knows
    if fs::read_to_string(&rustdoc).ok().as_ref() != Some(&script) {
        fs::write(&rustdoc, script).unwrap();
        fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new(env!("CARGO"))
        .args([
            "rustdoc",
            "--quiet",
            "--package",
            "ibv",
            "--lib",
            "--all-features",
            "--message-format",
            "json",
        ])
        .args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .env("RUSTDOC", rustdoc)
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Cargo's messages name no file, since it expects HTML
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("doc").join("ibv.json")
}

#[test]
fn the_public_api_is_what_the_file_says() {
    let json = rustdoc_json();
    let head: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let format = head["format_version"].as_u64().unwrap();
    if format != ibv_api::FORMAT {
        let name = "the_public_api_is_what_the_file_says";
        let reason = format!(
            "rustdoc of this Rust writes JSON of format {format}, and {} can be read",
            ibv_api::FORMAT
        );
        // past the capture
        return writeln!(std::io::stderr(), "ibv-skip: {name}: {reason}").unwrap();
    }
    let new = ibv_api::lines(&json).unwrap();
    let file = Path::new(ROOT).join("tests/api.txt");
    if std::env::var_os("IBV_BLESS").is_some() {
        fs::write(file, new).unwrap();
        return;
    }
    let old = fs::read_to_string(file).unwrap();
    let difference = ibv_api::difference(&old, &new);
    assert!(
        old == new,
        "the public API differs from tests/api.txt:\n{difference}\nif it shall: `cargo xtask api --bless`, and say so in CHANGELOG.md"
    );
}
