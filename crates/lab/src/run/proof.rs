//! The links alone, before anything is copied over them: whether they keep to their specification,
//! and what bare TCP takes for the same bytes (the floor).

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::pack::Packer;
use super::plan::{Group, mount_target, target, windowed};
use super::{Event, Lab, LabError, record, side_by_side};
use crate::link::{self, Check, CheckPlan, Flow, Link, LinkSpec};
use crate::report::{Cell, FloorTime, LOOPBACK, LinkProof};
use crate::scenario::Direction;

/// Numbers of connections with which bare TCP is measured.
const CONNECTIONS: [usize; 3] = [1, 4, 16];
/// A time within this factor of the least possible one is good enough: another number of connections
/// could gain no more.
const NEAR_ENOUGH: f64 = 1.005;
/// Part of the warning about a link whose proof failed.
pub(super) const OUT_OF_BOUNDS: &str = "is out of its bounds";
/// A number of connections is given up after this many times the best time so far: it cannot be the
/// floor. A guess, so that the report shows how much worse it is.
const GIVEN_UP_AFTER: f64 = 1.5;
/// Attempts to prove a link.
const TRIES: u32 = 3;
/// Budgets below this get a shorter proof.
const SHORT_BUDGET: Duration = Duration::from_secs(15 * 60);
/// Time of a full and of a short proof (measured, about).
const PROOF: [Duration; 2] = [Duration::from_secs(14), Duration::from_secs(7)];

fn short(lab: &Lab<'_>) -> bool {
    lab.scenario.budget < SHORT_BUDGET
}

/// Estimated time of all proofs and floors.
pub(super) fn estimate(lab: &Lab<'_>) -> Duration {
    if lab.options.relay {
        return Duration::ZERO;
    }
    let document = lab.recorder.read();
    let links = document
        .links
        .iter()
        .filter(|link| link.proof.is_none() && link.kind != LOOPBACK)
        .count() as u32;
    drop(document);
    PROOF[usize::from(short(lab))] * links
        + missing_floors(lab).duration(|id| lab.groups[id].line.unwrap_or_default().mul_f64(1.5))
}

/// Measures each link that has no proof yet.
///
/// # Errors
/// A link cannot be set up or measured.
pub(super) fn links(lab: &Lab<'_>) -> Result<(), LabError> {
    if lab.scenario.links.iter().all(|link| link.loopback) {
        return Ok(());
    }
    if lab.options.relay {
        return lab.warn(
            None,
            "relay: no packets; delay and rate are those of a TCP relay, which loses and cuts nothing, and neither link \
             nor bare TCP was measured"
                .to_owned(),
        );
    }
    lab.observer.observe(&Event::Phase {
        phase: "proof of the links",
    });
    let plan = if short(lab) {
        CheckPlan::short()
    } else {
        CheckPlan::default()
    };
    let links = lab.scenario.links.iter().enumerate();
    for (index, link) in links.filter(|(_, link)| !link.loopback) {
        let known = lab.recorder.read();
        let is_known = known
            .links
            .iter()
            .any(|known| known.name == link.name && known.proof.is_some());
        drop(known);
        let wanted = lab.pending().into_iter().any(|id| lab.groups[id].link == index);
        if is_known || !wanted {
            continue;
        }
        if lab.is_stopping() {
            return Err(LabError::Interrupted);
        }
        let proof = prove(lab, &link.spec, plan)?;
        lab.observer.observe(&Event::Proved {
            link: &link.name,
            holds: proof.holds,
        });
        if !proof.holds {
            lab.warn(
                None,
                format!("the link {} {OUT_OF_BOUNDS}; see its proof", link.name),
            )?;
        }
        lab.recorder.change(|document| {
            if let Some(summary) = document
                .links
                .iter_mut()
                .find(|summary| summary.name == link.name)
            {
                summary.proof = Some(proof);
            }
        })?;
    }
    Ok(())
}

/// Measures a link, and again if it is out of its bounds: other processes disturb the measurement as
/// well as the link.
fn prove(lab: &Lab<'_>, spec: &LinkSpec, plan: CheckPlan) -> Result<LinkProof, LabError> {
    let mut tries = 0;
    loop {
        let found = link::check(spec, plan, &|| lab.is_stopping());
        if lab.is_stopping() {
            return Err(LabError::Interrupted);
        }
        let found = found?;
        tries += 1;
        if found.holds() || tries == TRIES {
            return Ok(LinkProof::from(&found));
        }
    }
}

impl From<&Check> for LinkProof {
    fn from(found: &Check) -> Self {
        Self {
            rtt_ms: found.round_trip.found * 1e3,
            up_bps: found.rate_udp.found,
            down_bps: found.rate_tcp.found,
            loss: found.loss.found,
            holds: found.holds(),
        }
    }
}

/// Returns the groups whose floor is unknown, which run as many at a time as the scenario allows.
fn missing_floors(lab: &Lab<'_>) -> Packer {
    let pending = lab.pending();
    let document = lab.recorder.read();
    let is_known = |id: &usize| {
        let group = &lab.groups[*id];
        lab.pairs_of(group).all(|pair| {
            let key = group.key(&lab.scenario, pair);
            document
                .cell(&key)
                .is_some_and(|cell| cell.floor_seconds.is_some())
        })
    };
    let emulated = |id: &usize| !lab.link(&lab.groups[*id]).loopback;
    let missing = pending.into_iter().filter(|id| emulated(id) && !is_known(id));
    let units = missing.map(|id| lab.groups[id].unit(id)).collect();
    Packer::new(units, lab.scenario.side_by_side.map(|rate| rate.0), u64::MAX)
}

/// Adds all cells to the document, and measures the floor of each group.
///
/// # Errors
/// A link cannot be set up, or a connection fails.
pub(super) fn floors(lab: &Lab<'_>) -> Result<(), LabError> {
    for id in lab.pending() {
        if lab.options.relay || lab.link(&lab.groups[id]).loopback {
            make_cells(lab, &lab.groups[id], None)?;
        }
    }
    if lab.options.relay || lab.scenario.links.iter().all(|link| link.loopback) {
        return Ok(());
    }
    lab.observer.observe(&Event::Phase {
        phase: "floor: bare TCP",
    });
    side_by_side(lab, &Mutex::new(missing_floors(lab)), &|id| {
        let group = &lab.groups[id];
        let Some((connections, seconds)) = best(lab, group)? else {
            return Ok(());
        };
        lab.observer.observe(&Event::Floor {
            link: &lab.scenario.links[group.link].name,
            work: lab.scenario.works[group.work].name(),
            direction: group.direction.name(),
            connections,
            seconds,
        });
        make_cells(lab, group, Some(seconds))
    })
}

fn make_cells(lab: &Lab<'_>, group: &Group, floor: Option<f64>) -> Result<(), LabError> {
    let spec = &lab.scenario.links[group.link].spec;
    let work = lab.scenario.works[group.work];
    lab.recorder.change(|document| {
        for pair in lab.pairs_of(group) {
            let new = Cell {
                key: group.key(&lab.scenario, pair),
                judges_transfer: pair.client.is_mount(),
                payload_bytes: group.bytes,
                files: group.files,
                line_seconds: group.line.map(|line| line.as_secs_f64()),
                ..Cell::default()
            };
            let cell = document.cell_or_add(new, &lab.order);
            cell.floor_seconds = floor.or(cell.floor_seconds);
            let known = cell.floor_seconds;
            cell.target_seconds = match pair.client.is_mount() {
                true => known.and_then(|_| mount_target(work, pair.client, group.line, spec)),
                false => known.and_then(|floor| target(work, pair.client, floor, spec)),
            };
        }
        record::judge_second_readings(document);
    })?;
    Ok(())
}

/// Returns the best time and its number of connections; `None` if the lab is stopping.
fn best(lab: &Lab<'_>, group: &Group) -> Result<Option<(usize, f64)>, LabError> {
    // A cut would only show its own time.
    let spec = lab.scenario.links[group.link].spec.uncut();
    let flow = match group.direction {
        Direction::Read => Flow::Down,
        Direction::Write => Flow::Up,
    };
    let mut best: Option<(usize, f64)> = None;
    for (connections, least) in trials(&spec, group) {
        if best.is_some_and(|(_, seconds)| seconds <= least * NEAR_ENOUGH) {
            continue;
        }
        // A link each, so that no measurement profits from the one before.
        let link = Link::start(spec.clone())?;
        let longest = best.map_or(f64::INFINITY, |(_, seconds)| seconds * GIVEN_UP_AFTER);
        let begun = Instant::now();
        let is_over = || begun.elapsed().as_secs_f64() > longest;
        let stop = || lab.is_stopping() || is_over();
        let taken = link::floor(&link, group.bytes, connections, flow, &stop);
        if lab.is_stopping() {
            return Ok(None);
        }
        let (seconds, ended) = match taken {
            Err(_) if is_over() => (longest, true),
            taken => (taken?.as_secs_f64(), false),
        };
        let time = FloorTime {
            link: lab.link(group).name.clone(),
            work: lab.scenario.works[group.work].name().to_owned(),
            direction: group.direction.name().to_owned(),
            connections,
            seconds,
            ended,
        };
        lab.recorder
            .change(|document| record::add_floor(document, time))?;
        if best.is_none_or(|(_, before)| seconds < before) {
            best = Some((connections, seconds));
        }
    }
    Ok(best)
}

/// Returns the numbers of connections with their least possible seconds, the most promising first: many
/// where each backs off at every loss.
fn trials(spec: &LinkSpec, group: &Group) -> Vec<(usize, f64)> {
    // SYN, and four round trips to set up.
    let setup = 5.0 * spec.rtt.as_secs_f64();
    let least = |connections| {
        let window = windowed(spec, group.bytes, connections);
        group.line.unwrap_or_default().max(window).as_secs_f64() + setup
    };
    let mut trials = CONNECTIONS
        .map(|connections| (connections, least(connections)))
        .to_vec();
    trials.sort_by(|a, b| a.1.total_cmp(&b.1));
    let by_loss = spec
        .tcp
        .congestion
        .as_ref()
        .is_none_or(|name| !name.name().starts_with("bbr"));
    if spec.loss > 0.0 && by_loss {
        trials.reverse();
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::super::plan::groups;
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn what_cannot_be_better_is_tried_last() {
        let tried = |name: &str| {
            let scenario = Scenario::shipped(name).unwrap().unwrap();
            let plans = vec![scenario.works[0].plan(1, 1.0)];
            let group = groups(&scenario, &plans).remove(0);
            trials(&scenario.links[group.link].spec, &group)
        };
        let wide = tried("tr3869");
        assert_eq!(wide.iter().map(|trial| trial.0).collect::<Vec<_>>(), CONNECTIONS);
        assert!((wide[0].1 - 16.341 - 0.16).abs() < 0.01, "{wide:?}");
        let small = tried("tr3869-small-window");
        assert_eq!(small.iter().map(|trial| trial.0).collect::<Vec<_>>(), [16, 4, 1]);
        let numbers = |scenario: &Scenario, link: &str| {
            let link = scenario.links.iter().find(|known| known.name == link).unwrap();
            let plans: Vec<_> = scenario.works.iter().map(|work| work.plan(1, 1.0)).collect();
            let group = groups(scenario, &plans).remove(0);
            trials(&link.spec, &group)
                .iter()
                .map(|trial| trial.0)
                .collect::<Vec<_>>()
        };
        let far = Scenario::shipped("far").unwrap().unwrap();
        assert_eq!(numbers(&far, "bbr-1"), CONNECTIONS);
        assert_eq!(numbers(&far, "cubic-1"), [16, 4, 1]);
    }
}
