//! Makes a run: a short look at the target, the plan, rounds of all steps, warnings.
//!
//! Each round goes through all steps, so if the budget ends, repeats are missing first, and a drift of
//! the machine falls on all cells. The report is saved after each step, so a run that was cut goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::budget::{Plan, Speed, files};
use crate::bench::cell::{Key, Mode, Pattern, bytes};
use crate::bench::facts::Noise;
use crate::bench::findings::findings;
use crate::bench::grid::{Grid, Step};
use crate::bench::io::{Cold, Ground, NamePass, Pass, PassError};
use crate::bench::result::{FILE, Filled, Report, Sample, load, save};
use crate::random::SplitMix64;
use crate::report::{FileError, ReportError};
use crate::run::machine::now;

/// Size of the file of the short look.
const LOOK_BYTES: u64 = 32 << 20;
/// Time of each part of the short look.
const LOOK: Duration = Duration::from_millis(1500);
/// Time of its small requests.
const LOOK_SMALL: Duration = Duration::from_millis(300);
/// Record size of its small requests.
const SMALL: u64 = 4096;
/// Room that is kept free, in bytes (a guess).
const MARGIN_BYTES: u64 = 64 << 20;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured.
    pub grid: Grid,
    /// Whether the user named the sizes, so that one without room is an error.
    pub sizes_asked: bool,
    /// Number of rounds.
    pub runs: u32,
    /// Time after which no further step begins.
    pub budget: Duration,
    /// Time limit of a pass; by default it follows from the budget.
    pub pass: Option<Duration>,
    /// Number of files of the operations on names; 0 for none.
    pub files: u64,
    /// Seed of all orders and data.
    pub seed: u64,
    /// What happens to the page cache before a pass.
    pub cold: Cold,
    /// Largest number of bytes in flight.
    pub flight_max: u64,
    /// Folder of the report; `None` writes none.
    pub out: Option<PathBuf>,
    /// Whether to plan only.
    pub estimate: bool,
}

/// What a run reports while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A sentence for people.
    Note(String),
    /// The plan, before the first round.
    Plan(&'a Plan),
    /// A step begins: its round, its number, and the number of steps.
    Step(u32, usize, usize, &'a Step),
    /// Operations on names begin, with so many in flight.
    Names(u32),
    /// A pass has ended.
    Pass(u32, &'a Key, &'a Sample),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All rounds were made.
    Done,
    /// The budget ended first.
    Budget,
    /// It was stopped.
    Stopped,
    /// Only the plan was asked for.
    Planned,
}

/// A run that failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// There is too little room.
    #[error("a file of {} does not fit: {} are free", bytes(*size), bytes(*free))]
    NoRoom {
        /// Size of the file.
        size: u64,
        /// Free bytes.
        free: u64,
    },
    /// No cell is left.
    #[error("there is nothing to measure: {0}")]
    Nothing(String),
    /// A pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The report cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A table, plot or page cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

impl BenchError {
    /// Advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoRoom { .. } => "ask for smaller files with --sizes, or make room",
            Self::Nothing(_) => "check --sizes, --records, --patterns and --modes",
            Self::Pass(PassError::Wrong(_)) => "the storage returned wrong data: do not trust it",
            Self::Pass(_) => "check the target and its rights",
            Self::File(_) | Self::Report(_) => "check the folder that --report names",
        }
    }
}

/// Makes a run. `new` is a report with target, conditions and settings. Setting `stop` ends it in
/// order. The ground is left empty.
///
/// # Errors
/// There is no room, nothing to measure, or a pass fails; what was measured is saved.
pub fn run(
    ground: &mut dyn Ground,
    new: Report,
    options: &Options,
    stop: &AtomicBool,
    notify: &dyn Fn(&Event<'_>),
) -> Result<(Report, Ended), BenchError> {
    let result = Run::begin(ground, new, options, stop, notify).and_then(|mut run| {
        let ended = run.rounds();
        // What was measured is saved whatever happened.
        let saved = run.finish(matches!(ended, Ok(Ended::Done)));
        let ended = ended?;
        saved?;
        Ok((run.report, ended))
    });
    ground.finish();
    result
}

struct Run<'a> {
    ground: &'a mut dyn Ground,
    report: Report,
    plan: Plan,
    options: &'a Options,
    stop: &'a AtomicBool,
    notify: &'a dyn Fn(&Event<'_>),
    begun: Instant,
    /// Modes that the target cannot do.
    refused: Vec<Mode>,
    passes: u64,
}

impl<'a> Run<'a> {
    fn begin(
        ground: &'a mut dyn Ground,
        mut report: Report,
        options: &'a Options,
        stop: &'a AtomicBool,
        notify: &'a dyn Fn(&Event<'_>),
    ) -> Result<Self, BenchError> {
        let begun = Instant::now();
        report.settings.engine = ground.engine().to_owned();
        let mut limit = options.pass;
        if let Some(old) = earlier(options.out.as_deref(), &report)? {
            let done: usize = old.cells.iter().map(|cell| cell.runs.len()).sum();
            notify(&Event::Note(format!(
                "continues the run of {} with {done} passes",
                old.started
            )));
            limit = Some(Duration::from_secs_f64(old.settings.pass_seconds));
            report = old;
        }
        let free = ground.free()?;
        let (grid, too_big) = fitting(&options.grid, free);
        if let Some(size) = too_big
            .first()
            .filter(|_| options.sizes_asked || grid.sizes.is_empty())
        {
            return Err(BenchError::NoRoom { size: *size, free });
        }
        for size in too_big {
            report.leave_out(
                format!("files of {}", bytes(size)),
                format!("{} are free", bytes(free)),
            );
        }
        let steps = grid.steps(options.flight_max);
        if steps.is_empty() && options.files == 0 {
            return Err(BenchError::Nothing("no record fits into a file".to_owned()));
        }
        if steps.len() < grid.steps(u64::MAX).len() {
            let why = format!("more than {} would be in flight", bytes(options.flight_max));
            report.leave_out("large records with many in flight", why);
        }
        let speed = look(ground, &report, free, stop)?;
        let plan = Plan::new(steps, options.runs, options.budget, limit, &speed);
        for size in &plan.too_slow {
            let why = format!(
                "filling one takes {} s, too much of the budget",
                speed.fill(*size).as_secs()
            );
            report.leave_out(format!("files of {}", bytes(*size)), why);
        }
        report.settings.pass_seconds = plan.pass.as_secs_f64();
        report.speed = Some(speed);
        notify(&Event::Plan(&plan));
        Ok(Self {
            ground,
            report,
            plan,
            options,
            stop,
            notify,
            begun,
            refused: Vec::new(),
            passes: 0,
        })
    }

    /// Makes all rounds.
    fn rounds(&mut self) -> Result<Ended, BenchError> {
        if self.options.estimate {
            return Ok(Ended::Planned);
        }
        let steps = self.plan.steps.clone();
        for round in 0..self.options.runs {
            for (number, step) in steps.iter().enumerate() {
                if !self.is_wanted(step, round) {
                    continue;
                }
                if self.is_late() {
                    self.report.leave_out(
                        format!("the rest of round {}", round + 1),
                        format!("the budget ended before {}", step.key(step.patterns[0])),
                    );
                    return Ok(Ended::Budget);
                }
                (self.notify)(&Event::Step(round, number, steps.len(), step));
                match self.step(step, round) {
                    Err(BenchError::Pass(PassError::Stopped)) => return Ok(Ended::Stopped),
                    result => result?,
                }
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Ended::Stopped);
                }
            }
            match self.names(round) {
                Err(BenchError::Pass(PassError::Stopped)) => return Ok(Ended::Stopped),
                result => result?,
            }
        }
        Ok(Ended::Done)
    }

    fn is_late(&self) -> bool {
        self.begun.elapsed() >= self.options.budget
    }

    /// Whether a step misses the run of this round. An earlier call may have made it.
    fn is_wanted(&self, step: &Step, round: u32) -> bool {
        let has = |key: Key| self.report.runs(&key) > round as usize;
        !self.refused.contains(&step.mode) && !step.keys().all(has)
    }

    /// Makes all passes of a step.
    fn step(&mut self, step: &Step, round: u32) -> Result<(), BenchError> {
        let count = files(step.size);
        if step.patterns.iter().any(|pattern| *pattern != Pattern::Write) {
            let fill = self.ground.fill(step.size, count, None, self.stop)?;
            if fill.bytes > 0 {
                self.report.files.retain(|known| known.size != step.size);
                self.report.files.push(Filled {
                    size: step.size,
                    allocated: fill.allocated,
                });
            }
        }
        let noise = Noise::begin();
        let mut found = Vec::new();
        let result = self.passes(step, count, round, &mut found);
        let noise = noise.end();
        for (key, sample) in found {
            let sample = Sample {
                others_busy: noise.map(|(busy, _)| busy),
                steal: noise.map(|(_, steal)| steal),
                ..sample
            };
            // Of a step that was cut, an earlier call may have made some passes.
            if self.report.runs(&key) <= round as usize {
                (self.notify)(&Event::Pass(round, &key, &sample));
                self.report.add(key, sample);
            }
        }
        // Not between passes: saving writes.
        self.save()?;
        result
    }

    fn passes(
        &mut self,
        step: &Step,
        count: u64,
        round: u32,
        found: &mut Vec<(Key, Sample)>,
    ) -> Result<(), BenchError> {
        let mut was_read = None;
        for &pattern in &step.patterns {
            if pattern.is_warm() && was_read.is_none() {
                // A second read needs a first one, also if nobody asked for its figure.
                was_read = Some(self.pass(step.key(Pattern::Read), count, None, round)?.bytes);
            }
            let key = step.key(pattern);
            let result = self.pass(key, count, was_read.filter(|_| pattern.is_warm()), round);
            match result {
                Ok(sample) => {
                    if pattern == Pattern::Read {
                        was_read = Some(sample.bytes);
                    }
                    found.push((key, sample));
                }
                Err(PassError::Unsupported { why, whole_mode }) => {
                    if whole_mode {
                        self.refused.push(step.mode);
                        self.report.leave_out(format!("mode {}", step.mode), why);
                    } else {
                        let what = format!("mode {}, records of {}", step.mode, bytes(step.record));
                        self.report.leave_out(what, why);
                    }
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn pass(&mut self, key: Key, files: u64, range: Option<u64>, round: u32) -> Result<Sample, PassError> {
        let speed = self.report.speed;
        let most = match (key.mode, speed) {
            (Mode::Cached, Some(speed)) if key.pattern.writes() && !speed.far => {
                Some(speed.cached_bytes_max())
            }
            _ => range,
        };
        self.passes += 1;
        let place = u64::from(round) << 32 | self.passes;
        self.ground.pass(&Pass {
            key,
            files,
            seed: SplitMix64::new(self.options.seed ^ place).next(),
            number: place,
            limit: self.plan.pass,
            bytes_max: most,
            cold: self.options.cold,
            stop: self.stop,
        })
    }

    /// Makes the operations on names of a round.
    fn names(&mut self, round: u32) -> Result<(), BenchError> {
        if self.options.files == 0 {
            return Ok(());
        }
        for &depth in &self.options.grid.depths {
            let known = self.report.nodes.iter().filter(|cell| cell.depth == depth);
            let mut runs = known.map(|cell| cell.runs.len());
            if runs.next().is_some_and(|runs| runs > round as usize) || self.is_late() {
                continue;
            }
            (self.notify)(&Event::Names(depth));
            let pass = NamePass {
                files: self.options.files,
                depth,
                stop: self.stop,
            };
            for (operation, sample) in self.ground.names(&pass)? {
                self.report.add_node(operation, depth, sample);
            }
        }
        self.save()
    }

    fn save(&mut self) -> Result<(), BenchError> {
        self.report.updated = now();
        if let Some(out) = &self.options.out {
            save(&self.report, &out.join(FILE))?;
        }
        Ok(())
    }

    fn finish(&mut self, complete: bool) -> Result<(), BenchError> {
        self.report.complete = complete;
        self.report.warnings = findings(&self.report);
        match self.options.estimate {
            true => Ok(()),
            false => self.save(),
        }
    }
}

/// Looks at the target for a few seconds: how fast it writes and reads, and how long small requests
/// take.
fn look(ground: &mut dyn Ground, report: &Report, free: u64, stop: &AtomicBool) -> Result<Speed, BenchError> {
    let far = report.conditions.far;
    let size = LOOK_BYTES.min(free / 4).max(1 << 20);
    let fill = ground.fill(size, 1, Some(LOOK), stop)?;
    let write_bps = fill.bytes as f64 / fill.seconds.max(1e-6);
    let mut pass = |pattern, mode, record: u64, depth, limit| {
        let found = ground.pass(&Pass {
            key: Key {
                size,
                record,
                mode,
                depth,
                pattern,
            },
            files: 1,
            seed: 1,
            number: u64::MAX,
            limit,
            bytes_max: Some(fill.bytes / record * record),
            cold: Cold::DropFile,
            stop,
        });
        found.ok()
    };
    let modes = if far {
        [Mode::Cached; 2]
    } else {
        [Mode::Direct, Mode::Cached]
    };
    let mut first = |pattern, record, depth, limit| {
        let mut tried = modes.into_iter();
        tried.find_map(|mode| pass(pattern, mode, record, depth, limit))
    };
    let read = first(Pattern::Read, 1 << 20, 4, LOOK);
    // Of a file that was filled in part, random places may not exist.
    let is_whole = fill.bytes >= size / (1 << 20) * (1 << 20);
    let mut small = |pattern| {
        let found = first(pattern, SMALL, 1, LOOK_SMALL).filter(|_| is_whole);
        found.map_or(SMALL as f64 / write_bps, |sample| {
            sample.seconds / sample.operations.max(1) as f64
        })
    };
    let speed = Speed {
        write_bps,
        read_bps: read.map_or(write_bps, |sample| sample.rate()),
        read_seconds: small(Pattern::RandomRead),
        write_seconds: small(Pattern::RandomWrite),
        far,
    };
    ground.empty(size);
    match stop.load(Ordering::Relaxed) {
        true => Err(PassError::Stopped.into()),
        false => Ok(speed),
    }
}

/// Returns the grid with the sizes that fit, and the sizes that do not. All files are kept until the
/// end, next to one new file.
fn fitting(grid: &Grid, free: u64) -> (Grid, Vec<u64>) {
    let room = free.saturating_sub(MARGIN_BYTES.min(free / 8));
    let (mut kept, mut too_big, mut used) = (Vec::new(), Vec::new(), 0_u64);
    let mut sizes = grid.sizes.clone();
    sizes.sort_unstable();
    for size in sizes {
        let all = size.saturating_mul(files(size));
        if used.saturating_add(all).saturating_add(size) <= room {
            used += all;
            kept.push(size);
        } else {
            too_big.push(size);
        }
    }
    let grid = Grid {
        sizes: kept,
        ..grid.clone()
    };
    (grid, too_big)
}

/// Returns the report that this run continues. A finished or other report in the folder gets another
/// name, so that no run destroys the results of another.
fn earlier(out: Option<&Path>, new: &Report) -> Result<Option<Report>, BenchError> {
    let Some(out) = out else {
        return Ok(None);
    };
    let path = out.join(FILE);
    let io = |what, path: &Path| {
        let path = path.to_owned();
        move |source| FileError::Io { what, path, source }
    };
    fs::create_dir_all(out).map_err(io("make the folder", out))?;
    if !path.exists() {
        return Ok(None);
    }
    if let Some(old) = load(&path).ok().filter(|old| old.continues(new)) {
        return Ok(Some(old));
    }
    let kept = (1_u32..).map(|number| out.join(format!("bench-{number}.json")));
    let mut kept = kept.filter(|path| !path.exists());
    if let Some(kept) = kept.next() {
        fs::rename(&path, kept).map_err(io("keep the older", &path))?;
    }
    Ok(None)
}
