//! `cargo xtask bench wan`: a server at the far end of the emulated link, and each tool copying from it and to it.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use ropeway_lab::link::{Congestion, Link, LinkSpec, Rate, line_time};
use serde_json::json;

use super::course::{Ground, Stage};
use super::estimate::Way;
use super::remote::{Job, Options, Session, Wish};
use super::remote_client::{Client, Direction, Installed};
use super::remote_report::CLIENTS;
use super::wan_report;
use crate::process::is_root;
use crate::worksets::Cargo;
use crate::workspace::Workspace;

/// The congestion control of the published table.
const CONGESTION: &str = "bbr";

/// Options of `bench wan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rows: `one-75ms-622mbit` and so on, or a work (`one`, `office`, `small`) for all its rows [default: the five of the
    /// table; other works and links make rows of your own]
    #[arg(long, value_delimiter = ',', value_name = "ROW")]
    rows: Vec<Rows>,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = CLIENTS)]
    clients: Vec<Client>,
    /// Congestion control of both ends
    #[arg(long, default_value = CONGESTION)]
    congestion: Congestion,
    #[command(flatten)]
    options: Options,
}

/// A link of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Line {
    /// 75 ms, 622 Mbit/s
    #[value(name = "75ms-622mbit")]
    FarFast,
    /// 32 ms, 155 Mbit/s
    #[value(name = "32ms-155mbit")]
    NearSlow,
    /// 32 ms, 622 Mbit/s
    #[value(name = "32ms-622mbit")]
    NearFast,
}

/// A row: a work over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The work.
    pub(super) cargo: Cargo,
    /// The link.
    pub(super) line: Line,
}

/// The five rows of the table.
const TABLE: [Pair; 5] = [
    Pair::of(Cargo::One, Line::FarFast),
    Pair::of(Cargo::One, Line::NearSlow),
    Pair::of(Cargo::Office, Line::FarFast),
    Pair::of(Cargo::Office, Line::NearSlow),
    Pair::of(Cargo::Small, Line::NearFast),
];

/// What one word of `--rows` names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows(Vec<Pair>);

impl FromStr for Rows {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = |pair: &&Pair| pair.key() == word || pair.cargo.name() == word;
        let mut found: Vec<Pair> = TABLE.iter().filter(known).copied().collect();
        if found.is_empty() {
            found.extend(all_pairs().into_iter().find(|pair| pair.key() == word));
        }
        if found.is_empty() {
            let names: Vec<String> = TABLE.iter().map(|pair| pair.key()).collect();
            return Err(format!(
                "no such row; the table has {}; others are WORK-LINK",
                names.join(", ")
            ));
        }
        Ok(Self(found))
    }
}

/// The table first, then what else there may be.
fn all_pairs() -> Vec<Pair> {
    let mut pairs = TABLE.to_vec();
    for &cargo in Cargo::value_variants() {
        for &line in Line::value_variants() {
            let pair = Pair::of(cargo, line);
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
    }
    pairs
}

impl Line {
    /// TCP buffers where the link is faster than what the system's own allow.
    pub(super) const BUFFER_MAX_BYTES: u64 = 64 << 20;

    fn name(self) -> &'static str {
        match self {
            Self::FarFast => "75ms-622mbit",
            Self::NearSlow => "32ms-155mbit",
            Self::NearFast => "32ms-622mbit",
        }
    }

    /// Round trip in milliseconds, rate in Mbit/s.
    fn numbers(self) -> (u64, u64) {
        match self {
            Self::FarFast => (75, 622),
            Self::NearSlow => (32, 155),
            Self::NearFast => (32, 622),
        }
    }

    /// For tables.
    pub(super) fn title(self) -> String {
        let (rtt_ms, megabits) = self.numbers();
        format!("{rtt_ms} ms, {megabits} Mbit/s")
    }

    fn rtt(self) -> Duration {
        Duration::from_millis(self.numbers().0)
    }

    fn spec(self, congestion: &Congestion) -> LinkSpec {
        let (_, megabits) = self.numbers();
        let mut spec = LinkSpec::new(self.rtt(), Some(Rate(megabits * 1_000_000)));
        spec.tcp.congestion = Some(congestion.clone());
        spec.tcp.buffer_max_bytes = (megabits == 622).then_some(Self::BUFFER_MAX_BYTES);
        spec
    }
}

impl Pair {
    const fn of(cargo: Cargo, line: Line) -> Self {
        Self { cargo, line }
    }

    /// Its name on the command line and in the file of results.
    pub(super) fn key(self) -> String {
        format!("{}-{}", self.cargo.name(), self.line.name())
    }
}

/// What is to be reached, in seconds: a factor of the floor and two round trips, or for the small files two times.
pub(super) fn goal(pair: Pair, direction: Direction, floor: f64) -> Option<f64> {
    let round_trips = 2.0 * pair.line.rtt().as_secs_f64();
    match (pair.cargo, pair.line, direction) {
        (Cargo::One, ..) => Some(1.05 * floor + round_trips),
        (Cargo::Office, ..) => Some(1.04 * floor + round_trips),
        (Cargo::Small, Line::NearFast, Direction::Read) => Some(2.0),
        (Cargo::Small, Line::NearFast, Direction::Write) => Some(2.6),
        (Cargo::Small | Cargo::Bulk, ..) => None,
    }
}

/// Measures everything asked for.
///
/// # Errors
/// If this is not root, a server does not start, ropeway fails or copies wrongly, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(
        is_root(),
        "this benchmark needs root, for servers in another network namespace"
    );
    let mut pairs: Vec<Pair> = Vec::new();
    for pair in arguments.rows.iter().flat_map(|rows| &rows.0) {
        if !pairs.contains(pair) {
            pairs.push(*pair);
        }
    }
    if pairs.is_empty() {
        pairs.extend(TABLE);
    }
    let congestion = &arguments.congestion;
    let other = (congestion.name() != CONGESTION).then(|| congestion.name().to_owned());
    let variant: Vec<String> = other.into_iter().collect();
    let wish = Wish {
        name: "wan",
        options: &arguments.options,
        runs: 3,
        clients: &arguments.clients,
        flags: &[],
        variant: &variant,
    };
    let mut session = Session::open(workspace, folder, &wish)?;
    let scale = arguments.options.scale();
    let jobs: Vec<Job> = pairs.iter().map(|pair| job(*pair, congestion, scale)).collect();
    let stage = |index: usize, ground: &Ground, clients: &[Installed]| {
        stage(pairs[index].line.spec(congestion), ground, clients)
    };
    let publish = |session: &Session<'_>| {
        let whole = (scale - 1.0).abs() < f64::EPSILON;
        let text = wan_report::section(
            &session.store,
            &all_pairs(),
            whole,
            congestion.name(),
            &session.notes,
        );
        session.publish("bench wan", &text)
    };
    session.run(&jobs, &stage, &publish)
}

fn job(pair: Pair, congestion: &Congestion, scale: f64) -> Job {
    let spec = pair.line.spec(congestion);
    let line = line_time(pair.cargo.expected(scale).bytes, spec.up, spec.mtu);
    Job {
        key: pair.key(),
        cargo: pair.cargo,
        way: Way {
            rtt: spec.rtt,
            line: line.unwrap_or_default(),
        },
        has_floor: true,
        conditions: json!({ "link": spec }),
    }
}

fn stage(spec: LinkSpec, ground: &Ground, clients: &[Installed]) -> Result<Stage> {
    let link = Link::start(spec)?;
    let smbd = ground
        .smbd()
        .in_namespace(&link.far_netns_path(), link.far_addr())
        .start()?;
    let with_rsync = clients.iter().any(|installed| installed.client == Client::Rsync);
    let rsyncd = with_rsync.then(|| ground.rsyncd(&link)).transpose()?;
    Ok(Stage {
        smbd,
        rsyncd,
        link: Some(link),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_and_works_name_their_rows() {
        let parse = |word: &str| word.parse::<Rows>().map(|rows| rows.0);
        assert_eq!(parse("small"), Ok(vec![TABLE[4]]));
        assert_eq!(parse("office"), Ok(TABLE[2..4].to_vec()));
        assert_eq!(parse("one-32ms-155mbit"), Ok(vec![TABLE[1]]));
        assert_eq!(
            parse("bulk-32ms-155mbit"),
            Ok(vec![Pair::of(Cargo::Bulk, Line::NearSlow)])
        );
        assert!(parse("bulk").is_err() && parse("32ms-155mbit").is_err());
        for pair in all_pairs() {
            assert_eq!(parse(&pair.key()), Ok(vec![pair]));
        }
        assert_eq!(all_pairs().len(), 12);
    }

    #[test]
    fn the_goal_is_the_floor_and_a_little() {
        let found = goal(TABLE[0], Direction::Read, 2.0).unwrap();
        assert!((found - 2.25).abs() < 1e-9, "{found}");
        assert_eq!(goal(TABLE[4], Direction::Write, 9.0), Some(2.6));
        assert_eq!(
            goal(Pair::of(Cargo::Small, Line::FarFast), Direction::Read, 1.0),
            None
        );
    }
}
