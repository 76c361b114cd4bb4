//! `ropeway lab vista`: repeats the published comparison of Windows Vista's copy engines, with ours.
//!
//! ```text
//!   plan    targets x works x both ways x engines, in turns     pure
//!   stage   folders, the work twice, a server over a link; one run of one engine
//!   score   one figure by parts                                 pure
//!   report  the document's frame and what was published         pure
//! ```
//!
//! The work lies on both sides: a write copies it from the first folder to the other side, a write-back copies the
//! other side's to the first folder. Sources are dropped from the page cache before each run; copies are compared.

pub mod plan;
mod report;
pub mod score;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ropeway_plan::Engine;

use super::LocalError;
use crate::report::{Cell, Document, FILE, Outcome, Run, Warning, save, write_all};
use crate::run::machine::now;
use crate::run::process;
use plan::{Job, Target, WORKS, jobs, turn};
use stage::Stage;

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

/// Runs the lab and returns the document, which is also written after each run. `told` gets lines for
/// people. Setting `stop` ends the lab in order.
///
/// # Errors
/// There is no room, the link or the server cannot be started, or the lab was stopped. An engine that
/// fails is a result.
pub fn run(options: &Options, stop: &AtomicBool, told: &dyn Fn(&str)) -> Result<Document, LocalError> {
    process::adopt();
    let out = &options.out;
    super::make_out(out)?;
    let plans = WORKS.map(|work| work.plan(crate::work::SEED, options.scale));
    let jobs = jobs(&options.targets);
    let expected: Duration = jobs
        .iter()
        .map(|job| job.estimate(plans[job.work].bytes()) * options.engines.len() as u32 * options.runs)
        .sum();
    told(&format!(
        "{} cells, {} runs each; about {} min, at most {}",
        jobs.len() * options.engines.len(),
        options.runs,
        expected.as_secs() / 60 + 1,
        options.budget.as_secs() / 60
    ));
    let mut lab = Lab {
        document: report::begun(options, &plans, &now()),
        jobs,
        options,
        stop,
        told,
    };
    let result = Stage::open(options, &plans, stop)
        .and_then(|mut stage| lab.describe(&mut stage).and_then(|()| lab.rounds(&mut stage)));
    // Everything except the report is removed by now.
    lab.document.complete = matches!(result, Ok(true));
    lab.save()?;
    write_all(&lab.document, out)?;
    result.map(|_| lab.document)
}

struct Lab<'a> {
    document: Document,
    jobs: Vec<Job>,
    options: &'a Options,
    stop: &'a AtomicBool,
    told: &'a dyn Fn(&str),
}

impl Lab<'_> {
    fn save(&mut self) -> Result<(), LocalError> {
        self.document.updated = now();
        let engines: Vec<Engine> = [Engine::VistaSp1, Engine::Auto]
            .into_iter()
            .filter(|engine| self.options.engines.contains(engine))
            .collect();
        let mut scores: Vec<_> = engines
            .into_iter()
            .filter_map(|engine| score::score(&self.document, &self.jobs, engine))
            .collect();
        report::further(&mut self.document, scores.get(1..).unwrap_or_default());
        scores.truncate(1);
        self.document.score = scores.pop();
        Ok(save(&self.document, &self.options.out.join(FILE))?)
    }

    fn describe(&mut self, stage: &mut Stage<'_>) -> Result<(), LocalError> {
        if stage.congestion().is_some() {
            super::prove(&mut self.document, &report::lan(), self.stop)?;
        }
        report::described(&mut self.document, stage.idle_p99_ms()?, stage.congestion());
        self.save()
    }

    /// Makes all rounds. Returns false if time ran out.
    fn rounds(&mut self, stage: &mut Stage<'_>) -> Result<bool, LocalError> {
        let begun = Instant::now();
        for round in 0..self.options.runs {
            for job in self.jobs.clone() {
                for engine in turn(&self.options.engines, round) {
                    if self.stop.load(Ordering::Acquire) {
                        return Err(LocalError::Interrupted);
                    }
                    if begun.elapsed() + stage.expected(job) > self.options.budget {
                        self.warn(format!("its time was over in round {}", round + 1));
                        return Ok(false);
                    }
                    let mut run = stage.run(job, engine)?;
                    run.discarded = round == 0 && self.options.runs > 1;
                    self.tell(job, engine, &run);
                    self.add(stage, job, engine, run);
                    self.save()?;
                }
            }
        }
        Ok(true)
    }

    fn warn(&mut self, text: String) {
        (self.told)(&format!("! {text}"));
        self.document.warnings.push(Warning { cell: None, text });
    }

    fn add(&mut self, stage: &Stage<'_>, job: Job, engine: Engine, run: Run) {
        let key = job.key(engine);
        if let Some(cell) = self.document.cells.iter_mut().find(|cell| cell.key == key) {
            cell.runs.push(run);
            return;
        }
        let plan = stage.plan(job);
        self.document.cells.push(Cell {
            key,
            payload_bytes: plan.bytes(),
            files: plan.files(),
            line_seconds: stage.line_seconds(job),
            floor_seconds: None,
            target_seconds: None,
            runs: vec![run],
        });
    }

    fn tell(&self, job: Job, engine: Engine, run: &Run) {
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
        (self.told)(&format!(
            "  {:36} {:10} {how}{reads}{warm}",
            job.name(),
            engine.as_str()
        ));
    }
}
