//! What `bench wan` and `bench smb` share: options, the plan with its estimate, and the loop over the rows.
//!
//! Results are kept after every run ([`super::record`]), so a call that is cut is called again and goes on, and
//! `--rows` and `--clients` divide one table among several calls. The table is always written from all that is kept.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::course::{Course, Ground, Stage};
use super::estimate::{self, Way};
use super::record::{Ending, Pace, Program, Store, Visit, now};
use super::remote_client::{Client, Direction, Installed, installed};
use super::report::{self, Machine};
use crate::worksets::{Cargo, Content};
use crate::workspace::Workspace;

/// Options of both.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Counted rounds (a short first run goes before and is not counted; a tool whose first run takes more than 60 s
    /// runs once) [default: 3 over links, 5 on this machine]
    #[arg(long)]
    runs: Option<usize>,
    /// Count the first round too
    #[arg(long)]
    no_warm_up: bool,
    /// Multiplies the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A run that takes longer is ended and shown as "> 300": seconds, or 90s, 2m
    #[arg(long, default_value = "300s", value_parser = parse_time, value_name = "TIME")]
    cell_limit: Duration,
    /// Measure again what is kept of these rows and tools
    #[arg(long)]
    fresh: bool,
    /// Say what there is to do and how long it takes, and measure nothing
    #[arg(long)]
    estimate: bool,
    /// Write the tables from what is kept, and measure nothing
    #[arg(long, conflicts_with_all = ["fresh", "estimate"])]
    report: bool,
    /// Further flags for ropeway, separated by spaces
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    ropeway_flags: Vec<String>,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

impl Options {
    /// Factor of the work.
    pub(super) fn scale(&self) -> f64 {
        match self.quick {
            true => self.scale / 20.0,
            false => self.scale,
        }
    }

    fn pace(&self, runs: usize) -> Pace {
        Pace {
            runs: if self.quick { 1 } else { self.runs.unwrap_or(runs) },
            warm_up: !self.quick && !self.no_warm_up,
            limit: self.cell_limit,
        }
    }

    /// What makes these results others than those of the plain command, and so kept apart: `""` for nothing.
    fn variant(&self, more: &[String]) -> String {
        let mut words = Vec::new();
        if (self.scale() - 1.0).abs() > f64::EPSILON {
            words.push(format!("scale {}", self.scale()));
        }
        words.extend(more.iter().cloned());
        words.extend(self.ropeway_flags.iter().cloned());
        words.join(" ")
    }
}

/// `120`, `120s` or `2m`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text:?} is not a time such as 120s or 2m, from 1 s to a day");
    let (number, factor) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        (None, None) => (text, 1),
    };
    let number: u64 = number.trim().parse().map_err(|_| fault())?;
    match number.checked_mul(factor) {
        Some(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err(fault()),
    }
}

/// A row that may be measured.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Its name in the file of results.
    pub(super) key: String,
    /// The work.
    pub(super) cargo: Cargo,
    /// The way, for the estimate.
    pub(super) way: Way,
    /// Whether there is a link, and so a floor.
    pub(super) has_floor: bool,
    /// What else must be the same for results to be comparable.
    pub(super) conditions: Value,
}

/// Starts the servers of the job with this index for these tools.
pub(super) type SetStage<'a> = dyn Fn(usize, &Ground, &[Installed]) -> Result<Stage> + 'a;

/// What a benchmark wants of a session.
pub(super) struct Wish<'a> {
    /// `wan` or `smb`.
    pub(super) name: &'static str,
    /// Shared options.
    pub(super) options: &'a Options,
    /// Counted rounds unless the options say otherwise.
    pub(super) runs: usize,
    /// Tools.
    pub(super) clients: &'a [Client],
    /// Flags for ropeway that belong to the benchmark.
    pub(super) flags: &'a [String],
    /// Options of the benchmark that make its results others.
    pub(super) variant: &'a [String],
}

/// One call of a benchmark.
pub(super) struct Session<'a> {
    workspace: &'a Workspace,
    folder: &'a Path,
    options: &'a Options,
    pace: Pace,
    clients: Vec<Installed>,
    machine: Machine,
    variant: String,
    /// Everything that was measured, by this call and those before.
    pub(super) store: Store,
    /// Why tools were left out.
    pub(super) notes: Vec<String>,
}

impl<'a> Session<'a> {
    /// Finds the tools and what is kept.
    ///
    /// # Errors
    /// If an option makes no sense, there is no tool, or what is kept cannot be read.
    pub(super) fn open(workspace: &'a Workspace, folder: &'a Path, wish: &Wish<'a>) -> Result<Self> {
        let options = wish.options;
        let pace = options.pace(wish.runs);
        ensure!(pace.runs > 0, "--runs must be at least 1");
        ensure!(
            options.scale > 0.0 && options.scale <= 10.0,
            "--scale must be above 0 and at most 10"
        );
        // Before a build keeps the processors busy.
        let machine = Machine::look();
        let mut flags = wish.flags.to_vec();
        flags.extend(options.ropeway_flags.iter().cloned());
        let (clients, notes) = match options.report {
            true => (Vec::new(), Vec::new()),
            false => installed(workspace, wish.clients, &flags)?,
        };
        ensure!(
            options.report || !clients.is_empty(),
            "none of the tools is there"
        );
        let variant = options.variant(wish.variant);
        let name = match variant.is_empty() {
            true => wish.name.to_owned(),
            false => format!("{}-{}", wish.name, file_name(&variant)),
        };
        Ok(Self {
            workspace,
            folder,
            options,
            pace,
            clients,
            machine,
            variant,
            store: Store::open(folder, &name)?,
            notes,
        })
    }

    /// Says what there is to do and how long it takes, does it, and calls `publish` after each row.
    ///
    /// # Errors
    /// If a server does not start, ropeway fails or copies wrongly, or on an interrupt.
    pub(super) fn run(
        &mut self,
        jobs: &[Job],
        stage: &SetStage<'_>,
        publish: &dyn Fn(&Self) -> Result<()>,
    ) -> Result<()> {
        if self.options.report {
            return publish(self);
        }
        let left = self.plan(jobs);
        if self.options.estimate {
            return Ok(());
        }
        let mut ground: Option<Ground> = None;
        for (index, job) in jobs.iter().enumerate() {
            if !left[index] {
                continue;
            }
            if ground.as_ref().is_none_or(|ground| ground.cargo != job.cargo) {
                // The old one's memory first.
                drop(ground.take());
                ground = Some(Ground::new(self.folder, job.cargo, self.options.scale())?);
            }
            let ground = ground.as_ref().context("there is no work")?;
            self.row(job, ground, &|ground, clients| stage(index, ground, clients))
                .with_context(|| job.key.clone())?;
            publish(self)?;
        }
        if !left.contains(&true) {
            publish(self)?;
        }
        self.verdict(jobs)
    }

    fn row(
        &mut self,
        job: &Job,
        ground: &Ground,
        stage: &dyn Fn(&Ground, &[Installed]) -> Result<Stage>,
    ) -> Result<()> {
        println!("{}", job.key);
        let visit = Visit {
            at: now(),
            machine: self.machine.describe(),
            busy: self.machine.busy(),
        };
        let row = self.store.row(&job.key);
        if let Some(forgotten) = row.set_content(ground.content) {
            println!("  forgotten: {forgotten}");
        }
        row.visits.push(visit);
        let stage = stage(ground, &self.clients)?;
        let course = Course {
            ground,
            stage: &stage,
            pace: self.pace,
        };
        course.run(&self.clients, &job.key, &mut self.store)
    }

    /// Forgets what is worthless, prints the estimate; which jobs have something left to do.
    fn plan(&mut self, jobs: &[Job]) -> Vec<bool> {
        let tools: Vec<(Client, Program)> = self
            .clients
            .iter()
            .map(|installed| (installed.client, installed.program.clone()))
            .collect();
        let clients: Vec<Client> = tools.iter().map(|(client, _)| *client).collect();
        let mut seconds = Vec::new();
        for job in jobs {
            let mut conditions = job.conditions.clone();
            conditions["machine"] = Value::from(self.machine.kind());
            let row = self.store.row(&job.key);
            for forgotten in row.prepare(&conditions, &tools, self.options.fresh) {
                println!("{}: forgotten: {forgotten}", job.key);
            }
            let content = job.cargo.expected(self.options.scale());
            seconds.push(estimate::row(
                Some(row),
                &clients,
                content,
                job.way,
                job.has_floor,
                &self.pace,
            ));
        }
        println!(
            "{} rounds of {} tools, about {} in all:",
            self.pace.runs,
            clients.len(),
            estimate::shown(seconds.iter().sum())
        );
        for (job, &seconds) in jobs.iter().zip(&seconds) {
            let text = match seconds > 0.0 {
                true => format!("about {}", estimate::shown(seconds)),
                false => "measured already".to_owned(),
            };
            println!("  {:24} {text}", job.key);
        }
        seconds.iter().map(|&seconds| seconds > 0.0).collect()
    }

    /// An error if ropeway itself did not do what it was asked.
    fn verdict(&self, jobs: &[Job]) -> Result<()> {
        let mut faults = Vec::new();
        for job in jobs {
            for direction in Direction::ALL {
                let row = self.store.get(&job.key);
                let cell = row.and_then(|row| row.cell(Client::Ropeway, direction));
                if let Some(Ending::Failed(reason)) = cell.and_then(|cell| cell.ending.as_ref()) {
                    faults.push(format!("{}, {}: {reason}", job.key, direction.name()));
                }
            }
        }
        match faults.is_empty() {
            true => Ok(()),
            false => bail!("ropeway did not copy everything: {}", faults.join("; ")),
        }
    }

    /// Prints a section and, if it is the plain command's and of the whole work, puts it into `docs/benchmarks.md`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn publish(&self, name: &str, text: &str) -> Result<()> {
        println!("\n{text}");
        if !self.variant.is_empty() {
            println!("({}: docs/benchmarks.md stays as it is)", self.variant);
            return Ok(());
        }
        match self.options.no_write {
            true => Ok(()),
            false => report::write(self.workspace, name, text, 1.0),
        }
    }
}

/// A name for a file of results: the words themselves, as far as they are harmless.
fn file_name(variant: &str) -> String {
    let harmless = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    variant.chars().map(harmless).take(120).collect()
}

/// What a row will hold at full size, for its title.
pub(super) fn described(content: Content) -> String {
    let files = match content.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    format!("{files}, {:.1} MB", content.bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        let words = std::iter::once("x").chain(words.iter().copied());
        Call::try_parse_from(words).unwrap().options
    }

    #[test]
    fn only_the_plain_command_is_published() {
        assert_eq!(options(&[]).variant(&[]), "");
        assert_eq!(options(&["--runs", "1", "--cell-limit", "2m"]).variant(&[]), "");
        let odd = options(&["--quick", "--ropeway-flags", "--channels 4"]).variant(&["cubic".into()]);
        assert_eq!(odd, "scale 0.05 cubic --channels 4");
        assert_eq!(file_name(&odd), "scale_0.05_cubic___channels_4");
        assert_eq!(file_name("a/é"), "a__");
    }

    #[test]
    fn quick_is_one_small_round() {
        let quick = options(&["--quick"]);
        let pace = quick.pace(3);
        assert_eq!((quick.scale(), pace.runs, pace.warm_up), (0.05, 1, false));
        let pace = options(&["--cell-limit", "120s"]).pace(3);
        assert_eq!(
            (pace.runs, pace.warm_up, pace.limit),
            (3, true, Duration::from_secs(120))
        );
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["0", "", "s", "1h", "-1s", "99999999999999999m"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
