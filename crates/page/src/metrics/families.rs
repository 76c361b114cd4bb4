//! Families of metrics, and the two formats that scrapers read: Prometheus' text format 0.0.4 and
//! OpenMetrics 1.0.0.

use std::fmt::Write as _;

use hyper::header::HeaderValue;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text format.
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

/// Metrics of a process, with their rows.
#[derive(Default)]
pub(crate) struct Families(Vec<Family>);

struct Family {
    name: String,
    kind: &'static str,
    help: String,
    /// What stands after the name, and the values.
    rows: Vec<(String, f64)>,
}

impl Format {
    /// Returns the format that a scraper asks for.
    pub(crate) fn wanted(accept: Option<&HeaderValue>) -> Self {
        let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        let mut kinds = accept.split(',').filter(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            let is_it = parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case("application/openmetrics-text"));
            let is_refused = parts.any(|part| {
                let quality = part.strip_prefix("q=").and_then(|value| value.parse().ok());
                quality.is_some_and(|quality: f64| quality <= 0.0)
            });
            is_it && !is_refused
        });
        match kinds.next() {
            Some(_) => Self::OpenMetrics,
            None => Self::Text,
        }
    }

    /// Returns the content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Families {
    /// Adds a metric with one row.
    pub(super) fn add(&mut self, name: &str, kind: &'static str, help: &str, labels: &str, value: f64) {
        self.add_rows(name, kind, help, [(labels.to_owned(), value)].into_iter());
    }

    /// Adds a metric with a row for each set of labels; nothing without rows.
    pub(super) fn add_rows(
        &mut self,
        name: &str,
        kind: &'static str,
        help: &str,
        rows: impl Iterator<Item = (String, f64)>,
    ) {
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            self.0.push(Family {
                name: name.to_owned(),
                kind,
                help: help.to_owned(),
                rows,
            });
        }
    }

    /// Returns the text.
    pub(crate) fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for family in &self.0 {
            let (name, kind) = match format {
                Format::Text => (family.name.as_str(), family.kind),
                Format::OpenMetrics => self.open_name(family),
            };
            family.write(name, kind, format, &mut text);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    /// Returns name and kind as OpenMetrics has them: without the suffix of the rows.
    fn open_name<'a>(&self, family: &'a Family) -> (&'a str, &'static str) {
        let name = family.name.as_str();
        match (
            family.kind,
            name.strip_suffix("_info"),
            name.strip_suffix("_total"),
        ) {
            ("gauge", Some(short), _) => (short, "info"),
            // A gauge may have the name already: then this is no counter to OpenMetrics.
            ("counter", _, Some(short)) if self.0.iter().all(|other| other.name != short) => {
                (short, "counter")
            }
            ("counter", ..) => (name, "unknown"),
            (kind, ..) => (name, kind),
        }
    }
}

impl Family {
    fn write(&self, name: &str, kind: &str, format: Format, text: &mut String) {
        // Writing to a string does not fail.
        _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", self.help);
        let units = ["bytes", "seconds", "ratio"];
        let unit = units
            .into_iter()
            .find(|unit| name.strip_suffix(unit).is_some_and(|head| head.ends_with('_')));
        if let (Format::OpenMetrics, Some(unit)) = (format, unit) {
            _ = writeln!(text, "# UNIT {name} {unit}");
        }
        for (labels, value) in &self.rows {
            _ = writeln!(text, "{}{labels} {}", self.name, number(*value));
        }
    }
}

/// Returns labels in braces, with their values escaped.
pub(super) fn labels(all: &[(&str, &str)]) -> String {
    let escaped = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let all: Vec<String> = all
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", all.join(","))
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value == f64::INFINITY => "+Inf".to_owned(),
        value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}
