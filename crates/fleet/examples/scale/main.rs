//! A whole job over a generated tree: how long it takes, what the catalog needs, and how much
//! memory.
//!
//! ```text
//! cargo run --release -p ropeway-fleet --example scale -- --entries 1000000000 --workers 2 --folder DIR
//! ```
//!
//! Real: walk, partition, queue, claims, segments, what is done, late passes and status, with the
//! catalog on a local folder, each worker and the coordinator a process of its own. Not real: the
//! source is computed ([`source`]), the target accepts everything and keeps nothing, and no content
//! is copied ([`target`]); files have one of 16 contents, and those of a folder one time, so the catalog
//! compresses much better than a real one. The program fails if a bound of memory is exceeded.

mod measure;
mod report;
mod source;
mod target;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_copy::RuntimeClock;
use ropeway_fleet::error::Result;
use ropeway_fleet::job::{EndRules, JobFile};
use ropeway_fleet::queue::ShareQueue;
use ropeway_fleet::run::{Crew, Ends, WorkOptions};
use ropeway_fleet::source_mark::SourceMark;
use ropeway_fleet::status::{Progress, Reader, Status};
use ropeway_fleet::store::{Runs, Store};
use ropeway_fleet::workers::WorkerId;
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::{Clock, RelPath, Tree};

use measure::{TimedQueue, WorkerReport};
use report::Report;
use source::Source;
use target::{NoMover, Target};

/// Time between two looks of the coordinator.
const LOOK: Duration = Duration::from_secs(5);

/// What to measure.
#[derive(Clone)]
struct Arguments {
    entries: u64,
    workers: u64,
    folder: PathBuf,
    seed: u64,
    /// Number of this worker, if this process is one.
    worker: Option<u64>,
    /// Whether the catalog stays.
    keep: bool,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments {
        entries: 1_000_000,
        workers: 2,
        folder: std::env::temp_dir().join("ropeway-scale"),
        seed: 1,
        worker: None,
        keep: false,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(flag) = rest.next() {
        let mut number = || rest.next()?.parse().ok();
        match flag.as_str() {
            "--entries" => parsed.entries = number().filter(|entries| *entries > 0)?,
            "--workers" => parsed.workers = number().filter(|workers| (1..=64).contains(workers))?,
            "--seed" => parsed.seed = number()?,
            "--worker" => parsed.worker = Some(number()?),
            "--keep" => parsed.keep = true,
            "--folder" => parsed.folder = rest.next()?.into(),
            _ => return None,
        }
    }
    Some(parsed)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: scale [--entries N] [--workers N] [--folder DIR] [--seed N] [--keep]");
        return ExitCode::from(1);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime of one thread");
    let ended = match arguments.worker {
        Some(number) => runtime.block_on(work(&arguments, number)).map(|()| true),
        None => runtime.block_on(coordinate(&arguments)),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("letters and dots are a path")
}

/// Opens both ends.
fn ends(arguments: &Arguments) -> Result<(Arc<dyn Tree>, Arc<dyn Tree>)> {
    let options = LocalOptions {
        threads: Some(2),
        create_root: true,
        ..LocalOptions::default()
    };
    let inner: Arc<dyn Tree> =
        LocalTree::open(&arguments.folder, options).map_err(ropeway_fleet::error::Error::target)?;
    let source = Source::new(arguments.entries, arguments.seed, inner.capabilities().clone());
    Ok((Arc::new(source), Arc::new(Target { inner })))
}

fn runs(target: &Arc<dyn Tree>, number: u64) -> Runs {
    Runs::new(Arc::clone(target), path(".ropeway-fleet-copy"), WorkerId(number))
}

/// Works on the job, and prints a line of what was measured.
async fn work(arguments: &Arguments, number: u64) -> Result<()> {
    let (source, target) = ends(arguments)?;
    let runs = runs(&target, number);
    let run = runs.newest().await?.ok_or(ropeway_fleet::error::Error::Over)?;
    let store = Arc::new(runs.join(run).await?);
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
    let options = WorkOptions::default();
    let share = ShareQueue::new(Arc::clone(&store), Arc::clone(&clock), options.lease, number);
    let queue = Arc::new(TimedQueue::new(share));
    let ends = Ends::new(source, target, path("copy"));
    let crew = Crew::new(
        ends,
        (store, Arc::clone(&queue) as _),
        Arc::new(NoMover::new()),
        clock,
        options,
    );
    crew.work().await?;
    println!("{}", WorkerReport::new(number, &queue).to_json());
    Ok(())
}

/// Makes the job, starts the workers, and looks how far they are.
async fn coordinate(arguments: &Arguments) -> Result<bool> {
    let (source, target) = ends(arguments)?;
    let begun = Instant::now();
    let runs = runs(&target, 1_000);
    let random = &mut fastrand::Rng::with_seed(arguments.seed);
    let mark = SourceMark::take(&*source, random).await;
    let rules = EndRules::between(source.capabilities(), target.capabilities());
    let job = JobFile::new(source.describe(), target.describe())
        .of_ends(mark.map_err(ropeway_fleet::error::Error::source)?, rules);
    let token = fastrand::Rng::new().u64(..);
    let before = runs.newest().await?;
    let store = runs.submit(before, token, &job).await?;
    let store = store.ok_or(ropeway_fleet::error::Error::Over)?;
    let children: Vec<Child> = (1..=arguments.workers)
        .map(|number| start(arguments, number))
        .collect();
    let (status, open_most) = watch(&store, (children.len(), begun)).await?;
    let workers = children.into_iter().filter_map(measure::read).collect();
    let folder = arguments.folder.join(store.root().as_path());
    let report = Report {
        entries: arguments.entries,
        seconds: begun.elapsed().as_secs_f64(),
        status,
        open_most,
        workers,
        workers_started: arguments.workers,
        catalog: measure::Usage::of(&folder),
        coordinator_kib: measure::memory_kib(),
    };
    report.print();
    if !arguments.keep {
        // Not through the catalog: nothing of it is measured any more.
        let _ = std::fs::remove_dir_all(arguments.folder.join(".ropeway-fleet-copy"));
    }
    Ok(report.holds())
}

fn start(arguments: &Arguments, number: u64) -> Child {
    let program = std::env::current_exe().unwrap_or_else(|_| Path::new("scale").to_owned());
    let mut command = Command::new(program);
    command.args(["--worker", &number.to_string()]);
    command.args(["--entries", &arguments.entries.to_string()]);
    command.args(["--seed", &arguments.seed.to_string()]);
    command.arg("--folder").arg(&arguments.folder);
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    command.spawn().expect("this program can be started again")
}

/// Reads the state of the job until it is complete. Returns it, and the largest number of open tasks.
async fn watch(store: &Store, (workers, begun): (usize, Instant)) -> Result<(Status, u64)> {
    let (mut reader, mut open_most) = (Reader::default(), 0);
    let mut printed = Instant::now();
    loop {
        let looked = Instant::now();
        let Some(status) = reader.status(store).await? else {
            return Err(ropeway_fleet::error::Error::Over);
        };
        open_most = open_most.max(status.tasks_open);
        let left = status
            .workers
            .iter()
            .filter(|worker| worker.beat.reason.is_some());
        if status.state == Progress::Complete || left.count() == workers {
            return Ok((status, open_most));
        }
        if printed.elapsed() > LOOK * 6 {
            printed = Instant::now();
            let tasks: Vec<_> = status
                .workers
                .iter()
                .filter_map(|worker| worker.beat.task.clone())
                .collect();
            println!(
                "{:.0} s: {} files, {} tasks done, {} open, looked in {:.2} s, {} KiB; {}",
                begun.elapsed().as_secs_f64(),
                status.sums.files,
                status.tasks_done,
                status.tasks_open,
                looked.elapsed().as_secs_f64(),
                measure::memory_kib(),
                tasks.join(", ").chars().take(160).collect::<String>()
            );
        }
        // A look that takes long must not take the time of the workers.
        let pause = (looked.elapsed() * 20).clamp(LOOK / 10, LOOK * 4);
        tokio::time::sleep(pause).await;
    }
}
