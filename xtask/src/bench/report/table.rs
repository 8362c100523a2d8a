//! Tables: once for the page, once for the Markdown.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::super::counts;
use super::chart::escape;
use super::data::{Data, Place, Row, Rows, Verdict};

/// A table under a heading.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    /// How it is to be read.
    pub(super) note: Cow<'static, str>,
    /// What follows from it, if it is to be said in words.
    pub(super) conclusion: Option<String>,
    /// When.
    pub(super) measured: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// What says that there is no number.
const NONE: &str = "–";

impl Table {
    pub(super) fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|name| (*name).to_owned()).collect());
        let rules = self.columns.iter().enumerate();
        text += &line(rules.map(|(at, _)| if at == 0 { "---" } else { "---:" }.to_owned()).collect());
        // a bar would end the cell
        text.extend(
            self.rows.iter().map(|row| line(row.iter().map(|cell| cell.replace('|', "\\|")).collect())),
        );
        text
    }

    pub(super) fn to_html(&self) -> String {
        let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            let cells: String = cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let mut html = "<div class=\"wide\"><table>\n".to_owned();
        html += &line("th", &mut self.columns.iter().copied());
        for row in &self.rows {
            let _ = write!(html, "{}", line("td", &mut row.iter().map(String::as_str)));
        }
        html + "</table></div>\n"
    }

    fn new(
        title: String,
        note: impl Into<Cow<'static, str>>,
        columns: &[&'static str],
        rows: Vec<Vec<String>>,
        of: &Rows,
    ) -> Option<Self> {
        let (conclusion, measured, columns) = (None, of.measured.clone(), columns.to_vec());
        let note = note.into();
        (!rows.is_empty()).then_some(Self { title, note, conclusion, measured, columns, rows })
    }
}

/// With so many digits after the point; nothing needless.
fn number(value: Option<f64>, digits: usize) -> String {
    let Some(value) = value else { return NONE.to_owned() };
    let text = format!("{value:.digits$}");
    // instructions are whole, mostly
    match text.split_once('.') {
        Some((whole, rest)) if digits == 1 && rest == "0" => whole.to_owned(),
        _ => text,
    }
}

/// In microseconds: three digits that count.
fn time(value: Option<f64>) -> String {
    number(value, if value.is_some_and(|value| value >= 100.0) { 0 } else { 2 })
}

/// Instructions: one table a group.
pub(super) fn counts(data: &Data) -> Vec<Table> {
    let columns = ["", "ours", "C", "ours / C", "bar", "floor"];
    groups(&data.counts)
        .into_iter()
        .filter_map(|(group, rows)| {
            let cells = |row: &Row| {
                let of = |field| number(row.number(field), 1);
                let ratio = number(row.number("ratio"), 2);
                vec![row.name(), of("ours"), of("theirs"), ratio, of("bar"), of("floor")]
            };
            let conclusion = bars(&rows);
            let cells = rows.into_iter().map(cells).collect();
            let title = format!("Instructions, {}", title(&group));
            let table = Table::new(title, counts::about(&group), &columns, cells, &data.counts)?;
            Some(Table { conclusion: Some(conclusion), ..table })
        })
        .collect()
}

/// Other crates.
pub(super) fn peers(data: &Data) -> Option<Table> {
    let cells = |row: &Row| {
        // ours and C have no version here
        let who = [row.text("crate"), row.text("version")].map(Option::unwrap_or_default).join(" ");
        let who = who.trim().to_owned();
        vec![row.name(), who, number(row.number("instructions"), 1), number(row.number("allocations"), 1)]
    };
    let rows = data.peers.iter().map(cells).collect();
    let note = "The same loops through other crates, and ours, in one harness (`benches/peers`) and through the same \
                libmlx5. C's are counted of its own program, and its allocations not. Ours may have no more instructions \
                than the best of the others. In the rows `wr_…` ours promises, once for the queue pair and by an unsafe \
                call (`trust_wr`), what the others do by an unsafe post: that it is not full. What it costs without is \
                `untrusted_…` above."
        .to_owned();
    let columns = ["", "crate", "instructions", "allocations"];
    Table::new("Other crates".into(), note, &columns, rows, &data.peers)
}

/// Nanoseconds beside C's.
pub(super) fn nanoseconds(data: &Data) -> Option<Table> {
    let cells = |row: &Row| {
        let pair = |who: &str| {
            let of = |field: &str| number(row.number(&format!("{who}/{field}")), 1);
            format!("{} / {}", of("min"), of("median"))
        };
        let ratio = match row.is("conclusive") {
            true => [row.number("ratio_min"), row.number("ratio_median")]
                .map(|ratio| number(ratio, 2))
                .join(" / "),
            false => {
                format!("inconclusive: C differs by {} %", number(row.number("spread").map(|s| s * 100.0), 0))
            }
        };
        let group = row.text("group").unwrap_or_default();
        vec![format!("{}: {}", title(&group), row.name()), pair("ours"), pair("theirs"), ratio]
    };
    let note = "Least and median of interleaved samples.";
    let rows = data.nanoseconds.iter().map(cells).collect();
    Table::new("Nanoseconds".into(), note, &["", "ours", "C", "ours / C"], rows, &data.nanoseconds)
}

/// How a post grows.
pub(super) fn scaling(data: &Data) -> Option<Table> {
    let cells = |row: &Row| {
        let of = |who: &str, at: usize| row.number(&format!("{who}/{at}"));
        let pair = |who| format!("{} / {}", number(of(who, 0), 1), number(of(who, 1), 1));
        let ratio = |at| number(of("ours", at).zip(of("theirs", at)).map(|(ours, theirs)| ours / theirs), 2);
        let name = format!("{} {}", number(row.number("value"), 0), row.text("what").unwrap_or_default());
        vec![name, pair("ours"), pair("theirs"), format!("{} / {}", ratio(0), ratio(1)), pair("direct")]
    };
    let note = "Nanoseconds of a post through libmlx5 (`direct`: without it), least and median; nothing is executed \
                meanwhile. What more memory costs C pays too: what has to be flat is the ratio.";
    let rows = data.scaling.iter().map(cells).collect();
    Table::new(
        "Cost of a post as things grow".into(),
        note,
        &["", "ours", "C", "ours / C", "ours, direct"],
        rows,
        &data.scaling,
    )
}

/// Latencies at a place.
pub(super) fn latency(place: &Place) -> Option<Table> {
    let mut rows = Vec::new();
    for row in &*place.rows {
        let mut line = |name: String, who: &str, verdict: String| {
            let of = |field: &str| time(row.number(&format!("{who}/{field}")));
            let mut cells = vec![name];
            cells.extend(["p50", "p90", "p99", "p99.9", "p99.99", "computed"].map(of));
            cells.push(verdict);
            rows.push(cells);
        };
        line(row.name(), "ours", verdict(row));
        if let Some(program) = row.text("program") {
            line(format!("· {program}"), "theirs", String::new());
        }
    }
    let note = "Microseconds: half a round trip of SEND, WRITE and TCP, a whole one of the others. `computed` is what the \
                processors of both sides did for a round trip. The ratio is the median of those \
                of pairs of runs, each of which counts with the mean of its middle half, with the interval that it is in with \
                95 % certainty (of fewer than six pairs: their extremes).";
    let columns = ["", "p50", "p90", "p99", "p99.9", "p99.99", "computed", "ours / C"];
    let table = Table::new(format!("Latency: {}", place.name), note, &columns, rows, &place.rows)?;
    Some(Table { conclusion: Some(conclusions(&place.rows)), ..table })
}

/// Rates at a place.
pub(super) fn bandwidth(place: &Place) -> Option<Table> {
    let cells = |row: &Row| {
        let rate = |who| number(row.number(who).map(|rate| rate / 1e6), 4);
        let bytes = row.number("ours").zip(row.number("bytes")).map(|(rate, bytes)| rate * bytes / 1e6);
        vec![row.name(), rate("ours"), rate("theirs"), number(bytes, 0), verdict(row)]
    };
    let note = "Millions of messages a second; more than 1 is better than C.";
    let columns = ["", "ours", "C", "ours, MB/s", "ours / C"];
    let rows = place.rows.iter().map(cells).collect();
    let table = Table::new(format!("Rate: {}", place.name), note, &columns, rows, &place.rows)?;
    Some(Table { conclusion: Some(conclusions(&place.rows)), ..table })
}

/// How many rows are as they should be.
fn bars(rows: &[&Row]) -> String {
    let failed: Vec<_> = rows.iter().filter(|row| !row.is("ok")).map(|row| row.name()).collect();
    let (ok, all) = (rows.len() - failed.len(), rows.len());
    let others =
        if failed.is_empty() { String::new() } else { format!(" The others: {}.", failed.join(", ")) };
    format!("{ok} of {all} rows are within their bars, and as committed.{others}")
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
            "{} of {all} rows beside C are conclusive, with ratios from {least:.3} to {most:.3}, median {median:.3}.",
            ratios.len()
        ),
        _ => format!("none of {all} rows beside C is conclusive."),
    }
}

fn verdict(row: &Row) -> String {
    match row.verdict() {
        Verdict::Pairs { ratio, low, high, is_conclusive: true, .. } => {
            format!("{ratio:.3} ({low:.3} to {high:.3})")
        }
        Verdict::Pairs { spread, .. } => format!("inconclusive: C differs by {:.0} %", spread * 100.0),
        Verdict::Alone(_) if row.text("failed").is_some() => "failed".into(),
        Verdict::Alone(_) if row.text("operation").as_deref() == Some("TCP") => String::new(),
        Verdict::Alone(Some(_)) => "C's program fails here".into(),
        Verdict::Alone(None) => NONE.into(),
    }
}

/// What a group of counts is about.
pub(super) fn title(group: &str) -> &str {
    match group {
        "null" => "on a provider that does nothing",
        "libmlx5" => "through libmlx5",
        "direct" => "the direct path, beside libmlx5",
        other => other,
    }
}

/// The rows of each group, in the order in which they first occur.
pub(super) fn groups(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = row.text("group").unwrap_or_default();
        match groups.iter_mut().find(|(group, _)| *group == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
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
            "3 of 4 rows beside C are conclusive, with ratios from 0.990 to 1.030, median 1.010."
        );
        assert_eq!(conclusions(&rows[1..2]), "none of 1 rows beside C is conclusive.");
    }

    #[test]
    fn a_table_is_one_in_both_languages() {
        let rows = vec![vec!["a|b".to_owned(), "1 < 2".to_owned()]];
        let table = Table::new("t".into(), "", &["", "x"], rows, &Rows::default()).unwrap();
        assert_eq!(table.to_markdown(), "|  | x |\n| --- | ---: |\n| a\\|b | 1 < 2 |\n");
        assert!(table.to_html().contains("<td>a|b</td><td>1 &lt; 2</td>"));
        assert!(
            Table::new("t".into(), "", &[""], Vec::new(), &Rows::default()).is_none(),
            "what was not measured has no table"
        );
    }

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        assert_eq!([number(Some(22.0), 1), number(Some(12.625), 1), number(None, 1)], ["22", "12.6", NONE]);
        assert_eq!([time(Some(3.456)), time(Some(345.6))], ["3.46", "346"]);
    }
}
