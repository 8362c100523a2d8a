//! What was measured: lines of JSON in `ibv-bench` of Cargo's folder, which the benchmarks wrote.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

use super::machine;

/// Everything that there is.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Instructions beside C's.
    pub(super) counts: Rows,
    /// Nanoseconds beside C's.
    pub(super) nanoseconds: Rows,
    /// Instructions of other crates.
    pub(super) peers: Rows,
    /// How the cost of a post grows.
    pub(super) scaling: Rows,
    /// Latencies, by place.
    pub(super) latency: Vec<Place>,
    /// Messages a second, by place.
    pub(super) bandwidth: Vec<Place>,
}

/// What was measured at one place.
#[derive(Debug)]
pub(super) struct Place {
    /// The device, and where it is.
    pub(super) name: String,
    pub(super) rows: Rows,
}

/// The rows of a file.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) all: Vec<Row>,
    /// When it was written.
    pub(super) measured: String,
}

impl std::ops::Deref for Rows {
    type Target = [Row];

    fn deref(&self) -> &[Row] {
        &self.all
    }
}

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Row(Value);

impl Data {
    /// Reads what there is; what is missing is empty.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let rows = |name: &str| read(&folder.join(name));
        Ok(Self {
            counts: rows("counts.json")?,
            nanoseconds: rows("ns.json")?,
            peers: rows("peers.json")?,
            scaling: rows("scaling.json")?,
            latency: places(folder, "latency")?,
            bandwidth: places(folder, "bandwidth")?,
        })
    }
}

/// The files `WHAT.PLACE.json`, each of which begins with the place.
fn places(folder: &Path, what: &str) -> Result<Vec<Place>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.strip_prefix(what).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".json"))
    });
    files.sort();
    let mut places = Vec::new();
    for file in files {
        let mut rows = read(&file)?;
        let name = rows.first().and_then(|row| row.text("place")).unwrap_or_default();
        if rows.len() > 1 {
            rows.all.remove(0);
            places.push(Place { name, rows });
        }
    }
    Ok(places)
}

fn read(file: &Path) -> Result<Rows> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(Rows::default()) };
    let rows = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| Ok(Row(serde_json::from_str(line)?)))
        .collect::<Result<_>>();
    let all = rows.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Rows { all, measured: machine::date(Some(file)) })
}

impl Row {
    #[cfg(test)]
    pub(super) fn new(line: Value) -> Self {
        Self(line)
    }

    /// A field, by JSON pointer without the first slash.
    fn at(&self, path: &str) -> Option<&Value> {
        self.0.pointer(&format!("/{path}"))
    }

    pub(super) fn number(&self, path: &str) -> Option<f64> {
        self.at(path)?.as_f64()
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(self.at(path)?.as_str()?.to_owned())
    }

    pub(super) fn is(&self, path: &str) -> bool {
        self.at(path).and_then(Value::as_bool).unwrap_or_default()
    }

    /// Pairs of numbers.
    pub(super) fn points(&self, path: &str) -> Vec<(f64, f64)> {
        let points = self.at(path).and_then(Value::as_array).into_iter().flatten();
        points.filter_map(|point| Some((point.get(0)?.as_f64()?, point.get(1)?.as_f64()?))).collect()
    }

    pub(super) fn name(&self) -> String {
        self.text("name").unwrap_or_default()
    }

    /// Of a pair: the ratio to C, if anything follows from it.
    pub(super) fn verdict(&self) -> Verdict {
        let pair = |field: &str| self.number(&format!("pairs/{field}"));
        match (pair("ratio"), pair("low"), pair("high"), pair("spread")) {
            (Some(ratio), Some(low), Some(high), Some(spread)) => {
                Verdict::Pairs { ratio, low, high, spread, is_conclusive: self.is("pairs/conclusive") }
            }
            _ => Verdict::Alone(self.text("alone")),
        }
    }
}

/// What pairs with C came to.
pub(super) enum Verdict {
    Pairs {
        ratio: f64,
        low: f64,
        high: f64,
        spread: f64,
        is_conclusive: bool,
    },
    /// There is no C beside it, for this reason.
    Alone(Option<String>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_rows_and_places_are_files() {
        let folder = std::env::temp_dir().join(format!("ibv-xtask-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let latency = "{\"place\":\"here\"}\n{\"name\":\"SEND 64\",\"ours\":{\"p50\":1.5,\"curve\":[[0,1],[50,1.5]]},\
                       \"pairs\":{\"ratio\":1.01,\"low\":1.0,\"high\":1.1,\"spread\":0.01,\"conclusive\":true}}\n";
        fs::write(folder.join("latency.soft.json"), latency).unwrap();
        fs::write(folder.join("counts.json"), "\n{\"name\":\"post\",\"ours\":25,\"ok\":true}\n").unwrap();
        let data = Data::read(&folder).unwrap();
        fs::write(folder.join("peers.json"), "{").unwrap();
        let broken = Data::read(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let [place] = &data.latency[..] else { panic!("{data:?}") };
        assert!(place.rows.measured.ends_with(" UTC"), "{place:?}");
        let [row] = &place.rows[..] else { panic!("{data:?}") };
        assert_eq!((place.name.as_str(), row.name().as_str()), ("here", "SEND 64"));
        assert_eq!(row.number("ours/p50"), Some(1.5));
        assert_eq!(row.points("ours/curve"), [(0.0, 1.0), (50.0, 1.5)]);
        assert!(matches!(row.verdict(), Verdict::Pairs { is_conclusive: true, .. }));
        assert!(data.counts[0].is("ok") && data.peers.is_empty() && data.bandwidth.is_empty());
        assert!(broken.is_err(), "a broken file is not an empty one");
    }
}
