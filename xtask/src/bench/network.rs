//! The common part of `bench wan`, `bench smb` and `bench server`: options, one call of the
//! laboratory, and its results in `target/bench/NAME/report.json`.
//!
//! The lab keeps every run, so an interrupted call continues when it is repeated. `--rows`,
//! `--work` and `--clients` divide one table among several calls. The tables are always written
//! from all kept results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ropeway_lab::report::{self, Document, FILE, Outcome};
use ropeway_lab::run::{self, Event, LabError, Observer, Options as LabOptions, Resume};
use ropeway_lab::scenario::{Changes, Client, Protection, Scenario};
use ropeway_lab::work::Work;

use super::tables;
use crate::process::interrupt_flag;
use crate::workspace::Workspace;

/// Options of the network benchmarks.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Counted rounds; one more goes first and is not counted. A tool whose first run takes more than 60 s runs
    /// once [default: 3 over links, 5 on this machine]
    #[arg(long)]
    runs: Option<u32>,
    /// Multiplies the size of the work
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A run that takes longer is ended and shown as "> 300": seconds, or 90s, 2m
    #[arg(long, default_value = "300s", value_parser = parse_time, value_name = "TIME")]
    cell_limit: Duration,
    /// Measure these rows and tools again, even if results are kept
    #[arg(long)]
    fresh: bool,
    /// Keep the traces of ropeway's first runs, in the folder traces of the report
    #[arg(long)]
    keep_traces: bool,
    /// Print the missing measurements and the time that they take, and measure nothing
    #[arg(long)]
    estimate: bool,
    /// Write the tables from the results that are kept, and measure nothing
    #[arg(long, conflicts_with_all = ["fresh", "estimate"])]
    report: bool,
    /// Further flags for ropeway, separated by spaces
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    ropeway_flags: Vec<String>,
    /// Measure this build instead of a release build
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Do not touch docs/benchmarks.md
    #[arg(long)]
    no_write: bool,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
}

impl Options {
    fn scale(&self) -> f64 {
        match self.quick {
            true => self.scale / 20.0,
            false => self.scale,
        }
    }

    /// Whether the work has its full size.
    fn is_whole(&self) -> bool {
        (self.scale() - 1.0).abs() < f64::EPSILON
    }

    /// Whether nothing is measured.
    pub(super) fn only_reports(&self) -> bool {
        self.report || self.estimate
    }

    /// Returns the options that make the results differ from those of the plain command, which
    /// alone are published. Empty for the plain command.
    fn variant(&self, more: &[String]) -> String {
        let mut words = Vec::new();
        if !self.is_whole() {
            words.push(format!("scale {}", self.scale()));
        }
        words.extend(self.binary.iter().map(|path| path.display().to_string()));
        words.extend(more.iter().cloned());
        words.extend(self.ropeway_flags.iter().cloned());
        words.join(" ")
    }
}

/// Parses `120`, `120s` or `2m`.
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

/// One call of a benchmark.
pub(super) struct Call<'a> {
    pub(super) workspace: &'a Workspace,
    /// Folder of all results.
    pub(super) folder: &'a Path,
    pub(super) options: &'a Options,
    /// Options of the benchmark that make its results differ from the plain command's.
    pub(super) variant: Vec<String>,
    /// Program of the server `smb-server`, where it was built.
    pub(super) smb_server: Option<PathBuf>,
}

impl Call<'_> {
    fn out(&self, scenario: &Scenario) -> PathBuf {
        let variant = self.options.variant(&self.variant);
        let name = match variant.is_empty() {
            true => scenario.name.clone(),
            false => format!("{}-{}", scenario.name, file_name(&variant)),
        };
        self.folder.join(name)
    }

    /// Measures, publishes the sections with their names, and fails if ropeway failed. `sections`
    /// gets the document, and whether the work has its full size, so that targets apply.
    ///
    /// # Errors
    /// An option is out of bounds, the lab cannot go on, ropeway failed, or an interrupt came.
    pub(super) fn run(
        &self,
        scenario: Scenario,
        sections: impl Fn(&Document, bool) -> Vec<(String, String)>,
    ) -> Result<()> {
        let Some(document) = self.measure(scenario)? else {
            return Ok(());
        };
        let sections = sections(&document, self.options.is_whole());
        ensure!(!sections.is_empty(), "nothing was measured");
        for (name, text) in sections {
            self.publish(&name, &text)?;
        }
        verdict(&document)
    }

    /// Measures what is missing and returns everything that is kept; `None` for an estimate.
    fn measure(&self, scenario: Scenario) -> Result<Option<Document>> {
        let options = self.options;
        let out = self.out(&scenario);
        if options.report {
            let path = out.join(FILE);
            return Ok(Some(
                report::load(&path).context("there are no results to report")?,
            ));
        }
        tables::check_scale(options.scale)?;
        ensure!(options.runs != Some(0), "--runs must be at least 1");
        let scenario = self.with_options(scenario);
        let lab = LabOptions {
            program: crate::step::shipped(self.workspace, options.binary.as_deref())?,
            out: out.clone(),
            relay: false,
            smb_server: self.smb_server.clone(),
            resume: match options.fresh {
                true => Resume::Fresh,
                false => Resume::Replace,
            },
            plan_only: options.estimate,
            keep_traces: options.keep_traces,
        };
        match run::run(&scenario, &lab, interrupt_flag(), &Terminal) {
            Ok(_) if options.estimate => Ok(None),
            Ok(document) => Ok(Some(document)),
            Err(LabError::Interrupted) => bail!("interrupted; the same command continues"),
            Err(error) => Err(anyhow::Error::msg(format!("{error} ({})", error.hint()))),
        }
    }

    fn with_options(&self, mut scenario: Scenario) -> Scenario {
        let options = self.options;
        scenario.scale = options.scale();
        scenario.limit = Some(options.cell_limit);
        if let Some(runs) = options.runs {
            scenario.runs = runs + 1;
        }
        if options.quick {
            scenario.runs = 1;
        }
        scenario
            .ropeway_flags
            .extend(options.ropeway_flags.iter().cloned());
        scenario
    }

    /// Prints a section. The plain command's section of the whole work also goes to
    /// `docs/benchmarks.md`.
    ///
    /// # Errors
    /// The file cannot be written.
    fn publish(&self, section: &str, text: &str) -> Result<()> {
        println!("\n{text}");
        let variant = self.options.variant(&self.variant);
        if !variant.is_empty() {
            println!("({variant}: docs/benchmarks.md is not changed)");
            return Ok(());
        }
        match self.options.no_write {
            true => Ok(()),
            false => tables::write(self.workspace, section, text),
        }
    }
}

/// Keeps the links with these protections, and what `changes` selects.
///
/// # Errors
/// Nothing is left to measure.
pub(super) fn choose(
    mut scenario: Scenario,
    protections: &[Protection],
    changes: &Changes,
) -> Result<Scenario> {
    scenario.links.retain(|link| {
        protections.is_empty() || link.protection.is_some_and(|known| protections.contains(&known))
    });
    Ok(scenario.with(changes)?)
}

/// Sets the connections of ropeway in a scenario. Returns what makes the results a variant.
pub(super) fn set_channels(scenario: &mut Scenario, channels: Option<u16>) -> Vec<String> {
    let Some(channels) = channels else {
        return Vec::new();
    };
    let flags = vec!["--channels".to_owned(), channels.to_string()];
    let plain = scenario.ropeway_flags == flags;
    scenario.ropeway_flags.clone_from(&flags);
    if plain { Vec::new() } else { flags }
}

/// Parses the name of one of a table's works.
pub(super) fn parse_work(works: &[(&str, Work)], text: &str) -> Result<Work, String> {
    let found = works.iter().find(|(name, _)| *name == text);
    found.map(|(_, work)| *work).ok_or_else(|| {
        let names: Vec<&str> = works.iter().map(|(name, _)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}

/// Parses a client's name, or `rclone4` or `rclone32`.
pub(super) fn parse_client(text: &str) -> Result<Client, String> {
    match text {
        "rclone4" => Ok(Client::Rclone),
        "rclone32" => Ok(Client::Rclone32),
        text => text.parse(),
    }
}

/// Fails if a run of ropeway, as client or server, failed.
fn verdict(document: &Document) -> Result<()> {
    let own = |cell: &&report::Cell| [&cell.key.client, &cell.key.server].contains(&&"ropeway".to_owned());
    let failed = document.cells.iter().filter(own).flat_map(|cell| {
        let whys = cell.runs.iter().filter_map(|run| match &run.outcome {
            Outcome::Failed(why) => Some(why),
            _ => None,
        });
        whys.map(|why| format!("{}: {why}", tables::shown(&cell.key)))
    });
    let failed: Vec<String> = failed.collect();
    ensure!(failed.is_empty(), "ropeway failed: {}", failed.join("; "));
    Ok(())
}

/// Prints the progress of the lab.
struct Terminal;

impl Observer for Terminal {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Row {
                link,
                work,
                direction,
                seconds,
            } => {
                let text = match *seconds > 0.0 {
                    true => format!("about {}", span(*seconds)),
                    false => "already measured".to_owned(),
                };
                println!("  {:36} {text}", format!("{work} over {link}, {direction}"));
            }
            Event::Planned {
                cells,
                runs_there,
                seconds,
                ..
            } => {
                println!(
                    "{cells} cells, {runs_there} runs are kept; about {} in all",
                    span(*seconds)
                );
            }
            Event::Dropped { what } => println!("dropped: {what}"),
            Event::Skipped { what, why } => println!("left out: {what}: {why}"),
            Event::Phase { phase } => println!("{phase} …"),
            Event::Proved { link, holds } => {
                let how = ["OUT OF BOUNDS", "within its bounds"][usize::from(*holds)];
                println!("  {link}: {how}");
            }
            Event::Floor {
                link,
                work,
                direction,
                connections,
                seconds,
            } => {
                println!("  {link} {work} {direction}: bare TCP {seconds:.2} s, {connections} connections");
            }
            Event::Run { cell, number, run } => {
                let how = match &run.outcome {
                    Outcome::Done => format!("{:8.2} s", run.whole_seconds),
                    Outcome::Failed(why) => format!("failed: {why}"),
                    Outcome::TimedOut(why) => why.clone(),
                };
                println!("  {:60} run {number} {how}", tables::shown(cell));
            }
            Event::Warning { cell, text } => {
                let cell = cell.map_or_else(String::new, |key| format!("{}: ", tables::shown(key)));
                println!("! {cell}{text}");
            }
        }
    }
}

/// Formats a span of time.
fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} min"),
    }
}

/// Returns a folder name of letters, digits, dots and underscores.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        let words = std::iter::once("x").chain(words.iter().copied());
        Words::try_parse_from(words).unwrap().options
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
    fn options_change_the_scenario() {
        let workspace = Workspace::at(Path::new("/"));
        let changed = |words: &[&str]| {
            let call = Call {
                workspace: &workspace,
                folder: Path::new("/f"),
                options: &options(words),
                variant: Vec::new(),
                smb_server: None,
            };
            let scenario = Scenario::shipped("wan").unwrap().unwrap();
            (call.with_options(scenario.clone()), call.out(&scenario))
        };
        let (quick, out) = changed(&["--quick"]);
        assert_eq!((quick.scale, quick.runs), (0.05, 1));
        assert_eq!(out, Path::new("/f/wan-scale_0.05"));
        let (limited, out) = changed(&["--cell-limit", "120s", "--runs", "2"]);
        assert_eq!((limited.runs, limited.limit), (3, Some(Duration::from_secs(120))));
        assert_eq!(out, Path::new("/f/wan"));
    }

    #[test]
    fn times_have_units_and_spans_are_readable() {
        assert_eq!(parse_time("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["0", "", "s", "1h", "-1s", "99999999999999999m"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert_eq!([5.4, 65.0, 3700.0].map(span), ["5 s", "1 min 05 s", "1 h 01 min"]);
    }
}
