//! `cargo xtask bench counts`: instructions of the data path, beside C's.
//!
//! Each row is a pair of functions of `benches/twins` or `benches/mlx5_path`, which do the same so many times.
//! Callgrind counts them; the difference of two runs of different length is that of the operations alone.

mod rows;
mod table;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

pub(super) use self::rows::about;
use self::rows::{Group, PAIRS, Pair};
use self::table::{Table, compiler};
use super::assembly::{self, Program};
use super::callgrind::{self, Cost, Counted};
use super::fences;
use crate::cargo;

/// The two lengths of run.
const OPERATIONS: [u32; 2] = [256, 1280];

/// What is counted, and what is left out when it is called from there: the provider that does nothing, and what a
/// program asks the kernel for.
const TOGGLES: [&str; 6] = [
    "--toggle-collect=ours_*",
    "--toggle-collect=c_*",
    "--toggle-collect=nullhca_*",
    "--toggle-collect=ioctl",
    "--toggle-collect=mmap*",
    "--toggle-collect=munmap",
];

/// Where the counts are that were accepted.
const TABLE: &str = "benches/counts.txt";

/// The build of libmlx5 that the bars of the direct path are about: Debian's 44.0-2 for x86-64. Another one costs more
/// or less, by its compiler.
const LIBMLX5: &str = "800c6ca768baceb592682738a03643f11379cbdd";

/// Counts, prints a line per row, and says whether all is as it should be.
pub(super) fn run(bless: bool) -> Result<ExitCode> {
    let programs = build()?;
    let compiler = compiler()?;
    let path = cargo::workspace().join(TABLE);
    let mut table = Table::parse(&fs::read_to_string(&path).unwrap_or_default());
    let mut accepted = BTreeMap::new();
    let mut rows = Vec::new();
    for (program, groups) in
        [(&programs.null, &[Group::Null][..]), (&programs.mlx5, &[Group::Libmlx5, Group::Direct])]
    {
        let counts = Counts::of(program)?;
        let is_baseline = counts.is_with(LIBMLX5)?;
        for pair in PAIRS.iter().filter(|pair| groups.contains(&pair.group)) {
            let (ours, theirs) = (counts.per_operation(pair.ours)?, counts.per_operation(pair.theirs)?);
            ensure!(
                pair.group != Group::Null || ours.fract() + theirs.fract() == 0.0,
                "{}: operations differ in cost, by chance or by content: {ours} and {theirs}",
                pair.name
            );
            let known = table.get(&compiler, pair.name).filter(|_| pair.group.is_exact() && !bless);
            let is_held = pair.group != Group::Direct || is_baseline;
            let row = Row { pair, ours, theirs, accepted: known, is_held };
            println!("{row}");
            if pair.group.is_exact() {
                accepted.insert(pair.name.to_owned(), ours);
            }
            rows.push(row);
        }
        if !is_baseline && groups.contains(&Group::Direct) {
            println!(
                "direct/: libmlx5 is not Debian's 44.0-2 for x86-64: the bars of these rows are not held"
            );
        }
    }
    let wrong = check_assembly(&programs)?;
    let file = report(&rows, &programs.null)?;
    println!("-> {}", file.display());
    if bless {
        table.set(compiler, accepted);
        fs::write(&path, table.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    } else if !table.knows(&compiler) {
        println!(
            "{TABLE} has no counts of {compiler}: ours are held against C's alone (`--bless` adds them)"
        );
    }
    let is_ok = wrong == 0 && rows.iter().all(Row::is_ok);
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a request or completion costs by row, ours and C's.
pub(super) type Costs = Vec<(&'static str, [f64; 2])>;

/// What they cost through libmlx5; and the program that was counted.
pub(super) fn through_libmlx5() -> Result<(PathBuf, Costs)> {
    let program = build()?.mlx5;
    let counts = Counts::of(&program)?;
    let each = |pair: &Pair, function: &str| -> Result<f64> {
        Ok(counts.per_operation(function)? / f64::from(pair.each))
    };
    let rows = PAIRS
        .iter()
        .filter(|pair| pair.group == Group::Libmlx5)
        .map(|pair| Ok((pair.name, [each(pair, pair.ours)?, each(pair, pair.theirs)?])))
        .collect::<Result<_>>()?;
    Ok((program, rows))
}

/// What a program's functions cost in two runs.
struct Counts {
    short: Counted,
    long: Counted,
}

impl Counts {
    fn of(program: &Path) -> Result<Self> {
        let [short, long] = OPERATIONS.map(|operations| {
            callgrind::run(program, &["--count".to_owned(), operations.to_string()], &TOGGLES)
        });
        Ok(Self { short: short?, long: long? })
    }

    /// The instructions of an operation, to the hundredth. A row that is run in pieces has those of calling it, too.
    fn per_operation(&self, function: &str) -> Result<f64> {
        let of = |counted: &Counted| counted.costs.get(function).copied();
        let (Some(short), Some(long)) = (of(&self.short), of(&self.long)) else {
            bail!("{function} was not called");
        };
        // by how many rows
        let rows = PAIRS
            .iter()
            .filter(|pair| pair.group == Group::Null && (pair.ours == function || pair.theirs == function));
        Ok(per_operation(short, long, rows.count().max(1) as u32))
    }

    /// Whether a library of that build took part.
    fn is_with(&self, build: &str) -> Result<bool> {
        let libraries = self.long.objects.iter().filter(|object| object.contains("/libmlx5.so"));
        for library in libraries {
            if assembly::build_id(Path::new(library))?.as_deref() == Some(build) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn per_operation(short: Cost, long: Cost, rows: u32) -> f64 {
    let [fewer, more] = OPERATIONS;
    let instructions = long.instructions as f64 - short.instructions as f64;
    (instructions / f64::from((more - fewer) * rows) * 100.0).round() / 100.0
}

/// Looks at the machine code alone, prints what it finds, and says whether all is as it should be.
pub(super) fn assembly() -> Result<ExitCode> {
    Ok(if check_assembly(&build()?)? == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is measured reaches no panic, no allocation and no unwinding, and the direct path has its fences. Returns the
/// number of ways and functions that are wrong.
fn check_assembly(programs: &Programs) -> Result<u32> {
    // what makes objects allocates; and a poller that meets a queue pair for the first time does
    let is_hot = |name: &&str| {
        !["ours_register", "ours_create_qp", "ours_arm"].contains(name)
            && !name.starts_with("ours_direct_poll")
            && !name.starts_with("ours_direct_shared_poll")
    };
    let (mut ways, mut functions, mut shells) = (0, 0, 0);
    for program in [&programs.null, &programs.mlx5] {
        let code = Program::read(program)?;
        for shell in code.with_prefix("ours_").into_iter().filter(is_hot) {
            let (found, seen) = code.forbidden_from(shell);
            functions += seen;
            shells += 1;
            for way in found {
                println!("assembly: FAIL {way}");
                ways += 1;
            }
        }
    }
    ensure!(shells > PAIRS.len() / 2, "the functions that are counted were not found in the program");
    if ways == 0 {
        println!(
            "assembly: no panic, allocation or unwinding in {shells} functions and what they reach ({functions} in all) ok"
        );
    }
    // elsewhere they are not called that (aarch64: `tests/aarch64.sh`)
    if cfg!(target_arch = "x86_64") {
        ways += fences::check(&Program::read(&programs.mlx5)?)?;
    }
    Ok(ways)
}

/// A row's outcome.
struct Row {
    pair: &'static Pair,
    ours: f64,
    theirs: f64,
    /// What ours has to cost exactly.
    accepted: Option<f64>,
    /// Whether its bar is held, or only told.
    is_held: bool,
}

impl Row {
    fn bar(&self) -> f64 {
        self.pair.most(self.theirs)
    }

    fn is_as_accepted(&self) -> bool {
        self.accepted.is_none_or(|accepted| accepted == self.ours)
    }

    fn is_ok(&self) -> bool {
        (self.ours <= self.bar() || !self.is_held) && self.is_as_accepted()
    }

    /// For the report, per request or completion.
    fn json(&self) -> Value {
        let each = |count: f64| (count / f64::from(self.pair.each) * 100.0).round() / 100.0;
        json!({
            "group": self.pair.group.name(),
            "name": self.pair.name,
            "unit": "instructions",
            "ours": each(self.ours),
            "theirs": each(self.theirs),
            "ratio": (self.ours / self.theirs * 1000.0).round() / 1000.0,
            "bar": each(self.bar()),
            "floor": self.pair.floor,
            "ok": self.is_ok(),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pair, ours, theirs, .. } = self;
        let (group, name) = (pair.group.name(), pair.name);
        let (bar, ratio) = ((self.bar() * 10.0).round() / 10.0, ours / theirs);
        write!(f, "{group}/{name} ours={ours} theirs={theirs} ratio={ratio:.2} bar={bar}")?;
        let each = |count: f64| count / f64::from(pair.each);
        if pair.each > 1 {
            write!(f, " ({:.1} and {:.1} each of {})", each(*ours), each(*theirs), pair.each)?;
        }
        if let Some(floor) = pair.floor {
            write!(f, " floor={floor} ({:.2} times)", each(*ours) / f64::from(floor))?;
        }
        match self.accepted {
            _ if !self.is_held && self.is_ok() => write!(f, " (not held)"),
            _ if self.is_ok() => write!(f, " ok"),
            Some(accepted) if !self.is_as_accepted() => write!(f, " FAIL (was {accepted})"),
            _ => write!(f, " FAIL"),
        }
    }
}

/// Writes the rows, a line of JSON each, to `ibv-bench/counts.json` in Cargo's folder.
fn report(rows: &[Row], program: &Path) -> Result<PathBuf> {
    let folder = super::reports(program)?;
    let file = folder.join("counts.json");
    let lines: String = rows.iter().map(|row| format!("{}\n", row.json())).collect();
    fs::write(&file, lines).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

struct Programs {
    null: PathBuf,
    mlx5: PathBuf,
}

/// Builds the programs that are counted, always in the same way.
fn build() -> Result<Programs> {
    let mut command = cargo::cargo();
    // a target-cpu of the user's would make other code, and perhaps some that valgrind cannot run
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "");
    command.args(["build", "--release", "--package=ibv-bench-twins", "--features=mlx5", "--bins"]);
    let settings = ["lto=false", "codegen-units=16", "opt-level=3", "panic='unwind'"];
    command.args(settings.iter().map(|setting| format!("--config=profile.release.{setting}")));
    command.arg("--message-format=json-render-diagnostics");
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the counted programs do not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let executables: HashMap<String, PathBuf> = text
        .lines()
        .filter_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let name = message.pointer("/target/name")?.as_str()?.to_owned();
            Some((name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect();
    let program = |name: &str| {
        executables.get(name).cloned().with_context(|| format!("cargo did not say where {name} is"))
    };
    Ok(Programs { null: program("data_path")?, mlx5: program("mlx5_path")? })
}

#[cfg(test)]
mod tests {
    use super::rows::Bar;
    use super::*;

    fn row(ours: f64, accepted: Option<f64>) -> Row {
        const PAIR: Pair = Pair {
            group: Group::Null,
            name: "post",
            ours: "ours_post",
            theirs: "c_post",
            each: 1,
            bar: Bar::Extra(6),
            floor: None,
        };
        Row { pair: &PAIR, ours, theirs: 20.0, accepted, is_held: true }
    }

    #[test]
    fn a_row_is_held_against_c_and_against_what_was_accepted() {
        assert_eq!(row(26.0, None).to_string(), "null/post ours=26 theirs=20 ratio=1.30 bar=26 ok");
        assert!(!row(27.0, None).is_ok());
        assert!(row(25.0, Some(25.0)).is_ok());
        assert_eq!(
            row(25.0, Some(24.0)).to_string(),
            "null/post ours=25 theirs=20 ratio=1.25 bar=26 FAIL (was 24)"
        );
        // better is a change too: it is to be accepted, so that it stays
        assert!(!row(23.0, Some(24.0)).is_ok());
        // without the library that a bar is about, ours are still what they were
        assert!(Row { is_held: false, ..row(27.0, Some(27.0)) }.is_ok());
        assert!(!Row { is_held: false, ..row(27.0, Some(26.0)) }.is_ok());
    }

    #[test]
    fn bars_are_for_each_request() {
        let pair = |bar, each| Pair { bar, each, ..*row(0.0, None).pair };
        assert_eq!(pair(Bar::Within { extra: 10, ratio: 1.03 }, 1).most(1000.0), 1010.0);
        assert_eq!(pair(Bar::Within { extra: 10, ratio: 1.03 }, 16).most(1000.0), 1030.0);
        assert_eq!(pair(Bar::Ratio(0.25), 16).most(1000.0), 250.0);
    }

    #[test]
    fn what_two_runs_have_in_common_is_no_cost_of_an_operation() {
        let cost = |instructions| Cost { calls: 1, instructions };
        assert_eq!(per_operation(cost(100), cost(100 + 1024 * 7), 1), 7.0);
        assert_eq!(per_operation(cost(100), cost(100 + 1024 * 7), 2), 3.5);
    }

    #[test]
    fn rows_have_names_of_their_own_where_they_are_exact() {
        let mut names: Vec<_> =
            PAIRS.iter().filter(|pair| pair.group.is_exact()).map(|pair| pair.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
