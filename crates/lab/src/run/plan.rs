//! The plan of a lab: groups, their order, the number of runs, estimates. Pure, so that a test plans a
//! lab of hours in a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pack::Unit;
use crate::link::{Cut, LinkSpec, line_time};
use crate::report::{CellKey, Outcome, Run};
use crate::scenario::{Client, Direction, Pair, Scenario};
use crate::work::{Plan, Work};

/// Least time limit of a run.
const LIMIT_MIN: Duration = Duration::from_secs(60);
/// Addition to twelve times the line's time in the limit of a run.
const LIMIT_MORE: Duration = Duration::from_secs(120);
/// Time that a group takes in addition to its runs: servers, folders, logins (a guess).
const GROUP_COST: Duration = Duration::from_secs(4);
/// Time that a run takes in addition to the client: emptying folders, comparing (a guess).
const RUN_COST: Duration = Duration::from_millis(400);
/// Bytes compared in a second (a guess).
const COMPARED_A_SECOND: f64 = 1e9;

/// All cells of one link, work and direction. Their clients take turns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// Index of the link in the scenario.
    pub(super) link: usize,
    /// Index of the work in the scenario.
    pub(super) work: usize,
    /// Direction of the work.
    pub(super) direction: Direction,
    /// Payload in bytes.
    pub(super) bytes: u64,
    /// Number of files.
    pub(super) files: u64,
    /// Time of the payload on the line.
    pub(super) line: Option<Duration>,
    /// Least time over one connection: that of the line, or of one window in each round trip.
    pub(super) single: Duration,
    /// Rate that the group takes on the machine, in bits a second: that of the faster direction, or of its
    /// clients, if all of them are slower.
    rate: Option<u64>,
    /// Time that the link is cut in a run, without cuts that are never restored.
    cut: Duration,
    /// Longest time of a run that the scenario allows.
    limit_max: Duration,
}

/// Returns all groups in the order in which they run: slow links first, since those run side by
/// side, and the biggest work first.
pub(super) fn groups(scenario: &Scenario, plans: &[Plan]) -> Vec<Group> {
    let groups = scenario
        .places()
        .filter_map(|(link, work, direction)| Some(group(scenario, link, work, plans.get(work)?, direction)));
    let mut groups: Vec<Group> = groups.collect();
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
        rate: needed(spec, scenario.pairs_of(link, scenario.works[work], direction)),
        cut: restored.map(|cut| cut.length).sum(),
        limit_max: scenario.limit.unwrap_or(Duration::MAX),
    }
}

/// Returns the rate that these clients can take on a link. Clients of the past have few bytes in flight.
fn needed(spec: &LinkSpec, pairs: impl Iterator<Item = Pair>) -> Option<u64> {
    let link = spec.up.max(spec.down)?.0;
    let most = |pair: Pair| {
        let habits = pair.client.habits()?;
        let reads = u64::from(habits.read_size) * u64::from(habits.reads);
        let writes = u64::from(habits.write_size) * u64::from(habits.writes);
        let rate = reads.max(writes) as f64 * 8.0 / spec.rtt.as_secs_f64();
        rate.is_finite().then_some(rate as u64)
    };
    let clients = pairs.map(|pair| most(pair).unwrap_or(u64::MAX)).max();
    Some(clients.unwrap_or(u64::MAX).min(link))
}

/// Returns the least time with cuts of what takes `plain` without them.
fn with_cuts(cuts: &[Cut], plain: Duration) -> Duration {
    // Cuts do not overlap.
    cuts.iter().fold(plain, |taken, cut| {
        if cut.at < taken {
            taken.saturating_add(cut.length)
        } else {
            taken
        }
    })
}

/// Returns the least time over several connections that each move one window in a round trip.
pub(super) fn windowed(spec: &LinkSpec, bytes: u64, connections: usize) -> Duration {
    let Some(window) = spec.tcp.window_max_bytes else {
        return Duration::ZERO;
    };
    let trips = bytes as f64 / (f64::from(window) * connections as f64);
    spec.rtt.mul_f64(trips)
}

impl Group {
    /// Resources that the group takes while it runs: its rate, and room for one copy and a part of another.
    pub(super) fn unit(&self, id: usize) -> Unit {
        Unit {
            id,
            rate: self.rate,
            bytes: self.bytes + self.bytes / 4,
        }
    }

    /// Returns the key of a pair's cell.
    pub(super) fn key(&self, scenario: &Scenario, pair: Pair) -> CellKey {
        key(
            scenario,
            self.link,
            scenario.works[self.work],
            self.direction,
            pair,
        )
    }

    /// Time limit of a run. After a cut TCP may stay silent as long again, since its timer doubles.
    pub(super) fn limit(&self) -> Duration {
        let own = LIMIT_MIN.max(self.single * 12 + LIMIT_MORE) + self.cut * 2;
        own.min(self.limit_max)
    }

    /// Time limit of a pair's run: a client of the past waits for more round trips.
    pub(super) fn limit_for(&self, spec: &LinkSpec, pair: Pair) -> Duration {
        let waits = pair.client.habits().map(|_| self.plain(spec, pair) * 4);
        self.limit().max(waits.unwrap_or_default()).min(self.limit_max)
    }

    /// Estimated time of a run.
    pub(super) fn expected(&self, spec: &LinkSpec, pair: Pair) -> Duration {
        with_cuts(&spec.cuts, self.plain(spec, pair)).min(self.limit_for(spec, pair))
    }

    /// Estimated time of a run without cuts.
    fn plain(&self, spec: &LinkSpec, pair: Pair) -> Duration {
        let model = ClientModel::of(pair.client);
        let trips = model.setup
            + model.per_file * self.files as f64
            + model.per_mib * self.bytes as f64 / f64::from(1 << 20);
        self.single + spec.rtt.mul_f64(trips)
    }

    /// Time of a run in addition to the client's.
    pub(super) fn beside(&self) -> Duration {
        RUN_COST + Duration::from_secs_f64(self.bytes as f64 / COMPARED_A_SECOND)
    }

    /// Estimated time of all runs, or of the first runs only, from the estimate of each pair.
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

    /// Number of runs that a cell still needs.
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

/// Returns the key of a cell.
pub(super) fn key(scenario: &Scenario, link: usize, work: Work, direction: Direction, pair: Pair) -> CellKey {
    let (client, server) = (pair.client.name(), pair.server.name());
    CellKey::new([
        &scenario.links[link].name,
        work.name(),
        direction.name(),
        client,
        server,
    ])
}

/// Returns the keys of all cells, in the order of the report.
pub(super) fn keys(scenario: &Scenario) -> Vec<CellKey> {
    let keys = scenario.places().flat_map(|(link, work, direction)| {
        let work = scenario.works[work];
        let pairs = scenario.pairs_of(link, work, direction);
        pairs.map(move |pair| key(scenario, link, work, direction, pair))
    });
    keys.collect()
}

/// Number of runs of each cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Runs, with the discarded one.
    pub(super) runs: u32,
    /// Time above which a cell runs once.
    pub(super) once_above: Duration,
}

impl Pace {
    /// Returns that of a scenario.
    pub(super) fn of(scenario: &Scenario) -> Self {
        Self {
            runs: scenario.runs,
            once_above: scenario.once_above,
        }
    }
}

/// Marks the first run as discarded, unless it is the only one: it warms up.
pub(super) fn mark_discarded(runs: &mut [Run]) {
    // A failed run replaces none.
    let done = runs.iter().filter(|run| matches!(run.outcome, Outcome::Done));
    let several = done.count() > 1;
    for (index, run) in runs.iter_mut().enumerate() {
        run.discarded = several && index == 0;
    }
}

/// Returns the order of a round: each round begins with another item.
pub(crate) fn turn<T: Clone>(all: &[T], round: usize) -> Vec<T> {
    let mut turned = all.to_vec();
    if !turned.is_empty() {
        turned.rotate_left(round % all.len());
    }
    turned
}

/// Target of ropeway in seconds: 1.05 x floor for one file, 1.04 x for many, and two round trips.
/// On a lossy link 1 / 0.95 of the floor for both, and two round trips. `None` where the link is cut, since
/// the floor is that of the uncut link, and where a program may choose its congestion control, since the floor
/// does not.
pub(super) fn target(work: Work, client: Client, floor: f64, link: &LinkSpec) -> Option<f64> {
    let factor = match work {
        Work::File1gib | Work::File100mb | Work::Dirset1gb if link.loss > 0.0 => 1.0 / 0.95,
        Work::File100mb => 1.05,
        Work::Dirset1gb => 1.04,
        _ => return None,
    };
    let is_ours = client == Client::Ropeway && link.cuts.is_empty() && !link.tcp.congestion_open;
    is_ours.then_some(factor * floor + 2.0 * link.rtt.as_secs_f64())
}

/// Target of `ropeway mount` in seconds, without mounting: 90 % of the line for one file, three times
/// the line's time for the 1 GB set, 40 round trips for a listing. That of a second reading follows
/// from the first one. `None` for others, and where the link is cut.
pub(super) fn mount_target(
    work: Work,
    client: Client,
    line: Option<Duration>,
    link: &LinkSpec,
) -> Option<f64> {
    let is_first = matches!(client, Client::Mount | Client::MountLater | Client::MountBoost);
    if !is_first || !link.cuts.is_empty() {
        return None;
    }
    let line = line.unwrap_or_default().as_secs_f64();
    match work {
        Work::File1gib => Some(line / 0.9),
        Work::Dirset1gb => Some(3.0 * line),
        Work::List10k => Some(40.0 * link.rtt.as_secs_f64()),
        _ => None,
    }
}

/// Round trips that a client waits for, from the figures in `docs/benchmarks.md`. Only for estimates.
struct ClientModel {
    setup: f64,
    per_file: f64,
    per_mib: f64,
}

impl ClientModel {
    fn of(client: Client) -> Self {
        let (setup, per_file, per_mib) = match client {
            Client::Ropeway => (10.0, 0.1, 0.0),
            Client::Smbclient => (12.0, 4.5, 0.0),
            Client::Rclone => (14.0, 2.8, 0.5),
            Client::Rclone32 => (14.0, 0.35, 0.06),
            Client::Rsync => (8.0, 0.05, 0.0),
            Client::Cp => (4.0, 5.0, 0.3),
            Client::Mount => (20.0, 3.0, 0.0),
            Client::MountLater => (20.0, 1.5, 0.0),
            Client::MountBoost => (20.0, 3.0, 0.0),
            // The first reading, which is not counted, and the second one.
            Client::MountBoostAgain | Client::MountBoostRestart => (60.0, 3.0, 0.0),
            Client::RcloneMount => (20.0, 6.0, 0.5),
            Client::RcloneMountAgain => (60.0, 6.0, 0.5),
            // One request after another waits for a round trip each, several share it.
            Client::XpSmb1 => (12.0, 8.0, 17.0),
            Client::Win7Smb1 => (12.0, 8.0, 2.1),
            Client::Win7Smb2 => (12.0, 8.0, 0.5),
        };
        Self {
            setup,
            per_file,
            per_mib,
        }
    }
}

/// Ratio of measured to expected times, by pair; estimates are multiplied by it.
#[derive(Clone, Debug, Default)]
pub(super) struct Calibration(BTreeMap<Pair, (f64, f64)>);

impl Calibration {
    /// Adds a run.
    pub(super) fn learn(&mut self, pair: Pair, expected: Duration, taken: Duration) {
        let sums = self.0.entry(pair).or_default();
        sums.0 += expected.as_secs_f64();
        sums.1 += taken.as_secs_f64();
    }

    /// Returns an expected time, corrected by the ratio.
    pub(super) fn applied(&self, pair: Pair, expected: Duration) -> Duration {
        match self.0.get(&pair) {
            Some((wanted, taken)) if *wanted > 0.0 => expected.mul_f64((taken / wanted).clamp(0.1, 20.0)),
            _ => expected,
        }
    }
}

/// Whether the budget allows a run: a first run until its end, a repeat only if the groups that have
/// not begun still fit.
pub(super) fn affordable(spent: Duration, cost: Duration, reserve: Duration, budget: Duration) -> bool {
    spent.saturating_add(cost).saturating_add(reserve) <= budget
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
