//! What ran where, as a table.

use super::libtest::Report;
use std::fmt::{self, Display};
use std::time::Duration;

/// One program's run.
#[derive(Debug)]
pub(crate) struct Row {
    /// Where it ran.
    pub(crate) tier: String,
    pub(crate) target: String,
    pub(crate) report: Report,
    pub(crate) took: Duration,
}

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Summary(pub(crate) Vec<Row>);

impl Summary {
    fn count(&self, of: impl Fn(&Report) -> usize) -> usize {
        self.0.iter().map(|row| of(&row.report)).sum()
    }

    pub(crate) fn failed(&self) -> usize {
        self.count(|report| report.failed.len())
    }

    fn list(
        &self,
        f: &mut fmt::Formatter<'_>,
        title: &str,
        of: impl Fn(&Report) -> &[String],
    ) -> fmt::Result {
        if self.count(|report| of(report).len()) == 0 {
            return Ok(());
        }
        writeln!(f, "\n{title}:")?;
        for row in &self.0 {
            for name in of(&row.report) {
                writeln!(f, "  {} | {} | {name}", row.tier, row.target)?;
            }
        }
        Ok(())
    }
}

/// The table, the names of what failed and was skipped, and the line with the totals.
impl Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Row) -> &str, title: &str| {
            self.0.iter().map(|row| of(row).len()).chain([title.len()]).max().unwrap_or(0)
        };
        let (tier, target) = (width(|row| &row.tier, "tier"), width(|row| &row.target, "target"));
        let header = ["passed", "failed", "skipped", "seconds"];
        writeln!(f, "{:tier$}  {:target$}  {}", "tier", "target", header.join("  "))?;
        for row in &self.0 {
            let (report, seconds) = (&row.report, row.took.as_secs_f64());
            let (failed, skipped) = (report.failed.len(), report.skipped.len());
            let counts = format!("{:>6}  {failed:>6}  {skipped:>7}  {seconds:>7.1}", report.passed);
            writeln!(f, "{:tier$}  {:target$}  {counts}", row.tier, row.target)?;
        }
        self.list(f, "failed", |report| &report.failed)?;
        self.list(f, "skipped", |report| &report.skipped)?;
        let skipped = self.count(|report| report.skipped.len());
        write!(f, "\n{} passed, {} failed", self.count(|report| report.passed as usize), self.failed())?;
        if skipped > 0 {
            write!(f, ", {skipped} skipped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(passed: u32, failed: &[&str], skipped: &[&str]) -> Row {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Row {
            tier: "unit".into(),
            target: "ibv layout".into(),
            report: Report { passed, failed: names(failed), skipped: names(skipped) },
            took: Duration::from_millis(1234),
        }
    }

    #[test]
    fn the_last_line_is_the_total() {
        let last = |rows: Vec<Row>| Summary(rows).to_string().lines().last().map(str::to_owned);
        assert_eq!(last(vec![row(2, &[], &[]), row(3, &[], &[])]).unwrap(), "5 passed, 0 failed");
        assert_eq!(last(vec![row(2, &["a"], &["b: no device"])]).unwrap(), "2 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn nothing_fails_or_is_skipped_without_its_name() {
        let text = Summary(vec![row(2, &["a::b"], &["c: no device"])]).to_string();
        assert!(text.contains("failed:\n  unit | ibv layout | a::b\n"), "{text}");
        assert!(text.contains("skipped:\n  unit | ibv layout | c: no device\n"), "{text}");
        assert!(text.contains("unit  ibv layout       2       1        1      1.2\n"), "{text}");
    }
}
