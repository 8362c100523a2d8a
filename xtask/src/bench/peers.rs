//! `cargo xtask bench peers`: the same loops through other crates (`benches/peers`), in instructions and allocations.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::callgrind::{self, Counted};
use super::counts;
use crate::cargo;

/// Requests or completions of the two lengths of run: what they have in common is no cost of a row.
const REQUESTS: [u32; 2] = [64, 256];
const MEASURED: &str = "peer_measured";
/// The programs say when calls are to be counted.
const OPTIONS: [&str; 2] = ["--toggle-collect=peer_measured", "--instr-atstart=no"];
/// Each call of one of them is an allocation.
const ALLOCATORS: [&str; 6] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// Our own program among the others.
const OURS: &str = "ibv";

/// What a row costs through some crate, per request or completion.
struct Cost {
    row: String,
    name: String,
    version: String,
    instructions: f64,
    /// Not counted of C's.
    allocations: Option<f64>,
}

impl Cost {
    fn json(&self) -> Value {
        let round = |count: f64| (count * 1000.0).round() / 1000.0;
        json!({
            "group": "peers",
            "name": self.row,
            "crate": self.name,
            "version": self.version,
            "instructions": round(self.instructions),
            "allocations": self.allocations.map(round),
        })
    }
}

/// Builds, counts, prints the rows beside ours and C's, and writes `ibv-bench/peers.json`. Fails if another crate does
/// a row with less.
pub(super) fn run() -> Result<ExitCode> {
    let (program, by_libibverbs) = counts::through_libmlx5()?;
    let (peers, missing) = build()?;
    let mut costs = Vec::new();
    let mut rows: Vec<String> = Vec::new();
    for peer in &peers {
        for (row, each) in peer.rows()? {
            eprintln!("peers: {} {row}", peer.name);
            costs.push(peer.count(&row, each).with_context(|| format!("{} {row}", peer.name))?);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
    }
    for (row, [_, instructions]) in by_libibverbs {
        if rows.iter().any(|name| name == row) {
            let (row, name, version) = (row.to_owned(), "C".to_owned(), String::new());
            costs.push(Cost { row, name, version, instructions, allocations: None });
        }
    }
    let worse = rows.iter().filter(|row| !print(row, &costs)).count();
    for name in missing {
        println!("{name}: it does not build here (see above)");
    }
    let file = super::reports(&program)?.join("peers.json");
    let lines: String = costs.iter().map(|cost| format!("{}\n", cost.json())).collect();
    fs::write(&file, lines).with_context(|| format!("cannot write {}", file.display()))?;
    println!("-> {}", file.display());
    Ok(if worse == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints what a row costs through each crate; whether none does it with less than ours.
fn print(row: &str, costs: &[Cost]) -> bool {
    let of_row: Vec<_> = costs.iter().filter(|cost| cost.row == row).collect();
    let ours = of_row.iter().find(|cost| cost.name == OURS);
    let (is_best, verdict) = match ours {
        Some(ours) => judge(ours, &of_row),
        None => (true, "ours: none".to_owned()),
    };
    let cost = |cost: &&Cost| {
        let allocations = cost.allocations.map_or(String::new(), |count| format!("/{count:.2}"));
        format!("{}={:.1}{allocations}", cost.name, cost.instructions)
    };
    let costs: Vec<_> = of_row.iter().map(cost).collect();
    println!("{row} {} {verdict}", costs.join(" "));
    is_best
}

fn judge(ours: &Cost, all: &[&Cost]) -> (bool, String) {
    let peers = all.iter().filter(|cost| !["C", OURS].contains(&cost.name.as_str()));
    match peers.min_by(|a, b| a.instructions.total_cmp(&b.instructions)) {
        Some(best) if best.instructions < ours.instructions => {
            (false, format!("FAIL: {} needs {:.1} less", best.name, ours.instructions - best.instructions))
        }
        _ => (true, "ok".to_owned()),
    }
}

/// A program of `benches/peers`.
struct Peer {
    /// The crate that it uses.
    name: String,
    version: String,
    program: PathBuf,
}

impl Peer {
    /// Its rows, with the requests or completions of an operation.
    fn rows(&self) -> Result<Vec<(String, u32)>> {
        let output = Command::new(&self.program).output().context("cannot run it")?;
        ensure!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let row = |line: &str| {
            let (name, each) = line.split_once(' ')?;
            Some((name.to_owned(), each.parse().ok()?))
        };
        text.lines().map(|line| row(line).with_context(|| format!("no row: {line}"))).collect()
    }

    fn count(&self, row: &str, each: u32) -> Result<Cost> {
        let [short, long] = REQUESTS.map(|requests| {
            callgrind::run(&self.program, &[row.to_owned(), (requests / each).to_string()], &OPTIONS)
        });
        let ([short, long], [fewer, more]) = ([short?, long?], REQUESTS);
        let each =
            |of: &dyn Fn(&Counted) -> u64| (of(&long) as f64 - of(&short) as f64) / f64::from(more - fewer);
        let allocations = |counted: &Counted| {
            ALLOCATORS.iter().filter_map(|name| counted.costs.get(*name)).map(|cost| cost.calls).sum()
        };
        let instructions =
            |counted: &Counted| counted.costs.get(MEASURED).map_or(0, |cost| cost.instructions);
        ensure!(instructions(&short) > 0, "{MEASURED} was not called");
        Ok(Cost {
            row: row.to_owned(),
            name: self.name.clone(),
            version: self.version.clone(),
            instructions: each(&instructions),
            allocations: Some(each(&allocations)),
        })
    }
}

/// Builds the programs; those that there are, and the names of those that do not build.
fn build() -> Result<(Vec<Peer>, Vec<String>)> {
    let folder = cargo::workspace().join("benches/peers");
    // a workspace of its own
    let mut built = build_in(&folder.join(OURS))?;
    built.add(build_in(&folder)?);
    let (mut peers, mut missing) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().join("src/main.rs").is_file() {
            continue;
        }
        // ours is no crate from a registry
        let version = if name == OURS { Some(String::new()) } else { built.versions.get(&name).cloned() };
        match (built.programs.get(&format!("peer-{name}")), version) {
            (Some(program), Some(version)) => {
                peers.push(Peer { name, version, program: program.clone() });
            }
            _ => missing.push(name),
        }
    }
    ensure!(!missing.iter().any(|name| name == OURS), "ours does not build");
    peers.sort_by(|a, b| a.name.cmp(&b.name));
    missing.sort();
    Ok((peers, missing))
}

/// Builds what can be built of a workspace.
fn build_in(folder: &Path) -> Result<Built> {
    let mut command = cargo::cargo();
    command.current_dir(folder).env("CARGO_TARGET_DIR", cargo::target()?.join("peers"));
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "");
    command.args(["build", "--release", "--workspace", "--locked", "--keep-going"]);
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot run cargo")?;
    Ok(Built::read(&String::from_utf8_lossy(&output.stdout)))
}

/// What Cargo built.
#[derive(Debug, Default)]
struct Built {
    programs: BTreeMap<String, PathBuf>,
    /// Of crates from a registry.
    versions: BTreeMap<String, String>,
}

impl Built {
    fn add(&mut self, other: Self) {
        self.programs.extend(other.programs);
        self.versions.extend(other.versions);
    }

    /// Reads Cargo's messages.
    fn read(messages: &str) -> Self {
        let mut built = Self::default();
        for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let text = |path: &str| message.pointer(path).and_then(Value::as_str);
            // `registry+https://…#NAME@VERSION`
            let id = text("/package_id").and_then(|id| id.rsplit_once('#')?.1.split_once('@'));
            if let Some((name, version)) = id {
                built.versions.insert(name.to_owned(), version.to_owned());
            }
            if let (Some(name), Some(program)) = (text("/target/name"), text("/executable")) {
                built.programs.insert(name.to_owned(), program.into());
            }
        }
        built
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(name: &str, instructions: f64) -> Cost {
        let (row, name, version) = ("post".to_owned(), name.to_owned(), "1".to_owned());
        Cost { row, name, version, instructions, allocations: None }
    }

    #[test]
    fn ours_is_held_against_the_best_of_the_others() {
        let others = [cost("C", 10.0), cost("a", 30.0), cost("b", 20.0)];
        let all: Vec<_> = others.iter().collect();
        assert!(judge(&cost("ibv", 20.0), &all).0);
        assert_eq!(judge(&cost("ibv", 20.5), &all), (false, "FAIL: b needs 0.5 less".to_owned()));
    }

    #[test]
    fn programs_and_versions_are_read_from_what_cargo_says() {
        let built = Built::read(
            "{\"package_id\":\"registry+https://x/y#some-crate@1.2.3\",\"target\":{\"name\":\"some_crate\"},\
             \"executable\":null}\n{\"package_id\":\"path+file:///z#peer-some-crate@0.0.0\",\
             \"target\":{\"name\":\"peer-some-crate\"},\"executable\":\"/z/peer-some-crate\"}\n",
        );
        assert_eq!(built.versions["some-crate"], "1.2.3");
        assert_eq!(
            built.programs,
            BTreeMap::from([("peer-some-crate".to_owned(), "/z/peer-some-crate".into())])
        );
    }
}
