//! What a lab is to measure: link x work x direction x client and server, and how often.
//!
//! Scenarios are small TOML files. Those that ship with the program are in [`SHIPPED`]; everything in a file is checked
//! when it is read, and what is wrong is named by its line.

mod file;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

pub use words::{Client, Direction, Pair, Server};

use crate::link::{LinkSpec, Rate};
use crate::work::Work;

/// Scenarios of the program: name and text.
pub const SHIPPED: [(&str, &str); 4] = [
    ("tr3869", include_str!("../../scenarios/tr3869.toml")),
    (
        "tr3869-small-window",
        include_str!("../../scenarios/tr3869-small-window.toml"),
    ),
    ("quick", include_str!("../../scenarios/quick.toml")),
    ("demo", include_str!("../../scenarios/demo.toml")),
];

/// Most cells of a scenario: more would not end.
pub const CELLS_MAX: usize = 4096;

/// A cell longer than this runs once, unless the scenario says otherwise.
pub(crate) const ONCE_ABOVE: Duration = Duration::from_secs(60);

/// A scenario, all of it checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, fit for a folder.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Over what, in the order of the report.
    pub links: Vec<NamedLink>,
    /// What.
    pub works: Vec<Work>,
    /// Which ways.
    pub directions: Vec<Direction>,
    /// By whom, with which server.
    pub pairs: Vec<Pair>,
    /// Runs of each cell, the discarded first one included.
    pub runs: u32,
    /// A cell whose first run, or whose line time, is longer runs once.
    pub once_above: Duration,
    /// How long all of it may take.
    pub budget: Duration,
    /// Sum of the rates of links that are at work at the same time; `None`: one after the other.
    pub side_by_side: Option<Rate>,
    /// Share of the works' full size.
    pub scale: f64,
    /// Works that are smaller or bigger still: what [`Self::scale`] is multiplied by.
    pub scales: BTreeMap<Work, f64>,
    /// What works are made from.
    pub seed: u64,
    /// Whether the published seconds of TR-3869 belong to it.
    pub published: bool,
}

/// A link with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLink {
    /// Fit for a file name.
    pub name: String,
    /// What it is like.
    pub spec: LinkSpec,
}

/// Why a scenario cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct ScenarioError {
    /// File and line.
    pub place: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What can be done.
    pub hint: String,
}

/// What is asked for beside the scenario's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Share of the works' full size.
    pub scale: Option<f64>,
    /// Runs of each cell.
    pub runs: Option<u32>,
    /// How long all of it may take.
    pub budget: Option<Duration>,
    /// Sum of rates at the same time.
    pub side_by_side: Option<Option<Rate>>,
    /// Only these clients.
    pub clients: Vec<Client>,
    /// Only these servers.
    pub servers: Vec<Server>,
    /// Only links of these names.
    pub links: Vec<String>,
    /// These works instead.
    pub works: Vec<Work>,
    /// These directions instead.
    pub directions: Vec<Direction>,
}

impl Scenario {
    /// One that ships with the program.
    pub fn shipped(name: &str) -> Option<Result<Self, ScenarioError>> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        found.map(|(name, text)| Self::parse(&format!("{name}.toml"), text))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        file::parse(file, text)
    }

    /// Share of a work's full size.
    pub fn scale_of(&self, work: Work) -> f64 {
        self.scale * self.scales.get(&work).copied().unwrap_or(1.0)
    }

    /// Cells in all.
    pub fn cells(&self) -> usize {
        self.links.len() * self.works.len() * self.directions.len() * self.pairs.len()
    }

    /// The same with changes.
    ///
    /// # Errors
    /// A change is out of bounds, or leaves nothing to do.
    pub fn with(mut self, changes: &Changes) -> Result<Self, ScenarioError> {
        if let Some(scale) = changes.scale {
            self.scale = words::scale(scale).map_err(|message| ScenarioError::of_flag("--scale", message))?;
        }
        if let Some(runs) = changes.runs {
            self.runs = words::runs(runs).map_err(|message| ScenarioError::of_flag("--runs", message))?;
        }
        if let Some(budget) = changes.budget {
            self.budget =
                words::budget(budget).map_err(|message| ScenarioError::of_flag("--budget", message))?;
        }
        self.side_by_side = changes.side_by_side.unwrap_or(self.side_by_side);
        let has = |pair: &&Pair| {
            (changes.clients.is_empty() || changes.clients.contains(&pair.client))
                && (changes.servers.is_empty() || changes.servers.contains(&pair.server))
        };
        let pairs: Vec<Pair> = self.pairs.iter().filter(has).copied().collect();
        if pairs.is_empty() {
            let names: Vec<String> = self.pairs.iter().map(ToString::to_string).collect();
            return Err(ScenarioError::of_flag(
                "--clients, --servers",
                format!("nothing is left of {}", names.join(", ")),
            ));
        }
        self.pairs = pairs;
        if let Some(odd) = changes
            .links
            .iter()
            .find(|name| !self.links.iter().any(|link| link.name == **name))
        {
            let names: Vec<&str> = self.links.iter().map(|link| link.name.as_str()).collect();
            let message = format!("there is no link {odd:?}; there are {}", names.join(", "));
            return Err(ScenarioError::of_flag("--links", message));
        }
        if !changes.links.is_empty() {
            self.links.retain(|link| changes.links.contains(&link.name));
        }
        let once = |works: &[Work]| {
            let mut kept = Vec::new();
            works.iter().for_each(|work| {
                if !kept.contains(work) {
                    kept.push(*work)
                }
            });
            kept
        };
        if !changes.works.is_empty() {
            self.works = once(&changes.works);
        }
        if !changes.directions.is_empty() {
            self.directions = Direction::ALL
                .into_iter()
                .filter(|direction| changes.directions.contains(direction))
                .collect();
        }
        Ok(self)
    }
}

impl ScenarioError {
    fn of_flag(flag: &str, message: String) -> Self {
        Self {
            place: Some(flag.to_owned()),
            message,
            hint: "`ropeway lab list` shows what scenarios hold".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
