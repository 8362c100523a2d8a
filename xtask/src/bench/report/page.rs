//! The page: one file that needs no other.

use super::chart::{self, Axis, Bars, Line, escape};
use super::data::{Data, Place, Row};
use super::machine::Machine;
use super::table::{self, Table};

const STYLE: &str = include_str!("page.css");

const OURS: (&str, &str) = ("ibv", "ours");
const THEIRS: (&str, &str) = ("C", "theirs");
const DIRECT: (&str, &str) = ("ibv, direct", "green");
const FLOOR: (&str, &str) = ("floor", "floor");

/// All of it.
pub(super) fn page(data: &Data, machine: &Machine) -> String {
    let titles: Vec<_> = super::tables(data).into_iter().map(|table| table.title).collect();
    let facts: Vec<_> = machine.0.iter().map(|(name, value)| format!("{name}: {}", escape(value))).collect();
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>What ibv costs</title>\n<style>\n{STYLE}</style>\n<h1>What ibv costs</h1>\n\
         <p class=\"lead soft\">{}</p>\n",
        facts.join(" · ")
    );
    let mut section = |title: &str, about: &str, charts: Vec<Option<String>>, tables: Vec<Table>| {
        let charts: String = charts.into_iter().flatten().collect();
        if charts.is_empty() && tables.is_empty() {
            return;
        }
        html += &format!(
            "<h2>{}</h2>\n<p class=\"soft\">{about}</p>\n<div class=\"grid-of\">\n{charts}</div>\n",
            escape(title)
        );
        for table in tables {
            html += &format!(
                "<details><summary>{}: the numbers</summary>\n<p class=\"soft\">{}</p>\n{}</details>\n",
                escape(&table.title),
                escape(&table.note),
                table.to_html()
            );
        }
    };
    let counts = table::groups(&data.counts).into_iter().map(|(group, rows)| instructions(&group, &rows));
    section(
        "Instructions",
        "Of one request or completion, counted exactly. Shorter is better.",
        counts.flatten().chain([peers(&data.peers)]).collect(),
        table::counts(data).into_iter().chain(table::peers(data)).chain(table::nanoseconds(data)).collect(),
    );
    for place in &data.latency {
        section(
            &format!("Latency: {}", place.name),
            "Two processes, in turns with C's two; lower is better.",
            vec![against_size(place, false), against_size(place, true)]
                .into_iter()
                .chain(curves(place))
                .chain([computed(place)])
                .collect(),
            table::latency(place).into_iter().collect(),
        );
    }
    for place in &data.bandwidth {
        section(
            &format!("Rate: {}", place.name),
            "Messages a second over so many queue pairs; higher is better.",
            rates(place),
            table::bandwidth(place).into_iter().collect(),
        );
    }
    section(
        "Cost of a post as things grow",
        "The least of many samples, through libmlx5; nothing is executed meanwhile. What has to be flat is the distance.",
        growth(&data.scaling),
        table::scaling(data).into_iter().collect(),
    );
    let limits: String =
        super::limits(&titles).iter().map(|limit| format!("<li>{}</li>\n", escape(limit))).collect();
    html + "<h2>What can't be concluded</h2>\n<ul>\n" + &limits + "</ul>\n</html>\n"
}

/// More than that, and the others would be too short to see.
const COLD: f64 = 1000.0;

/// The data path, and what is done once.
fn instructions(group: &str, rows: &[&Row]) -> [Option<String>; 2] {
    let bars = |row: &&Row| {
        let sides = [OURS, THEIRS].into_iter().zip(["ours", "theirs"]);
        let bars = sides
            .filter_map(|((name, class), side)| Some((name.to_owned(), class, row.number(side)?)))
            .collect();
        Bars { name: row.name(), bars, floor: row.number("floor") }
    };
    let (cold, hot): (Vec<&Row>, Vec<_>) =
        rows.iter().copied().partition(|row| row.number("ours").is_some_and(|count| count > COLD));
    let chart = |what: &str, rows: &[&Row]| {
        let groups: Vec<_> = rows.iter().map(bars).collect();
        let mut keys = vec![OURS, THEIRS];
        if groups.iter().any(|group| group.floor.is_some()) {
            keys.push(FLOOR);
        }
        chart::bars(&format!("{what}{}", table::title(group)), "instructions", &groups, &keys)
    };
    [chart("Instructions, ", &hot), chart("Instructions to set up, ", &cold)]
}

/// The other crates, an operation after the other.
fn peers(rows: &[Row]) -> Option<String> {
    let mut groups: Vec<Bars> = Vec::new();
    for row in rows {
        let Some(count) = row.number("instructions") else { continue };
        let who = row.text("crate").unwrap_or_default();
        let class = match who.as_str() {
            "ibv" => "ours",
            "C" => "theirs",
            _ => "other",
        };
        let bar = (who, class, count);
        match groups.iter_mut().find(|group| group.name == row.name()) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Bars { name: row.name(), bars: vec![bar], floor: None }),
        }
    }
    chart::bars(
        "Instructions: other crates",
        "instructions",
        &groups,
        &[OURS, THEIRS, ("other crates", "other")],
    )
}

/// Bytes of the messages that charts without a size are about: a word of the atomics, a cache line of the others.
fn is_small(row: &Row) -> bool {
    row.number("bytes").is_some_and(|bytes| (8.0..=64.0).contains(&bytes))
}

fn microseconds(label: &'static str) -> Axis {
    Axis { label, is_log: true, ticks: None }
}

fn sizes() -> Axis {
    let ticks = [(2, "2"), (64, "64"), (1024, "1 Ki"), (4096, "4 Ki"), (65536, "64 Ki"), (1 << 20, "1 Mi")];
    let ticks = ticks.map(|(size, name)| (f64::from(size), name.to_owned())).to_vec();
    Axis { label: "bytes", is_log: true, ticks: Some(ticks) }
}

/// Whether a row is of this operation, and polls or sleeps so, and gathers its message from a region.
fn is_plain(row: &Row, operation: &str) -> bool {
    row.text("operation").as_deref() == Some(operation)
        && !["inline", "events", "direct"].iter().any(|special| row.is(special))
}

const OPERATIONS: [&str; 4] = ["SEND", "WRITE", "READ", "TCP"];

/// Medians against the size: all of ours, or each beside C's.
fn against_size(place: &Place, beside_c: bool) -> Option<String> {
    let median = |operation: &str, who: &str| -> Vec<(f64, f64)> {
        let rows = place.rows.iter().filter(|row| is_plain(row, operation));
        rows.filter_map(|row| Some((row.number("bytes")?, row.number(&format!("{who}/p50"))?))).collect()
    };
    let classes = ["ours", "green", "rose", "tcp"];
    let mut lines = Vec::new();
    for (operation, class) in OPERATIONS.into_iter().zip(classes) {
        if beside_c && operation == "TCP" {
            continue;
        }
        lines.push(Line {
            name: operation.to_owned(),
            class,
            is_dashed: false,
            points: median(operation, "ours"),
        });
        if beside_c {
            let name = format!("{operation}, C");
            lines.push(Line { name, class, is_dashed: true, points: median(operation, "theirs") });
        }
    }
    lines.retain(|line| !line.points.is_empty());
    let title = if beside_c {
        "Median latency against size, beside C"
    } else {
        "Median latency against size, with TCP"
    };
    chart::lines(title, &sizes(), &microseconds("µs"), &lines)
}

/// Percentiles of the small messages of each operation, beside C.
fn curves(place: &Place) -> Vec<Option<String>> {
    let names = ["50", "90", "99", "99.9", "99.99"];
    // by what is beyond: 1 in 2, 1 in 10, …
    let beyond = |percent: f64| 1.0 / (1.0 - percent / 100.0);
    let ticks = names.iter().filter_map(|name| Some((beyond(name.parse().ok()?), format!("{name} %"))));
    let x = Axis { label: "percentile", is_log: true, ticks: Some(ticks.collect()) };
    let chart = |operation: &&str| {
        let is_its = |row: &&Row| {
            let is_special = row.is("inline") || row.is("direct");
            row.text("operation").as_deref() == Some(operation) && is_small(row) && !is_special
        };
        let mut lines = Vec::new();
        for row in place.rows.iter().filter(is_its) {
            let is_dashed = row.is("events");
            let how = if is_dashed { "events" } else { "polling" };
            let mut line = |name: &str, class, field| {
                let points: Vec<_> =
                    row.points(field).into_iter().map(|(percent, value)| (beyond(percent), value)).collect();
                if !points.is_empty() {
                    lines.push(Line { name: format!("{name}, {how}"), class, is_dashed, points });
                }
            };
            if *operation == "TCP" {
                line("TCP", "tcp", "ours/curve");
            } else {
                line(OURS.0, OURS.1, "ours/curve");
                line(&row.text("program").unwrap_or_default(), THEIRS.1, "theirs/curve");
            }
        }
        chart::lines(&format!("{operation}: percentiles"), &x, &microseconds("µs"), &lines)
    };
    ["SEND", "WRITE", "READ", "FETCH_ADD", "CMP_SWP", "TCP"].iter().map(chart).collect()
}

/// What the processors did for a round trip of 64 bytes.
fn computed(place: &Place) -> Option<String> {
    let rows = place.rows.iter().filter(|row| !row.is("inline") && is_small(row));
    let bars = rows.filter_map(|row| {
        let class = if row.text("operation").as_deref() == Some("TCP") { "tcp" } else { "ours" };
        let bar = (row.name(), class, row.number("ours/computed")?);
        Some(Bars { name: row.name(), bars: vec![bar], floor: None })
    });
    let bars: Vec<_> = bars.collect();
    chart::bars(
        "Processor time of a round trip, both sides, µs",
        "µs",
        &bars,
        &[("RDMA", "ours"), ("TCP", "tcp")],
    )
}

fn queues() -> Axis {
    let ticks = [1, 4, 16, 64].map(|count| (f64::from(count), count.to_string())).to_vec();
    Axis { label: "queue pairs", is_log: true, ticks: Some(ticks) }
}

fn rates(place: &Place) -> Vec<Option<String>> {
    let mut sizes: Vec<f64> = place.rows.iter().filter_map(|row| row.number("bytes")).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let chart = |bytes: f64| {
        let of = |who: &str| -> Vec<(f64, f64)> {
            let rows =
                place.rows.iter().filter(|row| is_plain(row, "WRITE") && row.number("bytes") == Some(bytes));
            rows.filter_map(|row| Some((row.number("queues")?, row.number(who)?))).collect()
        };
        let mut lines = Vec::new();
        for ((name, class), who) in [OURS, THEIRS].into_iter().zip(["ours", "theirs"]) {
            lines.push(Line { name: name.to_owned(), class, is_dashed: false, points: of(who) });
        }
        lines.retain(|line| !line.points.is_empty());
        let y = Axis { label: "messages a second", is_log: false, ticks: None };
        chart::lines(&format!("WRITE of {bytes} bytes"), &queues(), &y, &lines)
    };
    sizes.into_iter().map(chart).collect()
}

/// One chart for each thing that grows.
fn growth(rows: &[Row]) -> Vec<Option<String>> {
    let mut things: Vec<String> = rows.iter().filter_map(|row| row.text("what")).collect();
    things.dedup();
    let chart = |what: &String| {
        let rows: Vec<_> = rows.iter().filter(|row| row.text("what").as_ref() == Some(what)).collect();
        let line = |(name, class): (&str, &'static str), field: &str| Line {
            name: name.to_owned(),
            class,
            is_dashed: false,
            points: rows.iter().filter_map(|row| Some((row.number("value")?, row.number(field)?))).collect(),
        };
        let mut lines = vec![line(OURS, "ours/0"), line(THEIRS, "theirs/0"), line(DIRECT, "direct/0")];
        lines.retain(|line| !line.points.is_empty());
        let ticks =
            rows.iter().filter_map(|row| row.number("value")).map(|value| (value, chart::short(value)));
        let x = Axis { label: "", is_log: true, ticks: Some(ticks.collect()) };
        chart::lines(
            &format!("Nanoseconds of a post: {what}"),
            &x,
            &Axis { label: "ns", is_log: false, ticks: None },
            &lines,
        )
    };
    things.iter().map(chart).collect()
}
