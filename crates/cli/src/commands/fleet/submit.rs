//! `ropeway fleet submit`.

use std::sync::Arc;

use ropeway_copy::RuntimeClock;
use ropeway_fleet::job::{EndRules, JobFile, QueueServer};
use ropeway_fleet::outlook::Size;
use ropeway_fleet::run::WorkOptions;
use ropeway_fleet::source_mark::SourceMark;
use ropeway_fleet::status::{Progress, Reader};
use ropeway_fleet::store::{CATALOG_PREFIX, Run, Runs, Store};
use ropeway_fleet::workers::WorkerId;
use ropeway_vfs::{Clock, End, ErrorKind, Kind, RelPath, Tree};
use serde_json::json;

use super::place::{Target, opener, source_place};
use super::{budget, failure, queue};
use crate::args::FleetSubmitArgs;
use crate::commands::nodes::{self, Printer};
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;

/// Runs the command and returns its exit code.
///
/// # Errors
/// An end cannot be used, or there is a job that is not complete.
pub(super) fn run(args: &FleetSubmitArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, submit(args, &servers))
}

async fn submit(args: &FleetSubmitArgs, servers: &Servers) -> Result<u8, Failure> {
    let source = source_place(&args.source)?;
    let target = Target::find(&args.target)?;
    check_arguments(args, &source, &target)?;
    target.refuse_overlap(&source)?;
    // Fails if it is no folder.
    let both_local = source.local().is_some() && target.place.local().is_some();
    let from = opener(servers, both_local).source(&source).await?;
    let mark = SourceMark::take(&*from, &mut fastrand::Rng::new()).await;
    let mark =
        mark.map_err(|error| Failure::of_node(&format!("cannot list {source}"), &error, End::Source))?;
    if args.delete && mark.is_empty() {
        let message = format!("{source} is empty: --delete would remove everything in DST");
        return Err(Failure::new(code::REFUSED, message).hint("is it mounted?"));
    }
    let (tree, runs) = target.open_for(servers, both_local).await?;
    if args.delete && !tree.capabilities().links_shown {
        let message = format!(
            "the server of {} may follow symbolic links (smbd does by default): --delete could remove what lies elsewhere",
            target.shown
        );
        return Err(Failure::new(code::REFUSED, message)
            .hint("use `ropeway mirror`, which proves where each folder lies, or a mounted folder as DST"));
    }
    let (of_source, of_target) = budget::of_job(&args.budget, &*from, &*tree).await?;
    let rules = EndRules::between(from.capabilities(), tree.capabilities());
    check_target(&*tree, &target).await?;
    let server = args.queue.clone().map(|servers| QueueServer {
        servers,
        replicas: usize::from(args.queue_replicas),
    });
    let worker = WorkerId(fastrand::Rng::new().u64(..));
    let nowhere = Store::new(Arc::clone(&tree), RelPath::root(), worker);
    queue::check(server.as_ref(), &args.nats, nowhere).await?;
    let what = format!("cannot make a job for {}", target.shown);
    let fail = |error| failure(&what, &error);
    let before = runs.newest().await.map_err(fail)?;
    let expected = refuse_open(before, (&runs, &target), &source).await?;
    let job = JobFile::new(source.to_string(), target.shown.clone())
        .of_ends(mark, rules)
        .with_deletions(args.delete)
        .with_bwlimit(args.bwlimit.clone())
        .with_expected(expected)
        .with_budgets(of_source, of_target)
        .with_queue(server);
    let token = fastrand::Rng::new().u64(..);
    let submitted = runs.submit(before, token, &job).await.map_err(fail)?;
    let Some(store) = submitted else {
        let message = format!("another process has just made a job for {}", target.shown);
        return Err(Failure::new(code::REFUSED, message).hint("`ropeway fleet status DST` shows it"));
    };
    if job.queue.is_some() {
        prepare_queue(args, &job, store).await?;
    }
    let mut printer = Printer::new(args.json);
    printer.line(&format!("job {source} -> {}", target.shown));
    printer.line(&format!(
        "start workers with: ropeway fleet work {}",
        target.shown
    ));
    if let serde_json::Value::Object(fields) = json!({"source": job.source, "target": job.target}) {
        printer.object("fleet_job", fields);
    }
    printer.done();
    Ok(printer.finish())
}

/// Refuses what cannot be meant, or cannot be written down in a job.
fn check_arguments(args: &FleetSubmitArgs, source: &Place, target: &Target) -> Result<(), Failure> {
    if let Place::Local(path) = source
        && path.to_str().is_none()
    {
        let message = format!("{source} is not UTF-8, so workers could not be told of it");
        return Err(Failure::usage(message).hint("reach it by another path, such as a bind mount"));
    }
    if args.queue.is_none() && args.nats.is_given() {
        return Err(Failure::usage("--nats-… is of no use without --queue")
            .hint("name the server with --queue nats://HOST:PORT"));
    }
    for place in [source, &target.place] {
        if place.to_string().contains(&format!("/{CATALOG_PREFIX}")) {
            return Err(
                Failure::usage(format!("{place} is a folder of a job, or lies in one"))
                    .hint("choose another folder"),
            );
        }
    }
    Ok(())
}

/// Refuses a target that exists and is no folder.
async fn check_target(tree: &dyn Tree, target: &Target) -> Result<(), Failure> {
    match tree.metadata(&target.path).await {
        Ok(metadata) if metadata.kind != Kind::Directory => {
            let message = format!("{} exists and is no folder", target.shown);
            Err(Failure::new(code::TARGET, message).hint("choose another DST"))
        }
        Err(error) if error.kind != ErrorKind::NotFound => {
            let what = format!("cannot examine {}", target.shown);
            Err(Failure::of_node(&what, &error, End::Target))
        }
        _ => Ok(()),
    }
}

/// Makes what a server needs for a new job. If that fails, the job stands; workers do the same when they start.
async fn prepare_queue(args: &FleetSubmitArgs, job: &JobFile, store: Store) -> Result<(), Failure> {
    let (store, clock): (_, Arc<dyn Clock>) = (Arc::new(store), Arc::new(RuntimeClock::new()));
    let lease = WorkOptions::default().lease;
    let opened = queue::open(job.queue.as_ref(), &args.nats, (&store, &clock), lease).await;
    opened.map(drop).map_err(|failure| Failure {
        message: format!(
            "the job is made, but its queue does not work: {}",
            failure.message
        ),
        ..failure
    })
}

/// Refuses a new job while the last one is not complete. A complete one made the copy that the new one brings up to
/// date. Returns what it found, if its source was the same: about as much is there again. Without a job file it is one
/// whose folder somebody removed.
async fn refuse_open(
    before: Option<Run>,
    (runs, target): (&Runs, &Target),
    source: &Place,
) -> Result<Option<Size>, Failure> {
    let Some(run) = before else {
        return Ok(None);
    };
    let what = format!("cannot make a job for {}", target.shown);
    let found = Reader::default().status(&runs.store(run)).await;
    match found.map_err(|error| failure(&what, &error))? {
        Some(status) if status.state == Progress::Open => {
            let message = format!(
                "{} has a job that is not complete (from {})",
                target.shown, status.source
            );
            Err(Failure::new(code::REFUSED, message).hint(format!(
                "`ropeway fleet work {}` goes on with it; to give it up, remove its folder {}",
                target.shown,
                runs.root()
            )))
        }
        Some(status) if status.source == source.to_string() => Ok(Some(Size {
            files: status.sums.files,
            bytes: status.sums.bytes,
        })),
        Some(_) | None => Ok(None),
    }
}
