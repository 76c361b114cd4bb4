//! What `bench` prints: the plan, progress, results as JSON Lines.

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use ropeway_lab::bench::budget::Plan;
use ropeway_lab::bench::cell::bytes;
use ropeway_lab::bench::grid::Step;
use ropeway_lab::bench::result::{Cell, FILE, NodeCell, Report};
use ropeway_lab::bench::run::{Ended, Event};
use serde_json::json;

use crate::ui::format;
use crate::ui::messages::{print_line, print_stderr};

/// Redraws per second: enough to look alive.
const DRAWS_PER_S: u8 = 10;

/// Prints events and results.
pub(super) struct Printer {
    json: bool,
    begun: Instant,
    bar: Mutex<Option<ProgressBar>>,
    runs: Mutex<u32>,
}

/// Whether standard output shows colours (no-color.org).
pub(super) fn has_colors() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refused
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            begun: Instant::now(),
            bar: Mutex::default(),
            runs: Mutex::new(1),
        }
    }

    /// Prints what will be measured.
    pub(super) fn begin(&self, report: &Report) {
        let target = &report.target;
        if self.json {
            return;
        }
        let mut line = target.shown.clone();
        let parts = [&target.file_system, &target.source, &target.connection];
        for part in parts.into_iter().flatten() {
            line.push_str(", ");
            line.push_str(part);
        }
        print_line(&line);
    }

    /// Prints an event.
    pub(super) fn event(&self, event: &Event<'_>) {
        match event {
            Event::Note(text) => self.note(text),
            Event::Plan(plan) => self.plan(plan),
            Event::Step(round, number, steps, step) => self.step(*round, *number, *steps, step),
            Event::Names(depth) => self.show(&format!("names, {depth} in flight")),
            Event::Pass(round, key, sample) => {
                if self.json {
                    let line = json!({"type": "run", "round": round + 1, "cell": key, "result": sample});
                    print_line(&line.to_string());
                }
            }
        }
    }

    fn note(&self, text: &str) {
        match self.json {
            true => print_line(&json!({"type": "note", "message": text}).to_string()),
            false => print_line(text),
        }
    }

    fn plan(&self, plan: &Plan) {
        *self.runs.lock() = plan.runs;
        if self.json {
            let line = json!({
                "type": "plan",
                "cells": plan.cells(),
                "steps": plan.steps.len(),
                "rounds": plan.runs,
                "pass_seconds": plan.pass.as_secs_f64(),
                "expected_seconds": plan.expected.as_secs_f64(),
                "written_bytes": plan.written,
            });
            return print_line(&line.to_string());
        }
        let ends = |of: &dyn Fn(&Step) -> u64| {
            let (least, most) = (plan.steps.iter().map(of).min(), plan.steps.iter().map(of).max());
            match (least, most) {
                (Some(least), Some(most)) if least < most => format!("{} to {}", bytes(least), bytes(most)),
                (Some(only), _) => bytes(only),
                _ => "none".to_owned(),
            }
        };
        print_line(&format!(
            "{} in {}: files of {}, records of {}",
            format::counted(plan.cells() as u64, "cell", "cells"),
            format::counted(plan.runs.into(), "round", "rounds"),
            ends(&|step| step.size),
            ends(&|step| step.record),
        ));
        print_line(&format!(
            "about {}; passes of up to {}; writes about {}",
            rough(plan.expected),
            format::duration(plan.pass),
            format::bytes(plan.written)
        ));
    }

    fn step(&self, round: u32, number: usize, steps: usize, step: &Step) {
        let runs = *self.runs.lock();
        self.show(&format!(
            "round {} of {runs}, step {} of {steps}: {} in {}, {}, {} in flight",
            round + 1,
            number + 1,
            bytes(step.size),
            bytes(step.record),
            step.mode,
            step.depth
        ));
    }

    /// Shows a line on a terminal until the next one.
    fn show(&self, text: &str) {
        if self.json || !std::io::stderr().is_terminal() {
            return;
        }
        let mut bar = self.bar.lock();
        let bar = bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S));
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(text.to_owned());
        bar.tick();
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if let Some(bar) = self.bar.lock().take() {
            bar.finish_and_clear();
        }
    }

    /// Ends a call that only planned.
    pub(super) fn planned(&self, report: &Report) {
        if !self.json {
            for left in &report.left_out {
                print_line(&format!("left out: {}: {}", left.what, left.why));
            }
            return;
        }
        self.left_out(report);
        self.summary(report, "planned", None);
    }

    /// Prints the end, and in JSON all results.
    pub(super) fn end(&self, report: &Report, ended: Ended, out: Option<&Path>, files: usize) {
        let word = match ended {
            Ended::Done => "done",
            Ended::Budget => "budget",
            Ended::Stopped => "stopped",
            Ended::Planned => "planned",
        };
        if self.json {
            report.cells.iter().for_each(cell);
            report.nodes.iter().for_each(node);
            for finding in &report.warnings {
                let line = json!({
                    "type": "warning",
                    "reason": finding.reason,
                    "message": finding.text,
                    "cells": finding.cells,
                });
                print_line(&line.to_string());
            }
            self.left_out(report);
            return self.summary(report, word, out);
        }
        let took = format::duration(self.begun.elapsed());
        let how = match ended {
            Ended::Done | Ended::Planned => format!("done in {took}"),
            Ended::Budget => format!("ended by the budget after {took}; --budget gives more time"),
            Ended::Stopped if out.is_some() => format!("stopped after {took}; the same command continues"),
            Ended::Stopped => format!("stopped after {took}"),
        };
        print_line(&format!("\n{how}"));
        if let Some(out) = out {
            let files = format::counted(files as u64, "file", "files");
            print_line(&format!(
                "report: {} and {files} next to it",
                out.join(FILE).display()
            ));
        }
        if ended == Ended::Stopped {
            print_stderr("! the figures are those until then");
        }
    }

    fn left_out(&self, report: &Report) {
        for left in &report.left_out {
            let line = json!({"type": "left_out", "what": left.what, "why": left.why});
            print_line(&line.to_string());
        }
    }

    fn summary(&self, report: &Report, ended: &str, out: Option<&Path>) {
        let line = json!({
            "type": "summary",
            "target": report.target,
            "ended": ended,
            "complete": report.complete,
            "cells": report.cells.len(),
            "runs": report.cells.iter().map(|cell| cell.runs.len()).sum::<usize>(),
            "seconds": self.begun.elapsed().as_secs_f64(),
            "warnings": report.warnings.len(),
            "report": out.map(|out| out.join(FILE)),
        });
        print_line(&line.to_string());
    }
}

fn cell(cell: &Cell) {
    let (Some(rate), Some(requests)) = (cell.rate(), cell.requests()) else {
        return;
    };
    let median =
        |of: &dyn Fn(&ropeway_lab::bench::result::Sample) -> f64| cell.median(of).map(|median| median.value);
    let key = &cell.key;
    let line = json!({
        "type": "cell",
        "pattern": key.pattern,
        "mode": key.mode,
        "size": key.size,
        "record": key.record,
        "depth": key.depth,
        "bytes_per_s": rate.value,
        "bytes_per_s_least": rate.least,
        "bytes_per_s_most": rate.most,
        "requests_per_s": requests.value,
        "p50_us": median(&|run| run.p50_us),
        "p99_us": median(&|run| run.p99_us),
        "max_us": median(&|run| run.max_us),
        "runs": rate.number,
        "cut": cell.runs.iter().any(|run| run.cut),
        "in_memory_before": cell.known(|run| run.in_memory_before),
        "not_written": cell.known(|run| run.not_written),
    });
    print_line(&line.to_string());
}

fn node(cell: &NodeCell) {
    let Some(rate) = cell.rate() else {
        return;
    };
    let line = json!({
        "type": "names",
        "operation": cell.operation,
        "depth": cell.depth,
        "per_s": rate.value,
        "per_s_least": rate.least,
        "per_s_most": rate.most,
        "p50_us": cell.median(|run| run.p50_us),
        "p99_us": cell.median(|run| run.p99_us),
        "runs": rate.number,
    });
    print_line(&line.to_string());
}

/// Formats an estimate: whole minutes from two on.
fn rough(span: Duration) -> String {
    match span.as_secs() {
        seconds if seconds < 120 => format!("{} s", seconds.max(1)),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}
