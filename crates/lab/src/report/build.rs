//! Constructors of a document's parts, and look-ups in a document.

use std::fmt;

use super::model::{
    Axis, Cell, CellKey, Curve, Document, LOOPBACK, LinkSummary, Outcome, Run, Series, Setting, Warning,
    WorkSummary,
};

impl Document {
    /// Returns the cell of a key.
    pub fn cell(&self, key: &CellKey) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.key == *key)
    }

    /// Returns the runs of a cell; none if the cell is missing.
    pub(crate) fn runs(&self, key: &CellKey) -> &[Run] {
        self.cell(key).map_or(&[], |cell| &cell.runs)
    }

    /// Returns the cell with the key of `new`, which is added if there is none: at its place in
    /// `order`, or at the end.
    pub(crate) fn cell_or_add(&mut self, new: Cell, order: &[CellKey]) -> &mut Cell {
        let place = |key: &CellKey| order.iter().position(|known| known == key).unwrap_or(usize::MAX);
        let found = self.cells.iter().position(|cell| cell.key == new.key);
        let at = found.unwrap_or_else(|| {
            let wanted = place(&new.key);
            let at = self.cells.iter().position(|cell| place(&cell.key) > wanted);
            let at = at.unwrap_or(self.cells.len());
            self.cells.insert(at, new);
            at
        });
        &mut self.cells[at]
    }
}

impl CellKey {
    /// Returns a key without a variant.
    pub fn new([link, work, direction, client, server]: [&str; 5]) -> Self {
        Self {
            link: link.to_owned(),
            work: work.to_owned(),
            direction: direction.to_owned(),
            client: client.to_owned(),
            server: server.to_owned(),
            variant: String::new(),
        }
    }

    /// Returns the key with a variant.
    pub(crate) fn with_variant(self, variant: &str) -> Self {
        Self {
            variant: variant.to_owned(),
            ..self
        }
    }
}

impl fmt::Display for CellKey {
    /// Writes `OC3, file100mb, read, ropeway → smbd`, then the variant if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (client, server) = (&self.client, &self.server);
        write!(
            f,
            "{}, {}, {}, {client} → {server}",
            self.link, self.work, self.direction
        )?;
        match self.variant.as_str() {
            "" => Ok(()),
            variant => write!(f, ", {variant}"),
        }
    }
}

impl Run {
    /// Returns a failed run without measurements.
    pub(crate) fn failed(started: String, why: String) -> Self {
        Self::of(started, Outcome::Failed(why), 0.0)
    }

    /// Returns a run with only its end and its time.
    pub(crate) fn of(started: String, outcome: Outcome, whole_seconds: f64) -> Self {
        Self {
            started,
            outcome,
            whole_seconds,
            ..Self::default()
        }
    }

    /// Returns the seconds for comparisons: of the transfer if known, else of the whole process.
    pub fn seconds(&self) -> Option<f64> {
        Some(self.transfer_seconds.unwrap_or(self.whole_seconds))
    }
}

impl LinkSummary {
    /// Whether both describe the same link, so that results of one count for the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.described == other.described && self.kind == other.kind
    }

    /// The loopback or disk of this machine, with no delay, rate or loss added.
    pub(crate) fn of_this_machine(name: &str, congestion: &str, described: String) -> Self {
        Self {
            name: name.to_owned(),
            kind: LOOPBACK.to_owned(),
            congestion: congestion.to_owned(),
            described,
            ..Self::default()
        }
    }
}

impl WorkSummary {
    /// Returns the summary of one file that does not compress.
    pub(crate) fn one_file(name: &str, title: String, bytes: u64) -> Self {
        Self {
            name: name.to_owned(),
            title,
            files: 1,
            folders: 0,
            bytes,
            seed: bytes,
            scale: 1.0,
            lz4_ratio: 1.0,
        }
    }
}

impl Setting {
    /// Returns a setting.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        let (name, value) = (name.into(), value.into());
        Self { name, value }
    }

    /// Returns settings from names and values.
    pub(crate) fn list<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Vec<Self> {
        let settings = pairs.into_iter().map(|(name, value)| Self::new(name, value));
        settings.collect()
    }
}

impl Warning {
    /// Returns a warning about the whole lab.
    pub(crate) fn of_lab(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { cell: None, text }
    }
}

impl Curve {
    /// Returns a plot of lines.
    pub(crate) fn lines(
        id: impl Into<String>,
        title: impl Into<String>,
        [x, y]: [Axis; 2],
        series: Vec<Series>,
    ) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            x,
            y,
            series,
            ..Self::default()
        }
    }
}

impl Axis {
    /// Returns a linear axis without names.
    pub fn new(label: &str, unit: &str) -> Self {
        Self {
            label: label.to_owned(),
            unit: unit.to_owned(),
            ..Self::default()
        }
    }

    /// Returns a logarithmic axis without names.
    pub fn logarithmic(label: &str, unit: &str) -> Self {
        Self {
            logarithmic: true,
            ..Self::new(label, unit)
        }
    }
}

impl Series {
    /// Returns a measured series.
    pub fn measured(name: impl Into<String>, points: Vec<[f64; 2]>) -> Self {
        Self {
            name: name.into(),
            points,
            published: false,
        }
    }

    /// Returns a series that others published.
    pub fn published(name: impl Into<String>, points: Vec<[f64; 2]>) -> Self {
        Self {
            published: true,
            ..Self::measured(name, points)
        }
    }
}
