//! `cargo xtask bench counts`: instructions of the data path, beside C's.
//!
//! Each row is a pair of functions of `benches/twins`, which do the same so many times. Callgrind counts them on a
//! provider that does nothing, whose own instructions are left out. The difference of two runs of different length is
//! that of the operations alone, and exact.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::assembly::Program;
use super::callgrind::{self, Cost};
use crate::cargo;

/// What is counted, and how many instructions more than C's an operation may have.
struct Pair {
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    /// Requests or completions of an operation.
    per_operation: u64,
    extra: u64,
}

const fn pair(
    name: &'static str,
    ours: &'static str,
    theirs: &'static str,
    per_operation: u64,
    extra: u64,
) -> Pair {
    Pair { name, ours, theirs, per_operation, extra }
}

/// A single post may cost 6 more than C's, a prepared one and a batch of completions 4, a list nothing.
///
/// Beyond that: an empty poll has 6 instructions that a poll of a batch has too. `ibv_wr_*` have the request's fields in
/// registers over `ibv_wr_start`, where C loads them later; a list of requests that are values picks each one's
/// operation, with or without immediate data, when it is posted, which C's has fixed.
const PAIRS: [Pair; 14] = [
    pair("post_write", "ours_post_write", "c_post_write", 1, 6),
    pair("post_write_designated", "ours_post_write", "c_designated_write", 1, 6),
    pair("post_send_inline", "ours_post_send_inline", "c_post_send_inline", 1, 6),
    pair("post_fetch_add", "ours_post_fetch_add", "c_post_fetch_add", 1, 6),
    pair("post_ud_send", "ours_post_ud_send", "c_post_ud_send", 1, 6),
    pair("post_recv", "ours_post_recv", "c_post_recv", 1, 6),
    pair("post_prepared", "ours_post_prepared", "c_post_prepared", 1, 4),
    pair("write_list_16", "ours_write_list_16", "c_write_list_16", 16, 0),
    pair("write_distinct_16", "ours_write_distinct_16", "c_write_distinct_16", 16, 0),
    pair("recv_list_16", "ours_recv_list_16", "c_recv_list_16", 16, 0),
    pair("poll_1", "ours_poll_1", "c_poll_1", 1, 4),
    pair("poll_16", "ours_poll_16", "c_poll_16", 16, 4),
    pair("poll_empty", "ours_poll_empty", "c_poll_empty", 1, 6),
    pair("wr_write", "ours_wr_write", "c_wr_write", 1, 12),
];

/// The two lengths of run.
const OPERATIONS: [u64; 2] = [256, 1280];

const TOGGLES: [&str; 3] = ["ours_*", "c_*", "nullhca_fast_*"];

/// Where the counts are that were accepted, by compiler.
const TABLE: &str = "benches/counts.txt";

/// Counts, prints a line per row, and says whether all is as it should be.
pub(super) fn run(bless: bool) -> Result<ExitCode> {
    let program = build()?;
    let [short, long] = OPERATIONS;
    let counted = (
        callgrind::run(&program, &short.to_string(), &TOGGLES)?,
        callgrind::run(&program, &long.to_string(), &TOGGLES)?,
    );
    let cost = |function: &str| -> Result<u64> {
        let of = |run: &std::collections::HashMap<String, Cost>| run.get(function).copied();
        let (Some(short), Some(long)) = (of(&counted.0), of(&counted.1)) else {
            bail!("{function} was not called");
        };
        per_operation(short, long).with_context(|| format!("{function} costs {short:?}, then {long:?}"))
    };
    let compiler = compiler()?;
    let path = cargo::workspace().join(TABLE);
    let mut table = Table::parse(&fs::read_to_string(&path).unwrap_or_default());
    let mut fails = 0;
    let mut counts = BTreeMap::new();
    for pair in &PAIRS {
        let (ours, theirs) = (cost(pair.ours)?, cost(pair.theirs)?);
        counts.insert(pair.name.to_owned(), ours);
        let row = Row { pair, ours, theirs, accepted: table.get(&compiler, pair.name), bless };
        println!("{row}");
        fails += u32::from(!row.is_ok());
    }
    fails += check_assembly(&program)?;
    if bless {
        table.set(compiler, counts);
        fs::write(&path, table.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    } else if !table.knows(&compiler) {
        println!(
            "{TABLE} has no counts of {compiler}: ours are held against C's alone (`--bless` adds them)"
        );
    }
    Ok(if fails == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The instructions of an operation, if each has the same.
fn per_operation(short: Cost, long: Cost) -> Result<u64> {
    let [fewer, more] = OPERATIONS;
    ensure!(short.calls == long.calls && short.calls != 0, "it is not called equally often");
    let operations = (more - fewer) * short.calls;
    let more = long.instructions.checked_sub(short.instructions).context("more operations cost less")?;
    ensure!(more % operations == 0, "the operations differ in cost, by chance or by content");
    Ok(more / operations)
}

/// The shells reach no panic, no allocation and no unwinding. Returns the number of ways there.
fn check_assembly(program: &Path) -> Result<u32> {
    let code = Program::read(program)?;
    let shells = code.with_prefix("ours_");
    ensure!(shells.len() >= PAIRS.len() - 1, "the functions that are counted were not found in the program");
    let (mut ways, mut functions) = (0, 0);
    for shell in &shells {
        let (found, seen) = code.forbidden_from(shell);
        functions += seen;
        for way in found {
            println!("assembly: FAIL {way}");
            ways += 1;
        }
    }
    if ways == 0 {
        let shells = shells.len();
        println!(
            "assembly: no panic, allocation or unwinding in {shells} functions and what they reach ({functions} in all) ok"
        );
    }
    Ok(ways)
}

/// A row's outcome.
struct Row<'p> {
    pair: &'p Pair,
    ours: u64,
    theirs: u64,
    accepted: Option<u64>,
    /// Whatever it is now is accepted.
    bless: bool,
}

impl Row<'_> {
    fn bar(&self) -> u64 {
        self.theirs + self.pair.extra
    }

    fn is_as_accepted(&self) -> bool {
        self.bless || self.accepted.is_none_or(|accepted| accepted == self.ours)
    }

    fn is_ok(&self) -> bool {
        self.ours <= self.bar() && self.is_as_accepted()
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pair, ours, theirs, .. } = self;
        let ratio = *ours as f64 / *theirs as f64;
        write!(f, "{} ours={ours} theirs={theirs} ratio={ratio:.2} bar={}", pair.name, self.bar())?;
        if pair.per_operation > 1 {
            let each = |count: u64| count as f64 / pair.per_operation as f64;
            write!(f, " ({:.1} and {:.1} each of {})", each(*ours), each(*theirs), pair.per_operation)?;
        }
        match self.accepted {
            _ if self.is_ok() => write!(f, " ok"),
            Some(accepted) if !self.is_as_accepted() => write!(f, " FAIL (was {accepted})"),
            _ => write!(f, " FAIL"),
        }
    }
}

/// The committed counts: sections by compiler, a line for each row.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table(BTreeMap<String, BTreeMap<String, u64>>);

impl Table {
    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        let mut compiler = String::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name.clone_into(&mut compiler);
            } else if let Some((row, Ok(count))) =
                line.split_once(' ').map(|(row, count)| (row, count.parse()))
            {
                table.0.entry(compiler.clone()).or_default().insert(row.to_owned(), count);
            }
        }
        table
    }

    fn knows(&self, compiler: &str) -> bool {
        self.0.contains_key(compiler)
    }

    fn get(&self, compiler: &str, row: &str) -> Option<u64> {
        self.0.get(compiler)?.get(row).copied()
    }

    fn set(&mut self, compiler: String, counts: BTreeMap<String, u64>) {
        self.0.insert(compiler, counts);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions of ours per operation, by compiler. `cargo xtask bench counts` fails if one changes,"
        )?;
        writeln!(f, "# for better or worse; `--bless` accepts what it counts.")?;
        for (compiler, rows) in &self.0 {
            writeln!(f, "\n[{compiler}]")?;
            for (row, count) in rows {
                writeln!(f, "{row} {count}")?;
            }
        }
        Ok(())
    }
}

/// The compiler's release and target: others make other code.
fn compiler() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").trim();
    Ok(format!("rustc {} {}", field("release:"), field("host:")))
}

/// Builds the program that is counted, always in the same way.
fn build() -> Result<PathBuf> {
    let mut command = cargo::cargo();
    // a target-cpu of the user's would make other code, and perhaps some that valgrind cannot run
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "");
    command.args(["build", "--release", "-p", "ibv-bench-twins", "--bin", "counts"]);
    let settings = ["lto=false", "codegen-units=16", "opt-level=3", "panic='unwind'"];
    command.args(settings.iter().map(|setting| format!("--config=profile.release.{setting}")));
    command.arg("--message-format=json-render-diagnostics");
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "the counted program does not build");
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter_map(executable).next_back().context("cargo did not say where the program is")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: u64, accepted: Option<u64>) -> Row<'static> {
        const PAIR: Pair = pair("post", "ours_post", "c_post", 1, 6);
        Row { pair: &PAIR, ours, theirs: 20, accepted, bless: false }
    }

    #[test]
    fn a_row_is_held_against_c_and_against_what_was_accepted() {
        assert_eq!(row(26, None).to_string(), "post ours=26 theirs=20 ratio=1.30 bar=26 ok");
        assert!(!row(27, None).is_ok());
        assert!(row(25, Some(25)).is_ok());
        assert_eq!(row(25, Some(24)).to_string(), "post ours=25 theirs=20 ratio=1.25 bar=26 FAIL (was 24)");
        // better is a change too: it is to be accepted, so that it stays
        assert!(!row(23, Some(24)).is_ok());
        assert!(Row { bless: true, ..row(25, Some(24)) }.is_ok());
        assert!(!Row { bless: true, ..row(27, Some(24)) }.is_ok());
    }

    #[test]
    fn operations_of_unequal_cost_are_no_count() {
        let cost = |instructions| Cost { calls: 2, instructions };
        assert_eq!(per_operation(cost(100), cost(100 + 1024 * 2 * 7)).unwrap(), 7);
        assert!(per_operation(cost(100), cost(100 + 1024 * 2 * 7 + 1)).is_err());
        assert!(per_operation(cost(100), Cost { calls: 1, instructions: 500 }).is_err());
    }

    #[test]
    fn the_table_reads_back_what_it_writes() {
        let mut table = Table::default();
        table.set("rustc 1".into(), BTreeMap::from([("a".into(), 1), ("b".into(), 22)]));
        table.set("rustc 2".into(), BTreeMap::from([("a".into(), 3)]));
        let read = Table::parse(&table.to_string());
        assert_eq!(read, table);
        assert_eq!(
            (read.get("rustc 1", "b"), read.get("rustc 2", "b"), read.knows("rustc 3")),
            (Some(22), None, false)
        );
    }
}
