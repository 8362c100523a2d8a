//! The counts that were accepted, by compiler: others make other code.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

/// Sections by compiler, a line for each row.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table(BTreeMap<String, BTreeMap<String, f64>>);

impl Table {
    pub(super) fn parse(text: &str) -> Self {
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

    pub(super) fn knows(&self, compiler: &str) -> bool {
        self.0.contains_key(compiler)
    }

    pub(super) fn get(&self, compiler: &str, row: &str) -> Option<f64> {
        self.0.get(compiler)?.get(row).copied()
    }

    pub(super) fn set(&mut self, compiler: String, counts: BTreeMap<String, f64>) {
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

/// The compiler's release and target.
pub(super) fn compiler() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").trim();
    Ok(format!("rustc {} {}", field("release:"), field("host:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_back_what_it_writes() {
        let mut table = Table::default();
        table.set("rustc 1".into(), BTreeMap::from([("a".into(), 1.0), ("b".into(), 22.25)]));
        table.set("rustc 2".into(), BTreeMap::from([("a".into(), 3.0)]));
        let read = Table::parse(&table.to_string());
        assert_eq!(read, table);
        assert_eq!(
            (read.get("rustc 1", "b"), read.get("rustc 2", "b"), read.knows("rustc 3")),
            (Some(22.25), None, false)
        );
    }
}
