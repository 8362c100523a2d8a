//! Calling Cargo from a program that Cargo started.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Cargo in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut command = bare(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// A program without the environment that describes xtask.
pub(crate) fn bare(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_xtask(name)) {
        command.env_remove(name);
    }
    command
}

/// Whether `cargo run` sets this variable to tell a program about its own package.
pub(crate) fn is_about_xtask(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Builds, with Cargo's usual output, and gives back what Cargo reports of each thing built.
pub(crate) fn messages(arguments: &[&str]) -> Result<Vec<Value>> {
    let mut command = cargo();
    command.args(arguments).arg("--message-format=json-render-diagnostics");
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed", arguments.join(" "));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).context("cannot read cargo's messages")).collect()
}

/// Builds an example with optimisation; its program.
pub(crate) fn release_example(name: &str) -> Result<PathBuf> {
    let messages = messages(&["build", "--release", "--example", name])?;
    let is_it = |message: &&Value| message.pointer("/target/name").and_then(Value::as_str) == Some(name);
    let mut programs =
        messages.iter().filter(is_it).filter_map(|message| message.pointer("/executable")?.as_str());
    programs.next_back().map(PathBuf::from).with_context(|| format!("cargo built no example {name}"))
}

fn workspace() -> PathBuf {
    // Cargo tells where the sources are now; the path seen when compiling may be another one.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}
