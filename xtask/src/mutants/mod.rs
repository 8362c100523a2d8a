//! `cargo xtask mutants`: the data path with one mistake in it, built and run, once for each kind of mistake.
//!
//! | file | what |
//! |---|---|
//! | `table` | the mistakes |
//! | `tree` | a copy of the workspace's files, in which they are made |

mod table;
mod tree;

use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::{cargo, run};
use table::{COSTS, FENCES, MUTANTS, Mutant};

const HELP: &str = "\
cargo xtask mutants [NAME]...

Makes mistakes in the mlx5 direct path, one at a time: a doorbell record that is missing, or written too late, a store
to the wrong register, and so on. Each must make the test `rules` of `soft_mlx5_trap` fail, and for its own reason. Then
fences and locks, too many or too few: each must make `cargo xtask bench assembly` fail. Then a branch, a bounds check or
an assertion too many, in our own posts and polls and in the direct ones: each must make `cargo xtask bench counts` fail.

  NAME   only the mistakes with this in their names";

/// What finds mistakes.
struct Test {
    /// Cargo's.
    arguments: &'static [&'static str],
    /// What it says when it has come to its end.
    ends: &'static str,
    /// What else stands in the line that names the mistake.
    mark: &'static str,
    /// A mistake can make it wait for ever.
    limit: Duration,
}

const RULES: Test = Test {
    arguments: &["test", "--features", "mlx5", "--test", "soft_mlx5_trap", "rules::", "--quiet"],
    ends: "test result: FAILED",
    mark: "",
    limit: Duration::from_secs(300),
};

const ASSEMBLY: Test = Test {
    arguments: &["run", "--quiet", "--package", "xtask", "--", "bench", "assembly"],
    ends: "assembly: ",
    mark: "fences: FAIL",
    limit: Duration::from_secs(600),
};

const COUNTS: Test = Test {
    arguments: &["run", "--quiet", "--package", "xtask", "--", "bench", "counts"],
    ends: "counts.json",
    mark: "FAIL (was",
    limit: Duration::from_secs(1800),
};

/// All mistakes, with what finds them.
const ALL: [(&[Mutant], &Test); 3] = [(&MUTANTS, &RULES), (&FENCES, &ASSEMBLY), (&COSTS, &COUNTS)];

fn all() -> impl Iterator<Item = &'static Mutant> {
    ALL.iter().flat_map(|(mutants, _)| *mutants)
}

/// `cargo xtask mutants`.
pub(crate) fn command(arguments: Vec<OsString>) -> Result<ExitCode> {
    use lexopt::prelude::*;
    let mut names = Vec::new();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Value(name) => names.push(name.string()?),
            Short('h') | Long("help") => {
                println!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let wanted = |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| mutant.name.contains(name));
    ensure!(all().any(|mutant| wanted(&mutant)), "no mistake has {names:?} in its name");
    let folder = cargo::target()?.join("mutants");
    let place = Place { tree: folder.join("tree"), target: folder.join("target") };
    tree::copy(&cargo::workspace(), &place.tree)?;
    // before anything is built: those that do not fit the source any more
    for mutant in all() {
        place.mutate(mutant)?;
    }
    let mut missed = 0;
    for (mutants, test) in ALL {
        let mutants: Vec<_> = mutants.iter().filter(wanted).collect();
        if mutants.is_empty() {
            continue;
        }
        if let Err(output) = place.test(test)? {
            bail!("the test fails without a mistake:\n{output}");
        }
        for mutant in mutants {
            let verdict = place.with(mutant, test)?;
            missed += u32::from(verdict.is_err());
            println!(
                "mutant: {} ... {}",
                mutant.name,
                verdict.unwrap_or_else(|why| format!("MISSED: {why}"))
            );
        }
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where it is built.
struct Place {
    tree: PathBuf,
    target: PathBuf,
}

impl Place {
    fn file(&self, mutant: &Mutant) -> PathBuf {
        self.tree.join("src").join(mutant.file)
    }

    /// The mutant's file with the mistake.
    fn mutate(&self, mutant: &Mutant) -> Result<String> {
        let file = self.file(mutant);
        let source = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        apply(&source, mutant.edits).with_context(|| format!("mutant `{}`: {}", mutant.name, mutant.file))
    }

    /// Runs the test with the mistake: how it was found, or why it was not.
    fn with(&self, mutant: &Mutant, test: &Test) -> Result<Result<String, String>> {
        let (file, source) = (self.file(mutant), self.mutate(mutant)?);
        let right = fs::read_to_string(&file)?;
        tree::write(&file, source.as_bytes())?;
        let outcome = self.test(test);
        tree::write(&file, right.as_bytes())?;
        Ok(match outcome? {
            Ok(()) => Err("the test passes".to_owned()),
            Err(output) => judge(&output, mutant.says, test),
        })
    }

    /// Runs the test; its output, if it fails.
    fn test(&self, test: &Test) -> Result<Result<(), String>> {
        let mut command = cargo::cargo();
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target).args(test.arguments);
        // smaller, and sooner there
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let end = run::run(&mut command, test.limit, &mut out, &mut err)?;
        let output = format!("{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
        Ok(end.map_err(|how| format!("{output}\n{how}")))
    }
}

/// Whether the test failed, and for the right reason.
fn judge(output: &str, says: &str, test: &Test) -> Result<String, String> {
    if !output.contains(test.ends) {
        return Err(format!("the test did not come to its end\n{output}"));
    }
    match output.lines().find(|line| line.contains(says) && line.contains(test.mark)) {
        Some(line) => Ok(format!("caught: {}", line.trim())),
        None => Err(format!("it fails, but does not say `{says}`\n{output}")),
    }
}

fn apply(source: &str, edits: &[(&str, &str)]) -> Result<String> {
    let mut result = source.to_owned();
    for (from, to) in edits {
        let found = result.matches(from).count();
        ensure!(found == 1, "found {found} times, not once: {from}");
        result = result.replace(from, to);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_has_one_place() {
        assert_eq!(apply("a b c", &[("b", "x"), ("c", "y")]).unwrap(), "a x y");
        assert!(apply("a b b", &[("b", "x")]).is_err());
        assert!(apply("a", &[("b", "x")]).is_err());
    }

    #[test]
    fn a_mutant_is_caught_by_what_it_does() {
        let failed =
            "running 1 test\nrules were broken: [\n  \"is not in the ring\",\ntest result: FAILED. 0 passed";
        assert!(judge(failed, "not in the ring", &RULES).is_ok());
        assert!(judge(failed, "the record", &RULES).unwrap_err().contains("does not say"));
        assert!(judge("error[E0425]: no such thing", "thing", &RULES).unwrap_err().contains("did not come"));
        let counted = "null/post ours=27 FAIL (was 26)\nnull/poll ours=24 ok\n-> counts.json";
        assert!(judge(counted, "null/post", &COUNTS).is_ok());
        assert!(judge(counted, "null/poll", &COUNTS).is_err());
    }

    #[test]
    fn the_mistakes_fit_the_source() {
        let place = Place { tree: cargo::workspace(), target: PathBuf::new() };
        for mutant in all() {
            place.mutate(mutant).unwrap();
        }
        let mut names: Vec<_> = all().map(|mutant| mutant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn a_copy_of_a_tree_follows_it() {
        let folder = std::env::temp_dir().join(format!("ibv-tree-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("a/target")).unwrap();
        fs::write(from.join("a/file"), "1").unwrap();
        fs::write(from.join(".hidden"), "2").unwrap();
        tree::copy(&from, &to).unwrap();
        let time = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
        let (file, old) = (to.join("a/file"), to.join("old"));
        let written = time(&file);
        assert!(!to.join(".hidden").exists() && !to.join("a/target").exists());
        fs::write(&old, "3").unwrap();
        tree::copy(&from, &to).unwrap();
        assert!(!old.exists() && time(&file) == written);
        fs::remove_dir_all(&folder).unwrap();
    }
}
