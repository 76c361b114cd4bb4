//! One group: a link, its servers, and the clients, which take turns until each cell has its runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use super::client::{self, COPY, Ends};
use super::curves::{self, Kind, Sampler};
use super::machine::now;
use super::measure::{Bounds, End, Measured, REPORTED, json_line, measure};
use super::monitor::{RunMonitor, Used};
use super::plan::{Group, affordable, turn};
use super::scratch::empty;
use super::server::{Exports, Requests, Route, Served};
use super::setup::LEFT_OUT;
use super::sockets::SocketWatch;
use super::{Event, Lab, LabError, TRACES, record};
use crate::link::Side;
use crate::report::{CellKey, Outcome, Run, Sockets};
use crate::scenario::{Client, Direction, Pair, Server};

/// Time for the line to become quiet after a client was ended. A guess.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// Time without traffic after which a line is quiet. A guess.
const QUIET: Duration = Duration::from_millis(500);
/// Number of times that an empty operation is timed; the best counts.
const LOGINS: usize = 3;
/// Attempts to start a server before it is left out.
const STARTS: usize = 2;
/// Longest time of an empty operation.
const LOGIN_MAX: Duration = Duration::from_secs(30);

/// Attempted action in the errors of a copy's folders.
const NO_ROOM: &str = "make room for a copy";

/// Makes the runs that the group still needs.
///
/// # Errors
/// The link cannot be set up or the report cannot be written. A client that fails is a result.
pub(super) fn run(lab: &Lab<'_>, id: usize) -> Result<(), LabError> {
    let group = &lab.groups[id];
    let wanted = lab.wanted(group);
    if wanted.is_empty() {
        return Ok(());
    }
    let name = format!("g{id}");
    let folder = lab.scratch.at(&name);
    let cache = lab.scratch.on_disk(&name).map_err(LabError::io(NO_ROOM))?;
    let folders = (folder.clone(), cache.clone());
    let result = Testbed::open(lab, group, folders, &wanted).and_then(|testbed| testbed.rounds(wanted));
    // What stays here is removed with the scratch folder.
    for folder in [folder, cache] {
        _ = fs::remove_dir_all(folder);
    }
    result
}

/// The link, the servers and the folders of a group.
struct Testbed<'a> {
    lab: &'a Lab<'a>,
    group: &'a Group,
    // Servers are dropped before their route.
    servers: BTreeMap<Server, Served>,
    route: Route,
    folder: PathBuf,
    /// Caches of mounts, on a disk.
    cache: PathBuf,
}

impl<'a> Testbed<'a> {
    fn open(
        lab: &'a Lab<'a>,
        group: &'a Group,
        (folder, cache): (PathBuf, PathBuf),
        pairs: &[Pair],
    ) -> Result<Self, LabError> {
        for name in ["near", "far", "client"] {
            empty(&folder.join(name)).map_err(LabError::io("make folders"))?;
        }
        let route = match lab.link(group).loopback {
            true => Route::Loopback,
            false => Route::start(&lab.link(group).spec, lab.options.relay)?,
        };
        let mut testbed = Self {
            lab,
            group,
            servers: BTreeMap::new(),
            route,
            folder,
            cache,
        };
        for pair in pairs {
            if !testbed.servers.contains_key(&pair.server) && !lab.is_stopping() {
                testbed.serve(pair.server)?;
            }
        }
        Ok(testbed)
    }

    fn serve(&mut self, server: Server) -> Result<(), LabError> {
        let lab = self.lab;
        let absent = || lab.absent.lock();
        if absent().contains(&server) {
            return Ok(());
        }
        let (source, target) = (
            lab.scratch.source(&lab.plans[self.group.work]),
            self.folder.join("far"),
        );
        let scratch = self.folder.join(server.name());
        let start = || {
            _ = fs::remove_dir_all(&scratch);
            let exports = Exports {
                source: &source,
                target: &target,
                scratch: &scratch,
                protection: lab.link(self.group).protection,
                flags: &[],
            };
            Served::start(server, &lab.tools, &self.route, exports)
        };
        let mut started = start();
        for _ in 1..STARTS {
            if started.is_err() && !lab.is_stopping() {
                started = start();
            }
        }
        match started {
            Ok(served) => _ = self.servers.insert(server, served),
            // An interrupted start proves nothing about the server.
            Err(_) if lab.is_stopping() => {}
            Err(why) => {
                absent().insert(server);
                lab.observer.observe(&Event::Skipped {
                    what: server.name(),
                    why: &why,
                });
                lab.recorder
                    .change(|document| document.skipped.insert(server.name().to_owned(), why))?;
            }
        }
        Ok(())
    }

    /// Makes rounds until no run is missing.
    fn rounds(self, mut wanted: Vec<Pair>) -> Result<(), LabError> {
        wanted.retain(|pair| self.servers.contains_key(&pair.server));
        let mut round = 0;
        while !wanted.is_empty() && !self.lab.is_stopping() {
            for pair in turn(&wanted, round) {
                if self.lab.is_stopping() {
                    break;
                }
                let goes_on = self.has_time(pair)? && self.turn(pair)?;
                if !goes_on || self.lab.missing(self.group, pair) == 0 {
                    wanted.retain(|other| *other != pair);
                }
            }
            round += 1;
        }
        Ok(())
    }

    /// Whether the budget allows one more run; warns if it does not.
    fn has_time(&self, pair: Pair) -> Result<bool, LabError> {
        let (lab, group) = (self.lab, self.group);
        let key = group.key(&lab.scenario, pair);
        let runs = lab.recorder.runs(&key);
        let (cost, reserve) = match runs.last() {
            Some(run) => (
                // The value may come from an edited file.
                Duration::try_from_secs_f64(run.whole_seconds).unwrap_or_else(|_| lab.expected(group, pair)),
                lab.reserve(),
            ),
            None => (lab.expected(group, pair), Duration::ZERO),
        };
        if affordable(
            lab.begun.elapsed(),
            cost + group.beside(),
            reserve,
            lab.scenario.budget,
        ) {
            return Ok(true);
        }
        let what = if runs.is_empty() {
            "not measured"
        } else {
            "no more runs"
        };
        let budget = lab.scenario.budget.as_secs();
        lab.warn(
            Some(&key),
            format!("{LEFT_OUT}{what}, the budget of {budget} s is running out"),
        )?;
        Ok(false)
    }

    /// Makes one run of a pair. Returns whether it succeeded, so that another may follow.
    fn turn(&self, pair: Pair) -> Result<bool, LabError> {
        let (lab, group) = (self.lab, self.group);
        let key = group.key(&lab.scenario, pair);
        let before = lab.recorder.runs(&key).len();
        let Some(done) = self.one(pair, before == 0)? else {
            return Ok(false);
        };
        let run = done.run;
        let seconds = Duration::from_secs_f64(run.whole_seconds);
        let went_well = matches!(run.outcome, Outcome::Done);
        if went_well {
            let expected = group.expected(&lab.scenario.links[group.link].spec, pair);
            let mut calibration = lab.calibration.lock();
            calibration.learn(pair, expected, seconds);
        }
        lab.observer.observe(&Event::Run {
            cell: &key,
            number: before + 1,
            run: &run,
        });
        lab.recorder.change(|document| {
            curves::add(document, Kind::Throughput, &key, done.throughput);
            curves::add(document, Kind::Operations, &key, done.operations);
            curves::add(document, Kind::Requests, &key, done.requests);
            if lab.scenario.requests && lab.scenario.published {
                curves::add_published(document);
            }
            record::add_run(document, &key, run);
            record::judge_second_readings(document);
        })?;
        if !went_well {
            self.quiet();
        }
        Ok(went_well)
    }

    /// Makes one copy to an empty folder and compares it with the source; `None` if it was stopped.
    fn one(&self, pair: Pair, is_first: bool) -> Result<Option<Done>, LabError> {
        let lab = self.lab;
        let folders = ["near", "far", "client"].map(|name| self.folder.join(name));
        for folder in folders.iter().chain([&self.cache]) {
            empty(folder).map_err(LabError::io(NO_ROOM))?;
        }
        let Some(server) = self.servers.get(&pair.server) else {
            return Ok(None);
        };
        let login = self.login(pair, server)?;
        let scratch = self.folder.join("client");
        let source = lab.scratch.source(&lab.plans[self.group.work]);
        let (near, trace) = (self.folder.join("near"), scratch.join("trace"));
        let ends = Ends {
            remote: server.remote(&scratch),
            source: &source,
            near: &near,
            cache: &self.cache,
            bytes: self.group.bytes,
            trace: is_first.then_some(trace.as_path()),
            flags: &lab.scenario.ropeway_flags,
            protection: lab.link(self.group).protection,
        };
        let direction = self.group.direction;
        let listing = lab.scenario.works[self.group.work].is_listing();
        let command = match listing {
            true => client::list(pair.client, &lab.tools, ends),
            false => client::copy(pair.client, &lab.tools, ends, direction),
        };
        let copy = match command {
            Ok(command) => command,
            Err(error) => return Ok(Some(failed(now(), error.to_string()))),
        };
        let output = scratch.join("output");
        let started = now();
        let left = lab.scenario.budget.saturating_sub(lab.begun.elapsed());
        let longest = self.longest(pair);
        let limit = longest.min(left);
        let requests = (is_first && lab.scenario.requests).then(|| server.requests());
        let observed = match self.observe(copy, &output, (server, requests.flatten()), (limit, is_first)) {
            Ok(observed) if observed.measured.end == End::Stopped => return Ok(None),
            Ok(observed) if observed.measured.end == End::TimedOut && limit < longest => {
                let key = self.group.key(&lab.scenario, pair);
                let budget = lab.scenario.budget.as_secs();
                let text = format!("{LEFT_OUT}a run was ended, the budget of {budget} s was over");
                lab.warn(Some(&key), text)?;
                return Ok(None);
            }
            Ok(observed) => observed,
            Err(error) => return Ok(Some(failed(started, format!("cannot be started: {error}")))),
        };
        let mut run = self.account(pair, started, login, &observed, &output);
        if matches!(run.outcome, Outcome::Done) {
            let same = self.compare(&source, &near, &output);
            if let Err(wrong) = same.map_err(LabError::io(NO_ROOM))? {
                run.outcome = Outcome::Failed(format!("the result is wrong: {wrong}"));
            }
        }
        let mut done = Done {
            run,
            ..Done::default()
        };
        if is_first {
            done.throughput = observed.throughput;
            done.requests = observed.requests;
            done.operations = curves::operations(&trace, direction);
            if lab.options.keep_traces && trace.exists() {
                self.keep(&trace, pair).map_err(LabError::io("keep a trace"))?;
            }
        }
        Ok(Some(done))
    }

    /// Copies the trace of a cell's first run to the folder of the report.
    fn keep(&self, trace: &Path, pair: Pair) -> io::Result<()> {
        let folder = self.lab.options.out.join(TRACES);
        fs::create_dir_all(&folder)?;
        let key = self.group.key(&self.lab.scenario, pair);
        let CellKey {
            link,
            work,
            direction,
            client,
            server,
            ..
        } = &key;
        let name = format!("{link}-{work}-{direction}-{client}-{server}.trace");
        fs::copy(trace, folder.join(name.replace('/', "-"))).map(|_| ())
    }

    /// Compares what arrived, or what was listed, with the source.
    fn compare(&self, source: &Path, near: &Path, output: &Path) -> io::Result<Result<(), String>> {
        let plan = &self.lab.plans[self.group.work];
        if self.lab.scenario.works[self.group.work].is_listing() {
            return plan.compare_listing(output);
        }
        match self.group.direction {
            Direction::Read => plan.compare(source, &near.join(COPY)),
            Direction::Write => plan.compare(source, &self.folder.join("far").join(COPY)),
        }
    }

    /// Runs a client and observes the line, the server and the machine meanwhile.
    fn observe(
        &self,
        copy: Command,
        output: &Path,
        (server, mut requests): (&Served, Option<Requests>),
        (limit, is_first): (Duration, bool),
    ) -> std::io::Result<Observed> {
        let mut monitor = RunMonitor::begin(Some(server));
        let mut sockets = self.route.link().filter(|_| is_first).map(SocketWatch::new);
        let wire = || self.route.wire_bytes(self.group.direction);
        let mut count = || requests.as_mut().and_then(Requests::count);
        let begun = |count: u64| Sampler::new(curves::INTERVAL, Duration::ZERO, count);
        let (mut on_wire, mut at_server) = (wire().map(begun), count().map(begun));
        self.route.begin_run();
        let measured = self.measure(copy, output, limit, &mut |at| {
            if let Some(sampler) = &mut on_wire {
                sampler.look(at, || wire().unwrap_or(0));
            }
            if let Some(sampler) = &mut at_server
                && sampler.is_due(at)
                && let Some(count) = count()
            {
                sampler.look(at, || count);
            }
            monitor.look(at);
            if let Some(sockets) = &mut sockets {
                sockets.look(at);
            }
        });
        // The next run begins with an uncut link, however this one ended.
        self.route.end_run();
        let measured = measured?;
        let finished = |sampler: Option<Sampler>, last: Option<u64>| {
            sampler.map_or_else(Vec::new, |sampler| match last {
                Some(last) => sampler.finish(measured.whole, last),
                None => sampler.points().to_vec(),
            })
        };
        Ok(Observed {
            throughput: finished(on_wire, wire()),
            requests: finished(at_server, count()),
            measured,
            sockets: sockets.and_then(SocketWatch::finish),
            used: monitor.end(),
        })
    }

    fn measure(
        &self,
        command: Command,
        output: &Path,
        limit: Duration,
        tick: &mut dyn FnMut(Duration),
    ) -> std::io::Result<Measured> {
        let bounds = Bounds {
            limit,
            stop: &|| self.lab.is_stopping(),
        };
        measure(
            command,
            output,
            bounds,
            |command| self.route.spawn(Side::Near, command),
            tick,
        )
    }

    /// Time of a login without any transfer; measured once for each link and pair.
    fn login(&self, pair: Pair, server: &Served) -> Result<Option<Duration>, LabError> {
        let known = || self.lab.logins.lock();
        let place = (self.group.link, pair);
        if let Some(found) = known().get(&place) {
            return Ok(*found);
        }
        let scratch = self.folder.join("client");
        let ends = Ends {
            remote: server.remote(&scratch),
            source: &scratch,
            near: &scratch,
            cache: &self.cache,
            bytes: 0,
            trace: None,
            flags: &[],
            protection: self.lab.link(self.group).protection,
        };
        let mut best: Option<Duration> = None;
        for _ in 0..LOGINS {
            let command = client::empty(pair.client, &self.lab.tools, ends);
            let Some(command) = command.map_err(LabError::io("prepare a client"))? else {
                break;
            };
            let measured = self.measure(command, &scratch.join("login-output"), LOGIN_MAX, &mut |_| {});
            match measured {
                Ok(Measured {
                    end: End::Exited(status),
                    whole,
                    ..
                }) if status.success() => best = Some(best.map_or(whole, |best| best.min(whole))),
                _ => break,
            }
        }
        if !self.lab.is_stopping() {
            known().insert(place, best);
        }
        Ok(best)
    }

    /// Time limit of a pair's run.
    fn longest(&self, pair: Pair) -> Duration {
        self.group.limit_for(&self.lab.link(self.group).spec, pair)
    }

    fn account(
        &self,
        pair: Pair,
        started: String,
        login: Option<Duration>,
        observed: &Observed,
        output: &Path,
    ) -> Run {
        let longest = self.longest(pair);
        let measured = &observed.measured;
        let whole = measured.whole.as_secs_f64();
        let is_mount = pair.client.is_mount();
        let is_ours = pair.client == Client::Ropeway || pair.client.era().is_some();
        let own = match is_mount || is_ours {
            true => json_line(output, REPORTED),
            false => None,
        };
        let seconds = |name: &str| own.as_ref()?.get(name)?.as_f64();
        let transfer = seconds(REPORTED).or(login.map(|login| whole - login.as_secs_f64()));
        let outcome = measured.outcome(output, longest, true);
        let is_done = matches!(outcome, Outcome::Done);
        // A transfer cannot be faster than the line. If it seems so, the empty operation took longer
        // than the login of the copy. A mount may have the data in a cache.
        let least = self.group.line.unwrap_or_default().as_secs_f64();
        let transfer = transfer.filter(|seconds| is_done && (is_mount || *seconds > least));
        let work = self.lab.scenario.works[self.group.work];
        let trip = self.lab.link(self.group).spec.rtt.as_secs_f64();
        let is_counted = work.is_listing() && trip > 0.0;
        Run {
            transfer_seconds: transfer,
            round_trips: transfer.filter(|_| is_counted).map(|seconds| seconds / trip),
            durable_seconds: seconds("seconds_durable").filter(|_| is_done),
            sockets: observed.sockets.clone(),
            ..observed.used.run(started, measured, outcome)
        }
    }

    /// Waits until the line is quiet: replies to a client that was ended still arrive.
    fn quiet(&self) {
        let end = Instant::now() + QUIET_MAX;
        let wire = || self.route.wire_bytes(self.group.direction);
        let mut before = wire();
        while Instant::now() < end && !self.lab.is_stopping() {
            thread::sleep(QUIET);
            let now = wire();
            if now == before {
                return;
            }
            before = now;
        }
    }
}

/// Observations of one run.
struct Observed {
    measured: Measured,
    sockets: Option<Sockets>,
    throughput: Vec<[f64; 2]>,
    requests: Vec<[f64; 2]>,
    used: Used,
}

/// A run with its curves.
#[derive(Default)]
struct Done {
    run: Run,
    throughput: Vec<[f64; 2]>,
    operations: Vec<[f64; 2]>,
    requests: Vec<[f64; 2]>,
}

fn failed(started: String, why: String) -> Done {
    Done {
        run: Run::failed(started, why),
        ..Done::default()
    }
}
