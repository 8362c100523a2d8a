//! The report of what was measured: a page (`report.html` beside the data) and BENCHMARKS.md.
//!
//! | file | what |
//! |---|---|
//! | `data` | what the benchmarks wrote |
//! | `machine` | what they ran on |
//! | `table` | tables, for both |
//! | `chart` | charts as SVG |
//! | `page` | the page |
//! | `markdown` | the Markdown, of which only what was measured is made anew |

mod chart;
mod data;
mod machine;
mod markdown;
mod page;
mod table;

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo;
use data::Data;
use machine::Machine;
use table::Table;

const MARKDOWN: &str = "BENCHMARKS.md";

/// What can't be concluded from tables of these titles.
fn limits(titles: &[String]) -> Vec<&'static str> {
    let has = |what: &str| titles.iter().any(|title| title.contains(what));
    let mut limits = vec![
        "Instructions are exact, of one compiler's code for one architecture. They are not time: a cache miss, a \
         fence or a wrong branch costs more than a hundred of them.",
        "Ratios to C are of this machine and of this run. *Inconclusive*: C held against itself in the same way differs by \
         more than 5 %, so that nothing is said about a few per cent.",
    ];
    if has("software HCA") {
        limits.push(
            "The software HCA executes requests on the processors that also run the programs. Its latencies and rates \
             say nothing about hardware, nor about RDMA against TCP: they are there for the ratios to C.",
        );
        limits.push(
            "There, who goes without libmlx5 (`direct`) or waits at its memory (`WRITE`) calls no function in which the \
             software HCA could work: its thread looks for such requests after short sleeps, and they are what these rows \
             measure. So such a row is of two kinds of runs, and seldom conclusive.",
        );
    }
    if has("emulated") {
        limits.push(
            "In an emulated virtual machine each instruction costs something else than on the processor: only ratios \
             mean anything. Where two processes poll on its two processors, the kernel's own work waits for the \
             scheduler's ticks, and they are what is measured.",
        );
    }
    if has("counts instructions") {
        limits.push(
            "Where the clock of a virtual machine counts its instructions, a time is how many of them programs and kernel \
             needed, and every run nearly the same: ratios are of one processor, without caches. So that two who poll do \
             not wait for the scheduler's ticks, who finds a completion queue empty there hands the processor over \
             (`sched_yield`), or who finds that a WRITE is done, as next it would wait at its memory: ours and C's. Who \
             polls a socket does not, and is left out.",
        );
    }
    let is_soft = |title: &String| title.contains("software HCA") || title.contains("rxe");
    let mut placed = titles.iter().filter(|title| title.starts_with("Latency") || title.starts_with("Rate"));
    if placed.all(is_soft) {
        limits.push(
            "Nothing here went through PCIe: what BlueFlame, write combining, doorbells and fences cost or save on \
             hardware is not in these numbers.",
        );
    }
    if has("Rate") {
        limits.push(
            "Rates of `ib_*_bw` are computed by these programs, with a clock frequency that they find out themselves; \
             latencies of both are read from the same clock.",
        );
    }
    limits
}

/// All tables, in their order.
fn tables(data: &Data) -> Vec<Table> {
    table::counts(data)
        .into_iter()
        .chain(table::peers(data))
        .chain(table::nanoseconds(data))
        .chain(data.latency.iter().filter_map(table::latency))
        .chain(data.bandwidth.iter().filter_map(table::bandwidth))
        .chain(table::scaling(data))
        .collect()
}

/// Writes both from what is in `folder`; the page's path.
pub(super) fn write(folder: &Path) -> Result<PathBuf> {
    let data = Data::read(folder)?;
    let is_empty = data.counts.is_empty()
        && data.nanoseconds.is_empty()
        && data.latency.is_empty()
        && data.bandwidth.is_empty()
        && data.scaling.is_empty();
    ensure!(!is_empty, "nothing was measured yet: `cargo xtask bench`");
    let machine = Machine::here();
    let page = folder.join("report.html");
    fs::write(&page, page::page(&data, &machine))
        .with_context(|| format!("cannot write {}", page.display()))?;
    let path = cargo::workspace().join(MARKDOWN);
    // there is none at first
    let old = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, markdown::renew(&old, &data, &machine))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(page)
}
