//! BENCHMARKS.md: a section for each table. Those that were measured later than what stands there are made anew; the
//! others stay.

use super::data::Data;
use super::limits;
use super::machine::Machine;
use super::table::Table;

/// What the sections' titles begin with, in their order.
const ORDER: [&str; 8] = [
    "Instructions, on",
    "Instructions, through",
    "Instructions, the direct",
    "Other crates",
    "Nanoseconds",
    "Latency",
    "Rate",
    "Cost of",
];

const HEAD: &str = "\
# Benchmarks

Written by `cargo xtask bench`, which also draws them. A part says when it was measured: `cargo xtask bench time` (or
`latency`, `bandwidth`) renews its own.

";

/// What the rows are.
const ROWS: &str = include_str!("rows.md");

const LIMITS: &str = "What can't be concluded";

/// The title of what is no table, and is written anew each time.
const READING: &str = "How to read it";

/// A part of the file: its title, and what stands under it.
struct Section {
    title: String,
    text: String,
}

impl Section {
    fn of(table: &Table) -> Self {
        let Table { title, note, conclusion, measured, .. } = table;
        let conclusion = conclusion.as_ref().map_or(String::new(), |text| format!("{text}\n\n"));
        let text = format!("{MEASURED}{measured}. {note}\n\n{conclusion}{}", table.to_markdown());
        Self { title: title.clone(), text }
    }

    /// Those of a file.
    fn all(file: &str) -> Vec<Self> {
        let parts = file.split("\n## ").skip(1).filter_map(|part| part.split_once('\n'));
        let section = |(title, text): (&str, &str)| Self {
            title: title.to_owned(),
            text: text.trim().to_owned() + "\n",
        };
        let mut sections: Vec<_> = parts.map(section).collect();
        sections.retain(|section| section.title != LIMITS && section.title != READING);
        sections
    }

    /// When, in a form that sorts; nothing if it does not say.
    fn measured(&self) -> &str {
        self.text.strip_prefix(MEASURED).and_then(|rest| rest.split_once('.')).map_or("", |(date, _)| date)
    }

    fn place(&self) -> usize {
        ORDER.iter().position(|start| self.title.starts_with(start)).unwrap_or(ORDER.len())
    }
}

const MEASURED: &str = "Measured ";

/// The file, with what was measured in it.
pub(super) fn renew(old: &str, data: &Data, machine: &Machine) -> String {
    let sections = merge(Section::all(old), super::tables(data).iter().map(Section::of).collect());
    let mut text = format!("{HEAD}| | |\n| --- | --- |\n");
    text.extend(machine.0.iter().map(|(name, value)| format!("| {name} | {value} |\n")));
    text += &format!("\n## {READING}\n\n{ROWS}");
    text.extend(sections.iter().map(|Section { title, text }| format!("\n## {title}\n\n{text}")));
    let titles: Vec<_> = sections.into_iter().map(|section| section.title).collect();
    text += &format!("\n## {LIMITS}\n\n");
    text.extend(limits(&titles).iter().map(|limit| format!("- {limit}\n")));
    text
}

/// Of those with the same title the one that was measured later.
fn merge(old: Vec<Section>, new: Vec<Section>) -> Vec<Section> {
    let mut sections = old;
    for section in new {
        match sections.iter_mut().find(|other| other.title == section.title) {
            Some(other) if other.measured() > section.measured() => {}
            Some(other) => *other = section,
            None => sections.push(section),
        }
    }
    sections.sort_by_key(Section::place);
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, date: &str, text: &str) -> Section {
        Section { title: title.to_owned(), text: format!("{MEASURED}{date}. {text}\n") }
    }

    #[test]
    fn parts_that_were_not_measured_stay_and_older_ones_go() {
        let (may, june) = ("2026-05-01 10:00 UTC", "2026-06-01 10:00 UTC");
        let old = vec![section("Cost of a post", may, "old"), section("Latency: a", june, "old")];
        let new = vec![
            section("Latency: a", may, "new"),
            section("Cost of a post", june, "new"),
            section("Other crates", may, "new"),
        ];
        let merged = merge(old, new);
        let of = |section: &Section| format!("{} {}", section.title, section.text.ends_with("new\n"));
        let merged: Vec<_> = merged.iter().map(of).collect();
        assert_eq!(merged, ["Other crates true", "Latency: a false", "Cost of a post true"]);
    }

    #[test]
    fn what_was_written_is_read_back() {
        let machine = Machine(vec![("system", "x".to_owned())]);
        let old = format!(
            "# B\n\n## Latency: a\n\n{MEASURED}2026-05-01 10:00 UTC. Note.\n\n| a |\n\n## {LIMITS}\n\n- b\n"
        );
        let once = renew(&old, &Data::default(), &machine);
        assert!(
            once.contains("\n## Latency: a\n\nMeasured 2026-05-01 10:00 UTC. Note.\n\n| a |\n"),
            "{once}"
        );
        assert_eq!(renew(&once, &Data::default(), &machine), once);
    }
}
