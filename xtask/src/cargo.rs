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

/// Builds a package's program with optimisation; its file.
pub(crate) fn release_program(package: &str) -> Result<PathBuf> {
    let messages = messages(&["build", "--release", "--package", package])?;
    let mut programs = messages.iter().filter_map(|message| message.pointer("/executable")?.as_str());
    programs.next_back().map(PathBuf::from).with_context(|| format!("cargo built no program of {package}"))
}

/// Builds a package's shared library with optimisation; its file.
pub(crate) fn release_library(package: &str) -> Result<PathBuf> {
    let messages = messages(&["build", "--release", "--package", package])?;
    let files = messages.iter().filter_map(|message| message.get("filenames")?.as_array()).flatten();
    let mut libraries = files.filter_map(Value::as_str).filter(|file| {
        Path::new(file).file_name().is_some_and(|name| name == format!("lib{package}.so").as_str())
    });
    libraries.next_back().map(PathBuf::from).with_context(|| format!("cargo built no library of {package}"))
}

/// The folder that Cargo builds in.
pub(crate) fn target() -> Result<PathBuf> {
    let output =
        cargo().args(["metadata", "--format-version=1", "--no-deps"]).output().context("cannot run cargo")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cannot read cargo's metadata")?;
    let target = metadata.pointer("/target_directory").and_then(Value::as_str);
    target.map(PathBuf::from).context("cargo does not say where it builds")
}

/// The folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    // Cargo tells where the sources are now; the path seen when compiling may be another one.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}
