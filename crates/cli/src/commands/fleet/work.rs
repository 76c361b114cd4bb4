//! `ropeway fleet work` and `resume`.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ropeway_copy::RuntimeClock;
use ropeway_fleet::job::QueueServer;
use ropeway_fleet::run::{Crew, Ended, Ends, EngineMover, WorkOptions};
use ropeway_fleet::status::{Progress, Reader, Status};
use ropeway_fleet::store::{Run, Store};
use ropeway_fleet::workers::{Activity, Beat, LEASE_MAX};
use ropeway_vfs::Clock;
use serde_json::json;

use super::budget::Limited;
use super::place::{Target, opener, source_place};
use super::scratch::Scratch;
use super::{failure, no_job, queue, show};
use crate::args::FleetWorkArgs;
use crate::commands::ls::printable;
use crate::commands::nodes::{self, Printer};
use crate::failure::{Failure, code};
use crate::job::Signals;
use crate::servers::Servers;
use crate::ui::format;

/// Shortest and longest lease. A shorter one is over while a device flushes; a longer one is no use.
const LEASES: (Duration, Duration) = (Duration::from_secs(2), LEASE_MAX);

/// Time between two lines of a worker.
const TELLS_EACH: Duration = Duration::from_secs(60);

/// Looks for tasks in the time of one lease.
const POLLS_PER_LEASE: u32 = 30;

/// Runs the command and returns its exit code.
///
/// # Errors
/// There is no job, an end cannot be used, or this worker cannot go on.
pub(super) fn run(args: &FleetWorkArgs, retries: bool) -> Result<u8, Failure> {
    if args
        .lease
        .is_some_and(|lease| lease < LEASES.0 || lease > LEASES.1)
    {
        return Err(Failure::usage("--lease takes 2s to 1h").hint("for example --lease 30s"));
    }
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, work(args, retries, &servers))
}

async fn work(args: &FleetWorkArgs, retries: bool, servers: &Servers) -> Result<u8, Failure> {
    let mut signals = Signals::catch()?;
    let target = Target::find(&args.target)?;
    let (run, store) = target.own_job(servers).await?;
    let what = format!("cannot work on {}", target.shown);
    let fail = |error| failure(&what, &error);
    let mut reader = Reader::default();
    let status = reader.status(&store).await.map_err(fail)?;
    let status = status.ok_or_else(|| no_job(&target.shown))?;
    let given = match &args.source {
        Some(given) => given.clone(),
        None => target.source_of_job(&status.source)?,
    };
    let line = servers.apart(&args.share)?;
    let (crew, _scratch) = match begin(args, (&target, run, &given), (servers, &line)).await {
        Ok(begun) => begun,
        Err(failure) => {
            // Others see why there is a worker less. If the catalog cannot be written to, they do not.
            let _ = store.beat(&left(&failure)).await;
            return Err(failure);
        }
    };
    let working = async {
        if retries && status.state == Progress::Complete && status.failed > 0 {
            // A worker that is refused must not open a job again that is complete.
            crew.check_ends().await?;
            reader.retry(&store, status.rounds).await?;
        }
        until_done(&crew, &mut signals, !args.json).await
    };
    let ended = working.await;
    line.log_off().await;
    let ended = ended.map_err(fail)?;
    if ended == Ended::Stopped {
        return Err(
            Failure::new(code::INTERRUPTED, "this worker stopped; the job is not complete").hint(format!(
                "`ropeway fleet work {}` goes on, here or elsewhere",
                target.shown
            )),
        );
    }
    let store = &crew.store;
    let status = reader.status(store).await.map_err(fail)?.unwrap_or(status);
    Ok(report(args, &crew, store, &status))
}

/// Makes a worker: opens the ends and what else it needs. The folder must live as long as the worker. `line`: for
/// signs of life.
async fn begin(
    args: &FleetWorkArgs,
    (target, run, source): (&Target, Run, &Path),
    (servers, line): (&Servers, &Servers),
) -> Result<(Crew, Scratch), Failure> {
    let what = format!("cannot work on {}", target.shown);
    let fail = |error| failure(&what, &error);
    let source = source_place(source)?;
    target.refuse_overlap(&source)?;
    let both_local = source.local().is_some() && target.place.local().is_some();
    let source = opener(servers, both_local).source(&source).await?;
    // The catalog was looked at through another tree, of the same process.
    let (tree, runs) = target.open_for(servers, both_local).await?;
    // Nothing of an earlier job may get a name while this worker works.
    let store = runs.join(run).await.map_err(fail)?;
    let scratch = scratch_folder()?;
    let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::new());
    let sharers: Arc<AtomicU64> = Arc::default();
    let job = store
        .job()
        .await
        .map_err(fail)?
        .ok_or_else(|| no_job(&target.shown))?;
    let limited = Limited::new(&job, (source, tree), &sharers, &clock)?;
    let (source, tree) = (limited.source, limited.target);
    let mover = EngineMover::new(
        Arc::clone(&source),
        Arc::clone(&tree),
        scratch.path().to_owned(),
        limited.limit,
    )
    .with_shares(limited.shares);
    let options = options(args);
    let store = Arc::new(store);
    let server = queue_of(args, target, job.queue.as_ref())?;
    let queue = queue::open(server.as_ref(), &args.nats, (&store, &clock), options.lease).await?;
    let ends = Ends::new(source, tree, target.path.clone());
    let mut crew = Crew::new(ends, (Arc::clone(&store), queue), Arc::new(mover), clock, options);
    crew.sharers = sharers;
    if target.has_own_line() {
        let (tree, _) = target.open_for(line, both_local).await?;
        crew.signs = Arc::new(store.through(tree));
    }
    Ok((crew.about(about()), scratch))
}

/// Returns the server of NATS that this worker uses. Whoever may write to a share may have written its jobs, so a login is
/// sent to a server only if this worker was told of it.
fn queue_of(
    args: &FleetWorkArgs,
    target: &Target,
    of_job: Option<&QueueServer>,
) -> Result<Option<QueueServer>, Failure> {
    let Some(server) = of_job else {
        return match args.queue {
            Some(_) => Err(Failure::usage(
                "--queue: the job has no server that hands out tasks",
            )),
            None => Ok(None),
        };
    };
    if args.queue.is_none() && args.nats.is_given() && target.place.url().is_some() {
        let message = format!("the job names {} as its NATS server", server.servers);
        return Err(Failure::usage(message).hint("if it is the right one, give it with --queue"));
    }
    Ok(Some(QueueServer {
        servers: args.queue.as_ref().unwrap_or(&server.servers).clone(),
        ..server.clone()
    }))
}

fn options(args: &FleetWorkArgs) -> WorkOptions {
    let mut options = WorkOptions::default();
    if let Some(lease) = args.lease {
        options.lease = lease;
        options.poll = options.poll.min(lease / POLLS_PER_LEASE);
    }
    options
}

/// Returns what a sign of life says of this process.
fn about() -> Beat {
    Beat {
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        process: std::process::id(),
        ..Beat::default()
    }
}

/// Returns the sign of a worker that cannot begin.
fn left(failure: &Failure) -> Beat {
    Beat {
        beat: 1,
        activity: Activity::Left,
        reason: Some(failure.message.clone()),
        ..about()
    }
}

/// Makes the folder for the hashes of a slice.
fn scratch_folder() -> Result<Scratch, Failure> {
    Scratch::new(&std::env::temp_dir()).map_err(|error| {
        let message = format!("cannot make a temporary folder: {error}");
        Failure::of_end(message, &error, code::TARGET)
    })
}

/// Works until the job is complete, or until a signal. A second signal ends the process at once. `tells`: what it does is
/// told from time to time.
async fn until_done(crew: &Crew, signals: &mut Signals, tells: bool) -> ropeway_fleet::error::Result<Ended> {
    let mut working = pin!(crew.work());
    loop {
        tokio::select! {
            biased;
            ended = &mut working => return ended,
            () = signals.stop() => break,
            () = tokio::time::sleep(TELLS_EACH), if tells => crate::ui::messages::print_stderr(&doing(crew)),
        }
    }
    crew.stop.store(true, Ordering::Release);
    crate::ui::messages::print_stderr(
        "stopping; the files in hand are finished first (interrupt again to stop at once)",
    );
    tokio::select! {
        biased;
        ended = working => ended,
        () = signals.stop() => std::process::exit(i32::from(code::INTERRUPTED)),
    }
}

/// Returns what a worker has done until now, and does.
fn doing(crew: &Crew) -> String {
    let copied = crew.counters.files.load(Ordering::Relaxed);
    let bytes = crew.counters.bytes.load(Ordering::Relaxed) + crew.counters.parts.load(Ordering::Relaxed);
    let task = crew.task();
    // Its names are those of the source.
    printable(&format!(
        "copied {}, {}; {}",
        format::counted(copied, "file", "files"),
        format::bytes(bytes),
        task.as_deref().unwrap_or("no task is free")
    ))
}

/// Prints what the job came to, and returns the exit code.
fn report(args: &FleetWorkArgs, crew: &Crew, store: &Store, status: &Status) -> u8 {
    let mut printer = Printer::new(args.json);
    let files = crew.counters.files.load(Ordering::Relaxed);
    let bytes = crew.counters.bytes.load(Ordering::Relaxed);
    let sums = &status.sums;
    printer.line(&format!(
        "complete · {} files, {} in {} folders · {} tasks · this worker copied {} files, {}",
        format::count(sums.files),
        format::bytes(sums.bytes),
        format::count(sums.folders),
        format::count(status.tasks_done),
        format::count(files),
        format::bytes(bytes),
    ));
    show::notes(&status.losses)
        .iter()
        .for_each(|line| printer.line(line));
    let fields = json!({
        "worker": store.worker().to_string(), "files": files, "bytes": bytes, "failed": status.failed, "sums": sums, "losses": status.losses,
    });
    if let serde_json::Value::Object(fields) = fields {
        printer.object("fleet_worker", fields);
    }
    printer.done();
    show::tell_failures(&mut printer, status);
    printer.finish()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command, FleetCommand};

    fn args(arguments: &[&str]) -> FleetWorkArgs {
        let all = ["ropeway", "fleet", "work"].iter().chain(arguments);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Fleet(fleet) => match fleet.command {
                FleetCommand::Work(args) => args,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_login_is_sent_to_a_server_of_nats_only_if_the_worker_was_told_of_it() {
        let of_job = QueueServer {
            servers: "nats://evil:4222".to_owned(),
            replicas: 1,
        };
        let queue = |dst: &str, flags: &[&str], of_job: Option<&QueueServer>| {
            let args = args(&[flags, &[dst]].concat());
            let target = Target::find(Path::new(dst)).unwrap();
            queue_of(&args, &target, of_job).map(|server| server.map(|server| server.servers))
        };
        let share = "smb://ann@nas/data/copy";
        let login = ["--nats-user", "ann"];
        assert_eq!(queue(share, &login, Some(&of_job)).unwrap_err().code, code::USAGE);
        let given = [&login[..], &["--queue", "nats://own:4222"]].concat();
        let own = queue(share, &given, Some(&of_job)).unwrap();
        assert_eq!(own.as_deref(), Some("nats://own:4222"));
        // Without a login there is nothing to lose; a local folder was examined.
        for (dst, flags) in [(share, &[][..]), ("/tmp/copy", &login)] {
            let server = queue(dst, flags, Some(&of_job)).unwrap();
            assert_eq!(server.as_deref(), Some("nats://evil:4222"), "{dst}");
        }
        assert_eq!(queue("/tmp/copy", &[], None).unwrap(), None);
        assert!(queue("/tmp/copy", &["--queue", "nats://own:4222"], None).is_err());
    }
}
