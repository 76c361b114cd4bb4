//! `ropeway lab vista`: repeats the published comparison of Windows Vista's copy engines, with ours.
//!
//! ```text
//!   plan     targets x works x both directions x engines, in turns     pure
//!   testbed  folders, the work twice, a server over a link; one run of one engine
//!   score    one figure by parts                                       pure
//!   report   the frame of the document and the published figures       pure
//! ```
//!
//! Both sides hold the work: a write copies it from the first folder to the other side, a write-back
//! copies it from the other side to the first folder. Sources are dropped from the page cache before
//! each run; copies are compared.

pub mod plan;
mod report;
pub mod score;
mod testbed;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ropeway_plan::Engine;

use super::{LocalError, Record};
use crate::report::{Cell, Document, FILE, Outcome, Run};
use crate::run::plan::turn;
use crate::run::process;
use plan::{Job, Target, WORKS, jobs};
use testbed::Testbed;

/// Options of the lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program `ropeway`.
    pub program: PathBuf,
    /// Both folders.
    pub dirs: [PathBuf; 2],
    /// Share of the works' full size of 2.5 GB each.
    pub scale: f64,
    /// Runs of each cell; the first is discarded if there are several.
    pub runs: u32,
    /// Engines.
    pub engines: Vec<Engine>,
    /// Targets.
    pub targets: Vec<Target>,
    /// Model of the stick, as `ropeway copy --slow-target` takes it.
    pub stick: String,
    /// Whether a relay on the loopback replaces packets to the server.
    pub relay: bool,
    /// Time after which no run begins.
    pub budget: Duration,
    /// Folder of the report; created if missing.
    pub out: PathBuf,
}

/// Runs the lab and returns the document, which is also written after each run. `notify` gets lines
/// for people. Setting `stop` ends the lab in order.
///
/// # Errors
/// There is no room, the link or the server cannot be started, or the lab was stopped. An engine that
/// fails is a result.
pub fn run(options: &Options, stop: &AtomicBool, notify: &dyn Fn(&str)) -> Result<Document, LocalError> {
    process::adopt();
    super::make_out(&options.out)?;
    let plans = WORKS.map(|work| work.plan(crate::work::SEED, options.scale));
    let jobs = jobs(&options.targets);
    let expected: Duration = jobs
        .iter()
        .map(|job| job.estimate(plans[job.work].bytes()) * options.engines.len() as u32 * options.runs)
        .sum();
    notify(&format!(
        "{} cells, {} runs each; about {} min, at most {}",
        jobs.len() * options.engines.len(),
        options.runs,
        expected.as_secs() / 60 + 1,
        options.budget.as_secs() / 60
    ));
    let mut lab = Lab {
        record: Record {
            document: report::begun(options, &plans),
            path: options.out.join(FILE),
            stop,
            notify,
        },
        jobs,
        options,
    };
    let result = Testbed::open(options, &plans, stop)
        .and_then(|mut testbed| lab.describe(&testbed).and_then(|()| lab.rounds(&mut testbed)));
    // Everything except the report is removed by now.
    lab.score();
    lab.record.finish(result, Some(&options.out))
}

struct Lab<'a> {
    record: Record<'a>,
    jobs: Vec<Job>,
    options: &'a Options,
}

impl Lab<'_> {
    fn score(&mut self) {
        let document = &mut self.record.document;
        report::changes(document, &self.jobs);
        let engines: Vec<Engine> = [Engine::VistaSp1, Engine::Auto]
            .into_iter()
            .filter(|engine| self.options.engines.contains(engine))
            .collect();
        let mut scores: Vec<_> = engines
            .into_iter()
            .filter_map(|engine| score::score(document, &self.jobs, engine))
            .collect();
        report::further(document, scores.get(1..).unwrap_or_default());
        scores.truncate(1);
        document.score = scores.pop();
    }

    /// Proves the link, and measures the reads of the idle machine.
    fn describe(&mut self, testbed: &Testbed<'_>) -> Result<(), LocalError> {
        if self.options.targets.iter().any(|target| target.is_remote()) {
            self.record.prove(&report::lan())?;
        }
        report::idle_reads(&mut self.record.document, testbed.idle_p99_ms()?);
        self.record.save()
    }

    /// Makes all rounds. Returns false if time ran out.
    fn rounds(&mut self, testbed: &mut Testbed<'_>) -> Result<bool, LocalError> {
        let begun = Instant::now();
        for round in 0..self.options.runs {
            for job in self.jobs.clone() {
                for engine in turn(&self.options.engines, round as usize) {
                    self.record.check_stop()?;
                    if begun.elapsed() + testbed.expected(job) > self.options.budget {
                        let text = format!("the budget ended in round {}", round + 1);
                        self.record.warn(text);
                        return Ok(false);
                    }
                    let mut run = testbed.run(job, engine)?;
                    run.discarded = round == 0 && self.options.runs > 1;
                    self.show(job, engine, &run);
                    let plan = testbed.plan(job);
                    let cell = Cell {
                        key: job.key(engine),
                        payload_bytes: plan.bytes(),
                        files: plan.files(),
                        line_seconds: testbed.line_seconds(job),
                        ..Cell::default()
                    };
                    self.record.add_run(cell, run);
                    self.score();
                    self.record.save()?;
                }
            }
        }
        Ok(true)
    }

    fn show(&self, job: Job, engine: Engine, run: &Run) {
        let how = match &run.outcome {
            Outcome::Done => format!(
                "{:8.2} s, durable after {:.2} s",
                run.transfer_seconds.unwrap_or(run.whole_seconds),
                run.durable_seconds.unwrap_or(run.whole_seconds)
            ),
            Outcome::Failed(why) | Outcome::TimedOut(why) => why.clone(),
        };
        let reads = run
            .reads_p99_ms
            .map_or_else(String::new, |p99| format!(", reads p99 {p99:.1} ms"));
        let warm = if run.discarded { " (discarded)" } else { "" };
        self.record.notify(&format!(
            "  {:36} {:10} {how}{reads}{warm}",
            job.name(),
            engine.as_str()
        ));
    }
}
