//! Scenarios: what a lab measures (link x work x direction x client and server), and how often.
//!
//! A scenario is a small TOML file. [`SHIPPED`] holds those of the program. Everything in a file is
//! checked when it is read; an error names the line.

mod file;
mod values;

use std::collections::BTreeMap;
use std::time::Duration;

pub use values::{Client, Direction, Pair, Protection, Server};

use crate::link::{LinkSpec, Rate};
use crate::work::Work;

/// Scenarios that ship with the program: name and text.
pub const SHIPPED: [(&str, &str); 11] = [
    ("tr3869", include_str!("../../scenarios/tr3869.toml")),
    (
        "tr3869-small-window",
        include_str!("../../scenarios/tr3869-small-window.toml"),
    ),
    ("tr3869-eras", include_str!("../../scenarios/tr3869-eras.toml")),
    (
        "tr3869-requests",
        include_str!("../../scenarios/tr3869-requests.toml"),
    ),
    ("far", include_str!("../../scenarios/far.toml")),
    ("quick", include_str!("../../scenarios/quick.toml")),
    ("demo", include_str!("../../scenarios/demo.toml")),
    ("wan", include_str!("../../scenarios/wan.toml")),
    ("smb", include_str!("../../scenarios/smb.toml")),
    ("server", include_str!("../../scenarios/server.toml")),
    ("mount", include_str!("../../scenarios/mount.toml")),
];

/// Largest number of cells of a scenario: more would not end.
pub const CELLS_MAX: usize = 4096;

/// Default time above which a cell runs once.
pub(crate) const ONCE_ABOVE: Duration = Duration::from_secs(60);

/// A checked scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name, fit for a folder.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Links, in the order of the report.
    pub links: Vec<NamedLink>,
    /// Works that are copied or listed.
    pub works: Vec<Work>,
    /// Directions of the works.
    pub directions: Vec<Direction>,
    /// Clients with their servers.
    pub pairs: Vec<Pair>,
    /// Number of runs of each cell, with the discarded first run.
    pub runs: u32,
    /// A cell whose first run or line time is longer runs once.
    pub once_above: Duration,
    /// Longest time of the whole lab.
    pub budget: Duration,
    /// Largest sum of the rates of links in use at the same time; `None` for one link at a time.
    pub side_by_side: Option<Rate>,
    /// Share of the works' full size.
    pub scale: f64,
    /// Further factors of single works, by which [`Self::scale`] is multiplied.
    pub scales: BTreeMap<Work, f64>,
    /// Seed of the works.
    pub seed: u64,
    /// Whether the report shows the published seconds of TR-3869.
    pub published: bool,
    /// Whether the report shows the requests a second that `ropeway serve` gets from each client.
    pub requests: bool,
    /// Longest time of a run, where it is less than the group's own limit.
    pub limit: Option<Duration>,
    /// Flags of `ropeway copy`.
    pub ropeway_flags: Vec<String>,
}

/// A named link of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedLink {
    /// Name, fit for a file name.
    pub name: String,
    /// Delay, rate and TCP settings. Unused on the loopback.
    pub spec: LinkSpec,
    /// Whether it is this machine's loopback: no emulation, no proof, no floor.
    pub loopback: bool,
    /// What servers demand on it; `None` for their defaults.
    pub protection: Option<Protection>,
    /// Works that go over it; `None` for all works of the scenario.
    pub works: Option<Vec<Work>>,
    /// Clients with their servers that are measured on it; `None` for all pairs of the scenario.
    pub pairs: Option<Vec<Pair>>,
}

impl NamedLink {
    /// Whether a client with its server is measured on this link.
    pub fn has(&self, pair: Pair) -> bool {
        self.pairs.as_ref().is_none_or(|pairs| pairs.contains(&pair))
    }

    /// Whether a work goes over this link.
    pub fn carries(&self, work: Work) -> bool {
        self.works.as_ref().is_none_or(|works| works.contains(&work))
    }
}

/// A scenario is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
pub struct ScenarioError {
    /// File and line, or the flag.
    pub place: Option<String>,
    /// The fault.
    pub message: String,
    /// Advice for the user.
    pub hint: String,
}

/// Changes that the caller makes to a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Share of the works' full size.
    pub scale: Option<f64>,
    /// Number of runs of each cell.
    pub runs: Option<u32>,
    /// Longest time of the whole lab.
    pub budget: Option<Duration>,
    /// Largest sum of rates at the same time.
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
    /// Returns a scenario that ships with the program.
    pub fn shipped(name: &str) -> Option<Result<Self, ScenarioError>> {
        let found = SHIPPED.iter().find(|(known, _)| *known == name);
        found.map(|(name, text)| Self::parse(&format!("{name}.toml"), text))
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The first fault, with its line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        file::parse(file, text)
    }

    /// Returns the share of a work's full size.
    pub fn scale_of(&self, work: Work) -> f64 {
        self.scale * self.scales.get(&work).copied().unwrap_or(1.0)
    }

    /// Number of cells.
    pub fn cells(&self) -> usize {
        let cells = self
            .places()
            .map(|(link, work, direction)| self.pairs_of(link, self.works[work], direction).count());
        cells.sum()
    }

    /// The pairs whose clients are measured at a work in a direction, over the link of an index.
    pub fn pairs_of(&self, link: usize, work: Work, direction: Direction) -> impl Iterator<Item = Pair> {
        let link = &self.links[link];
        let pairs = self.pairs.iter().copied();
        pairs.filter(move |pair| link.has(*pair) && pair.client.does(work, direction))
    }

    /// Returns link and work, by their indices, and direction of all cells, in the order of the
    /// report.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize, Direction)> {
        (0..self.links.len()).flat_map(move |link| {
            let works = self.works.iter().enumerate();
            let works = works.filter(move |(_, work)| self.links[link].carries(**work));
            works.flat_map(move |(at, work)| {
                let directions = self.directions_of(*work);
                directions.map(move |direction| (link, at, direction))
            })
        })
    }

    /// The directions in which a work is moved: some are only read.
    pub fn directions_of(&self, work: Work) -> impl Iterator<Item = Direction> {
        let wanted = move |direction: &Direction| !work.is_only_read() || *direction == Direction::Read;
        self.directions.iter().copied().filter(wanted)
    }

    /// Returns the scenario with changes.
    ///
    /// # Errors
    /// A change is out of bounds, or leaves nothing to measure.
    pub fn with(mut self, changes: &Changes) -> Result<Self, ScenarioError> {
        let refused = |flag: &'static str| move |message| ScenarioError::of_flag(flag, message);
        if let Some(scale) = changes.scale {
            self.scale = values::scale(scale).map_err(refused("--scale"))?;
        }
        if let Some(runs) = changes.runs {
            self.runs = values::runs(runs).map_err(refused("--runs"))?;
        }
        if let Some(budget) = changes.budget {
            self.budget = values::budget(budget).map_err(refused("--budget"))?;
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
        if !changes.works.is_empty() {
            self.works.clear();
            for work in &changes.works {
                if !self.works.contains(work) {
                    self.works.push(*work);
                }
            }
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
