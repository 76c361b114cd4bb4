//! `cargo xtask bench wan`: a server at the far end of the emulated link, and each tool copying from it and to it.
//!
//! The floor is bare TCP with the same bytes on the same link, measured in the same session between the rounds: four
//! round trips to set up, then the bytes over 1, 4 and 16 connections; the best of them counts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ropeway_lab::link::{Congestion, Flow, Link, LinkSpec, Rate, floor, line_time};

use super::course::{Course, Ground, Limit};
use super::remote::{Client, Direction, Installed, installed};
use super::remote_report::{self, Floor, WanSection};
use super::report::{self, Machine};
use crate::process::is_root;
use crate::worksets::Cargo;
use crate::workspace::Workspace;

/// TCP buffers where the link is faster than what the system's own allow.
const BUFFER_MAX_BYTES: u64 = 64 << 20;
/// Floors of works that are longer on the line than this are measured in one round only.
const LONG: Duration = Duration::from_secs(10);

/// Options of `bench wan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to copy (default: each work with the links of the table in docs/benchmarks.md)
    #[arg(long, value_enum, value_delimiter = ',')]
    work: Vec<Cargo>,
    /// Over which link
    #[arg(long, value_enum, value_delimiter = ',')]
    link: Vec<Line>,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',',
          default_values_t = [Client::Ropeway, Client::Smbclient, Client::Rclone4, Client::Rclone32, Client::Rsync])]
    clients: Vec<Client>,
    /// Counted rounds
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Count the first round too
    #[arg(long)]
    no_warm_up: bool,
    /// Multiplies the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Congestion control of both ends
    #[arg(long, default_value = "bbr")]
    congestion: Congestion,
    /// Seconds after which a run is ended
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Further flags for ropeway, separated by spaces
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    ropeway_flags: Vec<String>,
    /// Do not build ropeway or touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// A link of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
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

/// Rows of the table.
const ROWS: [(Cargo, Line); 5] = [
    (Cargo::One, Line::FarFast),
    (Cargo::One, Line::NearSlow),
    (Cargo::Office, Line::FarFast),
    (Cargo::Office, Line::NearSlow),
    (Cargo::Small, Line::NearFast),
];

impl Line {
    fn name(self) -> &'static str {
        match self {
            Self::FarFast => "75ms-622mbit",
            Self::NearSlow => "32ms-155mbit",
            Self::NearFast => "32ms-622mbit",
        }
    }

    fn spec(self, congestion: &Congestion) -> LinkSpec {
        let (rtt_ms, megabits) = match self {
            Self::FarFast => (75, 622),
            Self::NearSlow => (32, 155),
            Self::NearFast => (32, 622),
        };
        let rate = Rate(megabits * 1_000_000);
        let mut spec = LinkSpec::new(Duration::from_millis(rtt_ms), Some(rate));
        spec.tcp.congestion = Some(congestion.clone());
        spec.tcp.buffer_max_bytes = (megabits == 622).then_some(BUFFER_MAX_BYTES);
        spec
    }
}

/// What is to be reached, in seconds: a factor of the floor and two round trips, or for the small files two times.
fn goal(cargo: Cargo, direction: Direction, floor: f64, rtt: Duration) -> Option<f64> {
    let round_trips = 2.0 * rtt.as_secs_f64();
    match (cargo, direction) {
        (Cargo::One, _) => Some(1.05 * floor + round_trips),
        (Cargo::Office, _) => Some(1.04 * floor + round_trips),
        (Cargo::Small, Direction::Read) => Some(2.0),
        (Cargo::Small, Direction::Write) => Some(2.6),
        (Cargo::Bulk, _) => None,
    }
}

/// Those of the table; what is named is a filter, and a pair that is named in full is measured anyway.
fn rows(works: &[Cargo], lines: &[Line]) -> Vec<(Cargo, Line)> {
    if !works.is_empty() && !lines.is_empty() {
        let pairs = works
            .iter()
            .flat_map(|&work| lines.iter().map(move |&line| (work, line)));
        return pairs.collect();
    }
    ROWS.into_iter()
        .filter(|(work, line)| {
            (works.is_empty() || works.contains(work)) && (lines.is_empty() || lines.contains(line))
        })
        .collect()
}

/// Measures everything asked for.
///
/// # Errors
/// If this is not root, a server does not start, or on an interrupt.
pub(super) fn run(workspace: &Workspace, folder: &Path, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    ensure!(
        arguments.scale > 0.0 && arguments.scale <= 10.0,
        "--scale must be above 0 and at most 10"
    );
    ensure!(
        is_root(),
        "this benchmark needs root, for servers in another network namespace"
    );
    let rows = rows(&arguments.work, &arguments.link);
    ensure!(
        !rows.is_empty(),
        "no row of the table has that; name both --work and --link to measure a pair of your own"
    );
    let (clients, notes) = installed(workspace, &arguments.clients, &arguments.ropeway_flags);
    ensure!(!clients.is_empty(), "none of the tools is there");
    let machine = Machine::look();
    for (cargo, line) in rows {
        let (name, text) = one_row(folder, arguments, (cargo, line), &clients, (&machine, &notes))
            .with_context(|| format!("{} over {}", cargo.name(), line.name()))?;
        println!("\n{text}");
        let scale = if arguments.no_write { 0.0 } else { scale(arguments) };
        report::write(workspace, &name, &text, scale)?;
    }
    Ok(())
}

fn scale(arguments: &Arguments) -> f64 {
    match arguments.quick {
        true => arguments.scale / 20.0,
        false => arguments.scale,
    }
}

/// Measures one row; gives the name of its section and the section.
fn one_row(
    folder: &Path,
    arguments: &Arguments,
    (cargo, line): (Cargo, Line),
    clients: &[Installed],
    (machine, notes): (&Machine, &[String]),
) -> Result<(String, String)> {
    let ground = Ground::new(folder, cargo, scale(arguments))?;
    let link = Link::start(line.spec(&arguments.congestion))?;
    let far = link.far_netns_path();
    let smbd = ground.smbd().in_namespace(&far, link.far_addr()).start()?;
    let with_rsync = clients.iter().any(|installed| installed.client == Client::Rsync);
    let rsyncd = with_rsync.then(|| ground.rsyncd(&link)).transpose()?;
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let course = Course {
        ground: &ground,
        smbd: &smbd,
        rsyncd: rsyncd.as_ref(),
        link: Some(&link),
        limit: Limit(Duration::from_secs(arguments.limit)),
        warm_up: !arguments.quick && !arguments.no_warm_up,
        runs,
    };
    let bytes = ground.content.bytes;
    let time = line_time(bytes, link.spec().up, link.spec().mtu).unwrap_or_default();
    println!(
        "{} over {}: {:.2} s on the line",
        cargo.title(),
        line.name(),
        time.as_secs_f64()
    );
    let mut floors = Direction::ALL.map(|direction| (direction, Floor::default()));
    let rows = course.run(clients, &mut |counted| {
        for (direction, floor) in &mut floors {
            if counted && (time < LONG || floor.is_empty()) {
                measure_floor(&link, bytes, *direction, floor)?;
            }
        }
        Ok(())
    })?;
    let [(_, read), (_, write)] = floors;
    let goals = [(Direction::Read, &read), (Direction::Write, &write)]
        .map(|(direction, floor)| goal(cargo, direction, floor.best()?, link.spec().rtt));
    let section = WanSection {
        title: cargo.title(),
        content: ground.content,
        link: &link,
        line_seconds: time.as_secs_f64(),
        floors: [read, write],
        goals: goals.map(|goal| goal.filter(|_| scale(arguments) >= 1.0)),
        runs,
        rows: &rows,
    };
    let text = remote_report::wan_section(&section, machine, clients, notes);
    Ok((format!("bench wan {} {}", cargo.name(), line.name()), text))
}

fn measure_floor(link: &Link, bytes: u64, direction: Direction, into: &mut Floor) -> Result<()> {
    let flow = match direction {
        Direction::Read => Flow::Down,
        Direction::Write => Flow::Up,
    };
    for connections in Floor::CONNECTIONS {
        crate::process::check_interrupt()?;
        let time = floor(link, bytes, connections, flow).context("cannot measure bare TCP")?;
        println!(
            "  bare TCP x {connections:<8} {:5} {:8.2} s",
            direction.name(),
            time.as_secs_f64()
        );
        into.add(connections, time.as_secs_f64());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_filter_the_table_and_pairs_are_free() {
        assert_eq!(rows(&[], &[]).len(), ROWS.len());
        assert_eq!(rows(&[Cargo::Small], &[]), [(Cargo::Small, Line::NearFast)]);
        assert_eq!(rows(&[], &[Line::NearSlow]).len(), 2);
        assert_eq!(
            rows(&[Cargo::Bulk], &[Line::NearSlow]),
            [(Cargo::Bulk, Line::NearSlow)]
        );
        assert!(rows(&[Cargo::Bulk], &[]).is_empty());
    }

    #[test]
    fn the_goal_is_the_floor_and_a_little() {
        let rtt = Duration::from_millis(75);
        let found = goal(Cargo::One, Direction::Read, 2.0, rtt).unwrap();
        assert!((found - 2.25).abs() < 1e-9, "{found}");
        assert_eq!(goal(Cargo::Small, Direction::Write, 9.0, rtt), Some(2.6));
    }
}
