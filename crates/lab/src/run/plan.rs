//! What is to be done, in which order and how often: pure, so that a lab of hours is tested in a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pack::Unit;
use crate::link::{Cut, LinkSpec, line_time};
use crate::report::{CellKey, Outcome, Run};
use crate::scenario::{Client, Direction, Pair, Scenario};
use crate::work::{Plan, Work};

/// Shortest limit of a run.
const LIMIT_MIN: Duration = Duration::from_secs(60);
/// A limit beside twelve times the line's time.
const LIMIT_MORE: Duration = Duration::from_secs(120);
/// What a group costs beside its runs: servers, folders, empty operations (a guess).
const GROUP_COST: Duration = Duration::from_secs(4);
/// What a run costs beside the client's time: making room, comparing (a guess).
const RUN_COST: Duration = Duration::from_millis(400);
/// Bytes that are compared in a second (a guess).
const COMPARED_A_SECOND: f64 = 1e9;

/// Everything over one link with one work one way: its clients run in turns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// Index of the link in the scenario.
    pub(super) link: usize,
    /// Index of the work in the scenario.
    pub(super) work: usize,
    /// Which way.
    pub(super) direction: Direction,
    /// Payload.
    pub(super) bytes: u64,
    /// Files in it.
    pub(super) files: u64,
    /// What the line alone takes.
    pub(super) line: Option<Duration>,
    /// What one connection takes at least: the line, or one window in each round trip.
    pub(super) single: Duration,
    /// Rate of the faster way.
    rate: Option<u64>,
    /// How long the link is cut in a run, cuts that are never restored left out.
    cut: Duration,
}

/// All groups in the order in which they are wanted: slow links first, which go side by side, the biggest work first.
pub(super) fn groups(scenario: &Scenario, plans: &[Plan]) -> Vec<Group> {
    let mut groups = Vec::new();
    for link in 0..scenario.links.len() {
        for (work, plan) in plans.iter().enumerate() {
            for &direction in &scenario.directions {
                groups.push(group(scenario, link, work, plan, direction));
            }
        }
    }
    groups.sort_by_key(|group| (group.rate.unwrap_or(u64::MAX), std::cmp::Reverse(group.bytes)));
    groups
}

fn group(scenario: &Scenario, link: usize, work: usize, plan: &Plan, direction: Direction) -> Group {
    let spec = &scenario.links[link].spec;
    let rate = match direction {
        Direction::Read => spec.down,
        Direction::Write => spec.up,
    };
    let line = line_time(plan.bytes(), rate, spec.mtu);
    let restored = spec.cuts.iter().filter(|cut| !cut.is_for_ever());
    Group {
        link,
        work,
        direction,
        bytes: plan.bytes(),
        files: plan.files(),
        line,
        single: line.unwrap_or_default().max(windowed(spec, plan.bytes(), 1)),
        rate: spec.up.max(spec.down).map(|rate| rate.0),
        cut: restored.map(|cut| cut.length).sum(),
    }
}

/// What takes so long without cuts takes at least so long with them.
fn with_cuts(cuts: &[Cut], plain: Duration) -> Duration {
    // They come one after the other.
    cuts.iter().fold(plain, |taken, cut| {
        if cut.at < taken {
            taken.saturating_add(cut.length)
        } else {
            taken
        }
    })
}

/// What so many connections take at least if each moves one window in a round trip.
pub(super) fn windowed(spec: &LinkSpec, bytes: u64, connections: usize) -> Duration {
    let Some(window) = spec.tcp.window_max_bytes else {
        return Duration::ZERO;
    };
    let trips = bytes as f64 / (f64::from(window) * connections as f64);
    spec.rtt.mul_f64(trips)
}

impl Group {
    /// What it takes while it runs: its rate, and room for one copy and a half-finished other.
    pub(super) fn unit(&self, id: usize) -> Unit {
        Unit {
            id,
            rate: self.rate,
            bytes: self.bytes + self.bytes / 4,
        }
    }

    /// The key of a cell.
    pub(super) fn key(&self, scenario: &Scenario, pair: Pair) -> CellKey {
        key(
            scenario,
            self.link,
            scenario.works[self.work],
            self.direction,
            pair,
        )
    }

    /// How long a run may take. After a cut TCP may stay silent as long again, since its timer doubles.
    pub(super) fn limit(&self) -> Duration {
        LIMIT_MIN.max(self.single * 12 + LIMIT_MORE) + self.cut * 2
    }

    /// How long a run probably takes.
    pub(super) fn expected(&self, spec: &LinkSpec, pair: Pair) -> Duration {
        let habit = Habit::of(pair.client);
        let trips = habit.setup
            + habit.per_file * self.files as f64
            + habit.per_mib * self.bytes as f64 / f64::from(1 << 20);
        with_cuts(&spec.cuts, self.single + spec.rtt.mul_f64(trips)).min(self.limit())
    }

    /// What a run costs beside the client's own time.
    pub(super) fn beside(&self) -> Duration {
        RUN_COST + Duration::from_secs_f64(self.bytes as f64 / COMPARED_A_SECOND)
    }

    /// What the group costs if each run of each pair takes so long: all runs, or the first ones only.
    pub(super) fn cost(
        &self,
        pairs: &[Pair],
        pace: &Pace,
        firsts_only: bool,
        expected: impl Fn(Pair) -> Duration,
    ) -> Duration {
        let runs: Duration = pairs
            .iter()
            .map(|pair| {
                let each = expected(*pair);
                let once = firsts_only || each > pace.once_above || self.once(pace);
                (each + self.beside()) * if once { 1 } else { pace.runs }
            })
            .sum();
        GROUP_COST + runs
    }

    fn once(&self, pace: &Pace) -> bool {
        self.line.is_some_and(|line| line > pace.once_above)
    }

    /// Runs that a cell still wants.
    pub(super) fn missing(&self, pace: &Pace, runs: &[Run]) -> u32 {
        if runs.iter().any(|run| !matches!(run.outcome, Outcome::Done)) {
            return 0;
        }
        let slow = runs
            .first()
            .is_some_and(|run| run.whole_seconds > pace.once_above.as_secs_f64());
        let wanted = if slow || self.once(pace) { 1 } else { pace.runs };
        wanted.saturating_sub(runs.len() as u32)
    }
}

/// The key of a cell.
pub(super) fn key(scenario: &Scenario, link: usize, work: Work, direction: Direction, pair: Pair) -> CellKey {
    CellKey {
        link: scenario.links[link].name.clone(),
        work: work.name().to_owned(),
        direction: direction.name().to_owned(),
        client: pair.client.name().to_owned(),
        server: pair.server.name().to_owned(),
        variant: String::new(),
    }
}

/// The keys of all cells, in the order of the report.
pub(super) fn keys(scenario: &Scenario) -> Vec<CellKey> {
    let mut keys = Vec::with_capacity(scenario.cells());
    for link in 0..scenario.links.len() {
        for &work in &scenario.works {
            for &direction in &scenario.directions {
                for &pair in &scenario.pairs {
                    keys.push(key(scenario, link, work, direction, pair));
                }
            }
        }
    }
    keys
}

/// How often cells run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Runs, the discarded one included.
    pub(super) runs: u32,
    /// What is longer runs once.
    pub(super) once_above: Duration,
}

impl Pace {
    /// That of a scenario.
    pub(super) fn of(scenario: &Scenario) -> Self {
        Self {
            runs: scenario.runs,
            once_above: scenario.once_above,
        }
    }
}

/// The first run only warms up, unless it is the only one.
pub(super) fn mark_discarded(runs: &mut [Run]) {
    // A failed one replaces nothing.
    let done = runs.iter().filter(|run| matches!(run.outcome, Outcome::Done));
    let several = done.count() > 1;
    for (index, run) in runs.iter_mut().enumerate() {
        run.discarded = several && index == 0;
    }
}

/// Who takes turns, in the order of a round: each round another one begins.
pub(crate) fn turn<T: Clone>(all: &[T], round: usize) -> Vec<T> {
    let mut turned = all.to_vec();
    if !turned.is_empty() {
        turned.rotate_left(round % all.len());
    }
    turned
}

/// Most seconds that ropeway may take: 1.05 x floor for one file, 1.04 x for many, and two round trips. None where the
/// link is cut: its floor is that of the whole link.
pub(super) fn target(work: Work, client: Client, floor: f64, link: &LinkSpec) -> Option<f64> {
    let factor = match work {
        Work::File100mb => 1.05,
        Work::Dirset1gb => 1.04,
        _ => return None,
    };
    let is_ours = client == Client::Ropeway && link.cuts.is_empty();
    is_ours.then_some(factor * floor + 2.0 * link.rtt.as_secs_f64())
}

/// Round trips that a client waits for, by what `docs/benchmarks.md` measured. Only for estimates.
struct Habit {
    setup: f64,
    per_file: f64,
    per_mib: f64,
}

impl Habit {
    fn of(client: Client) -> Self {
        let (setup, per_file, per_mib) = match client {
            Client::Ropeway => (10.0, 0.1, 0.0),
            Client::Smbclient => (12.0, 4.5, 0.0),
            Client::Rclone => (14.0, 2.8, 0.5),
            Client::Rsync => (8.0, 0.05, 0.0),
            Client::Cp => (4.0, 5.0, 0.3),
        };
        Self {
            setup,
            per_file,
            per_mib,
        }
    }
}

/// How much longer than expected runs were, by pair: what estimates learn from.
#[derive(Clone, Debug, Default)]
pub(super) struct Experience(BTreeMap<Pair, (f64, f64)>);

impl Experience {
    /// Takes note of a run.
    pub(super) fn learn(&mut self, pair: Pair, expected: Duration, taken: Duration) {
        let sums = self.0.entry(pair).or_default();
        sums.0 += expected.as_secs_f64();
        sums.1 += taken.as_secs_f64();
    }

    /// An expectation with what was learnt.
    pub(super) fn applied(&self, pair: Pair, expected: Duration) -> Duration {
        match self.0.get(&pair) {
            Some((wanted, taken)) if *wanted > 0.0 => expected.mul_f64((taken / wanted).clamp(0.1, 20.0)),
            _ => expected,
        }
    }
}

/// Whether there is time: for a first run until the end of the budget, for a repeat only if what has not begun still fits.
pub(super) fn affordable(spent: Duration, cost: Duration, reserve: Duration, budget: Duration) -> bool {
    spent.saturating_add(cost).saturating_add(reserve) <= budget
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
