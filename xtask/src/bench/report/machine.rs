//! What it was measured on, and with.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo;

/// Names and values.
#[derive(Debug)]
pub(super) struct Machine(pub(super) Vec<(&'static str, String)>);

impl Machine {
    /// Finds out; what can't be is "unknown".
    pub(super) fn here() -> Self {
        let os = text("/etc/os-release");
        let os = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let facts = [
            ("written", Some(date(None))),
            ("commit", said("git", &["describe", "--always", "--dirty", "--abbrev=12"])),
            ("processor", processor()),
            ("memory", memory()),
            ("system", os.map(|name| name.trim_matches('"').to_owned())),
            ("kernel", Some(text("/proc/sys/kernel/osrelease").trim().to_owned())),
            ("rustc", said("rustc", &["--version"])),
            ("C compiler", said("cc", &["--version"])),
            ("libibverbs", said("pkg-config", &["--modversion", "libibverbs"])),
            ("libmlx5", said("pkg-config", &["--modversion", "libmlx5"])),
            ("perftest", said("ib_send_lat", &["--version"]).map(|version| version.replace("Version: ", ""))),
        ];
        let known = |value: Option<String>| {
            value.filter(|value| !value.is_empty()).unwrap_or_else(|| "unknown".to_owned())
        };
        Self(facts.into_iter().map(|(name, value)| (name, known(value))).collect())
    }
}

/// The time now, or when a file was written.
pub(super) fn date(file: Option<&Path>) -> String {
    let of = file.map(|file| format!("--reference={}", file.display()));
    let arguments: Vec<&str> = ["-u", "+%Y-%m-%d %H:%M UTC"].into_iter().chain(of.as_deref()).collect();
    said("date", &arguments).unwrap_or_default()
}

/// The first line that a program prints.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(cargo::workspace()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().find(|line| !line.trim().is_empty())?.trim().to_owned())
}

fn text(file: &str) -> String {
    fs::read_to_string(Path::new(file)).unwrap_or_default()
}

fn processor() -> Option<String> {
    let table = text("/proc/cpuinfo");
    let model = table.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned());
    let count = std::thread::available_parallelism().ok()?;
    // a guest's times are also its neighbours'
    let guest = if table.contains(" hypervisor") { ", of a virtual machine" } else { "" };
    Some(format!("{model}, {count} processors{guest}"))
}

fn memory() -> Option<String> {
    let table = text("/proc/meminfo");
    let line = table.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(format!("{:.0} GiB", kilobytes / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_value() {
        let Machine(facts) = Machine::here();
        assert!(facts.iter().all(|(_, value)| !value.is_empty()), "{facts:?}");
        let of = |name: &str| facts.iter().find(|(fact, _)| *fact == name).unwrap().1.clone();
        assert!(of("rustc").starts_with("rustc "), "{facts:?}");
        assert!(of("processor").ends_with("processors") || of("processor").ends_with("virtual machine"));
    }
}
