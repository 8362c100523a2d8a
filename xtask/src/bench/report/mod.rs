//! The report of what was measured: a page (`report.html` beside the data) and BENCHMARKS.md.
//!
//! | file | what |
//! |---|---|
//! | `data` | what the benchmarks wrote |
//! | `machine` | what they ran on |
//! | `table` | tables, for both |
//! | `chart` | charts as SVG |
//! | `page` | the page |

mod chart;
mod data;
mod machine;
mod page;
mod table;

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo;
use data::{Data, Place, Row, Verdict};
use machine::Machine;
use table::Table;

const MARKDOWN: &str = "BENCHMARKS.md";

/// What can't be concluded from this.
fn limits(data: &Data) -> Vec<&'static str> {
    let places: Vec<&str> =
        data.latency.iter().chain(&data.bandwidth).map(|place| place.name.as_str()).collect();
    let is_soft = |place: &&str| place.contains("software HCA");
    let is_emulated = |place: &&str| place.contains("emulated");
    let mut limits = vec![
        "Instructions are exact, of one compiler's code for one architecture. They are not time: a cache miss, a \
         fence or a wrong branch costs more than a hundred of them.",
        "Ratios to C are of this machine and of this run. *Inconclusive*: the same C program typically differed from \
         itself by more than 5 % from one run to the next, so that nothing is said about a few per cent.",
    ];
    if places.iter().any(is_soft) {
        limits.push(
            "The software HCA executes requests on the processors that also run the programs. Its latencies and rates \
             say nothing about hardware, nor about RDMA against TCP: they are there for the ratios to C.",
        );
    }
    if places.iter().any(is_emulated) {
        limits.push(
            "In an emulated virtual machine each instruction costs something else than on the processor: only ratios \
             mean anything. Where two processes poll on its two processors, the kernel's own work waits for the \
             scheduler's ticks, and they are what is measured.",
        );
    }
    if places.iter().all(|place| is_soft(place) || place.contains("rxe")) {
        limits.push(
            "Nothing here went through PCIe: what BlueFlame, write combining, doorbells and fences cost or save on \
             hardware is not in these numbers.",
        );
    }
    if !data.bandwidth.is_empty() {
        limits.push(
            "Rates of `ib_*_bw` are computed by these programs, with a clock frequency that they find out themselves; \
             latencies of both are read from the same clock.",
        );
    }
    limits
}

/// Writes both from what is in `folder`; the page's path.
pub(super) fn write(folder: &Path) -> Result<PathBuf> {
    let data = Data::read(folder)?;
    let is_empty = data.counts.is_empty() && data.latency.is_empty() && data.scaling.is_empty();
    ensure!(!is_empty, "nothing was measured yet: `cargo xtask bench`");
    let machine = Machine::here();
    let limits = limits(&data);
    let page = folder.join("report.html");
    fs::write(&page, page::page(&data, &machine, &limits))
        .with_context(|| format!("cannot write {}", page.display()))?;
    let path = cargo::workspace().join(MARKDOWN);
    fs::write(&path, markdown(&data, &machine, &limits))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(page)
}

fn markdown(data: &Data, machine: &Machine, limits: &[&str]) -> String {
    let mut text =
        "# Benchmarks\n\nWritten by `cargo xtask bench`, which also draws them.\n\n| | |\n| --- | --- |\n"
            .to_owned();
    text.extend(machine.0.iter().map(|(name, value)| format!("| {name} | {value} |\n")));
    text += &summary(data);
    let tables = table::counts(data)
        .into_iter()
        .chain(table::peers(data))
        .chain(table::nanoseconds(data))
        .chain(data.latency.iter().filter_map(table::latency))
        .chain(data.bandwidth.iter().filter_map(table::bandwidth))
        .chain(table::scaling(data));
    for table in tables {
        let Table { title, note, .. } = &table;
        text += &format!("\n## {title}\n\n{note}\n\n{}", table.to_markdown());
    }
    text += "\n## What can't be concluded\n\n";
    text.extend(limits.iter().map(|limit| format!("- {limit}\n")));
    text
}

/// How many rows are as they should be, as a list.
fn summary(data: &Data) -> String {
    let mut text = "\n".to_owned();
    if !data.counts.is_empty() {
        let failed: Vec<&Row> = data.counts.iter().filter(|row| !row.is("ok")).collect();
        let (ok, all) = (data.counts.len() - failed.len(), data.counts.len());
        text += &format!("- {ok} of {all} rows of instructions are within their bars, and as committed.");
        if !failed.is_empty() {
            let name = |row: &&Row| format!("{}/{}", row.text("group").unwrap_or_default(), row.name());
            text += &format!(" The others: {}.", failed.iter().map(name).collect::<Vec<_>>().join(", "));
        }
        text.push('\n');
    }
    let of = |what: &'static str, places: &'_ [Place]| -> String {
        places
            .iter()
            .map(|place| format!("- {what} on {}: {}.\n", place.name, conclusions(&place.rows)))
            .collect()
    };
    text + &of("Latency", &data.latency) + &of("Rate", &data.bandwidth)
}

/// What follows from rows beside C.
fn conclusions(rows: &[Row]) -> String {
    let (mut ratios, mut all) = (Vec::new(), 0);
    for row in rows {
        if let Verdict::Pairs { ratio, is_conclusive, .. } = row.verdict() {
            all += 1;
            ratios.extend(is_conclusive.then_some(ratio));
        }
    }
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.get(ratios.len() / 2), ratios.last()) {
        (Some(least), Some(median), Some(most)) => format!(
            "{} of {all} rows beside C are conclusive, with ratios from {least:.3} to {most:.3}, median {median:.3}",
            ratios.len()
        ),
        _ => format!("none of {all} rows beside C is conclusive"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conclusive_rows_count() {
        let row = |ratio: f64, conclusive: bool| {
            let pairs = serde_json::json!({
                "ratio": ratio, "low": ratio, "high": ratio, "spread": 0.01, "conclusive": conclusive
            });
            Row::new(serde_json::json!({ "pairs": pairs }))
        };
        let rows = [row(1.01, true), row(0.5, false), row(1.03, true), row(0.99, true)];
        let text = conclusions(&rows);
        assert_eq!(
            text,
            "3 of 4 rows beside C are conclusive, with ratios from 0.990 to 1.030, median 1.010"
        );
        assert_eq!(conclusions(&rows[1..2]), "none of 1 rows beside C is conclusive");
    }
}
