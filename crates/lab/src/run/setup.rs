//! Start and end of a lab: what is available, what is missing, and the document to continue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::Mutex;

use super::machine::{document, load_warning};
use super::pack::Packer;
use super::plan::{self, Calibration, Pace};
use super::record::{self, Recorder};
use super::scratch::Scratch;
use super::settings::settings;
use super::tools::Tools;
use super::{Event, Lab, LabError, Observer, Options, Resume, resume};
use crate::link::{LinkSpec, describe};
use crate::published;
use crate::report::{Document, FILE, LinkCut, LinkSummary, load as load_document};
use crate::scenario::{NamedLink, Protection, Scenario};
use crate::work::Plan;

/// Prefix of warnings about cells that the budget left out.
pub(super) const LEFT_OUT: &str = "left out: ";

/// Finds programs and room, and begins or continues the document.
pub(super) fn lab<'a>(
    scenario: &Scenario,
    options: &'a Options,
    stop: &'a AtomicBool,
    observer: &'a dyn Observer,
) -> Result<Lab<'a>, LabError> {
    let scenario = match options.relay {
        true => relayed(scenario),
        false => scenario.clone(),
    };
    let plans: Vec<Plan> = scenario
        .works
        .iter()
        .map(|work| work.plan(scenario.seed, scenario.scale_of(*work)))
        .collect();
    let scratch = Scratch::new(&plans)?;
    let (smb_server, at) = (options.smb_server.as_deref(), scratch.at("tools"));
    let tools = Tools::find(&scenario.pairs, &options.program, smb_server, &at);
    let pairs = tools.available(&scenario.pairs);
    if pairs.is_empty() {
        return Err(no_pairs(&tools));
    }
    fs::create_dir_all(&options.out).map_err(LabError::io("make the folder for the report"))?;
    let path = options.out.join(FILE);
    let new = begun(&scenario, &plans, &tools, &scratch, options.relay);
    let old = path.exists().then(|| load_document(&path)).transpose()?;
    let others_open = old
        .as_ref()
        .is_some_and(|old| !old.complete && is_more(old, &scenario));
    let kept = match old {
        Some(old) => continued_or_replaced(old, new, &scenario, (options.resume, &path), observer)?,
        None => new,
    };
    let groups = plan::groups(&scenario, &plans);
    let units = groups
        .iter()
        .enumerate()
        .map(|(id, group)| group.unit(id))
        .collect();
    let rate_max = scenario.side_by_side.map(|rate| rate.0);
    let lab = Lab {
        others_open,
        order: plan::keys(&scenario),
        pace: Pace::of(&scenario),
        packer: Mutex::new(Packer::new(units, rate_max, scratch.room_bytes)),
        recorder: Recorder::new(kept, path),
        begun: Instant::now(),
        calibration: Mutex::new(Calibration::default()),
        logins: Mutex::new(BTreeMap::new()),
        absent: Mutex::new(BTreeSet::new()),
        failed: AtomicBool::new(false),
        scenario,
        options,
        stop,
        observer,
        plans,
        groups,
        pairs,
        tools,
        scratch,
    };
    if options.plan_only {
        return Ok(lab);
    }
    lab.recorder.change(|_| ())?;
    if let Some(warning) = load_warning() {
        lab.warn(None, warning.text)?;
    }
    Ok(lab)
}

/// Continues the document of an earlier call, or keeps what still holds of it.
fn continued_or_replaced(
    old: Document,
    new: Document,
    scenario: &Scenario,
    (how, path): (Resume, &Path),
    observer: &dyn Observer,
) -> Result<Document, LabError> {
    if how != Resume::Strict {
        let dropped = |what: &str| observer.observe(&Event::Dropped { what });
        return Ok(resume::replaced(old, new, scenario, how, &dropped));
    }
    match record::difference(&old, &new) {
        Some(what) => Err(LabError::Differs {
            path: path.to_owned(),
            what,
        }),
        None => Ok(merged(old, new)),
    }
}

fn no_pairs(tools: &Tools) -> LabError {
    let reasons = tools.missing.iter().map(|(who, why)| format!("{who}: {why}"));
    LabError::NoPairs(reasons.collect::<Vec<_>>().join("; "))
}

/// Returns the old document with the settings, versions and gaps of the new one.
pub(super) fn merged(mut old: Document, new: Document) -> Document {
    old.skipped = new.skipped;
    old.versions.extend(new.versions);
    for setting in new.settings {
        match old.settings.iter_mut().find(|known| known.name == setting.name) {
            Some(known) => *known = setting,
            None => old.settings.push(setting),
        }
    }
    old.complete = false;
    old
}

/// Whether a document has more links, works or cells than a scenario.
fn is_more(old: &Document, scenario: &Scenario) -> bool {
    let keys = plan::keys(scenario);
    old.links.len() > scenario.links.len()
        || old.works.len() > scenario.works.len()
        || old.cells.iter().any(|cell| !keys.contains(&cell.key))
}

/// Sets whether the document is complete, and drops warnings that no longer hold.
pub(super) fn finish(lab: &Lab<'_>) -> Result<(), LabError> {
    let mut open = Vec::new();
    for group in &lab.groups {
        let wanted = lab.wanted(group).into_iter();
        open.extend(wanted.map(|pair| group.key(&lab.scenario, pair)));
    }
    let absent = lab.absent.lock().clone();
    let absent: Vec<&str> = absent.iter().map(|server| server.name()).collect();
    lab.recorder.change(|document| {
        document.warnings.retain(|warning| {
            let is_open = warning
                .cell
                .as_ref()
                .is_none_or(|cell| open.contains(cell) || !lab.order.contains(cell));
            is_open || !warning.text.starts_with(LEFT_OUT)
        });
        document
            .cells
            .retain(|cell| !cell.runs.is_empty() || !absent.contains(&cell.key.server.as_str()));
        // A server with results is missing now; one without results is left out.
        let served = |server: &str| {
            let mut cells = document.cells.iter();
            cells.any(|cell| cell.key.server == server && !cell.runs.is_empty())
        };
        let mut open = open.iter().map(|key| key.server.as_str());
        let all = open.all(|server| absent.contains(&server) && !served(server));
        document.complete = all && !lab.others_open;
    })?;
    Ok(())
}

fn begun(scenario: &Scenario, plans: &[Plan], tools: &Tools, scratch: &Scratch, relay: bool) -> Document {
    let mut scales = scenario.works.iter().map(|work| scenario.scale_of(*work));
    let whole = scales.all(|scale| (scale - 1.0).abs() < f64::EPSILON);
    let is_there = |link: &str, work: &str| {
        scenario.links.iter().any(|known| known.name == link)
            && scenario.works.iter().any(|known| known.name() == work)
    };
    let published = if scenario.published && whole {
        published::tr3869()
    } else {
        Vec::new()
    };
    Document {
        versions: tools.versions.clone(),
        settings: settings(scenario, scratch.in_memory, relay),
        works: plans.iter().map(Plan::summary).collect(),
        links: scenario
            .links
            .iter()
            .map(|link| match link.loopback {
                true => loopback(link),
                false => LinkSummary::emulated(&link.name, &link.spec, relay),
            })
            .collect(),
        published: published
            .into_iter()
            .filter(|row| is_there(&row.link, &row.work))
            .collect(),
        skipped: tools.missing.clone(),
        ..document(&scenario.name, &scenario.title)
    }
}

fn loopback(link: &NamedLink) -> LinkSummary {
    let protection = link.protection.map_or("as the server likes", Protection::name);
    LinkSummary::of_this_machine(
        &link.name,
        "the system's own",
        format!("loopback of this machine, {protection}"),
    )
}

impl LinkSummary {
    /// Returns the summary of an emulated link, or of the relay that replaces it.
    pub(crate) fn emulated(name: &str, spec: &LinkSpec, relay: bool) -> Self {
        let congestion = match &spec.tcp.congestion {
            _ if relay => "that of the loopback, which loses nothing".to_owned(),
            Some(congestion) => congestion.name().to_owned(),
            None => "the system's own".to_owned(),
        };
        let [up_delay, down_delay] = spec.delays().map(|delay| delay.as_secs_f64() * 1e3);
        let has_two = spec.up_delay.is_some();
        let cuts = spec.cuts.iter().map(|cut| LinkCut {
            at_seconds: cut.at.as_secs_f64(),
            seconds: (!cut.is_for_ever()).then_some(cut.length.as_secs_f64()),
        });
        Self {
            name: name.to_owned(),
            kind: if relay { "relay" } else { "packets" }.to_owned(),
            rtt_ms: spec.rtt.as_secs_f64() * 1e3,
            up_delay_ms: has_two.then_some(up_delay),
            down_delay_ms: has_two.then_some(down_delay),
            up_bps: spec.up.map(|rate| rate.0),
            down_bps: spec.down.map(|rate| rate.0),
            loss: spec.loss,
            cuts: cuts.collect(),
            described: describe(spec, &congestion),
            congestion,
            proof: None,
        }
    }
}

/// Returns the scenario for relays: rates and delays, without what needs packets.
fn relayed(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    for link in scenario.links.iter_mut().filter(|link| !link.loopback) {
        link.spec = link.spec.relayed();
    }
    scenario
}
