//! Folders, works, link and server of `lab vista`, and one run.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ropeway_peers::procfs::clean;
use ropeway_plan::Engine;
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

use super::plan::{Job, Target, WORKS};
use super::{Options, report};
use crate::link::{Side, line_time};
use crate::local::reader::{self, Reader, percentile_ms};
use crate::local::{LocalError, folder_with_room, measured};
use crate::report::{Outcome, Run};
use crate::run::machine::now;
use crate::run::measure::json_line;
use crate::run::monitor::RunMonitor;
use crate::run::server::{Exports, PASSWORD, Route, SOURCE, Served, TARGET};
use crate::run::tools::Tools;
use crate::scenario::{Client, Pair, Server};
use crate::work::Plan;

/// Time for which the idle machine's reads are measured.
const IDLE: Duration = Duration::from_secs(1);
/// Room that is kept free, in bytes (a guess).
const MARGIN_BYTES: u64 = 64 << 20;
/// Name of the folder that each run creates.
const COPY: &str = "copy";

/// Folders, link and server of all runs; removed on drop.
pub(super) struct Testbed<'a> {
    // Dropped before the folders.
    remote: Option<(Served, Route)>,
    near: TempDir,
    far: TempDir,
    options: &'a Options,
    plans: &'a [Plan],
    stop: &'a AtomicBool,
    runs: u32,
}

impl<'a> Testbed<'a> {
    /// Creates folders and works, and starts the server if a target needs it.
    ///
    /// # Errors
    /// There is no room, something cannot be created, or the lab was stopped.
    pub(super) fn open(
        options: &'a Options,
        plans: &'a [Plan],
        stop: &'a AtomicBool,
    ) -> Result<Self, LocalError> {
        let works: u64 = plans.iter().map(Plan::bytes).sum();
        let biggest = plans.iter().map(Plan::bytes).max().unwrap_or(0);
        // Both folders may be on one file system.
        let needed = 2 * (works + biggest + reader::FILE_BYTES + MARGIN_BYTES);
        let mut testbed = Self {
            remote: None,
            near: folder_with_room(&options.dirs[0], needed)?,
            far: folder_with_room(&options.dirs[1], needed)?,
            options,
            plans,
            stop,
            runs: 0,
        };
        for side in [testbed.near.path(), testbed.far.path()] {
            testbed.fill(side).map_err(LocalError::io("make the works"))?;
        }
        if options.targets.iter().any(|target| target.is_remote()) {
            testbed.remote = Some(testbed.serve()?);
        }
        Ok(testbed)
    }

    fn fill(&self, side: &Path) -> io::Result<()> {
        for plan in self.plans {
            let stop = || self.stop.load(Ordering::Acquire);
            plan.write(&side.join("work").join(plan.work.name()), &stop)?;
        }
        fs::create_dir_all(side.join("to"))?;
        reader::make(&side.join("probe"))
    }

    /// Starts one server for both machines: it speaks SMB 1, and SMB 2 no newer than Vista's.
    fn serve(&self) -> Result<(Served, Route), LocalError> {
        let scratch = self.far.path().join("server");
        let pair = Pair {
            client: Client::Ropeway,
            server: Server::Ropeway,
        };
        let tools = Tools::find(&[pair], &self.options.program, None, &scratch);
        let route = Route::start(&report::lan(), self.options.relay)?;
        let exports = Exports {
            source: &self.far.path().join("work"),
            target: &self.far.path().join("to"),
            scratch: &scratch,
            protection: None,
            flags: &["--smb1", "--max-dialect", "2.0.2", "--sign", "offered"],
        };
        let served = Served::start(Server::Ropeway, &tools, &route, exports).map_err(LocalError::Server)?;
        Ok((served, route))
    }

    /// The work of a job.
    pub(super) fn plan(&self, job: Job) -> &Plan {
        &self.plans[job.work]
    }

    /// Estimated time of a run.
    pub(super) fn expected(&self, job: Job) -> Duration {
        job.estimate(self.plan(job).bytes())
    }

    /// Time of the work on the line, in seconds.
    pub(super) fn line_seconds(&self, job: Job) -> Option<f64> {
        let lan = report::lan();
        let time = line_time(self.plan(job).bytes(), lan.up, lan.mtu)?;
        job.target.is_remote().then_some(time.as_secs_f64())
    }

    /// Latency of reads while nothing is copied.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn idle_p99_ms(&self) -> Result<Option<f64>, LocalError> {
        let reader = Reader::start(&self.far.path().join("probe")).map_err(LocalError::io("read"))?;
        thread::sleep(IDLE);
        Ok(percentile_ms(reader.finish(), 99))
    }

    /// Makes one copy by one engine. The copy is compared and removed.
    ///
    /// # Errors
    /// The copy cannot be started, or the lab was stopped.
    pub(super) fn run(&mut self, job: Job, engine: Engine) -> Result<Run, LocalError> {
        self.runs += 1;
        let work = WORKS[job.work].name();
        let (from, to) = if job.back {
            (self.far.path(), self.near.path())
        } else {
            (self.near.path(), self.far.path())
        };
        let (source, copy) = (from.join("work").join(work), to.join("to").join(COPY));
        // A new home, so that no run finds another's state.
        let home = self.near.path().join(format!("home-{}", self.runs));
        fs::create_dir_all(&home).map_err(LocalError::io("make a folder"))?;
        forget(self.plan(job), &source).map_err(LocalError::io("read the work"))?;
        let command = self.command(job, engine, &source, &copy, &home);
        let spawn = |command: &mut Command| match &self.remote {
            Some((_, route)) if job.target.is_remote() => route.spawn(Side::Near, command),
            _ => command.spawn(),
        };
        let limit = job.limit(self.plan(job).bytes());
        let (started, output) = (now(), home.join("out"));
        let remote = self.remote.as_ref().filter(|_| job.target.is_remote());
        let mut monitor = RunMonitor::begin(remote.map(|(served, _)| served));
        let reader = Reader::start(&to.join("probe")).map_err(LocalError::io("read during a copy"))?;
        let tick = &mut |at| monitor.look(at);
        let measured = measured(self.stop, command, &output, limit, spawn, tick)?;
        let times = reader.finish();
        let summary = json_line(&output, "seconds_perceived");
        let seconds = |name: &str| summary.as_ref()?.get(name)?.as_f64();
        let outcome = measured.outcome(&output, limit, summary.is_some());
        let mut run = Run {
            transfer_seconds: seconds("seconds_perceived"),
            durable_seconds: seconds("seconds_durable"),
            reads_p99_ms: percentile_ms(times, 99),
            ..monitor.end().run(started, &measured, outcome)
        };
        if run.outcome == Outcome::Done {
            let compared = self.plan(job).compare(&source, &copy);
            if let Err(wrong) = compared.map_err(LocalError::io("read the copy"))? {
                run.outcome = Outcome::Failed(wrong);
            }
        }
        for folder in [&copy, &home] {
            // What stays is removed with the testbed.
            _ = fs::remove_dir_all(folder);
        }
        Ok(run)
    }

    fn command(&self, job: Job, engine: Engine, source: &Path, copy: &Path, home: &Path) -> Command {
        let mut command = clean(&self.options.program, home);
        command.args(["copy", "--json", "--engine", engine.as_str()]);
        let mut ends = [source.to_owned(), copy.to_owned()];
        match (&self.remote, job.target.scheme(engine)) {
            (Some((served, _)), Some(scheme)) => {
                // Unsigned, as these systems were.
                command
                    .env("ROPEWAY_PASSWORD", PASSWORD)
                    .args(["--sign", "offered"]);
                let url = |path: &str| PathBuf::from(served.remote(home).url_by(scheme, path));
                if job.back {
                    ends[0] = url(&format!("{SOURCE}/{}", WORKS[job.work].name()));
                } else {
                    ends[1] = url(&format!("{TARGET}/{COPY}"));
                }
            }
            _ if job.target == Target::Stick => {
                let flag = if job.back {
                    "--slow-source"
                } else {
                    "--slow-target"
                };
                command.arg(flag).arg(&self.options.stick);
            }
            _ => {}
        }
        command.arg("-T").args(ends);
        command
    }
}

/// Drops the work from the page cache.
fn forget(plan: &Plan, root: &Path) -> io::Result<()> {
    for entry in &plan.entries {
        let file = File::open(root.join(&entry.path))?;
        // Dirty pages cannot be dropped.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}
