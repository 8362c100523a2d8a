//! Charts, as SVG. Colours are the page's, by class; every mark tells its value when pointed at.

use std::fmt::Write as _;

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) is_log: bool,
    /// Where the lines are, with their names; None: at round numbers.
    pub(super) ticks: Option<Vec<(f64, String)>>,
}

/// A line.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: String,
    /// The colour.
    pub(super) class: &'static str,
    pub(super) is_dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Bars beside each other, under one name.
#[derive(Debug, Clone)]
pub(super) struct Bars {
    pub(super) name: String,
    /// Name, colour and length of each.
    pub(super) bars: Vec<(String, &'static str, f64)>,
    /// A mark across them.
    pub(super) floor: Option<f64>,
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
/// The frame inside: left, right, top, bottom.
const FRAME: [f64; 4] = [62.0, 492.0, 14.0, 252.0];

/// The range of an axis.
struct Scale {
    is_log: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(is_log: bool, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!is_log || *value > 0.0)).collect();
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        // bars and rates begin at 0; a range of one value gets some room
        let low = if is_log { low } else { 0.0 };
        let high = if high > low { high } else { low * 2.0 + f64::from(low == 0.0) };
        Some(Self { is_log, low, high, from, to })
    }

    fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let part = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        self.from + part * (self.to - self.from)
    }

    /// Round numbers in the range.
    fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = if self.is_log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: &[f64] = if decades.clone().count() > 5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).collect()
        } else {
            let rough = (self.high - self.low) / 5.0;
            let decade = 10f64.powf(rough.log10().floor());
            let step =
                [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|step| *step >= rough);
            let step = step.unwrap_or(rough);
            (0..=6).map(|number| self.low + f64::from(number) * step).collect()
        };
        let inside = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        values.into_iter().filter(inside).map(|value| (value, short(value))).collect()
    }
}

/// A number as short as it can be read.
pub(super) fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn begin(title: &str, height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">\n", escape(title))
}

/// Lines over an axis; nothing if there is no point.
pub(super) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> Option<String> {
    let [left, right, top, bottom] = FRAME;
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let named = x.ticks.iter().flatten().map(|tick| tick.0);
    let across = Scale::new(x.is_log, points().map(|point| point.0).chain(named), left, right)?;
    let up = Scale::new(y.is_log, points().map(|point| point.1), bottom, top)?;
    let mut svg = begin(title, HEIGHT);
    for (value, name) in x.ticks.clone().unwrap_or_else(|| across.ticks()) {
        let at = across.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>"
        );
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            bottom + 17.0
        );
    }
    for (value, name) in y.ticks.clone().unwrap_or_else(|| up.ticks()) {
        let at = up.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            left - 7.0,
            at + 4.0
        );
    }
    for Line { name, class, is_dashed, points } in lines {
        let path: Vec<_> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", across.at(*x), up.at(*y))).collect();
        let dashes = if *is_dashed { " dashed" } else { "" };
        let _ = writeln!(svg, "<polyline class=\"line {class}{dashes}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in points {
            let (at_x, at_y, told) = (across.at(*x), up.at(*y), escape(name));
            let _ = writeln!(
                svg,
                "<circle class=\"dot {class}\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"3\"><title>{told}: {} at {}</title></circle>",
                short(*y),
                short(*x)
            );
        }
    }
    let middle = f64::midpoint(left, right);
    let _ = writeln!(
        svg,
        "<text class=\"label\" x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 10.0,
        escape(x.label)
    );
    let height = f64::midpoint(top, bottom);
    let _ = writeln!(
        svg,
        "<text class=\"label\" transform=\"translate(14 {height}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escape(y.label)
    );
    let keys = lines.iter().map(|line| (line.name.as_str(), line.class, line.is_dashed));
    Some(figure(title, &(svg + "</svg>\n"), keys))
}

/// Bars to the right, a group under the other; nothing if there is none.
pub(super) fn bars(title: &str, unit: &str, groups: &[Bars], keys: &[(&str, &str)]) -> Option<String> {
    const NAMES: f64 = 178.0;
    const THICK: f64 = 13.0;
    const GAP: f64 = 12.0;
    let lengths = groups.iter().flat_map(|group| group.bars.iter().map(|bar| bar.2).chain(group.floor));
    // a colour that stands for several says at the end of each bar whose it is
    let says = |(told, class, length): &(String, &str, f64)| match *class {
        "other" => format!("{} {}", short(*length), escape(told)),
        _ => short(*length),
    };
    let longest = groups.iter().flat_map(|group| &group.bars).map(|bar| says(bar).chars().count()).max()?;
    let across = Scale::new(false, lengths, NAMES, WIDTH - 12.0 - 7.0 * longest as f64)?;
    let height = groups.iter().map(|group| group.bars.len() as f64 * THICK + GAP).sum::<f64>() + 6.0;
    let (mut svg, mut y) = (begin(title, height), 6.0);
    for Bars { name, bars, floor } in groups {
        let tall = bars.len() as f64 * THICK;
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            y + tall / 2.0 + 4.0,
            escape(name)
        );
        for (number, bar) in bars.iter().enumerate() {
            let (told, class, length) = bar;
            let top = y + number as f64 * THICK;
            let wide = (across.at(*length) - NAMES).max(0.5);
            let _ = writeln!(
                svg,
                "<rect class=\"bar {class}\" x=\"{NAMES}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" rx=\"1.5\"><title>{}: {} {unit}</title></rect>",
                THICK - 2.0,
                escape(told),
                short(*length)
            );
            let _ = writeln!(
                svg,
                "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAMES + wide + 5.0,
                top + THICK - 4.0,
                says(bar)
            );
        }
        if let Some(floor) = floor {
            let at = across.at(*floor);
            let _ = writeln!(
                svg,
                "<line class=\"floor\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>floor: {}</title></line>",
                y - 3.0,
                y + tall + 1.0,
                short(*floor)
            );
        }
        y += tall + GAP;
    }
    Some(figure(title, &(svg + "</svg>\n"), keys.iter().map(|(name, class)| (*name, *class, false))))
}

/// The picture under its title, with what the colours mean.
fn figure<'k>(title: &str, svg: &str, keys: impl Iterator<Item = (&'k str, &'k str, bool)>) -> String {
    let keys: String = keys
        .map(|(name, class, is_dashed)| {
            let dashes = if is_dashed { " dashed" } else { "" };
            format!(
                "<span><svg class=\"key\" viewBox=\"0 0 22 10\" aria-hidden=\"true\"><line class=\"line {class}{dashes}\" x1=\"1\" x2=\"21\" y1=\"5\" y2=\"5\"/></svg>{}</span>\n",
                escape(name)
            )
        })
        .collect();
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{svg}<p class=\"keys\">\n{keys}</p>\n</figure>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_still_numbers() {
        let of = [0.0, 0.52, 1.0, 2.5, 33.0, 100.0, 9999.0, 12_345.0, 1_048_576.0].map(short);
        assert_eq!(of, ["0", "0.52", "1", "2.5", "33", "100", "9999", "12.3k", "1.05M"]);
    }

    #[test]
    fn logarithms_are_at_equal_distances() {
        let scale = Scale::new(true, [1.0, 100.0].into_iter(), 0.0, 10.0).unwrap();
        assert!((scale.at(10.0) - 5.0).abs() < 1e-9);
        let names: Vec<_> = scale.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(names, ["1", "2", "5", "10", "20", "50", "100"]);
        assert!(Scale::new(true, [0.0].into_iter(), 0.0, 1.0).is_none(), "0 has no logarithm");
    }

    #[test]
    fn what_has_no_points_has_no_chart() {
        let axis = Axis { label: "", is_log: true, ticks: None };
        let line = |points| Line { name: "a & b".into(), class: "ours", is_dashed: true, points };
        assert_eq!(lines("", &axis, &axis, &[line(Vec::new())]), None);
        assert_eq!(bars("", "", &[], &[]), None);
        let chart = lines("<t>", &axis, &axis, &[line(vec![(1.0, 1.0), (2.0, 3.0)])]).unwrap();
        assert!(chart.contains("a &amp; b: 3 at 2") && chart.contains("&lt;t&gt;") && !chart.contains("NaN"));
        let group =
            Bars { name: "post".into(), bars: vec![("ours".into(), "ours", 25.0)], floor: Some(20.0) };
        assert!(bars("t", "instructions", &[group], &[]).unwrap().contains("ours: 25 instructions"));
    }
}
