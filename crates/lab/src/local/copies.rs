//! Local copies: the same tree, copied by each tool to a fresh file system.
//!
//! Rounds are interleaved and each begins with another tool, so that a slow moment of the machine
//! hits every tool. The first of several rounds is discarded; its copies are compared with the
//! source. With [`Options::reader`] another thread reads small blocks of the target's file system
//! during each copy, and its latencies are recorded; a tool that copies nothing shows the idle
//! machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ropeway_peers::procfs::clean;
use ropeway_peers::program;

use super::reader::{self, Reader, percentile_ms};
use super::volume::{Volume, Volumes, drop_caches, read_all, settle};
use super::{LocalError, Record, measured, warnings};
use crate::named::named;
use crate::report::{Cell, CellKey, Document, LOOPBACK, Outcome, Run, Setting};
use crate::run::machine::{document, now};
use crate::run::monitor::RunMonitor;
use crate::run::plan::turn;
use crate::run::process;
use crate::work::{Plan, SEED, Work};

/// Longest copy. A guess: the longest of the tables takes two minutes.
const LIMIT: Duration = Duration::from_secs(3600);
/// Time that the idle machine's reads are watched.
const IDLE: Duration = Duration::from_secs(5);

named! {
    /// State of the page cache before a copy, by its name in [`CellKey::variant`].
    pub enum Cache: "cache state" {
        /// The cache holds the source.
        Warm = "warm",
        /// The cache is empty (needs root).
        Cold = "cold",
    }
}

/// Name of the tool `ropeway copy --gentle`.
pub const GENTLE: &str = "gentle";

/// A copying tool.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Name in [`CellKey::client`]: `ropeway`, [`GENTLE`], `cp`, `rsync`, `xcp` or `cpz`, by which its arguments
    /// are chosen; or `nothing` for a tool that copies nothing.
    pub name: &'static str,
    /// The program.
    pub program: PathBuf,
    /// First line of its `--version`.
    pub version: String,
}

impl Tool {
    /// Whether a copy is durable when it ends, and has all attributes.
    fn is_ropeway(&self) -> bool {
        ["ropeway", GENTLE].contains(&self.name)
    }
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Source and target file systems.
    pub volumes: &'a Volumes,
    /// The tree.
    pub work: Work,
    /// Share of the work's full size.
    pub scale: f64,
    /// Tools.
    pub tools: Vec<Tool>,
    /// States of the page cache, one after the other.
    pub caches: Vec<Cache>,
    /// Counted runs of each tool. Before several of them, one run is discarded.
    pub runs: u32,
    /// Whether another thread reads meanwhile.
    pub reader: bool,
    /// File of the report.
    pub out: PathBuf,
}

/// Measures all tools and returns the document, which is also written after each run. `notify` gets
/// lines for people. `stop` ends the lab in order.
///
/// # Errors
/// A volume cannot be created, or the lab was stopped. A tool that fails is a result.
pub fn run(options: &Options<'_>, stop: &AtomicBool, notify: &dyn Fn(&str)) -> Result<Document, LocalError> {
    process::adopt();
    let plan = options.work.plan(SEED, options.scale);
    let volume = options
        .volumes
        .create("source")
        .map_err(LocalError::io("make a volume"))?;
    let source = volume.root().join("tree");
    notify(&format!(
        "making {} on {}",
        plan.title(),
        options.volumes.describe()
    ));
    let stopped = || stop.load(Ordering::Acquire);
    plan.write(&source, &stopped)
        .map_err(LocalError::io("make the work"))?;
    volume
        .make_read_only()
        .map_err(LocalError::io("make the source read-only"))?;
    let mut lab = Lab {
        record: Record {
            document: begun(options, &plan),
            path: options.out.clone(),
            stop,
            notify,
        },
        options,
        plan,
        source,
    };
    let result = options.caches.iter().try_for_each(|cache| lab.rounds(*cache));
    lab.record.finish(result.map(|()| true), None)
}

fn begun(options: &Options<'_>, plan: &Plan) -> Document {
    let versions = options.tools.iter().filter(|tool| !tool.version.is_empty());
    Document {
        versions: versions
            .map(|tool| (tool.name.to_owned(), tool.version.clone()))
            .collect(),
        settings: vec![Setting::new("volume", options.volumes.describe())],
        works: vec![plan.summary()],
        warnings: warnings(&[], false),
        ..document("copies", &format!("Local copies of {}", options.work.title()))
    }
}

struct Lab<'a> {
    record: Record<'a>,
    options: &'a Options<'a>,
    plan: Plan,
    source: PathBuf,
}

impl Lab<'_> {
    fn rounds(&mut self, cache: Cache) -> Result<(), LocalError> {
        let warm_up = u32::from(self.options.runs > 1);
        for round in 0..self.options.runs + warm_up {
            for tool in turn(&self.options.tools, round as usize) {
                if self.has_failed(&tool, cache) {
                    continue;
                }
                self.record.check_stop()?;
                let mut run = self.one(&tool, cache, round == 0)?;
                run.discarded = round < warm_up;
                self.describe(&tool, cache, &run);
                let cell = Cell {
                    key: self.key(&tool, cache),
                    payload_bytes: self.plan.bytes(),
                    files: self.plan.files(),
                    ..Cell::default()
                };
                self.record.add_run(cell, run);
                self.record.save()?;
            }
        }
        Ok(())
    }

    fn key(&self, tool: &Tool, cache: Cache) -> CellKey {
        let (work, server) = (self.options.work.name(), self.options.volumes.name());
        CellKey::new([LOOPBACK, work, "write", tool.name, server]).with_variant(cache.name())
    }

    fn has_failed(&self, tool: &Tool, cache: Cache) -> bool {
        let runs = self.record.document.runs(&self.key(tool, cache));
        runs.iter().any(|run| run.outcome != Outcome::Done)
    }

    fn describe(&self, tool: &Tool, cache: Cache, run: &Run) {
        let how = match &run.outcome {
            Outcome::Done => format!(
                "perceived {:7.2} s, durable {:7.2} s",
                run.whole_seconds,
                run.durable_seconds.unwrap_or(run.whole_seconds)
            ),
            Outcome::Failed(why) | Outcome::TimedOut(why) => format!("left out from here: {why}"),
        };
        let reads = run.reads_p99_ms;
        let reads = reads.map_or_else(String::new, |p99| format!(", reads p99 {p99:.2} ms"));
        let line = format!("  {:9} {:5} {how}{reads}", tool.name, cache.name());
        self.record.notify(&line);
    }

    /// One round of a tool. ropeway runs twice: once as fast as it can, which gives the perceived
    /// time, and once by its defaults, which gives the durable time, processor time and memory. The
    /// other tools run once and are followed by `sync -f`. With a reader only the durable run is
    /// made.
    fn one(&self, tool: &Tool, cache: Cache, compare: bool) -> Result<Run, LocalError> {
        if tool.name == "nothing" {
            return self.idle();
        }
        let durable = self.copy(tool, &[], cache, compare)?;
        if tool.name != "ropeway" || self.options.reader || durable.outcome != Outcome::Done {
            return Ok(durable);
        }
        let flags = ["--durability", "none", "--cache", "keep"];
        let perceived = self.copy(tool, &flags, cache, false)?;
        if perceived.outcome != Outcome::Done {
            return Ok(perceived);
        }
        Ok(Run {
            whole_seconds: perceived.whole_seconds,
            durable_seconds: Some(durable.whole_seconds),
            ..durable
        })
    }

    /// Reads while nothing is copied.
    fn idle(&self) -> Result<Run, LocalError> {
        let volume = self.target()?;
        let reader = self.read(&volume)?;
        let started = now();
        let end = Instant::now() + IDLE;
        while Instant::now() < end && !self.record.is_stopping() {
            thread::sleep(Duration::from_millis(50));
        }
        let mut run = Run::of(started, Outcome::Done, IDLE.as_secs_f64());
        add_reads(&mut run, reader);
        Ok(run)
    }

    fn target(&self) -> Result<Volume, LocalError> {
        self.options
            .volumes
            .create("target")
            .map_err(LocalError::io("make a volume"))
    }

    fn read(&self, volume: &Volume) -> Result<Option<Reader>, LocalError> {
        if !self.options.reader {
            return Ok(None);
        }
        let probe = volume.root().join("probe");
        let started = reader::make(&probe).and_then(|()| Reader::start(&probe));
        started.map(Some).map_err(LocalError::io("read beside a copy"))
    }

    /// One copy to a fresh volume, compared with the source if asked.
    fn copy(&self, tool: &Tool, flags: &[&str], cache: Cache, compare: bool) -> Result<Run, LocalError> {
        let volume = self.target()?;
        let home = tempfile::tempdir().map_err(LocalError::io("make a folder"))?;
        let reader = self.read(&volume)?;
        match cache {
            Cache::Cold => drop_caches().map_err(LocalError::io("drop the page cache"))?,
            Cache::Warm => {
                settle();
                read_all(&self.source).map_err(LocalError::io("read the source"))?;
            }
        }
        let copy = volume.root().join("copy");
        let command = command(tool, flags, &self.source, &copy, home.path());
        let (started, monitor, output) = (now(), RunMonitor::begin(None), home.path().join("out"));
        let stop = self.record.stop;
        let measured = measured(stop, command, &output, LIMIT, Command::spawn, &mut |_| ())?;
        let outcome = measured.outcome(&output, LIMIT, true);
        let durable = match outcome {
            Outcome::Done if !tool.is_ropeway() => flushed(&copy).map(|flushed| measured.whole + flushed),
            _ => flags.is_empty().then_some(measured.whole),
        };
        let mut run = Run {
            durable_seconds: durable.map(|durable| durable.as_secs_f64()),
            ..monitor.end().run(started, &measured, outcome)
        };
        add_reads(&mut run, reader);
        if compare && run.outcome == Outcome::Done {
            let same = self.plan.compare(&self.source, &copy);
            let same = same.map_err(LocalError::io("read the copy"))?;
            let attributes = || match tool.is_ropeway() {
                true => same_attributes(&self.source, &copy),
                false => Ok(()),
            };
            if let Err(wrong) = same.and_then(|()| attributes()) {
                run.outcome = Outcome::Failed(format!("copied wrongly: {wrong}"));
            }
        }
        Ok(run)
    }
}

fn add_reads(run: &mut Run, reader: Option<Reader>) {
    let Some(reader) = reader else { return };
    let times = reader.finish();
    run.reads_p50_ms = percentile_ms(times.clone(), 50);
    run.reads_max_ms = percentile_ms(times.clone(), 100);
    run.reads_p99_ms = percentile_ms(times, 99);
}

fn command(tool: &Tool, flags: &[&str], source: &Path, target: &Path, home: &Path) -> Command {
    let mut command = clean(&tool.program, home);
    match tool.name {
        "ropeway" => command.arg("copy").args(flags).arg(source).arg(target),
        GENTLE => command.args(["copy", "--gentle"]).arg(source).arg(target),
        "rsync" => command.arg("-a").arg(source.join("")).arg(target.join("")),
        "xcp" => command
            .args(["--recursive", "--no-progress"])
            .arg(source)
            .arg(target),
        "cpz" => command.arg(source).arg(target),
        _ => command.arg("-a").arg(source).arg(target),
    };
    command
}

/// Runs `sync -f`, which a careful user of the other tools needs. `None` if it fails.
fn flushed(copy: &Path) -> Option<Duration> {
    let begun = Instant::now();
    let status = Command::new(program("sync")?).arg("-f").arg(copy).status().ok()?;
    status.success().then(|| begun.elapsed())
}

/// Compares attributes by rsync, where it is installed.
fn same_attributes(source: &Path, copy: &Path) -> Result<(), String> {
    let Some(rsync) = program("rsync") else {
        return Ok(());
    };
    let mut command = Command::new(rsync);
    command
        .args(["-anicHAX", "--delete"])
        .arg(source.join(""))
        .arg(copy.join(""));
    let output = command.output().map_err(|error| error.to_string())?;
    let differences = String::from_utf8_lossy(&output.stdout).into_owned();
    match (output.status.success(), differences.lines().next()) {
        (true, None) => Ok(()),
        (_, line) => Err(format!(
            "rsync finds that attributes differ: {}",
            line.unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::volume::FileSystem;

    fn tool(name: &'static str) -> Tool {
        Tool {
            name,
            program: program("cp").unwrap(),
            version: "1".to_owned(),
        }
    }

    fn words(name: &'static str, flags: &[&str]) -> Vec<String> {
        let command = command(&tool(name), flags, Path::new("s"), Path::new("t"), Path::new("h"));
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect()
    }

    #[test]
    fn each_tool_gets_its_arguments() {
        assert_eq!(
            words("ropeway", &["--cache", "keep"]),
            ["copy", "--cache", "keep", "s", "t"]
        );
        assert_eq!(words(GENTLE, &[]), ["copy", "--gentle", "s", "t"]);
        assert_eq!(words("rsync", &[]), ["-a", "s/", "t/"]);
        assert_eq!(words("xcp", &[]), ["--recursive", "--no-progress", "s", "t"]);
        assert_eq!(words("cp", &[]), ["-a", "s", "t"]);
    }

    #[test]
    fn rounds_discard_the_first_run_and_record_reads() {
        let folder = tempfile::tempdir().unwrap();
        let volumes = Volumes::new(folder.path(), FileSystem::Ext4, false, 1.0).unwrap();
        if let Err(error) = volumes.create("try") {
            println!("skipped: no loop file systems here: {error}");
            return;
        }
        let options = Options {
            volumes: &volumes,
            work: Work::Small3000,
            scale: 0.002,
            tools: vec![tool("cp")],
            caches: vec![Cache::Warm],
            runs: 2,
            reader: true,
            out: folder.path().join("report.json"),
        };
        let document = run(&options, &AtomicBool::new(false), &|_| ()).unwrap();
        assert!(document.complete);
        let cell = &document.cells[0];
        let discarded: Vec<bool> = cell.runs.iter().map(|run| run.discarded).collect();
        assert_eq!(discarded, [true, false, false]);
        assert!(
            cell.runs.iter().all(|run| run.outcome == Outcome::Done),
            "{cell:?}"
        );
        assert!(cell.runs.iter().all(|run| run.reads_p50_ms <= run.reads_max_ms));
        let stopped = run(&options, &AtomicBool::new(true), &|_| ());
        assert!(matches!(stopped, Err(LocalError::Interrupted)));
    }
}
