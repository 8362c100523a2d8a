//! Running a program under callgrind, and reading what it counted.

use anyhow::{Context as _, Result, bail};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What was counted of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) calls: u64,
    /// Instructions of all calls, with those of what they called.
    pub(super) instructions: u64,
}

/// What a run counted.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// By function.
    pub(super) costs: HashMap<String, Cost>,
    /// The files of program and libraries that took part.
    pub(super) objects: HashSet<String>,
}

/// Runs a program. With `--toggle-collect=NAME` among callgrind's options, instructions are counted only between
/// entering and leaving functions of such names, and one that is called from there and matches too is left out; calls
/// are counted everywhere.
pub(super) fn run(program: &Path, arguments: &[String], options: &[&str]) -> Result<Counted> {
    let valgrind = crate::program::find("valgrind").context("valgrind is missing: `cargo xtask setup`")?;
    let file = std::env::temp_dir().join(format!("ibv-callgrind.{}", std::process::id()));
    let mut command = Command::new(valgrind);
    command.args(["--tool=callgrind", "--quiet"]).env("LD_BIND_NOW", "1");
    command.arg({
        let mut option = std::ffi::OsString::from("--callgrind-out-file=");
        option.push(&file);
        option
    });
    let output =
        command.args(options).arg(program).args(arguments).output().context("cannot run valgrind")?;
    if !output.status.success() {
        bail!("{} under callgrind: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    }
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    // a left-over in the temporary folder harms nobody
    _ = fs::remove_file(&file);
    Ok(read(&text))
}

/// Reads callgrind's file: for each function that was called, how often and at what inclusive cost.
fn read(text: &str) -> Counted {
    let mut objects = HashSet::new();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut costs: HashMap<&str, Cost> = HashMap::new();
    // the callee that was named last, and the calls of it whose cost the next line tells
    let (mut callee, mut calls) = (None, None);
    for line in text.lines() {
        if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            // `(12) name` at first, `(12)` later
            let (id, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if line.starts_with("cfn=") {
                callee = Some(id);
            }
        } else if let Some(object) = line.strip_prefix("ob=").or_else(|| line.strip_prefix("cob=")) {
            objects.extend(object.split_once(' ').map(|(_, name)| name.to_owned()));
        } else if let Some(rest) = line.strip_prefix("calls=") {
            calls = rest.split(' ').next().and_then(|count| count.parse::<u64>().ok());
        } else if let (Some(count), Some(id)) = (calls.take(), callee) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or(0);
            let of = costs.entry(id).or_default();
            of.calls += count;
            of.instructions += cost;
        }
    }
    let costs = costs.into_iter().filter_map(|(id, cost)| Some((names.get(id)?.to_string(), cost))).collect();
    Counted { costs, objects }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_inclusive_costs_are_read() {
        let text = "events: Ir\n\nob=(1) /x\nfl=(1) ???\nfn=(3) main\n0 7\ncfn=(5) ours_a\ncalls=2 0\n0 40\n\
                    cob=(2) /y.so\ncfn=(6) c_a\ncalls=1 0\n* 20\n\nfn=(5)\n0 40\ncfi=(2) y.c\ncfn=(5)\ncalls=1 0\n+3 2\n+1 9\n";
        let Counted { costs, objects } = read(text);
        assert_eq!(objects, HashSet::from(["/x".to_owned(), "/y.so".to_owned()]));
        assert_eq!(costs["ours_a"], Cost { calls: 3, instructions: 42 });
        assert_eq!(costs["c_a"], Cost { calls: 1, instructions: 20 });
        assert_eq!(costs.len(), 2);
    }
}
