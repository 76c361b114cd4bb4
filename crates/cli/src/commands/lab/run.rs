//! `ropeway lab run`, the built-in labs and `ropeway lab list`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ropeway_lab::report::{self, CellKey, Document, FileError, Outcome, Run, TableOptions};
use ropeway_lab::run::{Event, LabError, Observer, Options, abandon, run as run_lab};
use ropeway_lab::scenario::{Changes, SHIPPED, Scenario, ScenarioError};
use ropeway_live::Part;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{LabFileArgs, LabListArgs, LabRunArgs};
use crate::failure::{Failure, code};
use crate::live::{self, RunPart};
use crate::ui::format;
use crate::ui::messages::{print, print_line, print_stderr};

/// Maximum size of a scenario file in bytes; the parser allows less.
const FILE_MAX: u64 = 1 << 20;

/// Set when the lab is abandoned: its folders are removed, then the process ends.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// Runs `lab run FILE|NAME`.
///
/// # Errors
/// The scenario does not exist or is invalid, or the lab fails.
pub(super) fn file(args: &LabFileArgs) -> Result<u8, Failure> {
    let shown = args.scenario.display().to_string();
    if let Some(shipped) = Scenario::shipped(&shown) {
        return start(shipped.map_err(refused)?, &args.how);
    }
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    let unreadable = |error: std::io::Error| {
        Failure::of_end(
            format!("cannot read the scenario {shown}: {error}"),
            &error,
            code::USAGE,
        )
        .hint(format!("give a TOML file or one of {}", names.join(", ")))
    };
    let size = std::fs::metadata(&args.scenario).map_err(unreadable)?.len();
    if size > FILE_MAX {
        return Err(Failure::usage(format!("{shown} is too big for a scenario"))
            .hint("docs/lab.md explains the format"));
    }
    let bytes = std::fs::read(&args.scenario).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        Failure::usage(format!("{shown} is not UTF-8")).hint("docs/lab.md explains the format")
    })?;
    start(Scenario::parse(&shown, &text).map_err(refused)?, &args.how)
}

/// Runs a built-in lab.
///
/// # Errors
/// As for [`file()`].
pub(super) fn named(name: &str, args: &LabRunArgs) -> Result<u8, Failure> {
    let Some(scenario) = Scenario::shipped(name) else {
        return Err(Failure::usage(format!("there is no lab {name}")).hint("`ropeway lab list` shows them"));
    };
    start(scenario.map_err(refused)?, args)
}

/// Runs `lab list`.
///
/// # Errors
/// A built-in scenario is invalid.
pub(super) fn list(args: &LabListArgs) -> Result<u8, Failure> {
    for (name, _) in SHIPPED {
        let Some(scenario) = Scenario::shipped(name) else {
            continue;
        };
        let scenario = scenario.map_err(refused)?;
        let links: Vec<&str> = scenario.links.iter().map(|link| link.name.as_str()).collect();
        let pairs: Vec<String> = scenario.pairs.iter().map(ToString::to_string).collect();
        let works: Vec<&str> = scenario.works.iter().map(|work| work.name()).collect();
        if args.json {
            let line = json!({
                "type": "scenario",
                "name": scenario.name,
                "title": scenario.title,
                "cells": scenario.cells(),
                "runs": scenario.runs,
                "budget_seconds": scenario.budget.as_secs_f64(),
                "links": links,
                "works": works,
                "pairs": pairs,
            });
            print_line(&line.to_string());
            continue;
        }
        print_line(&format!("{name}: {}", scenario.title));
        print_line(&format!(
            "  {}, {} each, at most {}",
            format::counted(scenario.cells() as u64, "cell", "cells"),
            format::counted(scenario.runs.into(), "run", "runs"),
            format::duration(scenario.budget),
        ));
        print_line(&format!("  links    {}", links.join(", ")));
        print_line(&format!("  works    {}", works.join(", ")));
        print_line(&format!("  pairs    {}", pairs.join(", ")));
    }
    Ok(code::DONE)
}

fn start(scenario: Scenario, args: &LabRunArgs) -> Result<u8, Failure> {
    let changes = Changes {
        scale: args.scale,
        runs: args.runs,
        budget: args.budget,
        side_by_side: args.side_by_side.map(|choice| choice.0),
        clients: args.clients.clone(),
        servers: args.servers.clone(),
        links: args.links.clone(),
        works: args.works.clone(),
        directions: args.directions.clone(),
    };
    let scenario = scenario.with(&changes).map_err(refused)?;
    let program = std::env::current_exe().map_err(|error| {
        Failure::usage(format!("cannot find this program: {error}")).hint("run it by its path")
    })?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("lab-{}", scenario.name)));
    let options = Options {
        program,
        relay: args.relay || needs_relay(args.json),
        keep_traces: args.keep_traces,
        // The lab's processes run in other folders.
        out: std::path::absolute(&out)
            .map_err(|error| Failure::new(code::TARGET, format!("cannot use {}: {error}", out.display())))?,
        ..Options::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = catch_signals(&stop)?;
    // A thread, so not before the namespaces are made.
    let live = live::start("lab");
    let part = RunPart::new("lab", &scenario.name);
    let _registered = live.add(Arc::clone(&part) as Arc<dyn Part>);
    let printer = EventPrinter {
        json: args.json,
        part,
        runs: scenario.runs.into(),
    };
    let result = run_lab(&scenario, &options, &stop, &printer);
    stop_signals(runtime);
    let document = result.map_err(|error| {
        if matches!(error, LabError::Interrupted)
            && let Ok(document) = report::load(&options.out.join(report::FILE))
            && let Err(error) = report::write_all(&document, &options.out)
        {
            print_stderr(&format!("! {error}"));
        }
        failed(&error)
    })?;
    conclude(&document, &options, args.json)
}

/// Returns whether namespaces or TUN are forbidden, so that only relays are possible.
pub(super) fn needs_relay(json: bool) -> bool {
    let open = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let why = match open {
        Err(error) => format!("/dev/net/tun: {error}"),
        Ok(_) => match super::enable_namespaces() {
            Ok(()) => return false,
            Err(failure) => failure.message,
        },
    };
    if !json {
        print_stderr(&format!("! {why}: using relays instead of packets"));
    }
    true
}

/// Handles SIGINT, SIGTERM and SIGHUP. The first signal ends the lab in order. The second one ends
/// it at once, but still removes what the lab created. The third one ends the program.
pub(in crate::commands) fn catch_signals(stop: &Arc<AtomicBool>) -> Result<Runtime, Failure> {
    let runtime = crate::job::runtime()?;
    let entered = runtime.enter();
    let number = Arc::new(AtomicUsize::new(0));
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let mut caught = signal(kind).map_err(|error| {
            Failure::usage(format!("cannot catch signals: {error}")).hint("check the limits with `ulimit -a`")
        })?;
        let (stop, number) = (Arc::clone(stop), Arc::clone(&number));
        runtime.spawn(async move {
            while caught.recv().await.is_some() {
                match number.fetch_add(1, Ordering::AcqRel) {
                    0 => {
                        stop.store(true, Ordering::Release);
                        print_stderr("stopping: ending all processes and cleaning up");
                    }
                    1 => {
                        print_stderr(
                            "stopping at once: killing all processes and removing the lab's folders",
                        );
                        // Not on this task, which waits for a third signal.
                        tokio::task::spawn_blocking(abandon_and_exit);
                    }
                    _ => std::process::exit(code::INTERRUPTED.into()),
                }
            }
        });
    }
    drop(entered);
    Ok(runtime)
}

fn abandon_and_exit() {
    ABANDONED.store(true, Ordering::Release);
    abandon();
    std::process::exit(code::INTERRUPTED.into());
}

/// Ends the signal handling after the lab. If the lab was abandoned, waits for the other thread to
/// end the process: the lab's own result is wrong then.
pub(in crate::commands) fn stop_signals(runtime: Runtime) {
    while ABANDONED.load(Ordering::Acquire) {
        std::thread::park();
    }
    runtime.shutdown_background();
}

/// Writes all reports and prints the result.
fn conclude(document: &Document, options: &Options, json: bool) -> Result<u8, Failure> {
    let written = report::write_all(document, &options.out).map_err(|error| {
        Failure::new(code::TARGET, error.to_string())
            .hint("report.json was written; `ropeway lab report` writes the others again")
    })?;
    let failed = |run: &Run| !matches!(run.outcome, Outcome::Done);
    let own = document.cells.iter().filter(|cell| cell.key.client == "ropeway");
    let own_failed = own.flat_map(|cell| &cell.runs).any(failed);
    let path = options.out.join(report::FILE);
    if json {
        let line = json!({
            "type": "lab",
            "version": document.version,
            "lab": document.lab,
            "complete": document.complete,
            "cells": document.cells.len(),
            "report": path.display().to_string(),
            "files": written.files.len() + 1,
        });
        print_line(&line.to_string());
    } else {
        print_table(document);
        let how = if document.complete {
            "complete"
        } else {
            "not complete; run the same command to resume"
        };
        let files = format::counted(written.files.len() as u64, "file", "files");
        print_line(&format!(
            "{}: {how}; {files} next to {}",
            document.lab,
            path.display()
        ));
    }
    let own_absent = document.skipped.contains_key("ropeway");
    Ok(if own_failed || own_absent || !document.complete {
        code::SOME_FAILED
    } else {
        code::DONE
    })
}

fn print_table(document: &Document) {
    let options = TableOptions {
        width: super::reports::width(),
        brief: true,
    };
    print(&format!("\n{}\n", report::table(document, options)));
}

/// Prints the lab's events, for people or programs, and shows them to other processes.
struct EventPrinter {
    json: bool,
    part: Arc<RunPart>,
    /// Runs of each cell.
    runs: u64,
}

impl EventPrinter {
    fn show(&self, event: &Event<'_>) {
        match event {
            Event::Planned {
                cells, runs_there, ..
            } => {
                self.part.planned(*cells as u64 * self.runs, *runs_there as u64);
            }
            Event::Phase { phase } => self.part.step(phase),
            Event::Run { cell, number, run } => {
                self.part.done();
                self.part.step(&shown(cell));
                let failed = !matches!(run.outcome, Outcome::Done);
                self.part.say(failed, run_line(cell, *number, run).trim());
            }
            Event::Warning { text, .. } => self.part.say(true, text),
            Event::Skipped { what, why } => self.part.say(false, &format!("left out: {what}: {why}")),
            _ => {}
        }
    }
}

impl Observer for EventPrinter {
    fn observe(&self, event: &Event<'_>) {
        self.show(event);
        if self.json {
            if let Ok(line) = serde_json::to_string(event) {
                print_line(&line);
            }
            return;
        }
        match event {
            Event::Planned {
                cells,
                runs_there,
                seconds,
                budget_seconds,
            } => {
                let there = match runs_there {
                    0 => String::new(),
                    runs => format!(", {} done already", format::counted(*runs as u64, "run", "runs")),
                };
                print_line(&format!(
                    "{}{there}; about {}, at most {}",
                    format::counted(*cells as u64, "cell", "cells"),
                    format::duration(Duration::from_secs_f64(seconds.max(0.0))),
                    format::duration(Duration::from_secs_f64(budget_seconds.max(0.0))),
                ));
            }
            // Only of plans without runs, and of labs that replace their results.
            Event::Row { .. } | Event::Dropped { .. } => {}
            Event::Skipped { what, why } => print_line(&format!("left out: {what}: {why}")),
            Event::Phase { phase } => print_line(&format!("{phase} …")),
            Event::Proved { link, holds } => {
                print_line(&format!(
                    "  {link}: {}",
                    if *holds { "within bounds" } else { "OUT OF BOUNDS" }
                ));
            }
            Event::Floor {
                link,
                work,
                direction,
                connections,
                seconds,
            } => print_line(&format!(
                "  {link} {work} {direction}: {seconds:.2} s, {}",
                format::counted(*connections as u64, "connection", "connections")
            )),
            Event::Run { cell, number, run } => print_line(&run_line(cell, *number, run)),
            Event::Warning { cell, text } => {
                let cell = cell.map_or(String::new(), |cell| format!("{}: ", shown(cell)));
                print_stderr(&format!("! {cell}{text}"));
            }
        }
    }
}

fn shown(cell: &CellKey) -> String {
    format!(
        "{} {} {} {} → {}",
        cell.link, cell.work, cell.direction, cell.client, cell.server
    )
}

fn run_line(cell: &CellKey, number: usize, run: &Run) -> String {
    let how = match &run.outcome {
        Outcome::Done => {
            let transfer = run
                .transfer_seconds
                .map_or(String::new(), |seconds| format!(", transfer {seconds:.2} s"));
            format!("{:8.2} s{transfer}", run.whole_seconds)
        }
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::TimedOut(why) => why.clone(),
    };
    format!("  {:60} run {number}  {how}", shown(cell))
}

fn refused(error: ScenarioError) -> Failure {
    Failure::usage(error.to_string()).hint(error.hint)
}

fn failed(error: &LabError) -> Failure {
    let code = match error {
        LabError::Link(error) => return super::failure(error),
        LabError::File(FileError::Io { source, .. }) | LabError::Io { source, .. } => {
            return Failure::of_end(error.to_string(), source, code::TARGET).hint(error.hint());
        }
        LabError::File(FileError::Strange { .. }) | LabError::NoPairs(_) => code::USAGE,
        LabError::Differs { .. } => code::REFUSED,
        LabError::NoRoom { .. } => code::TARGET,
        LabError::Interrupted => code::INTERRUPTED,
    };
    Failure::new(code, error.to_string()).hint(error.hint())
}
